"""The documentation: tables in the raw pages are those of the code, every model and command has its page, and what is
written in blocks works.
"""

from __future__ import annotations

import re
import shlex
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from bnt.cli._main import COMMANDS, find_command
from bnt.cli._parsing import parse
from bnt.models._catalog import CATALOG

DOCS = Path(__file__).resolve().parents[1] / "docs"
sys.path.insert(0, str(DOCS))

import command_pages  # noqa: E402
import tables  # noqa: E402

PAGES = sorted([*DOCS.glob("*.md"), *(DOCS / "families").glob("*.md"), DOCS.parent / "README.md"])
PYTHON = {page: re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL) for page in PAGES}
# README.md has a test of its own, api.md is read by doctest, and sharing.md's block needs a network exported to ONNX.
RUN_HERE = [page for page in PAGES if PYTHON[page] and page.stem not in ("README", "api", "sharing")]


@pytest.mark.parametrize("page", tables.pages(), ids=lambda page: page.stem)
def test_the_tables_of_a_page_are_current(page):
    text = page.read_text(encoding="utf-8")
    assert tables.filled(text) == text, "run: python docs/tables.py"


def test_every_model_has_a_family():
    marks = [tables.MARK.findall(page.read_text(encoding="utf-8")) for page in (DOCS / "families").glob("*.md")]
    named = [name for found in marks for _, _, names, _ in found for name in names.split()]
    assert sorted(named) == sorted(entry.name for entry in CATALOG)


def test_the_table_of_onnx_has_every_network():
    text = (DOCS / "sharing.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| `([\w-]+)` \| (?:yes|no) \|", text, re.MULTILINE)
    assert named == [entry.name for entry in CATALOG if entry.trains_in_epochs]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_example_of_a_command_is_understood(name):
    program, command, *words = shlex.split(COMMANDS[name].example)
    assert (program, command) == ("bnt", name)
    parse(find_command(name), name, None, words)


def test_every_command_has_a_page_of_the_guide_beside_its_own():
    assert list(command_pages.GUIDE) == list(COMMANDS)
    assert [name for name, page in command_pages.GUIDE.items() if not (DOCS / f"{page}.md").is_file()] == []


def test_every_file_of_the_package_that_is_not_python_goes_into_a_wheel():
    settings = tomllib.loads((DOCS.parent / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["bnt"]
    package = DOCS.parent / "src" / "bnt"
    packed = {file for pattern in settings for file in package.glob(pattern)}
    others = {file for file in package.rglob("*") if file.is_file() and file.suffix not in (".py", ".pyc")}
    assert others
    assert sorted(map(str, others - packed)) == []


def test_no_page_links_to_a_page_that_is_not_there():
    lost = []
    for page in [*DOCS.glob("*.md"), *(DOCS / "families").glob("*.md"), *DOCS.parent.glob("*.md")]:
        for link in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            made = (page.parent / link).resolve().is_relative_to(DOCS / "gallery")  # when the pages are built
            if not made and not (page.parent / link).exists():
                lost.append(f"{page.name}: {link}")
    assert lost == []


def commands_of(page: Path) -> list[list[str]]:
    """Return the whole commands of a page: those of blocks, and those of how-to.md between backticks."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"```(?:sh|bash)\n(.*?)```", text, re.DOTALL)
    blocks += re.findall(r"(?m)^((?:    .*\n)+)", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    if page.stem == "how-to":
        lines += [" ".join(code.split()) for code in re.findall(r"`(bnt [a-z-]+ [^`]+)`", text)]
    whole = [line for line in lines if line.strip().startswith("bnt ") and "$(" not in line]
    found = [shlex.split(line, comments=True) for line in whole]
    return [[word for word in words if word != "&"] for words in found]


@pytest.mark.parametrize("page", [page for page in PAGES if commands_of(page)], ids=lambda page: page.stem)
def test_the_commands_of_a_page_are_understood(page):
    for _, command, *words in commands_of(page):
        parse(find_command(command), command, None, words)


def test_how_to_answers_twenty_questions_with_commands():
    text = (DOCS / "how-to.md").read_text(encoding="utf-8")
    assert len(re.findall(r"(?m)^### \.\.\. .*\?$", text)) >= 20
    assert len(commands_of(DOCS / "how-to.md")) >= 15


@pytest.mark.parametrize("page", RUN_HERE, ids=lambda page: page.stem)
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "scans").mkdir()
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 50, (6, 6))
    names = {"np": np, "counts": counts + counts.T, "positive": np.arange(40) % 2 == 1, "probability": rng.random(40)}
    for number, block in enumerate(PYTHON[page]):
        if name := re.match(r"# (\w+\.py)\n", block):
            (tmp_path / name[1]).write_text(block)
        exec(compile(block, f"{page.name}, block {number}", "exec"), names)
