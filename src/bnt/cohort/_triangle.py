"""Pairs of ROIs: conversion of symmetric matrices to vectors of V(V-1)/2 edges, and the networks of an atlas.

One order is used everywhere: the upper triangle column by column, (0,1), (0,2), (1,2), (0,3), ...
That is the lower triangle row by row, the order of nilearn's
``sym_matrix_to_vec(..., discard_diagonal=True)`` and so of
``ConnectivityMeasure(vectorize=True, discard_diagonal=True)``.
"""

from __future__ import annotations

from colorsys import hsv_to_rgb
from dataclasses import dataclass
from functools import lru_cache
from math import isqrt
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bnt.errors import BadInput

if TYPE_CHECKING:
    import torch

    from bnt.cohort._cohort import Cohort

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
    name : str
        What an error calls them.
    """
    edges, other = flat(matrices), flat(matrices.swapaxes(1, 2))
    broken = np.flatnonzero(~(np.isfinite(edges) & np.isfinite(other)).all(axis=1))
    if broken.size:
        raise BadInput(
            f"Matrix {broken[0]} of {name} contains NaN or infinity outside its diagonal: leave the subject out, or "
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


UNASSIGNED = "Unassigned"
# Okabe and Ito's colours, which people with any colour vision can tell apart, and two greys.
COLOURS = {
    "Visual": "#0072B2",
    "Somatomotor": "#56B4E9",
    "Dorsal Attention": "#009E73",
    "Ventral Attention": "#CC79A7",
    "Limbic": "#F0E442",
    "Frontoparietal": "#E69F00",
    "Default": "#D55E00",
    "Subcortical/Cerebellar": "#6E6E6E",
    UNASSIGNED: "#D0D0D0",
}
# For networks with other names, in alphabetical order: Tol's muted colours, then light and dark ones.
MORE_COLOURS = (
    *("#332288", "#88CCEE", "#44AA99", "#117733", "#999933", "#DDCC77", "#CC6677", "#882255", "#AA4499"),
    *("#EE8866", "#FFAABB", "#BBCC33", "#225555", "#663333", "#AAAA00", "#0044CC", "#00CC44", "#555522"),
)


def _colour(i: int) -> str:
    """Return the i-th colour for networks of other names; after those of the list, hues a golden angle apart."""
    if i < len(MORE_COLOURS):
        return MORE_COLOURS[i]
    parts = hsv_to_rgb(0.618034 * i % 1, 0.45 + 0.4 * (i % 2), 0.55 + 0.35 * (i // 2 % 2))
    return "#" + "".join(f"{round(255 * part):02X}" for part in parts)


@dataclass(frozen=True)
class Networks:
    """The functional network of each ROI.

    Attributes
    ----------
    names : tuple of str
        In the order of all tables and figures; ROIs without a network are ``Unassigned``, last.
    codes : array of int, (V,)
        Position in ``names`` of each ROI's network.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.load_cohort("cohort")
    >>> from bnt.explain import Networks
    >>> networks = Networks.of(cohort)
    >>> networks.codes.shape
    (20,)
    """

    names: tuple[str, ...]
    codes: np.ndarray

    @classmethod
    def of(cls, cohort: Cohort) -> Networks | None:
        """Read the ROI table of a cohort; None where it names no network."""
        return cls.from_labels(cohort.rois["network"].fillna("").astype(str).str.strip().to_numpy(dtype=str))

    @classmethod
    def from_labels(cls, labels: np.ndarray) -> Networks | None:
        """Take one name per ROI, empty where unknown; None where all are."""
        labels = np.where(np.asarray(labels) == "", UNASSIGNED, labels).astype(str)
        found = sorted(set(labels.tolist()))
        if found == [UNASSIGNED]:
            return None
        known = [name for name in COLOURS if name in found and name != UNASSIGNED]
        other = [name for name in found if name not in COLOURS]
        names = (*known, *other, *([UNASSIGNED] if UNASSIGNED in found else []))
        position = {name: i for i, name in enumerate(names)}
        return cls(names, np.array([position[name] for name in labels.tolist()], dtype=np.int64))

    @property
    def labels(self) -> np.ndarray:
        """Name of each ROI's network, (V,)."""
        return np.array(self.names, dtype=str)[self.codes]

    @property
    def assigned(self) -> np.ndarray:
        """Whether each ROI has a network, (V,)."""
        return self.labels != UNASSIGNED

    @property
    def order(self) -> np.ndarray:
        """ROIs sorted by network, in the atlas's order within one."""
        return np.argsort(self.codes, kind="stable")

    @property
    def colours(self) -> dict[str, str]:
        """Colour of each network: the same for the same name, whatever else the atlas holds."""
        other = [name for name in self.names if name not in COLOURS]
        extra = {name: _colour(i) for i, name in enumerate(other)}
        return {name: COLOURS.get(name) or extra[name] for name in self.names}

    def one_hot(self) -> np.ndarray:
        """Return (V, N): 1 where an ROI belongs to a network."""
        return np.eye(len(self.names))[self.codes]

    def block_means(self, matrix: np.ndarray) -> np.ndarray:
        """Return means over pairs of networks: (..., V, V) -> (..., N, N), the diagonal of the matrix left out.

        A block without entries (one ROI with itself) is NaN.
        """
        hot = self.one_hot()
        off = 1.0 - np.eye(len(hot))
        sums = hot.T @ (np.asarray(matrix, dtype=np.float64) * off) @ hot
        counts = hot.T @ off @ hot
        return np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)

    def edge_pairs(self) -> np.ndarray:
        """Return for each edge the networks of its two ends, (E, 2), the smaller code first."""
        low, high = endpoints(len(self.codes))
        return np.sort(np.stack([self.codes[low], self.codes[high]], axis=1), axis=1)

    def by_pair(self, **columns: np.ndarray) -> pd.DataFrame:
        """Return one row per pair of networks: number of edges and the mean of each (E,) column over them."""
        pairs = self.edge_pairs()
        table = pd.DataFrame({"a": pairs[:, 0], "b": pairs[:, 1], **columns})
        grouped = table.groupby(["a", "b"])
        out = grouped[list(columns)].mean()
        out.insert(0, "n_edges", grouped.size())
        out = out.reset_index()
        out.insert(0, "network_a", [self.names[i] for i in out.pop("a")])
        out.insert(1, "network_b", [self.names[i] for i in out.pop("b")])
        return out
