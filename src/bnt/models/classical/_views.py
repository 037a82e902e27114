"""Views: further feature maps of the same subjects, for models that look at connectivity in several ways.

What a view learns (the reference of a tangent space, what a missing region is filled with), it learns in ``fit`` from
the training subjects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

import numpy as np

from bnt.cohort import square
from bnt.cohort._triangle import endpoints, n_edges
from bnt.errors import BadInput
from bnt.models._inputs import Inputs
from bnt.models.classical._confounds import adjusted
from bnt.models.classical._features import (
    EdgeFeatures,
    TangentFeatures,
    check_edges,
    from_correlations,
    from_series,
    project_to_tangent,
    unpack,
)
from bnt.models.classical._solvers import combine

KEPT_BYTES = 4 << 30  # ABIDE at 200 ROIs takes 0.4 GB


class View(Protocol):
    """A feature map: (n) subjects -> (n, F) float32."""

    def fit(self, inputs: Inputs, weight: np.ndarray) -> View:
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
        from bnt.connectivity import TangentSpace

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


class Features(Mapping[str, np.ndarray]):
    """The features of each view: kept up to :data:`KEPT_BYTES`, made anew each time they are asked for beyond that.

    Parameters
    ----------
    views : dict of name to View
        Fitted.
    inputs : Inputs
    """

    def __init__(self, views: dict[str, View], inputs: Inputs) -> None:
        self.views, self.inputs, self.left = views, inputs, KEPT_BYTES
        self._kept: dict[str, np.ndarray] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        if name in self._kept:
            return self._kept[name]
        found = self.views[name].transform(self.inputs)
        if found.nbytes <= self.left:
            self._kept[name] = found
            self.left -= found.nbytes
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self.views)

    def __len__(self) -> int:
        return len(self.views)


def views_of(n_rois: int, has_series: bool, shrinkage: float, confounds: str = "") -> dict[str, View]:
    """Return the views that the inputs allow, by name, without confounds: five with series, two without."""
    return {name: adjusted(view, confounds) for name, view in _views(n_rois, has_series, shrinkage).items()}


def _views(n_rois: int, has_series: bool, shrinkage: float) -> dict[str, View]:
    views: dict[str, View] = {"shrunk_tangent": ShrunkTangent(n_rois, shrinkage)}
    if not has_series:
        return {**views, "edges": EdgeFeatures(n_rois)}
    for estimate in ("standardised", "amplitude", "prewhitened"):
        views[f"{estimate}_tangent"] = TangentFeatures(n_rois, shrinkage, estimate)
    return {**views, "lagged": Lagged(n_rois)}
