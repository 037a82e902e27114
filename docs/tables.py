"""The tables of the documentation that come from the code, written into the Markdown itself.

    python docs/tables.py

fills what stands between ``<!-- table: NAME ... -->`` and ``<!-- end -->`` in every page, so that the pages read the
same on a code host and when they are built. ``tests/test_docs.py`` fails where a table is not current.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

DOCS = Path(__file__).resolve().parent
MARK = re.compile(r"(<!-- table: ([\w-]+)((?: [\w-]+)*) -->\n).*?(<!-- end -->)", re.DOTALL)


def markdown(heads: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    lines = [heads, ["---"] * len(heads), *([cell.replace("|", r"\|") for cell in row] for row in rows)]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)


def models_table(*names: str) -> str:
    """Return models of the catalogue: description, paper, input, and number of parameters at 200 and 360 ROIs."""
    from bnt.models import count_parameters, find_entry
    from bnt.models._catalog import CATALOG

    rows = []
    for entry in map(find_entry, names) if names else CATALOG:
        reads = (
            "all atlases" if entry.every_atlas else "connectome, time series" if entry.needs_series else "connectome"
        )
        sizes = ["", ""]
        if entry.trains_in_epochs:
            sizes = [f"{count_parameters(entry.name, n):,}" for n in (200, 360)]
        rows.append([f"`{entry.name}`", entry.summary, entry.paper or "this package", reads, *sizes])
    return markdown(["name", "description", "paper", "input", "parameters, V = 200", "V = 360"], rows)


def readouts_table() -> str:
    """Return the readouts with the first line of each one's docstring."""
    from bnt.nn import OCRead
    from bnt.nn._readouts import READOUTS

    made = {**READOUTS, "ocread": OCRead}
    rows = [[f"`{name}`", (one.__doc__ or name).strip().splitlines()[0]] for name, one in made.items()]
    return markdown(["readout", "description"], rows)


def recipes_table() -> str:
    """Return the named recipes, one row per field in which they differ."""
    from bnt.training import RECIPES, Recipe

    rows = []
    for field in fields(Recipe):
        values = [getattr(recipe, field.name) for recipe in RECIPES.values()]
        if len({str(v) for v in values}) > 1:
            rows.append([f"`{field.name}`", *(f"{v}" for v in values)])
    return markdown(["field", *(f"`{name}`" for name in RECIPES)], rows)


def kinds_table() -> str:
    """Return the kinds of connectome."""
    from bnt.connectivity import KINDS

    return markdown(["kind", "description"], [[f"`{k.name}`", k.description] for k in KINDS.values()])


def commands_table() -> str:
    """Return the commands with what they do and an example."""
    from bnt.cli._main import COMMANDS

    rows = [[f"`bnt {name}`", one.summary, f"`{one.example}`"] for name, one in COMMANDS.items()]
    return markdown(["command", "does", "for example"], rows)


def onnx_table() -> str:
    """Return which networks can be written as ONNX, as ``benchmarks/onnx_table.py`` found."""
    with open(DOCS.parent / "results" / "onnx.csv", newline="") as file:
        rows = [
            [f"`{row['model']}`", "no" if row["why_not"] else "yes", row["why_not"]] for row in csv.DictReader(file)
        ]
    return markdown(["network", "ONNX", "why not"], rows)


TABLES: dict[str, Callable[..., str]] = {
    "models": models_table,
    "readouts": readouts_table,
    "recipes": recipes_table,
    "kinds": kinds_table,
    "commands": commands_table,
    "onnx": onnx_table,
}


def filled(text: str) -> str:
    """Return a page with its tables made anew."""
    return MARK.sub(lambda found: f"{found[1]}\n{TABLES[found[2]](*found[3].split())}\n{found[4]}", text)


def pages() -> list[Path]:
    """Return the pages that hold tables."""
    every = [*DOCS.glob("*.md"), *(DOCS / "families").glob("*.md")]
    return sorted(page for page in every if MARK.search(page.read_text(encoding="utf-8")))


if __name__ == "__main__":
    for page in pages():
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")
        print(page.relative_to(DOCS.parent))
