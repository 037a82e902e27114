"""Symmetric matrices as vectors of their V(V-1)/2 off-diagonal entries, and back.

One order is used everywhere: the upper triangle column by column, (0,1), (0,2), (1,2), (0,3), ...
That is the lower triangle row by row, the order of nilearn's
``sym_matrix_to_vec(..., discard_diagonal=True)`` and so of
``ConnectivityMeasure(vectorize=True, discard_diagonal=True)``.
"""

from __future__ import annotations

from functools import lru_cache
from math import isqrt
from typing import TYPE_CHECKING

import numpy as np

from bnt.errors import BadInput

if TYPE_CHECKING:
    import torch

EDGE_ORDER = "upper triangle, column by column"


def n_edges(n_rois: int) -> int:
    """Return the number of pairs of ``n_rois`` ROIs."""
    return n_rois * (n_rois - 1) // 2


def n_rois_of(edges: int) -> int:
    """Return V for a vector of V(V-1)/2 entries."""
    v = (1 + isqrt(1 + 8 * edges)) // 2
    if edges < 1 or n_edges(v) != edges:
        raise BadInput(
            f"A vector of {edges} entries is not the triangle of a square matrix: V(V-1)/2 is "
            f"{n_edges(v)} for V = {v} and {n_edges(v + 1)} for V = {v + 1}; pass vectors without the diagonal."
        )
    return v


@lru_cache(maxsize=8)
def endpoints(n_rois: int) -> tuple[np.ndarray, np.ndarray]:
    """Return for each edge its two ROIs, the smaller index first."""
    high, low = np.tril_indices(n_rois, -1)
    low.setflags(write=False)
    high.setflags(write=False)
    return low, high


@lru_cache(maxsize=8)
def _position(n_rois: int) -> np.ndarray:
    """(V, V) index of each pair in the vector; the diagonal holds 0 and is overwritten."""
    low, high = endpoints(n_rois)
    position = np.zeros((n_rois, n_rois), dtype=np.int64)
    position[high, low] = position[low, high] = np.arange(low.size)
    position.setflags(write=False)
    return position


def flat_symmetric(matrices: np.ndarray, name: str) -> np.ndarray:
    """Return the edges (n, V(V-1)/2) of matrices (n, V, V); refuse those whose halves differ or are not finite.

    Parameters
    ----------
    matrices : array
    name : str
        What an error calls them.
    """
    edges, other = flat(matrices), flat(matrices.swapaxes(1, 2))
    broken = np.flatnonzero(~(np.isfinite(edges) & np.isfinite(other)).all(axis=1))
    if broken.size:
        raise BadInput(
            f"Matrix {broken[0]} of {name} contains NaN or infinity beside its diagonal: leave the subject out, or "
            "replace them."
        )
    apart = np.abs(edges - other).max(axis=1, initial=0.0)
    uneven = np.flatnonzero(apart > 1e-4 * np.maximum(1.0, np.abs(edges).max(axis=1, initial=0.0)))
    if uneven.size:
        raise BadInput(
            f"Matrix {uneven[0]} of {name} is not symmetric (its halves differ by up to {apart[uneven[0]]:.3g}): "
            f"average them, ({name} + {name}.transpose(0, 2, 1)) / 2, if that is meant."
        )
    return edges


def flat(matrices: np.ndarray) -> np.ndarray:
    """Return the off-diagonal entries: (..., V, V) -> (..., V(V-1)/2).

    Examples
    --------
    >>> import numpy as np
    >>> from bnt.cohort import flat
    >>> flat(np.array([[1.0, 0.2, 0.3], [0.2, 1.0, 0.4], [0.3, 0.4, 1.0]])).tolist()
    [0.2, 0.3, 0.4]
    """
    low, high = endpoints(matrices.shape[-1])
    return matrices[..., high, low]


def square(edges: np.ndarray, diagonal: float = 1.0) -> np.ndarray:
    """Return symmetric matrices: (..., V(V-1)/2) -> (..., V, V), ``diagonal`` on the diagonal.

    Examples
    --------
    >>> import numpy as np
    >>> from bnt.cohort import square
    >>> square(np.array([0.2, 0.3, 0.4])).tolist()
    [[1.0, 0.2, 0.3], [0.2, 1.0, 0.4], [0.3, 0.4, 1.0]]
    """
    v = n_rois_of(edges.shape[-1])
    full = np.take(edges, _position(v), axis=-1)
    full[..., np.arange(v), np.arange(v)] = diagonal
    return full


@lru_cache(maxsize=8)
def _position_tensor(n_rois: int, device: str) -> torch.Tensor:
    import torch

    return torch.from_numpy(_position(n_rois).copy().ravel()).to(device)


def square_tensor(edges: torch.Tensor, diagonal: float = 1.0) -> torch.Tensor:
    """Return symmetric matrices on the device of ``edges``: (B, V(V-1)/2) -> (B, V, V)."""
    v = n_rois_of(edges.shape[-1])
    full = edges.index_select(-1, _position_tensor(v, str(edges.device))).view(-1, v, v)
    full.diagonal(dim1=-2, dim2=-1).fill_(diagonal)
    return full
