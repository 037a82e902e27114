"""Figures as text that stands inside a page, or as a vector file for a paper."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING

from bnt.plotting._charts import COLOURS, STYLE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCREEN = 1.75  # pixels of the page a point of the figure: 8 point letters become 14 pixels
LEAST = 1.15  # the same on a phone, where wide figures scroll rather than shrink below 9 pixels


def to_svg(figure: Figure) -> str:
    """Return a figure as SVG text; equal figures give equal text."""
    import matplotlib as mpl

    buffer = io.StringIO()
    with mpl.rc_context(STYLE):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    return re.sub(r"^.*?(?=<svg)", "", buffer.getvalue(), flags=re.DOTALL)


def inline_svg(figure: Figure, name: str, description: str) -> str:
    """Return a figure for a page: ids of its own, black drawn in the page's ink, as wide as can be read.

    Parameters
    ----------
    figure : Figure
    name : str
        Unique in the page.
    description : str
        For readers who do not see the figure; HTML-safe.
    """
    svg = to_svg(figure)
    points = float(figure.get_figwidth()) * 72
    size = f'style="width:min(100%,{points * SCREEN:.0f}px);min-width:{points * LEAST:.0f}px"'
    svg = re.sub(r'(<svg [^>]*?)\s*width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg [^>]*?)\s*height="[^"]*"', r"\1", svg, count=1)
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{description}" {size} ', 1)
    # Ids of clip paths and glyphs are unique within one figure only.
    for mark in ('id="', 'xlink:href="#', "url(#"):
        svg = svg.replace(mark, f"{mark}{name}-")
    svg = re.sub(r"#000000\b", "currentColor", svg)
    for i, colour in enumerate(COLOURS):  # the style sheet has lighter ones for a dark page
        svg = svg.replace(f": {colour.lower()}", f": var(--c{i},{colour.lower()})")
    return svg


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure for a paper: vector PDF or SVG by the name's ending, letters kept as letters in PDF."""
    import matplotlib as mpl

    with mpl.rc_context({**STYLE, "pdf.fonttype": 42}):
        figure.savefig(path)
