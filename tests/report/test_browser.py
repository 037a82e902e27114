"""Pages in a real browser, opened from disk.

BNT_REQUIRE_BROWSER makes a missing browser a failure; BNT_SCREENSHOTS names a folder that keeps the screenshots.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pandas as pd
import pytest
from chromium import Tab, browser, find_chromium


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    chromium = find_chromium()
    if chromium is None:
        if os.environ.get("BNT_REQUIRE_BROWSER"):
            pytest.fail("a browser is required, and there is no chromium")
        pytest.skip("there is no chromium: apt-get install chromium")
    with browser(chromium, tmp_path_factory.mktemp("browser") / "profile") as made:
        yield made


@pytest.fixture(scope="module")
def shots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = Path(os.environ.get("BNT_SCREENSHOTS") or tmp_path_factory.mktemp("screenshots"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.mark.parametrize("name", ["study", "run"])
def test_nothing_fails_to_load_and_no_request_leaves_the_machine(tab: Tab, pages: dict[str, Path], name: str):
    tab.screen(1000, 800)
    tab.open(pages[name])
    tab.run("new Promise(done => setTimeout(done, 500))")  # what scripts in frames would ask for late
    asked = [event["request"]["url"] for event in tab.named("Network.requestWillBeSent")]
    assert asked
    assert [url for url in asked if not url.startswith(("file:", "data:", "about:", "blob:"))] == []
    assert tab.named("Network.loadingFailed") == []
    assert tab.named("Runtime.exceptionThrown") == []
    assert [e["entry"]["text"] for e in tab.named("Log.entryAdded") if e["entry"]["level"] == "error"] == []
    assert tab.run("[...document.images].every(i => i.complete && i.naturalWidth > 0)")


# Tests of the same page follow each other: the page stays open.


def test_the_connectome_in_three_dimensions_is_drawn(tab: Tab, pages: dict[str, Path]):
    tab.screen(1000, 900)
    tab.show(pages["run"])
    tab.run("document.querySelector('#connectome').scrollIntoView()")
    assert len(tab.frames) == 1
    script = """new Promise(done => {
      const look = () => document.querySelector('canvas') ? done(true) : setTimeout(look, 100);
      look();
      setTimeout(() => done(false), 40000);
    })"""
    assert tab.run(script, tab.frames[0])


@pytest.mark.parametrize(("name", "at_least"), [("run", 6), ("study", 7)])
def test_every_figure_is_drawn_named_and_has_its_data(tab: Tab, pages: dict[str, Path], name: str, at_least: int):
    tab.show(pages[name])
    figures = tab.run(
        """[...document.querySelectorAll("figure")].map(f => {
          const seen = f.querySelector("svg, img, table, iframe").getBoundingClientRect();
          const link = f.querySelector("a[download]");
          return {id: f.id, width: seen.width, height: seen.height, caption: f.querySelector("figcaption").innerText,
                  href: link && link.href, table: f.className == "table"};
        })"""
    )
    assert sum(not f["table"] for f in figures) >= at_least
    assert len({f["id"] for f in figures}) == len(figures)
    for figure in figures:
        assert min(figure["width"], figure["height"]) > 20, figure["id"]
        assert len(figure["caption"]) > 20, figure["id"]
        head, _, data = figure["href"].partition("base64,")
        assert head == "data:text/csv;"
        assert len(pd.read_csv(StringIO(base64.b64decode(data).decode()))) > 0, figure["id"]


def test_the_contents_lead_to_every_section(tab: Tab, pages: dict[str, Path]):
    tab.screen(1000, 600)
    tab.show(pages["study"])
    count = tab.run("document.querySelectorAll('nav a').length")
    assert count >= 5
    for i in range(count):
        tab.run(f"document.querySelectorAll('nav a')[{i}].click()")
        seen = "document.querySelector(':target').getBoundingClientRect().top"
        assert -1 < tab.run(seen) < 600


def test_a_click_saves_the_data_of_a_figure(tab: Tab, pages: dict[str, Path], tmp_path: Path):
    tab.show(pages["study"])
    tab.ask("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    tab.run("document.querySelector('#paired a[download]').click()")
    for _ in range(50):
        if (tmp_path / "paired.csv").is_file():
            break
        tab.run("new Promise(done => setTimeout(done, 100))")
    table = pd.read_csv(tmp_path / "paired.csv")
    assert table["split"].tolist() == [f"site-stratified:0:split{k}" for k in range(3)]


def test_the_page_prints(tab: Tab, pages: dict[str, Path]):
    tab.show(pages["study"])
    pdf = base64.b64decode(tab.ask("Page.printToPDF")["data"])
    assert pdf.startswith(b"%PDF")


@pytest.mark.parametrize(
    ("name", "width", "dark"),
    [("study", 1000, False), ("study", 1000, True), ("study", 390, False), ("run", 390, True)],
)
def test_pages_fit_the_screen_and_can_be_looked_at(
    tab: Tab, pages: dict[str, Path], shots: Path, name: str, width: int, dark: bool
):
    tab.screen(width, 844, dark=dark, phone=width < 500)
    tab.show(pages[name])
    assert tab.run("document.documentElement.scrollWidth") <= width
    page, ink = tab.run(
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color].map("
        "c => c.match(/[0-9]+/g).slice(0, 3).reduce((a, b) => a + +b, 0))"
    )
    assert (page < ink) == dark
    # Letters of figures are drawn 8 points high and scaled with the figure: they must stay readable.
    drawn = tab.run("Math.min(...[...document.querySelectorAll('figure svg')].map(s => s.getScreenCTM().a))")
    assert drawn * 8 >= 9
    file = shots / f"{name}-{width}-{'dark' if dark else 'light'}.png"
    tab.screenshot(file)
    assert file.stat().st_size > 20_000
