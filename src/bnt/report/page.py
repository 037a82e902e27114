"""One self-contained HTML page: text, tables, figures as SVG and their data as downloads inside the page."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bnt.report.figures import to_svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def cell(value: Any) -> str:
    """Return one value as a table shows it."""
    if isinstance(value, float | np.floating):
        value = float(value)
        if not np.isfinite(value):
            return "n/a"
        if value == int(value) and abs(value) >= 1000:
            return f"{int(value):,}"
        return f"{value:.3f}" if abs(value) < 100 else f"{value:.0f}"
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return f"{value:,}"
    return escape(str(value))


def table_html(table: pd.DataFrame) -> str:
    """Return a table as HTML that scrolls sideways on a narrow screen."""
    head = "".join(f"<th>{escape(str(c))}</th>" for c in table.columns)
    rows = ("<tr>" + "".join(f"<td>{cell(v)}</td>" for v in row) + "</tr>" for row in table.itertuples(index=False))
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def download(table: pd.DataFrame, name: str) -> str:
    """Return a link that saves a table as CSV; the data are inside the page."""
    data = base64.b64encode(table.to_csv(index=False).encode()).decode()
    return f'<a class="data" download="{escape(name)}.csv" href="data:text/csv;base64,{data}">data (CSV)</a>'


class Page:
    """A page under construction: sections in the order they are added."""

    def __init__(self, title: str, lead: str) -> None:
        self.title = title
        self._parts = [f"<h1>{escape(title)}</h1>", f'<p class="lead">{escape(lead)}</p>']

    def heading(self, text: str) -> None:
        """Begin a section."""
        self._parts.append(f"<h2>{escape(text)}</h2>")

    def paragraph(self, text: str, soft: bool = False) -> None:
        """Add a paragraph."""
        self._parts.append(f"<p{' class=soft' if soft else ''}>{escape(text)}</p>")

    def warnings(self, sentences: Sequence[str]) -> None:
        """Add what a reader must know before believing a number."""
        if sentences:
            items = "".join(f"<li>{escape(s)}</li>" for s in sentences)
            self._parts.append(f'<div class="warnings" role="note"><ul>{items}</ul></div>')

    def table(self, table: pd.DataFrame, caption: str, name: str, full: pd.DataFrame | None = None) -> None:
        """Add a table with a caption; the download has ``full`` where the page shows less."""
        link = download(table if full is None else full, name)
        self._parts.append(f"<figure>{table_html(table)}<figcaption>{escape(caption)} {link}</figcaption></figure>")

    def figure(self, figure: Figure, caption: str, data: pd.DataFrame, name: str) -> None:
        """Add a figure with a caption in plain words and its data as a download."""
        self._parts.append(self._figure(figure, caption, data, name))

    def _figure(self, figure: Figure, caption: str, data: pd.DataFrame, name: str) -> str:
        svg = to_svg(figure).replace("<svg ", f'<svg role="img" aria-label="{escape(caption)}" ', 1)
        # Ids of clip paths and glyphs are unique within one figure only.
        for mark in ('id="', 'xlink:href="#', "url(#"):
            svg = svg.replace(mark, f"{mark}{name}-")
        return (
            f'<figure id="{escape(name)}"><div class="plot">{svg}</div>'
            f"<figcaption>{escape(caption)} {download(data, name)}</figcaption></figure>"
        )

    def pair(self, figures: Sequence[tuple[Figure, str, pd.DataFrame, str]]) -> None:
        """Add figures side by side where the screen is wide enough."""
        self._parts.append(f'<div class="pair">{"".join(self._figure(*f) for f in figures)}</div>')

    def code(self, text: str) -> None:
        """Add commands."""
        self._parts.append(f"<pre>{escape(text)}</pre>")

    def html(self) -> str:
        """Return the whole page."""
        style = files("bnt.report").joinpath("style.css").read_text()
        body = "\n".join(self._parts)
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{escape(self.title)}</title><style>{style}</style></head>\n<body>\n{body}\n</body></html>\n"
        )
