"""Edges on the brain: a glass-brain figure for paper, and nilearn's interactive view for a page."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bnt.cohort._triangle import Networks
from bnt.plotting._style import signed_colours, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

N_EDGES = 60
GREY = "#B0B0B0"  # between blue and orange: no edge is white on white


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


@styled
def glass_brain(
    matrix: np.ndarray, places: np.ndarray, networks: Networks | None = None, n_edges: int = N_EDGES
) -> Figure:
    """Draw the strongest edges in a transparent brain seen from three sides.

    Parameters
    ----------
    matrix : array, (V, V)
        One signed number per edge; orange is positive, blue negative.
    places : array, (V, 3)
        MNI coordinates; ROIs without them are left out.
    networks : Networks, optional
        Nodes have the colours of their networks.
    n_edges : int
        How many edges are drawn.

    Examples
    --------
    >>> import numpy as np
    >>> from bnt.plotting import glass_brain
    >>> rng = np.random.default_rng(0)
    >>> matrix, places = rng.normal(size=(6, 6)), rng.uniform(-40, 40, size=(6, 3))
    >>> figure = glass_brain(matrix + matrix.T, places, n_edges=3)
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch
    from nilearn.plotting import plot_connectome

    shown = strongest(matrix, n_edges)
    degree = np.count_nonzero(shown, axis=0)
    used = (degree > 0) & np.isfinite(places).all(axis=1)
    shown = shown[np.ix_(used, used)]
    labels = [] if networks is None else networks.labels[used].tolist()
    figure = Figure(figsize=(7.0, 2.9))
    span = float(np.abs(shown).max(initial=0.0)) or 1.0
    plot_connectome(
        shown,
        places[used],
        node_color="#404040" if networks is None else [networks.colours[name] for name in labels],
        node_size=(8 + 7 * degree[used]).tolist(),
        edge_cmap=signed_colours(GREY),
        edge_vmin=-span,
        edge_vmax=span,
        edge_kwargs={"lw": 1.0},
        node_kwargs={"edgecolors": "black", "linewidths": 0.3},
        figure=figure,
        axes=(0.0, 0.14, 1.0, 0.86),
        annotate=True,
        colorbar=True,
    )
    if networks is not None:
        names = [name for name in networks.names if name in labels]
        handles = [Patch(fc=networks.colours[name], ec="black", lw=0.3, label=name) for name in names]
        figure.legend(handles=handles, loc="lower center", ncols=min(5, len(names)), fontsize=6.5, handlelength=1)
    return figure


def connectome_html(matrix: np.ndarray, places: np.ndarray, n_edges: int = N_EDGES) -> str:
    """Return nilearn's interactive view of the strongest edges as a page that asks the network for nothing."""
    from nilearn.plotting import view_connectome

    shown = strongest(matrix, n_edges)
    used = np.flatnonzero(np.abs(shown).sum(axis=0))
    colours = signed_colours(GREY)
    view = view_connectome(
        shown[np.ix_(used, used)], places[used], edge_cmap=colours, linewidth=4, node_size=4, colorbar_fontsize=13
    )
    # The page's icon is the one thing it would fetch.
    return re.sub(r'<link[^>]*rel="(?:shortcut )?icon"[^>]*>', '<link rel="icon" href="data:,">', view.html)
