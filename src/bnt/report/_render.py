"""Renders templates to one self-contained HTML page with SVG figures and their data as downloads.

The page has no script of its own and loads nothing: it opens from disk, prints, and works without a network. Every
value is escaped by Jinja2; what is already HTML (figures) is marked as such here and nowhere else.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from bnt.cohort._files import without_folders
from bnt.plotting._style import inline_svg, page_width

if TYPE_CHECKING:
    from matplotlib.figure import Figure


PNG_DPI = 200  # of the pictures that bnt explain writes
FEWEST_LETTERS = 4  # of an id that is looked for in a text


class Chart(NamedTuple):
    """A figure, and the table it was drawn from."""

    figure: Figure
    data: pd.DataFrame


class Contents:
    """What a page counts while it is rendered: sections for its contents, numbers of figures and tables."""

    def __init__(self) -> None:
        self.sections: list[tuple[str, str]] = []
        self._counts: dict[str, int] = {}

    def section(self, heading: str) -> str:
        """List a section; return its anchor."""
        anchor = re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-")
        self.sections.append((anchor, heading))
        return anchor

    def number(self, kind: str) -> int:
        """Return the next number of a figure or table."""
        self._counts[kind] = self._counts.get(kind, 0) + 1
        return self._counts[kind]


def shareable(value: Any, folders: Sequence[str | Path], ids: Sequence[str]) -> Any:
    """Return what a page shows without paths from the root, and its texts without subjects' ids.

    Parameters
    ----------
    value : Any
        Texts, tables and charts, nested in any way; figures stay as they are.
    folders : sequence of path
        Those that may be named.
    ids : sequence of str
        Short ones, which could be any number, are left alone: no text of ours has them.
    """
    if isinstance(value, Markup | bytes):
        return value
    if isinstance(value, str | Path):
        text = without_folders(str(value), *folders)
        named = {name for name in ids if len(name) >= FEWEST_LETTERS and name in text}
        for name in sorted(named, key=len, reverse=True):
            text = re.sub(rf"(?<![\w.]){re.escape(name)}(?!\w|\.\d)", "(id left out)", text)
        return text
    if isinstance(value, pd.DataFrame):
        found = value.copy()
        for column in found.columns:
            if not pd.api.types.is_numeric_dtype(found[column]):
                found[column] = [shareable(one, folders, ids) for one in found[column]]
        return found
    if isinstance(value, Chart):
        return Chart(value.figure, shareable(value.data, folders, ids))
    if isinstance(value, dict):
        return {key: one if key == "view" else shareable(one, folders, ids) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(shareable(one, folders, ids) for one in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: shareable(getattr(value, f.name), folders, ids) for f in fields(value)})
    return value


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
        if abs(value) < 1e-12:  # what is left of a difference of equal numbers
            value = 0.0
        if value == int(value) and abs(value) >= 100:
            return f"{int(value):,}"
        if 0 < abs(value) < 0.0005:
            return f"{value:.0e}"
        return f"{value:.3f}" if abs(value) < 100 else f"{value:,.0f}"
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return f"{value:,}"
    text = re.sub(r"\[[^]]*\]|\S+ ± \S+", lambda found: found[0].replace(" ", "\u00a0"), str(value))  # one line each
    return Markup(re.sub(r"(?<=[,:/])(?=\S)|(?<=\+)(?=[a-z])", "<wbr>", str(escape(text))))  # a name may be broken


def alignment(table: pd.DataFrame) -> list[str]:
    """Return the class of each column: words stand left, numbers (as text too) right."""
    return ["" if _is_number(table.iloc[:, i]) else "word" for i in range(table.shape[1])]


def _is_number(column: pd.Series) -> bool:
    if pd.api.types.is_numeric_dtype(column.dtype):
        return True
    texts = [str(v) for v in column if isinstance(v, str) and v]
    return bool(texts) and all(re.match(r"[<+−-]?\s?[\d.]", t) for t in texts)


def csv(table: pd.DataFrame | str) -> str:
    """Return a table as CSV text; text is taken as it is."""
    return table if isinstance(table, str) else table.to_csv(index=False, lineterminator="\n")


def in_base64(content: str | bytes) -> str:
    """Return a file's contents for a data URL."""
    return base64.b64encode(content.encode() if isinstance(content, str) else content).decode()


def picture_size(png: bytes) -> str:
    """Return the width of a PNG of 200 dots per inch on a page: its letters as large as those of charts."""
    return page_width(int.from_bytes(png[16:20], "big") * 72 / PNG_DPI)


def svg(figure: Figure, name: str, caption: str) -> Markup:
    """Return a figure as SVG for the page; the caption is its description."""
    return Markup(inline_svg(figure, name, str(escape(caption))))


@cache
def environment() -> Environment:
    """Return the templates with the filters they use."""
    made = Environment(
        loader=PackageLoader("bnt.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "cell": cell,
        "alignment": alignment,
        "csv": csv,
        "base64": in_base64,
        "svg": svg,
        "picture_size": picture_size,
    }
    return made


def render(template: str, **values: Any) -> str:
    """Return a page.

    Parameters
    ----------
    template : {"run.html", "study.html"}
    **values
        What it shows; a value that the template uses and that is not given is an error.
    """
    return environment().get_template(template).render(contents=Contents(), **values)
