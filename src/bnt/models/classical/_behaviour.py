"""Two classical models that studies of behaviour use most: predictive modelling on selected edges, and kernel ridge.

Shen et al. (2017), "Using connectome-based predictive modeling to predict individual behavior from brain connectivity";
Li et al. (2019), "Global signal regression strengthens association between resting-state functional connectivity and
behavior", and He et al. (2020), "Deep neural networks and kernel regression achieve comparable accuracies for
functional connectivity prediction of behavior and demographics".
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.stats import t as student

from bnt.errors import BadInput
from bnt.models.classical import _solvers as solvers
from bnt.models.classical._features import EdgeFeatures, FeatureMap, adjusted, feature_map
from bnt.models.classical._inputs import Inputs
from bnt.models.classical._linear import LinearModel
from bnt.models.classical._solvers import Calibration, Centring, check_positive, check_target, folds, project

TAILS = ("both", "positive", "negative")


def correlations(features: np.ndarray, target: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return the weighted Pearson correlation of each feature with the target, (F,); 0 where either is constant."""
    share = weight / weight.sum()
    y = target - share @ target
    out = np.empty(features.shape[1])
    for start in range(0, len(out), solvers.COLUMNS_AT_ONCE):
        x = features[:, start : start + solvers.COLUMNS_AT_ONCE].astype(np.float64)
        x -= share @ x
        squares = share @ x**2
        product = np.sqrt(squares * (share @ y**2))
        flat = squares <= 1e-12 * max(float(squares.max(initial=0.0)), 1e-300)
        out[start : start + x.shape[1]] = np.where(flat, 0.0, (share * y) @ x / np.where(product > 0, product, np.inf))
    return out


@dataclass(eq=False)
class CPM(LinearModel):
    """Connectome-based predictive modelling: a small model on two sums of edges.

    1. Each edge is correlated with the target over the training subjects (a class is coded 1 against the rest, for
       which the test of the correlation is the t-test between the classes).
    2. Edges with ``p < threshold`` are kept: those with a positive correlation make the positive network, those with a
       negative one the negative network.
    3. The edges of each network are summed per subject, and the target is predicted from the two sums: by least
       squares, or for classes by logistic regression.

    The result is linear in the edges: every edge of a network has the same weight. Where the data allow no edge, the
    prediction is the mean (or the larger class), and a warning says so.

    Departures from the paper: the two sums enter one model (the paper fits one model per network: ``tails="positive"``
    and ``"negative"``); classes, where the paper has scores only, and for several classes two sums of each, into one
    multinomial model. Sums are standardised and the logistic model has scikit-learn's L2 penalty of C = 1, because
    selected sums often separate the training subjects. Probabilities are Platt's of decisions for held-out
    subjects, whose edges were selected without them.

    Parameters
    ----------
    n_rois, n_classes, space, center_sites, shrinkage, confounds
        See :class:`LinearModel`.
    threshold : float
        Largest p-value of an edge that is kept; 0.01 as in the paper.
    tails : {"both", "positive", "negative"}
        Which networks to use.
    """

    threshold: float = 0.01
    tails: str = "both"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 < self.threshold <= 1.0:
            raise BadInput(f"threshold is {self.threshold}: give a p-value above 0 and up to 1.")
        if self.tails not in TAILS:
            raise BadInput(f"There is no tail {self.tails!r}: choose one of {', '.join(TAILS)}.")

    def fit(self, inputs: Inputs, y: np.ndarray, sample_weight: np.ndarray | None = None) -> CPM:
        """Fit on training subjects; see :meth:`LinearModel.fit`."""
        target, weight = check_target(y, sample_weight, len(inputs), self.n_classes)
        features = self.features.fit(inputs, weight).transform(inputs)
        sites = inputs.sites if self.center_sites else None
        centring = Centring.fit(sites, weight)
        groups = centring.groups(sites, len(target))
        if sites is not None:
            features = features - (centring.averaging @ features).astype(np.float32)[groups]
        self.weights, self.intercept, n_selected = self._solve_edges(features, target, weight)
        if not n_selected:
            warnings.warn(
                f"cpm: no edge has p < {self.threshold} in {len(target)} training subjects: everyone gets the same "
                "prediction; raise threshold.",
                stacklevel=2,
            )
        self.sites = centring.names
        self.offsets = np.zeros((len(centring.averaging), len(self.weights)))
        if sites is not None:
            raw = project(self.features.transform(inputs), self.weights)
            self.offsets = centring.averaging @ raw
        if self.n_classes > 1:
            decisions = project(features, self.weights) + self.intercept
            for fitted, rest in folds(target, self.n_classes):
                weights, intercept, _ = self._solve_edges(features[fitted], target[fitted], weight[fitted])
                decisions[rest] = project(features[rest], weights) + intercept
            self.calibration = Calibration.fit(decisions, target, self.n_classes, weight)
        return self

    def networks(self, features: np.ndarray, target: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """Return which edges are in each network, (networks, F) bool: positive, then negative, of each class."""
        columns = [target] if self.n_classes == 1 else list(solvers.signs(target, self.n_classes).T)
        n = weight.sum()
        quantile = student.isf(self.threshold / 2, n - 2) if n > 2 else np.inf
        least = quantile / np.sqrt(n - 2 + quantile**2) if np.isfinite(quantile) else 1.0  # the r with that p-value
        chosen = []
        for column in columns:
            r = correlations(features, column.astype(np.float64), weight)
            chosen += [r > least] if self.tails != "negative" else []
            chosen += [r < -least] if self.tails != "positive" else []
        return np.stack(chosen)

    def _solve_edges(
        self, features: np.ndarray, target: np.ndarray, weight: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """Select, sum and fit; return the weights of the edges (k, F), the intercept (k,) and how many were kept."""
        chosen = self.networks(features, target, weight)
        sums = project(features, chosen.astype(np.float64))  # (n, networks)
        share = weight / weight.sum()
        mean = share @ sums
        sd = np.sqrt(share @ (sums - mean) ** 2)
        scale = np.where(sd > 0, sd, np.inf)
        coefficients, intercept = self._solve_sums((sums - mean) / scale, target, weight)
        coefficients = coefficients / scale  # (k, networks)
        return coefficients @ chosen, intercept - coefficients @ mean, int(chosen.any(axis=0).sum())

    def _solve_sums(self, sums: np.ndarray, target: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return coefficients (k, networks) and intercept (k,) of the model on standardised sums."""
        if self.n_classes == 1:
            root = np.sqrt(weight)[:, None]
            mean = np.average(target, weights=weight)
            slopes = np.linalg.lstsq(root * sums, root[:, 0] * (target - mean), rcond=None)[0]
            return slopes[None], np.array([mean])
        coefficients, intercept = solvers.logistic_on(sums, target, weight, self.n_classes, 1.0)
        return coefficients.T, intercept

    def _solve(self, kernel: np.ndarray, target: np.ndarray, weight: np.ndarray) -> solvers.Solution:
        raise NotImplementedError("cpm is fitted on edges, not on a kernel")


class Profiles(FeatureMap):
    """A feature map with each subject's vector at mean 0 and length 1: inner products are Pearson correlations.

    Edges enter as correlations, without Fisher z.

    Parameters
    ----------
    inner : FeatureMap
    """

    def __init__(self, inner: FeatureMap) -> None:
        self.inner = inner

    def _fit(self, inputs: Inputs, weight: np.ndarray) -> None:
        """Fit the inner map."""
        self.inner.fit(inputs, weight)

    def _transform(self, inputs: Inputs) -> np.ndarray:
        """Return (n, F) float32; a subject whose values are all alike is 0."""
        edges = isinstance(self.inner, EdgeFeatures)
        found = self.inner.correlations(inputs) if edges else self.inner.transform(inputs)  # type: ignore[attr-defined]
        found = found - found.mean(axis=1, keepdims=True, dtype=np.float64).astype(np.float32)
        length = np.sqrt(np.einsum("nf,nf->n", found, found, dtype=np.float64))
        found /= np.where(length > 0, length, np.inf)[:, None].astype(np.float32)
        return found

    def state(self) -> dict[str, np.ndarray]:
        """Return what was learned."""
        return self.inner.state()

    def load(self, state: dict[str, np.ndarray]) -> None:
        """Take what was learned."""
        self.inner.load(state)


@dataclass(eq=False)
class KRR(LinearModel):
    """Kernel ridge regression on the similarity of people: the Pearson correlation of their edge vectors.

    The target is fitted with an intercept that is not penalised, which is ridge regression on the centred kernel. The
    penalty is the one of ``penalties`` with the smallest squared error over five folds of the training subjects.

    Departures from the papers: edges enter as correlations (``space="tangent"`` compares people in tangent space);
    penalties are relative to the mean diagonal of the centred kernel, so that they mean the same for any atlas;
    classes are coded +1 and -1, one against the rest for several, with Platt's probabilities.

    Parameters
    ----------
    n_rois, n_classes, space, center_sites, shrinkage, confounds
        See :class:`LinearModel`.
    penalty : float
        Use this penalty; 0 chooses it.
    """

    penalty: float = 0.0

    penalties: ClassVar[tuple[float, ...]] = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.penalty:
            check_positive("penalty", self.penalty)
        self.features = adjusted(Profiles(feature_map(self.space, self.n_rois, self.shrinkage)), self.confounds)

    def _solve(self, kernel: np.ndarray, target: np.ndarray, weight: np.ndarray) -> solvers.Solution:
        penalty = self.penalty or self._chosen(kernel, target, weight)
        return solvers.ridge(kernel, target, weight, self.n_classes, penalty)

    def _chosen(self, kernel: np.ndarray, target: np.ndarray, weight: np.ndarray) -> float:
        """Return the penalty with the smallest squared error on held-out folds; 1 where there can be no folds."""
        truth = target[:, None] if self.n_classes == 1 else solvers.signs(target, self.n_classes)
        errors = dict.fromkeys(self.penalties, 0.0)
        for fitted, rest in folds(target, self.n_classes):
            centring = Centring.fit(None, weight[fitted])
            zeros = np.zeros(len(kernel), dtype=np.int64)
            block = kernel[np.ix_(fitted, fitted)]
            among = centring.kernel(block, block, zeros[fitted], zeros[fitted])
            of = centring.kernel(kernel[np.ix_(rest, fitted)], block, zeros[rest], zeros[fitted])
            for penalty in self.penalties:
                dual, mean = solvers.ridge(among, target[fitted], weight[fitted], self.n_classes, penalty)
                errors[penalty] += float(weight[rest] @ ((of @ dual + mean - truth[rest]) ** 2).sum(axis=1))
        return min(errors, key=lambda penalty: (errors[penalty], abs(np.log(penalty))))
