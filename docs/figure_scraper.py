"""Figures of ``bnt.plotting`` in the gallery: they are not pyplot's, so sphinx-gallery does not find them itself."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from sphinx_gallery.scrapers import figure_rst


def scrape(block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """Return the picture of a figure that is the last value of a block, where pyplot has not shown it."""
    last = block_vars["example_globals"].get("___")
    if not isinstance(last, Figure) or getattr(last, "number", None) is not None:
        return ""
    path = next(block_vars["image_path_iterator"])
    last.savefig(path, dpi=110)
    return figure_rst([path], gallery_conf["src_dir"])


def _get_sg_image_scraper() -> Any:
    """Called by sphinx-gallery."""
    return scrape
