"""Sphinx's settings. Tables of models and recipes are made from the code when the pages are built."""

from __future__ import annotations

import re
from dataclasses import fields

from bnt import __version__

project = "bnt"
author = "the bnt contributors"
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
]
myst_enable_extensions = ["dollarmath", "deflist", "colon_fence"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "examples"]
sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"plot_",
    "ignore_pattern": r"(^|/)(?!plot_)\w+\.py$",  # scripts beside the gallery
    "download_all_examples": False,
    "min_reported_time": 5,
    "copyfile_regex": r".*\.rst",
}
html_theme = "furo"
html_title = "bnt: brain networks to predictions"
html_show_sphinx = False
autosummary_generate = False
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
suppress_warnings = ["misc.highlighting_failure"]


def markdown(heads: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def models_table() -> str:
    """Return the catalogue as a table: every model, whose it is, what it reads, its size at 200 and 360 ROIs."""
    from bnt.models import count_parameters
    from bnt.models._catalog import CATALOG

    rows = []
    for entry in CATALOG:
        reads = "connectome, series" if entry.needs_series else "connectome"
        sizes = ["", ""]
        if entry.trains_in_epochs:
            sizes = [f"{count_parameters(entry.name, n):,}" for n in (200, 360)]
        rows.append([f"`{entry.name}`", entry.summary, entry.paper, reads, *sizes])
    return markdown(["name", "what it is", "of", "reads", "parameters, V = 200", "V = 360"], rows)


def readouts_table() -> str:
    """Return the readouts with the first line of each one's docstring."""
    from bnt.nn import OCRead
    from bnt.nn._readouts import READOUTS

    made = {**READOUTS, "ocread": OCRead}
    rows = [[f"`{name}`", (one.__doc__ or name).strip().splitlines()[0]] for name, one in made.items()]
    return markdown(["readout", "nodes to graph"], rows)


def recipes_table() -> str:
    """Return the named recipes, one row a field in which they differ."""
    from bnt.training import RECIPES, Recipe

    names = list(RECIPES)
    rows = []
    for field in fields(Recipe):
        values = [getattr(RECIPES[name], field.name) for name in names]
        if len({str(v) for v in values}) > 1:
            rows.append([f"`{field.name}`", *(f"{v}" for v in values)])
    return markdown(["field", *(f"`{name}`" for name in names)], rows)


def kinds_table() -> str:
    """Return the kinds of connectome."""
    from bnt.connectivity import KINDS

    return markdown(["kind", "what it is"], [[f"`{k.name}`", k.description] for k in KINDS.values()])


TABLES = {
    "*(The table of models is made when the pages are built with `make docs`; `bnt models` prints it.)*": models_table,
    "*(The table of readouts is made when the pages are built with `make docs`.)*": readouts_table,
    "*(The table of recipes is made when the pages are built with `make docs`.)*": recipes_table,
    "*(The table of kinds is made when the pages are built with `make docs`.)*": kinds_table,
}


def fill(app: object, name: str, source: list[str]) -> None:
    """Put tables made from the code where a page names them."""
    # Files of results/ are beside the documentation, not in it: name them where a page of the repository links to them.
    source[0] = re.sub(r"\[([^\]]+)\]\(\.\./(results/[^)]*)\)", r"\1 (`\2`)", source[0])
    for word, made in TABLES.items():
        if word in source[0]:
            source[0] = source[0].replace(word, made())


def plain_bars(app: object, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Keep ``|w|`` in docstrings, which means a norm there, from being read as a substitution."""
    lines[:] = [line if "``" in line else re.sub(r"(?<!\\)\|", r"\\|", line) for line in lines]


def setup(app: object) -> None:
    """Called by Sphinx."""
    app.connect("source-read", fill)  # type: ignore[attr-defined]
    app.connect("autodoc-process-docstring", plain_bars, priority=900)  # type: ignore[attr-defined]
