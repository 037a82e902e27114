"""A look at the order of edge vectors: a connectome read in the wrong order is noise, silently."""

from __future__ import annotations

import warnings

import numpy as np

from bnt.cohort.triangle import flat, n_rois_of, square

LOOKED_AT = 5  # subjects
POSSIBLE = -0.01  # smallest eigenvalue that rounding explains
IMPOSSIBLE = -0.1
FEWEST_ROIS = 5  # below, the orders hardly differ


def from_rows_of_upper(n_rois: int) -> np.ndarray:
    """Return where each edge of our order stands in a vector made with ``np.triu_indices(V, 1)``."""
    position = np.zeros((n_rois, n_rois), dtype=np.int64)
    position[np.triu_indices(n_rois, 1)] = np.arange(n_rois * (n_rois - 1) // 2)
    return flat(position + position.T)


def plausibility(edges: np.ndarray) -> np.ndarray:
    """Return for each subject how far from possible its matrix is, as a smallest eigenvalue.

    The best of three readings: correlations, I + A; Fisher z, I + tanh(A); partial correlations, whose
    I - A is a precision matrix. Each has no negative eigenvalue.
    """
    a = square(edges.astype(np.float64), 0.0)  # (n, V, V)
    eye = np.eye(a.shape[-1])
    lowest = [np.linalg.eigvalsh(m)[:, 0] for m in (eye + a, eye + np.tanh(a), eye - a)]
    return np.max(lowest, axis=0)


def warn_of_wrong_order(edges: np.ndarray) -> None:
    """Warn if the edges cannot be correlations as they are read, but could be if read row by row."""
    n_rois = n_rois_of(edges.shape[1])
    if n_rois < FEWEST_ROIS:
        return
    some = edges[:LOOKED_AT]
    if not (plausibility(some) < IMPOSSIBLE).all():
        return
    if (plausibility(some[:, from_rows_of_upper(n_rois)]) > POSSIBLE).all():
        warnings.warn(
            "The vectors of X cannot be correlations in nilearn's order (lower triangle, row by row), but they can in "
            f"the order of np.triu_indices: pass matrices, M = np.zeros((len(X), {n_rois}, {n_rois})); "
            f"i, j = np.triu_indices({n_rois}, 1); M[:, i, j] = M[:, j, i] = X.",
            UserWarning,
            stacklevel=2,
        )
