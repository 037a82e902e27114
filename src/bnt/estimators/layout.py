"""How the numbers of X stand for connectomes: edges, matrices, or plain features."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt, sqrt

import numpy as np

from bnt.cohort.triangle import flat_symmetric, n_edges
from bnt.connectivity.kinds import ALIASES, KINDS
from bnt.errors import BadInput

NILEARN_DIAGONAL = 1 / sqrt(2)  # sym_matrix_to_vec divides the diagonal, when it is kept, by sqrt(2)
SAME = 1e-5
OTHER_KINDS = ("unknown", "tangent")  # what arrays may hold beside the kinds of cohorts


@dataclass(frozen=True)
class Layout:
    """What one row of X holds.

    Attributes
    ----------
    n_features : int
        Entries of a vector, as they are given.
    n_rois : int
        V.
    diagonal : float
        What stands on the diagonal of the matrices that the model sees.
    kind : str
        What the entries are, ``unknown`` where nobody said.
    holds_diagonal : bool
        Whether vectors hold the diagonal too, as nilearn's do without ``discard_diagonal``.
    """

    n_features: int
    n_rois: int
    diagonal: float = 1.0
    kind: str = "unknown"
    holds_diagonal: bool = False

    def edges(self, X: np.ndarray) -> np.ndarray:
        """Return the V(V-1)/2 edges of vectors laid out like this, (n, n_features) -> (n, V(V-1)/2)."""
        if self.holds_diagonal:
            keep = np.ones(self.n_features, dtype=bool)
            keep[_diagonal_by_rows_of_lower(self.n_rois)] = False
            X = X[:, keep]
        missing = n_edges(self.n_rois) - X.shape[1]
        if missing:
            X = np.pad(X, ((0, 0), (0, missing)))
        return np.ascontiguousarray(X, dtype=np.float32)


def checked_kind(name: str) -> str:
    """Return the kind's name, aliases resolved, or say which kinds there are."""
    kind = ALIASES.get(name, name)
    if kind not in KINDS and kind not in OTHER_KINDS:
        raise BadInput(f"kind is {name!r}: choose one of {', '.join([*KINDS, *ALIASES, *OTHER_KINDS])}.")
    return kind


def _diagonal_by_rows_of_lower(n_rois: int) -> np.ndarray:
    """Return where nilearn's order has the diagonal: 0, 2, 5, 9, ..."""
    i = np.arange(n_rois)
    return i * (i + 3) // 2


def _diagonal_by_rows_of_upper(n_rois: int) -> np.ndarray:
    """Return where ``np.triu_indices(V)`` has the diagonal: 0, V, 2V - 1, ..."""
    i = np.arange(n_rois)
    return i * n_rois - i * (i - 1) // 2


def _constant(columns: np.ndarray) -> float | None:
    """Return 1 or 1/sqrt(2) if all entries are that, else None."""
    for value in (1.0, NILEARN_DIAGONAL):
        if np.abs(columns - value).max() < SAME:
            return value
    return None


def layout_of_vectors(X: np.ndarray, *, strict: bool, diagonal: float | None, kind: str) -> Layout:
    """Return the layout of vectors (n, n_features), or say why they cannot be connectomes.

    Vectors that hold a constant diagonal (1 for correlations) have V(V+1)/2 entries, which is also the
    number of edges of V + 1 ROIs: they are recognised by that constant.
    """
    n_features = X.shape[1]
    v = (1 + isqrt(1 + 8 * n_features)) // 2
    if diagonal is None:
        diagonal = KINDS[kind].diagonal if kind in KINDS else 1.0
    default = float(diagonal)
    if n_edges(v) != n_features:
        if strict:
            raise BadInput(
                f"X has vectors of {n_features} entries, which is V(V-1)/2 for no number of ROIs ({n_edges(v)} for "
                f"V = {v}, {n_edges(v + 1)} for V = {v + 1}): pass matrices, or vectors of nilearn's "
                "ConnectivityMeasure(vectorize=True, discard_diagonal=True); strict=False takes any features."
            )
        return Layout(n_features, v + 1, default, kind)
    smaller = v - 1  # the number of ROIs if the diagonal is held
    if len(X) > 1 and smaller > 2 and np.ptp(X[0]) > SAME:
        found = _constant(X[:, _diagonal_by_rows_of_lower(smaller)])
        if found is not None:
            return Layout(n_features, smaller, default, kind, holds_diagonal=True)
        if _constant(X[:, _diagonal_by_rows_of_upper(smaller)]) is not None:
            raise BadInput(
                f"X holds upper triangles with their diagonal, row by row: pass matrices instead, "
                f"M = np.zeros((len(X), {smaller}, {smaller})); i, j = np.triu_indices({smaller}); "
                "M[:, i, j] = M[:, j, i] = X."
            )
    return Layout(n_features, v, default, kind)


def edges_of_matrices(X: np.ndarray, diagonal: float | None) -> tuple[np.ndarray, float]:
    """Return the edges (n, V(V-1)/2) and the common diagonal of symmetric matrices (n, V, V)."""
    if X.shape[1] != X.shape[2] or X.shape[1] < 2:
        raise BadInput(
            f"X has shape {X.shape}: connectomes are square, give (subjects, ROIs, ROIs) with two ROIs or more."
        )
    edges = flat_symmetric(X, "X")
    if diagonal is not None:
        return edges, float(diagonal)
    values = np.diagonal(X, axis1=1, axis2=2)
    low, high = (float(values.min()), float(values.max())) if values.size else (1.0, 1.0)
    if not high - low <= 1e-3:  # also where one of them is not finite
        raise BadInput(
            f"The diagonals of X vary (from {low:.4g} to {high:.4g}), and models see one value there: "
            "set diagonal, 1 for correlations or 0 after Fisher's z, and what X holds there is ignored."
        )
    return edges, round((low + high) / 2, 3)
