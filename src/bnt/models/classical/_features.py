"""Feature maps, which turn subjects into the vectors that linear models read.

What a map learns (the reference of a tangent space, what a missing region is filled with), it learns in ``fit`` from
the training subjects. A regression on confounds is least squares on the training subjects.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Self, cast

import numpy as np

from bnt.cohort import square
from bnt.cohort._triangle import endpoints, n_edges
from bnt.connectivity import TangentSpace
from bnt.errors import BadInput
from bnt.models.classical._inputs import Confounds, Inputs, Streamed, array_to_words, words_to_array
from bnt.models.classical._solvers import combine, gram
from bnt.models.classical._subject_matrices import few, from_correlations, from_series, key_of, pack, remembered, unpack

CORRELATIONS = ("pearson", "ledoit-wolf", "partial")
FISHER_Z = ("shrunk-z", "fisher-z")
LARGEST = 1.0 - 1e-6  # correlations beyond it are set to it, so that none becomes infinite
SPACES = ("edges", "tangent")


class FeatureMap(ABC):
    """From n subjects to (n, F) float32.

    What a map learns and gives is shared by the runs of a study that have the same people and settings
    (:mod:`bnt.models.classical._subject_matrices`). Arrays that it gives must not be written to.
    """

    n_rois: int
    uses_series: bool = False  # whether it has learned from series where it could have done without

    def settings(self, series: bool) -> tuple[Any, ...]:
        """Return what decides, beside the subjects, what is learned and given; nothing where it is not shared.

        Parameters
        ----------
        series : bool
            Whether there are series to learn from, or whether the map has learned from series.
        """
        return ()

    def fit(self, inputs: Inputs, weight: np.ndarray) -> Self:
        """Learn from training subjects, who count by their weight."""
        settings = self.settings(inputs.series is not None)
        if not (settings and inputs.content):
            self._fit(inputs, weight)
            return self

        def learned() -> dict[str, np.ndarray]:
            self._fit(inputs, weight)
            return {name: np.array(value) for name, value in self.state().items()}

        state = remembered(key_of(type(self).__name__, *settings, inputs.content, weight, "state"), learned)
        assert isinstance(state, dict)
        self.load({name: value.copy() for name, value in state.items()})
        return self

    def transform(self, inputs: Inputs) -> np.ndarray:
        """Return (n, F) float32; of inputs that stay on disk :class:`Streamed`, which solvers read block by block."""
        if inputs.stored:
            return cast(np.ndarray, Streamed(self.transform, inputs))
        return self._given(inputs, "features", lambda: self._transform(inputs))

    def products(self, inputs: Inputs, features: np.ndarray) -> np.ndarray | None:
        """Return all inner products, (n, n) float64, of features that :meth:`transform` gave for these subjects.

        None for so many subjects that solvers pass over their features instead.
        """
        if inputs.by_passes:
            return None
        return self._given(inputs, "products", lambda: gram(features))

    def _given(self, inputs: Inputs, what: str, make: Callable[[], np.ndarray]) -> np.ndarray:
        settings = self.settings(self.uses_series)
        if not (settings and inputs.content):
            return make()
        found = remembered(key_of(type(self).__name__, *settings, inputs.content, self.state(), what), make)
        assert isinstance(found, np.ndarray)
        found.setflags(write=False)
        return found

    @abstractmethod
    def _fit(self, inputs: Inputs, weight: np.ndarray) -> None:
        """Learn from training subjects."""

    @abstractmethod
    def _transform(self, inputs: Inputs) -> np.ndarray:
        """Return (n, F) float32."""

    @abstractmethod
    def state(self) -> dict[str, np.ndarray]:
        """Return what was learned."""

    @abstractmethod
    def load(self, state: dict[str, np.ndarray]) -> None:
        """Take what was learned."""


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
    for part in few(len(out), n_rois):
        out[part] = pack(space.transform(unpack(packed[part], n_rois)))
    out[:, n_edges(n_rois) :] *= 0.5**0.5
    return out


class EdgeFeatures(FeatureMap):
    """Fisher z of the edges, (n, E) float32.

    Kinds that hold correlations go through ``arctanh``, kinds that are Fisher z already stay as they are. Of an
    unknown kind, it is taken for correlations if no training subject has a value beyond 1.
    """

    def __init__(self, n_rois: int) -> None:
        self.n_rois = n_rois
        self.holds_correlations = True

    def settings(self, series: bool) -> tuple[Any, ...]:
        """Return what decides what is learned and given."""
        return (self.n_rois,)

    def _fit(self, inputs: Inputs, weight: np.ndarray) -> None:
        """Decide whether an unknown kind holds correlations."""
        small = True
        for _, part in inputs.blocks():
            check_edges(part, self.n_rois)
            small &= bool((np.abs(part.edges) <= 1.0).all())
        self.holds_correlations = self._are_correlations(inputs, small)

    @staticmethod
    def _are_correlations(inputs: Inputs, otherwise: bool) -> bool:
        if inputs.kind in CORRELATIONS:
            return True
        return False if inputs.kind in FISHER_Z else otherwise

    def _transform(self, inputs: Inputs) -> np.ndarray:
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


class TangentFeatures(FeatureMap):
    """Deviations from the mean covariance of the training subjects, (n, E + V) float32: edges, then the diagonal.

    The covariances are Ledoit-Wolf's, of the series; of inputs without series, the correlations shrunk towards the
    identity. The reference is their arithmetic mean. The diagonal is divided by sqrt(2), so
    that the inner product is that of the matrices (times one half).

    Parameters
    ----------
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

    def settings(self, series: bool) -> tuple[Any, ...]:
        """Return what decides what is learned and given: the share of the identity only where it is used."""
        if series and self.estimate != "correlations":
            return self.n_rois, self.estimate
        return self.n_rois, "correlations", self.shrinkage

    def _fit(self, inputs: Inputs, weight: np.ndarray) -> None:
        """Fit the reference; subjects count by their weight."""
        self.edges.fit(inputs, weight)
        self.uses_series = inputs.series is not None and self.estimate != "correlations"
        self._set_reference(unpack(_mean(self._packed, inputs, weight), self.n_rois)[0])

    def _set_reference(self, reference: np.ndarray) -> None:
        self.reference = reference
        self._space.fit(reference[None])  # the mean of one matrix is that matrix

    def _packed(self, inputs: Inputs) -> np.ndarray:
        if not self.uses_series:
            return from_correlations(self.edges.correlations(inputs), self.shrinkage, self.n_rois)
        if inputs.series is None:
            raise BadInput("The model was fitted on time series and these subjects have none: give their series.")
        return from_series(inputs.series, self.n_rois, self.estimate)

    def _transform(self, inputs: Inputs) -> np.ndarray:
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


class ShrunkTangent(TangentFeatures):
    """Tangent space of correlations drawn far towards the identity, (n, E + V) float32.

    Ledoit-Wolf's shrinkage takes the volumes for independent, which those of fMRI are not, and so shrinks too little.
    A region without a signal (all its edges are 0) gets the mean edges of the training subjects who have it.

    Parameters
    ----------
    shrinkage : float
        Share of the identity.
    """

    def __init__(self, n_rois: int, shrinkage: float) -> None:
        super().__init__(n_rois, shrinkage, "correlations")

    def settings(self, series: bool) -> tuple[Any, ...]:
        """Return what decides what is learned and given."""
        return self.n_rois, self.shrinkage

    def _fit(self, inputs: Inputs, weight: np.ndarray) -> None:
        """Fit the mean edges and the reference."""
        self.edges.fit(inputs, weight)
        total, summed = np.zeros((2, inputs.edges.shape[1]))
        for block, some in inputs.blocks():
            correlations, counts = self.edges.correlations(some), weight[block]
            for rows in few(len(correlations), self.n_rois):
                part = correlations[rows]
                there = ~self._missing(part)
                total += counts[rows] @ there
                summed += counts[rows] @ (part * there)
        self.mean_edges = summed / np.maximum(total, 1e-300)  # 0 for a region that no training subject has
        self._set_reference(unpack(_mean(self._packed, inputs, weight), self.n_rois)[0])

    def _missing(self, correlations: np.ndarray) -> np.ndarray:
        """Return which edges end in a region without a signal, (n, E)."""
        low, high = endpoints(self.n_rois)
        absent = (square(correlations, 0.0) == 0).all(axis=2)
        return absent[:, low] | absent[:, high]

    def _packed(self, inputs: Inputs) -> np.ndarray:
        correlations = self.edges.correlations(inputs)
        mean = self.mean_edges.astype(np.float32)
        out = np.empty((len(correlations), correlations.shape[1] + self.n_rois), dtype=np.float32)
        for rows in few(len(correlations), self.n_rois):
            filled = np.where(self._missing(correlations[rows]), mean, correlations[rows])
            out[rows] = from_correlations(filled, self.shrinkage, self.n_rois)
        return out

    def state(self) -> dict[str, np.ndarray]:
        """Return what was learned."""
        return {**self.edges.state(), "mean_edges": self.mean_edges, "reference": self.reference}

    def load(self, state: dict[str, np.ndarray]) -> None:
        """Take what was learned."""
        self.edges.load(state)
        self.mean_edges = np.asarray(state["mean_edges"], dtype=np.float64)
        self._set_reference(np.asarray(state["reference"], dtype=np.float64))


class Lagged(FeatureMap):
    """Correlations one volume apart, (n, E + V) float32, the diagonal (a region with itself) over sqrt(2)."""

    def __init__(self, n_rois: int) -> None:
        self.n_rois = n_rois

    def settings(self, series: bool) -> tuple[Any, ...]:
        """Return what decides what is learned and given."""
        return (self.n_rois,)

    def _fit(self, inputs: Inputs, weight: np.ndarray) -> None:
        """Learn nothing."""

    def _transform(self, inputs: Inputs) -> np.ndarray:
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


class Adjusted(FeatureMap):
    """A feature map with confounds regressed out of what it gives.

    Parameters
    ----------
    names : tuple of str
        Columns of ``participants.tsv``.
    """

    def __init__(self, inner: FeatureMap, names: tuple[str, ...]) -> None:
        self.inner, self.confounds = inner, Confounds(names)
        self.slopes: np.ndarray | None = None  # (k, F)

    def _fit(self, inputs: Inputs, weight: np.ndarray) -> None:
        """Fit the feature map, then the regression of its features on the confounds."""
        self.inner.fit(inputs, weight)
        design = self.confounds.fit(inputs.people, weight).design(inputs.people)
        root = np.sqrt(weight)[:, None]
        full = np.concatenate([np.ones((len(design), 1)), design], axis=1)
        solver = np.linalg.pinv(root * full)[1:]  # (k, n): the intercept is fitted and left in
        each = (solver[:, r] @ (root[r] * self.inner.transform(part)) for r, part in inputs.blocks())
        self.slopes = _total(each).astype(np.float32)

    def _transform(self, inputs: Inputs) -> np.ndarray:
        assert self.slopes is not None
        features = self.inner.transform(inputs)
        return features - self.confounds.design(inputs.people).astype(np.float32) @ self.slopes

    def state(self) -> dict[str, np.ndarray]:
        """Return what was learned."""
        assert self.slopes is not None
        facts = words_to_array(self.confounds.facts)
        return {**self.inner.state(), "confound_slopes": self.slopes, "confound_facts": facts}

    def load(self, state: dict[str, np.ndarray]) -> None:
        """Take what was learned."""
        self.inner.load(state)
        self.slopes = np.asarray(state["confound_slopes"], dtype=np.float32)
        self.confounds.facts = array_to_words(state["confound_facts"])


def adjusted(inner: FeatureMap, confounds: str) -> FeatureMap:
    """Return a feature map without the named confounds (``age+sex``), or the map itself where none is named."""
    names = tuple(name for name in confounds.split("+") if name)
    return Adjusted(inner, names) if names else inner


def _mean(packed: Callable[[Inputs], np.ndarray], inputs: Inputs, weight: np.ndarray) -> np.ndarray:
    """Return the weighted mean of the subjects' packed matrices, (1, F) float64."""
    share = weight[:, None] / weight.sum()
    return _total(combine(packed(part), share[rows]) for rows, part in inputs.blocks())


def _total(each: Iterator[np.ndarray]) -> np.ndarray:
    """Return the sum over blocks; of one block, that block to the bit."""
    total = next(each)
    for one in each:
        total = total + one
    return total


def feature_map(space: str, n_rois: int, shrinkage: float) -> EdgeFeatures | TangentFeatures:
    """Return the feature map of a space, ``edges`` or ``tangent``."""
    if space not in SPACES:
        raise BadInput(f"Unknown space {space!r}: choose one of {', '.join(SPACES)}.")
    if not 0.0 <= shrinkage < 1.0:
        raise BadInput(f"shrinkage is {shrinkage}: give a share from 0 to below 1.")
    return EdgeFeatures(n_rois) if space == "edges" else TangentFeatures(n_rois, shrinkage)
