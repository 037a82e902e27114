"""Feature maps: from subjects to vectors that linear models read.

What a map learns (the reference of a tangent space, what a missing region is filled with), it learns in ``fit`` from
the training subjects.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from bnt.cohort import square
from bnt.cohort._triangle import endpoints, n_edges
from bnt.connectivity import TangentSpace
from bnt.errors import BadInput
from bnt.models.classical._inputs import Inputs
from bnt.models.classical._solvers import combine
from bnt.models.classical._subject_matrices import from_correlations, from_series, pack, unpack

CORRELATIONS = ("pearson", "ledoit-wolf", "partial")
FISHER_Z = ("shrunk-z", "fisher-z")
LARGEST = 1.0 - 1e-6  # correlations beyond it are set to it, so that none becomes infinite
SPACES = ("edges", "tangent")


class FeatureMap(Protocol):
    """From n subjects to (n, F) float32."""

    def fit(self, inputs: Inputs, weight: np.ndarray) -> FeatureMap:
        """Learn from training subjects, who count by their weight."""
        ...

    def transform(self, inputs: Inputs) -> np.ndarray:
        """Return (n, F) float32."""
        ...

    def state(self) -> dict[str, np.ndarray]:
        """Return what was learned."""
        ...

    def load(self, state: dict[str, np.ndarray]) -> None:
        """Take what was learned."""
        ...


def check_edges(inputs: Inputs, n_rois: int) -> None:
    """Refuse connectomes of another atlas, or with values that are not finite."""
    if inputs.edges.shape[1] != n_edges(n_rois):
        raise BadInput(
            f"The model is for {n_rois} ROIs ({n_edges(n_rois)} edges), the connectomes have "
            f"{inputs.edges.shape[1]} edges: use the atlas it was made for."
        )
    finite = np.isfinite(inputs.edges).all(axis=1)
    if not finite.all():
        raise BadInput(
            f"Connectome {int(np.argmin(finite))} holds values that are not finite: "
            "set the edges of regions without a signal to 0."
        )


def project_to_tangent(space: TangentSpace, packed: np.ndarray, n_rois: int) -> np.ndarray:
    """Return the tangent vectors of packed covariances, (n, E + V) float32, with the diagonal over sqrt(2)."""
    out = np.empty(packed.shape, dtype=np.float32)
    for start in range(0, len(out), 64):  # keeps the square matrices few
        part = slice(start, start + 64)
        out[part] = pack(space.transform(unpack(packed[part], n_rois)))
    out[:, n_edges(n_rois) :] *= 0.5**0.5
    return out


class EdgeFeatures:
    """Fisher z of the edges, (n, E) float32.

    Kinds that hold correlations go through ``arctanh``, kinds that are Fisher z already stay as they are. Of an
    unknown kind, it is taken for correlations if no training subject has a value beyond 1.
    """

    def __init__(self, n_rois: int) -> None:
        self.n_rois = n_rois
        self.holds_correlations = True

    def fit(self, inputs: Inputs, weight: np.ndarray) -> EdgeFeatures:
        """Decide whether an unknown kind holds correlations."""
        check_edges(inputs, self.n_rois)
        self.holds_correlations = self._are_correlations(inputs, bool((np.abs(inputs.edges) <= 1.0).all()))
        return self

    @staticmethod
    def _are_correlations(inputs: Inputs, otherwise: bool) -> bool:
        if inputs.kind in CORRELATIONS:
            return True
        return False if inputs.kind in FISHER_Z else otherwise

    def transform(self, inputs: Inputs) -> np.ndarray:
        """Return (n, E) float32."""
        check_edges(inputs, self.n_rois)
        edges = inputs.edges.astype(np.float32, copy=False)
        if not self._are_correlations(inputs, self.holds_correlations):
            return edges
        return np.arctanh(np.clip(edges, -LARGEST, LARGEST))

    def correlations(self, inputs: Inputs) -> np.ndarray:
        """Return the edges as correlations, (n, E) float32."""
        check_edges(inputs, self.n_rois)
        edges = inputs.edges.astype(np.float32, copy=False)
        return edges if self._are_correlations(inputs, self.holds_correlations) else np.tanh(edges)

    def state(self) -> dict[str, np.ndarray]:
        """Return what was learned."""
        return {"holds_correlations": np.array([self.holds_correlations], dtype=np.uint8)}

    def load(self, state: dict[str, np.ndarray]) -> None:
        """Take what was learned."""
        self.holds_correlations = bool(state["holds_correlations"][0])


class TangentFeatures:
    """Deviations from the mean covariance of the training subjects, (n, E + V) float32: edges, then the diagonal.

    The covariances are Ledoit-Wolf's, of the series; of inputs without series, the correlations shrunk towards the
    identity. The reference is their arithmetic mean. The diagonal is divided by sqrt(2), so
    that the inner product is that of the matrices (times one half).

    Parameters
    ----------
    n_rois : int
    shrinkage : float
        Share of the identity, for inputs without series.
    estimate : str
        Which covariance of the series: ``standardised``, ``amplitude`` or ``prewhitened``; ``correlations`` takes the
        shrunk correlations even where there are series.
    """

    def __init__(self, n_rois: int, shrinkage: float, estimate: str = "standardised") -> None:
        self.n_rois, self.shrinkage, self.estimate = n_rois, shrinkage, estimate
        self.edges = EdgeFeatures(n_rois)
        self.uses_series = False
        self._space = TangentSpace("arithmetic")

    def fit(self, inputs: Inputs, weight: np.ndarray) -> TangentFeatures:
        """Fit the reference; subjects count by their weight."""
        self.edges.fit(inputs, weight)
        self.uses_series = inputs.series is not None and self.estimate != "correlations"
        mean = combine(self._packed(inputs), weight[:, None] / weight.sum())
        self._set_reference(unpack(mean, self.n_rois)[0])
        return self

    def _set_reference(self, reference: np.ndarray) -> None:
        self.reference = reference
        self._space.fit(reference[None])  # the mean of one matrix is that matrix

    def _packed(self, inputs: Inputs) -> np.ndarray:
        if not self.uses_series:
            return from_correlations(self.edges.correlations(inputs), self.shrinkage, self.n_rois)
        if inputs.series is None:
            raise BadInput("The model was fitted on time series and these subjects have none: give their series.")
        return from_series(inputs.series, self.n_rois, self.estimate)

    def transform(self, inputs: Inputs) -> np.ndarray:
        """Return (n, E + V) float32."""
        check_edges(inputs, self.n_rois)
        return project_to_tangent(self._space, self._packed(inputs), self.n_rois)

    def state(self) -> dict[str, np.ndarray]:
        """Return what was learned."""
        learned = {"reference": self.reference, "uses_series": np.array([self.uses_series], dtype=np.uint8)}
        return {**self.edges.state(), **learned}

    def load(self, state: dict[str, np.ndarray]) -> None:
        """Take what was learned."""
        self.edges.load(state)
        self.uses_series = bool(state["uses_series"][0])
        self._set_reference(np.asarray(state["reference"], dtype=np.float64))


class ShrunkTangent:
    """Tangent space of correlations drawn far towards the identity, (n, E + V) float32.

    Ledoit-Wolf's shrinkage takes the volumes for independent, which those of fMRI are not, and so shrinks too little.
    A region without a signal (all its edges are 0) gets the mean edges of the training subjects who have it.

    Parameters
    ----------
    n_rois : int
    shrinkage : float
        Share of the identity.
    """

    def __init__(self, n_rois: int, shrinkage: float) -> None:
        self.n_rois, self.shrinkage = n_rois, shrinkage
        self.edges = EdgeFeatures(n_rois)
        self._space = TangentSpace("arithmetic")

    def fit(self, inputs: Inputs, weight: np.ndarray) -> ShrunkTangent:
        """Fit the mean edges and the reference."""
        correlations = self.edges.fit(inputs, weight).correlations(inputs)
        total, summed = np.zeros((2, correlations.shape[1]))
        for rows in _few(len(correlations)):
            part = correlations[rows]
            there = ~self._missing(part)
            total += weight[rows] @ there
            summed += weight[rows] @ (part * there)
        self.mean_edges = summed / np.maximum(total, 1e-300)  # 0 for a region that no training subject has
        mean = combine(self._packed(inputs), weight[:, None] / weight.sum())
        self._set_reference(unpack(mean, self.n_rois))
        return self

    def _set_reference(self, reference: np.ndarray) -> None:
        self.reference = reference[0]
        self._space.fit(reference)  # the mean of one matrix is that matrix

    def _missing(self, correlations: np.ndarray) -> np.ndarray:
        """Return which edges end in a region without a signal, (n, E)."""
        low, high = endpoints(self.n_rois)
        absent = (square(correlations, 0.0) == 0).all(axis=2)
        return absent[:, low] | absent[:, high]

    def _packed(self, inputs: Inputs) -> np.ndarray:
        correlations = self.edges.correlations(inputs)
        mean = self.mean_edges.astype(np.float32)
        out = np.empty((len(correlations), correlations.shape[1] + self.n_rois), dtype=np.float32)
        for rows in _few(len(correlations)):
            filled = np.where(self._missing(correlations[rows]), mean, correlations[rows])
            out[rows] = from_correlations(filled, self.shrinkage, self.n_rois)
        return out

    def transform(self, inputs: Inputs) -> np.ndarray:
        """Return (n, E + V) float32."""
        return project_to_tangent(self._space, self._packed(inputs), self.n_rois)

    def state(self) -> dict[str, np.ndarray]:
        """Return what was learned."""
        return {**self.edges.state(), "mean_edges": self.mean_edges, "reference": self.reference}

    def load(self, state: dict[str, np.ndarray]) -> None:
        """Take what was learned."""
        self.edges.load(state)
        self.mean_edges = np.asarray(state["mean_edges"], dtype=np.float64)
        self._set_reference(np.asarray(state["reference"], dtype=np.float64)[None])


class Lagged:
    """Correlations one volume apart, (n, E + V) float32, the diagonal (a region with itself) over sqrt(2)."""

    def __init__(self, n_rois: int) -> None:
        self.n_rois = n_rois

    def fit(self, inputs: Inputs, weight: np.ndarray) -> Lagged:
        """Learn nothing."""
        return self

    def transform(self, inputs: Inputs) -> np.ndarray:
        """Return (n, E + V) float32."""
        check_edges(inputs, self.n_rois)
        if inputs.series is None:
            raise BadInput("The model was fitted on time series and these subjects have none: give their series.")
        out = from_series(inputs.series, self.n_rois, "lagged")
        out[:, n_edges(self.n_rois) :] *= 0.5**0.5
        return out

    def state(self) -> dict[str, np.ndarray]:
        """Return nothing."""
        return {}

    def load(self, state: dict[str, np.ndarray]) -> None:
        """Take nothing."""


def _few(n: int) -> Iterator[slice]:
    """Yield slices of a few subjects, so that their square matrices are few."""
    for start in range(0, n, 64):
        yield slice(start, start + 64)


def feature_map(space: str, n_rois: int, shrinkage: float) -> EdgeFeatures | TangentFeatures:
    """Return the feature map of a space, ``edges`` or ``tangent``."""
    if space not in SPACES:
        raise BadInput(f"There is no space {space!r}: choose one of {', '.join(SPACES)}.")
    if not 0.0 <= shrinkage < 1.0:
        raise BadInput(f"shrinkage is {shrinkage}: give a share from 0 to below 1.")
    return EdgeFeatures(n_rois) if space == "edges" else TangentFeatures(n_rois, shrinkage)
