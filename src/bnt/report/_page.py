"""One self-contained HTML page: text, tables, figures as SVG and their data as downloads inside the page.

The page has no script of its own and loads nothing: it opens from disk, prints, and works without a network.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bnt.plotting._style import inline_svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LONG_TABLE = 24


def cell(value: Any) -> str:
    """Return one value as a table shows it: thousands with commas, three decimals, nothing where there is nothing."""
    if value is None or value is pd.NA or value is pd.NaT:
        return ""
    if isinstance(value, float | np.floating):
        value = float(value)
        if np.isnan(value):
            return ""
        if np.isinf(value):
            return "∞" if value > 0 else "−∞"
        if value == int(value) and abs(value) >= 100:
            return f"{int(value):,}"
        if 0 < abs(value) < 0.0005:
            return f"{value:.0e}"
        return f"{value:.3f}" if abs(value) < 100 else f"{value:,.0f}"
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return f"{value:,}"
    return re.sub(r"(?<=[,:])(?=\S)", "<wbr>", escape(str(value)))  # where a long name may be broken


def table_html(table: pd.DataFrame) -> str:
    """Return a table as HTML that scrolls sideways on a narrow screen; numbers are set right, words left."""
    words = [not pd.api.types.is_numeric_dtype(table.iloc[:, i].dtype) for i in range(table.shape[1])]
    words = [w and not _is_number_text(table.iloc[:, i]) for i, w in enumerate(words)]
    kinds = [' class="word"' if w else "" for w in words]
    head = "".join(f'<th scope="col"{k}>{escape(str(c))}</th>' for k, c in zip(kinds, table.columns))
    rows = (
        "<tr>" + "".join(f"<td{k}>{cell(v)}</td>" for k, v in zip(kinds, row)) + "</tr>"
        for row in table.itertuples(index=False, name=None)
    )
    return (
        '<div class="scroll" tabindex="0"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _is_number_text(column: pd.Series) -> bool:
    texts = [str(v) for v in column if isinstance(v, str) and v]
    return bool(texts) and all(re.match(r"[<+−-]?\s?[\d.]", t) for t in texts)


def data_link(text: str, name: str, kind: str = "text/csv", shown: str = "data (CSV)") -> str:
    """Return a link that saves a file whose contents are inside the page."""
    data = base64.b64encode(text.encode()).decode()
    return f'<a class="data" download="{escape(name)}" href="data:{kind};base64,{data}">{escape(shown)}</a>'


def download(table: pd.DataFrame, name: str) -> str:
    """Return a link that saves a table as CSV."""
    return data_link(table.to_csv(index=False, lineterminator="\n"), f"{name}.csv")


class Page:
    """A page under construction: sections in the order they are added.

    Parameters
    ----------
    title : str
    lead : str
        The result in a sentence or two.
    refresh : int
        Seconds after which a browser reads the page again; 0 is never.
    """

    def __init__(self, title: str, lead: str, refresh: int = 0) -> None:
        self.title, self.lead, self.refresh = title, lead, refresh
        self._parts: list[str] = []
        self._head: list[str] = []
        self._sections: list[tuple[str, str]] = []
        self._counts = {"Figure": 0, "Table": 0}

    # -- words -------------------------------------------------------------------------------------

    def notice(self, text: str) -> None:
        """Add a line under the lead, before the contents."""
        self._head.append(f"<p class=soft>{escape(text)}</p>")

    def warnings(self, sentences: Sequence[str]) -> None:
        """Add what a reader must know before believing a number."""
        if sentences:
            items = "".join(f"<li>{escape(s)}</li>" for s in sentences)
            self._head.append(
                f'<aside class="warnings" aria-label="Cautions"><strong>Before you believe it</strong>'
                f"<ul>{items}</ul></aside>"
            )

    def heading(self, text: str) -> None:
        """Begin a section, which the contents list."""
        anchor = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
        self._sections.append((anchor, text))
        self._parts.append(f'<h2 id="{anchor}">{escape(text)}</h2>')

    def paragraph(self, text: str, soft: bool = False) -> None:
        """Add a paragraph."""
        self._parts.append(f"<p{' class=soft' if soft else ''}>{escape(text)}</p>")

    def facts(self, facts: Sequence[tuple[str, str]]) -> None:
        """Add names and values, side by side."""
        rows = "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in facts if v)
        self._parts.append(f'<dl class="facts">{rows}</dl>')

    def code(self, text: str) -> None:
        """Add commands."""
        self._parts.append(f"<pre>{escape(text)}</pre>")

    def file(self, text: str, name: str, sentence: str, kind: str = "text/csv") -> None:
        """Add a sentence and a file to save, which is inside the page."""
        self._parts.append(f"<p>{escape(sentence)} {data_link(text, name, kind, name)}</p>")

    # -- tables and figures ------------------------------------------------------------------------

    def _caption(self, kind: str, text: str, link: str = "") -> str:
        self._counts[kind] += 1
        return f"<figcaption><b>{kind} {self._counts[kind]}.</b> {escape(text)} {link}</figcaption>"

    def table(self, table: pd.DataFrame, caption: str, name: str, full: pd.DataFrame | None = None) -> None:
        """Add a table with a caption; the download has ``full`` where the page shows less; long ones are folded."""
        words = self._caption("Table", caption, download(table if full is None else full, name))
        inside = table_html(table)
        if len(table) > LONG_TABLE:
            inside = f"<details><summary>{len(table):,} rows</summary>{inside}</details>"
        self._parts.append(f'<figure id="{escape(name)}" class="table">{words}{inside}</figure>')

    def figure(self, figure: Figure, caption: str, data: pd.DataFrame, name: str, *, paper: bool = False) -> None:
        """Add a figure with a caption in plain words and its data as a download; ``paper`` keeps it black on white."""
        self._parts.append(self._figure(figure, caption, data, name, paper))

    def _figure(self, figure: Figure, caption: str, data: pd.DataFrame, name: str, paper: bool = False) -> str:
        svg = inline_svg(figure, name, escape(caption))
        words = self._caption("Figure", caption, download(data, name))
        kind = "plot paper" if paper else "plot"
        return f'<figure id="{escape(name)}"><div class="{kind}" tabindex="0">{svg}</div>{words}</figure>'

    def pair(self, figures: Sequence[tuple[Figure, str, pd.DataFrame, str]]) -> None:
        """Add figures side by side where the screen is wide enough."""
        self._parts.append(f'<div class="pair">{"".join(self._figure(*f) for f in figures)}</div>')

    def picture(self, png: bytes, caption: str, data: str | None, name: str) -> None:
        """Add a PNG picture; ``data`` is the CSV text it was drawn from, where there is one."""
        source = base64.b64encode(png).decode()
        link = "" if data is None else data_link(data, f"{name}.csv")
        words = self._caption("Figure", caption, link)
        self._parts.append(
            f'<figure id="{escape(name)}"><div class="plot paper"><img alt="{escape(caption)}" '
            f'src="data:image/png;base64,{source}"></div>{words}</figure>'
        )

    def frame(self, html: str, caption: str, data: str, name: str) -> None:
        """Add an interactive figure: a whole page of its own, shut in a frame that can reach nothing outside."""
        words = self._caption("Figure", caption, data_link(data, f"{name}.csv"))
        self._parts.append(
            f'<figure id="{escape(name)}"><iframe sandbox="allow-scripts" title="{escape(caption)}" '
            f'srcdoc="{escape(html)}"></iframe>{words}</figure>'
        )

    # -- the whole ---------------------------------------------------------------------------------

    def html(self) -> str:
        """Return the whole page."""
        style = files("bnt.report").joinpath("style.css").read_text()
        links = "".join(f'<li><a href="#{a}">{escape(t)}</a></li>' for a, t in self._sections)
        contents = f'<nav aria-label="Contents"><ol>{links}</ol></nav>' if self._sections else ""
        again = f'<meta http-equiv="refresh" content="{self.refresh}">' if self.refresh else ""
        body = "\n".join(
            [
                f'<header><h1>{escape(self.title)}</h1><p class="lead">{escape(self.lead)}</p>',
                *self._head,
                f"{contents}</header>",
                *self._parts,
            ]
        )
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f'<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">{again}'
            f"<title>{escape(self.title)}</title><style>{style}</style></head>\n"
            f"<body>\n<main>\n{body}\n</main>\n</body></html>\n"
        )
