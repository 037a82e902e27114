"""The functional networks of an atlas: in one order, in one colour each, and means over their pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from bnt.cohort._cohort import Cohort
from bnt.cohort._triangle import endpoints

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
# For networks with other names: Tol's muted colours, in alphabetical order of the names.
MORE_COLOURS = ("#332288", "#88CCEE", "#44AA99", "#117733", "#999933", "#DDCC77", "#CC6677", "#882255", "#AA4499")


@dataclass(frozen=True)
class Networks:
    """Which network each ROI belongs to.

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
        extra = {name: MORE_COLOURS[i % len(MORE_COLOURS)] for i, name in enumerate(other)}
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
