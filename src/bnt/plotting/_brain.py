"""Edges on the brain: a glass-brain figure for paper, and nilearn's interactive view for the page."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bnt.plotting._charts import styled

if TYPE_CHECKING:
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure

N_EDGES = 60
NEGATIVE, NEITHER, POSITIVE = "#0072B2", "#B0B0B0", "#D55E00"  # blue, grey, vermilion: told apart by any eyes


def coordinates(rois: pd.DataFrame | None) -> np.ndarray | None:
    """Return the ROIs' MNI coordinates (V, 3), NaN where one is unknown, or None where fewer than two are known."""
    if rois is None or not {"x", "y", "z"} <= set(rois.columns):
        return None
    found = rois[["x", "y", "z"]].to_numpy(dtype=float)
    return found if np.isfinite(found).all(axis=1).sum() > 1 else None


def strongest(matrix: np.ndarray, n_edges: int = N_EDGES) -> np.ndarray:
    """Return the matrix with only its ``n_edges`` largest entries by size, (V, V)."""
    rows, columns = np.triu_indices(len(matrix), 1)
    sizes = np.abs(matrix[rows, columns])
    kept = np.argsort(-sizes, kind="stable")[:n_edges]
    kept = kept[sizes[kept] > 0]
    out = np.zeros_like(matrix, dtype=float)
    out[rows[kept], columns[kept]] = out[columns[kept], rows[kept]] = matrix[rows[kept], columns[kept]]
    return out


def colours() -> LinearSegmentedColormap:
    """Return the map from blue over grey to orange: no edge is white on white."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("edges", [NEGATIVE, NEITHER, POSITIVE])


@styled
def glass_brain(matrix: np.ndarray, places: np.ndarray, n_edges: int = N_EDGES) -> Figure:
    """Draw the strongest edges in a transparent brain seen from three sides.

    Parameters
    ----------
    matrix : array, (V, V)
        One signed number an edge; orange is positive, blue negative.
    places : array, (V, 3)
        MNI coordinates.
    n_edges : int
        How many edges are drawn.
    """
    from matplotlib.figure import Figure
    from nilearn.plotting import plot_connectome

    figure = Figure(figsize=(6.8, 2.6))
    shown = strongest(matrix, n_edges)
    used = np.flatnonzero(np.abs(shown).sum(axis=0))
    plot_connectome(
        shown[np.ix_(used, used)],
        places[used],
        figure=figure,
        node_size=8,
        node_color="#404040",
        edge_cmap=colours(),
        colorbar=True,
        edge_kwargs={"lw": 1.2},
    )
    return figure


def connectome_html(matrix: np.ndarray, places: np.ndarray, n_edges: int = N_EDGES) -> str:
    """Return nilearn's interactive view of the strongest edges as a page that asks the network for nothing."""
    from nilearn.plotting import view_connectome

    shown = strongest(matrix, n_edges)
    used = np.flatnonzero(np.abs(shown).sum(axis=0))
    view = view_connectome(
        shown[np.ix_(used, used)], places[used], edge_cmap=colours(), linewidth=4, node_size=4, colorbar_fontsize=13
    )
    # The page's icon is the one thing it would fetch.
    return re.sub(r'<link[^>]*rel="(?:shortcut )?icon"[^>]*>', '<link rel="icon" href="data:,">', view.html)
