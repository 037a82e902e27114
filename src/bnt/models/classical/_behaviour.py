"""The usual models of brain-behaviour studies: connectome-based predictive modelling and kernel ridge regression.

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
from bnt.models.classical._inputs import Inputs, Streamed
from bnt.models.classical._linear import Linear, LinearModel
from bnt.models.classical._solvers import Calibration, Centring, check_positive, check_target, folds, project
from bnt.models.classical._streaming import Design, Squared, coded, held_out_decisions, minimise, problems

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
class CPM(Linear):
    """Connectome-based predictive modelling: a small model on two sums of edges.

    1. Each edge is correlated with the target over the training subjects (a class is coded 1 against the rest, for
       which the test of the correlation is the t-test between the classes).
    2. Edges with ``p < threshold`` are kept: those with a positive correlation make the positive network, those with a
       negative one the negative network.
    3. The edges of each network are summed per subject, and the target is predicted from the two sums: by least
       squares, or for classes by logistic regression.

    The result is linear in the edges: every edge of a network has the same weight. If no edge is selected, the
    prediction is the mean (or the larger class), with a warning.

    Departures from the paper: the two sums enter one model (the paper fits one model per network: ``tails="positive"``
    and ``"negative"``); classes, where the paper has scores only, and for several classes two sums of each, into one
    multinomial model. Sums are standardised and the logistic model has scikit-learn's L2 penalty of C = 1, because
    selected sums often separate the training subjects. Probabilities are Platt's of decisions for held-out
    subjects, whose edges were selected without them.

    Parameters
    ----------
    n_rois, n_classes, space, center_sites, shrinkage, confounds
        See :class:`Linear`.
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
            raise BadInput(f"Unknown tail {self.tails!r}: choose one of {', '.join(TAILS)}.")

    def fit(self, inputs: Inputs, y: np.ndarray, sample_weight: np.ndarray | None = None) -> CPM:
        """Fit on training subjects; see :meth:`LinearModel.fit`."""
        target, weight = check_target(y, sample_weight, len(inputs), self.n_classes)
        features = self.features.fit(inputs, weight).transform(inputs)
        sites = inputs.sites if self.center_sites else None
        centring = Centring.fit(sites, weight)
        groups = centring.groups(sites, len(target))
        if isinstance(features, Streamed):
            return self._fit_streamed_edges(features, centring, groups, target, weight)
        if sites is not None:
            features = features - (centring.averaging @ features).astype(np.float32)[groups]
        self.weights, self.intercept, n_selected = self._solve_edges(features, target, weight)
        self._warn(n_selected, len(target))
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

    def _warn(self, n_selected: int, n: int) -> None:
        if not n_selected:
            warnings.warn(
                f"cpm: no edge has p < {self.threshold} in {n} training subjects: everyone gets the same "
                "prediction; raise threshold.",
                stacklevel=3,
            )

    def _fit_streamed_edges(
        self, features: Streamed, centring: Centring, groups: np.ndarray, target: np.ndarray, weight: np.ndarray
    ) -> CPM:
        """Fit on streamed features: one pass for means, one for correlations, one for sums, of all folds at once."""
        weights, rest = problems(weight, folds(target, self.n_classes) if self.n_classes > 1 else ())
        columns = coded(target, self.n_classes)[:, 0]  # (n, k)
        share = weights / weights.sum(axis=1, keepdims=True)  # (P, n)
        means = np.zeros((len(centring.averaging), features.shape[1]))
        for rows in features.slices():
            means += centring.averaging[:, rows] @ features.block(rows)
        taken = means if self.center_sites else np.zeros_like(means)  # of each group, (groups, F)
        y = columns[:, None] - (share @ columns)[None]  # (n, P, k)
        pulls = np.einsum("pn,npk->pkn", share, y)
        first, second = np.zeros((2, len(weights), features.shape[1]))
        product = np.zeros((*pulls.shape[:2], features.shape[1]))
        for rows in features.slices():
            x = features.block(rows) - taken[groups[rows]]
            x -= means[0] - taken[0]  # squares of small numbers lose fewer digits
            first += share[:, rows] @ x
            second += share[:, rows] @ x**2
            product += np.tensordot(pulls[:, :, rows], x, axes=(2, 0))
        squares = (second - first**2)[:, None]  # (P, 1, F)
        flat = squares <= 1e-12 * squares.max(axis=2, keepdims=True, initial=1e-300)
        spread = np.sqrt(np.maximum(squares, 0.0) * np.einsum("pn,npk->pk", share, y**2)[:, :, None])
        r = np.where(flat | (spread == 0), 0.0, product / np.where(spread > 0, spread, np.inf))  # (P, k, F)
        chosen = [self._chosen_edges(r[p], row.sum()) for p, row in enumerate(weights)]
        sums = np.empty((len(weights), len(target), len(chosen[0])))
        for rows in features.slices():
            x = features.block(rows) - taken[groups[rows]]
            for p, one in enumerate(chosen):
                sums[p, rows] = project(x, one.astype(np.float64))
        z = np.empty((len(target), len(weights), columns.shape[1]))
        for p, (one, row) in enumerate(zip(chosen, weights)):
            fitted = row > 0
            coefficients, intercept = self._solve_networks(sums[p][fitted], target[fitted], row[fitted])
            z[:, p] = sums[p] @ coefficients.T + intercept
            if p == 0:
                self.weights, self.intercept = coefficients @ one, intercept
                self.offsets = taken @ self.weights.T
        self._warn(int(chosen[0].any()), len(target))
        self.sites = centring.names
        if self.n_classes > 1:
            self.calibration = Calibration.fit(held_out_decisions(z, rest), target, self.n_classes, weight)
        return self

    def networks(self, features: np.ndarray, target: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """Return which edges are in each network, (networks, F) bool: positive, then negative, of each class."""
        columns = [target] if self.n_classes == 1 else list(solvers.signs(target, self.n_classes).T)
        r = np.stack([correlations(features, column.astype(np.float64), weight) for column in columns])
        return self._chosen_edges(r, weight.sum())

    def _chosen_edges(self, r: np.ndarray, n: float) -> np.ndarray:
        """Return which edges are in each network, (networks, F) bool, by their correlations (k, F) in n subjects."""
        quantile = student.isf(self.threshold / 2, n - 2) if n > 2 else np.inf
        least = quantile / np.sqrt(n - 2 + quantile**2) if np.isfinite(quantile) else 1.0  # the r with that p-value
        chosen = []
        for one in r:
            chosen += [one > least] if self.tails != "negative" else []
            chosen += [one < -least] if self.tails != "positive" else []
        return np.stack(chosen)

    def _solve_edges(
        self, features: np.ndarray, target: np.ndarray, weight: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """Select, sum and fit; return the weights of the edges (k, F), the intercept (k,) and how many were kept."""
        chosen = self.networks(features, target, weight)
        sums = project(features, chosen.astype(np.float64))  # (n, networks)
        coefficients, intercept = self._solve_networks(sums, target, weight)
        return coefficients @ chosen, intercept, int(chosen.any(axis=0).sum())

    def _solve_networks(
        self, sums: np.ndarray, target: np.ndarray, weight: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return coefficients (k, networks) and intercept (k,) of the model on the networks' sums."""
        share = weight / weight.sum()
        mean = share @ sums
        sd = np.sqrt(share @ (sums - mean) ** 2)
        scale = np.where(sd > 0, sd, np.inf)
        coefficients, intercept = self._solve_sums((sums - mean) / scale, target, weight)
        coefficients = coefficients / scale  # (k, networks)
        return coefficients, intercept - coefficients @ mean

    def _solve_sums(self, sums: np.ndarray, target: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return coefficients (k, networks) and intercept (k,) of the model on standardised sums."""
        if self.n_classes == 1:
            root = np.sqrt(weight)[:, None]
            mean = np.average(target, weights=weight)
            slopes = np.linalg.lstsq(root * sums, root[:, 0] * (target - mean), rcond=None)[0]
            return slopes[None], np.array([mean])
        coefficients, intercept = solvers.logistic_on(sums, target, weight, self.n_classes, 1.0)
        return coefficients.T, intercept


class Profiles(FeatureMap):
    """A feature map with each subject's vector at mean 0 and length 1: inner products are Pearson correlations.

    Edges enter as correlations, without Fisher z.
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
        See :class:`Linear`.
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
        return _best_of(errors)

    def _solve_streamed(self, design: Design, target: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Choose the penalty once, on folds of everyone; folds that only calibrate take it over."""
        penalty = self.penalty or self._chosen_streamed(design, target)
        return minimise(design, Squared(coded(target, self.n_classes)), np.full(len(design.weights), penalty))

    def _chosen_streamed(self, design: Design, target: np.ndarray) -> float:
        weight, y = design.weights[0], coded(target, self.n_classes)
        weights, rest = problems(weight, folds(target, self.n_classes))
        if not rest:
            return 1.0
        each = len(self.penalties)
        inner = Design(design.views, (False,), None, np.repeat(weights[1:], each, axis=0))
        penalties = np.tile(self.penalties, len(rest)) * design.scales[0] / inner.scales  # of everyone's mean square
        z = minimise(inner, Squared(y), penalties)[2].reshape(len(y), len(rest), each, -1)
        errors = dict.fromkeys(self.penalties, 0.0)
        for fold, rows in enumerate(rest):
            wrong = ((z[rows, fold] - y[rows]) ** 2).sum(axis=2)  # (m, penalties)
            for penalty, error in zip(self.penalties, weight[rows] @ wrong):
                errors[penalty] += float(error)
        return _best_of(errors)


def _best_of(errors: dict[float, float]) -> float:
    """Return the penalty with the smallest error; of equal ones, the one nearest to 1."""
    return min(errors, key=lambda penalty: (errors[penalty], abs(np.log(penalty))))
