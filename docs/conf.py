"""Sphinx's settings. The pages of commands are made from the program when the site is built."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from bnt import __version__

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS))

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
    "remove_config_comments": True,
    "within_subsection_order": "FileNameSortKey",
    "image_scrapers": ("matplotlib", "figure_scraper"),
    "ignore_repr_types": r"matplotlib\.figure",
    "min_reported_time": 5,
    "copyfile_regex": r".*\.rst",
}
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["wide.css"]
html_title = "bnt: brain networks to predictions"
html_show_sphinx = html_show_copyright = False
autosummary_generate = False
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
suppress_warnings = ["misc.highlighting_failure"]


def fill(app: object, name: str, source: list[str]) -> None:
    """Make links to files of results/ downloads: they are beside the documentation, not in it."""
    source[0] = re.sub(r"\[([^\]]+)\]\(((?:\.\./)+results/[^)]*)\)", r"{download}`\1 <\2>`", source[0])


def commands(app: object) -> None:
    """Write a page per command."""
    from command_pages import write

    write(DOCS / "commands")


def plain_bars(app: object, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Keep ``|w|`` in docstrings, which means a norm there, from being read as a substitution."""
    lines[:] = [line if "``" in line else re.sub(r"(?<!\\)\|", r"\\|", line) for line in lines]


def setup(app: object) -> None:
    """Called by Sphinx."""
    app.connect("builder-inited", commands)  # type: ignore[attr-defined]
    app.connect("source-read", fill)  # type: ignore[attr-defined]
    app.connect("autodoc-process-docstring", plain_bars, priority=900)  # type: ignore[attr-defined]
