"""Kernel ridge regression on several views of connectivity at once.

A view is a feature map of the same subjects. Each gives two kernels: one centred on all training subjects, one on those
of the subject's site. Every kernel is normalised (two subjects' inner product over their lengths, so that a noisy scan
with large deviations counts no more than a quiet one), and ridge regression runs on their plain average. Nothing is
chosen on data but the ridge's solution: the kernels have equal weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import numpy as np

from bnt.errors import BadInput
from bnt.models.classical import _solvers as solvers
from bnt.models.classical._features import EdgeFeatures, FeatureMap, Lagged, ShrunkTangent, TangentFeatures, adjusted
from bnt.models.classical._inputs import Inputs, Streamed, array_to_words, words_to_array
from bnt.models.classical._solvers import (
    LEAST_LENGTH,
    Calibration,
    Centring,
    Decides,
    check_positive,
    check_target,
    combine,
    folds,
    project,
    site_groups,
)
from bnt.models.classical._streaming import Design, Squared, coded, held_out_decisions, minimise, problems

KEPT_BYTES = 4 << 30  # of features; ABIDE at 200 ROIs takes 0.4 GB


class MultiKernel(Decides):
    """Ridge regression on the average of normalised kernels: two per view, with and without centring by site.

    For a subject of an unseen site, the mean of all training subjects is subtracted in both.

    Parameters
    ----------
    n_classes : int
        1 makes a regression model.
    penalty : float
        Added to the diagonal of the average kernel, which is 1.
    shrinkage : float
        Share of the identity in the correlation matrices.
    confounds : str
        Columns of ``participants.tsv`` to regress out of each view on the training subjects, joined by ``+``.
    """

    def __init__(
        self,
        n_rois: int,
        n_classes: int = 2,
        *,
        penalty: float = 0.2,
        shrinkage: float = 0.5,
        confounds: str = "",
    ) -> None:
        if not 0.0 <= shrinkage < 1.0:
            raise BadInput(f"shrinkage is {shrinkage}: give a share from 0 to below 1.")
        self.n_rois, self.n_classes = n_rois, n_classes
        self.penalty, self.shrinkage = check_positive("penalty", penalty), shrinkage
        self.confounds = confounds
        self.views: dict[str, FeatureMap] = {}
        self.means: dict[str, np.ndarray] = {}  # of each view, of everyone and of each site
        self.weights: dict[str, np.ndarray] = {}

    # -- fitting -----------------------------------------------------------------------------------

    def fit(self, inputs: Inputs, y: np.ndarray, sample_weight: np.ndarray | None = None) -> MultiKernel:
        """Fit on training subjects; see :class:`bnt.models.classical._solvers.Decides`."""
        target, weight = check_target(y, sample_weight, len(inputs), self.n_classes)
        self.fit_features(self.fit_views(inputs, weight), inputs.sites, target, weight)
        return self

    def fit_views(self, inputs: Inputs, weight: np.ndarray) -> Features:
        """Fit the views and return their features."""
        self.views = self._views_for(inputs.series is not None)
        self.means, self.weights = {}, {}
        for view in self.views.values():
            view.fit(inputs, weight)
        return Features(self.views, inputs)

    def _views_for(self, has_series: bool) -> dict[str, FeatureMap]:
        """Return the views, not fitted."""
        return views_of(self.n_rois, has_series, self.shrinkage, self.confounds)

    def fit_features(
        self,
        features: Features,
        sites: np.ndarray | None,
        target: np.ndarray,
        weight: np.ndarray,
        parts: Iterable[tuple[np.ndarray, np.ndarray]] | None = None,
    ) -> np.ndarray:
        """Fit on the features of the views; return decisions for the held-out rows of ``parts`` (five folds)."""
        if parts is None:
            parts = folds(target, self.n_classes) if self.n_classes > 1 else ()
        if features.inputs.stored:
            return self._fit_streamed(features, sites, target, weight, parts)
        everyone = np.arange(len(target))
        centrings = self._centrings(sites, weight)
        products: list[np.ndarray] = []
        for name, part in features.items():
            found = self.views[name].products(features.inputs, part)
            assert found is not None
            products.append(found)
            self.means[name] = combine(part, centrings[1].averaging.T).astype(np.float32)  # (1 + sites, F)
        kernel, lengths = self._kernel(products, centrings, sites, everyone, everyone)
        dual, self.intercept = solvers.ridge(kernel, target, weight, self.n_classes, self.penalty)
        self._keep(features, centrings, sites, dual / len(lengths), lengths)
        decisions = kernel @ dual + self.intercept
        for fitted, rest in parts:
            decisions[rest] = self.held_out(products, sites, target, weight, fitted, rest)
        if self.n_classes > 1:
            self.calibration = Calibration.fit(decisions, target, self.n_classes, weight)
        return decisions

    def _fit_streamed(
        self,
        features: Features,
        sites: np.ndarray | None,
        target: np.ndarray,
        weight: np.ndarray,
        parts: Iterable[tuple[np.ndarray, np.ndarray]],
    ) -> np.ndarray:
        """Fit on streamed features; the same as :meth:`fit_features`, by passes over them."""
        weights, rest = problems(weight, parts)
        views = cast(list[Streamed], [features[name] for name in self.views])
        design = Design(views, (False, True), sites, weights, unit=True)
        y = coded(target, self.n_classes)
        means = weights @ y[:, 0] / weights.sum(axis=1, keepdims=True)  # (problems, k)
        found, _, z = minimise(design, Squared(y - means), np.full(len(weights), self.penalty))
        self.intercept, self.sites = means[0], design.centrings[1][0].names
        split = np.split(found[0], len(design.means), axis=1)
        for i, name in enumerate(self.views):
            both = np.stack(split[2 * i : 2 * i + 2])
            self.weights[name] = both / len(design.means) ** 0.5  # (2, k, F)
            self.means[name] = design.means[2 * i + 1][0, : 1 + len(self.sites)]
        decisions = held_out_decisions(z + means, rest)
        if self.n_classes > 1:
            self.calibration = Calibration.fit(decisions, target, self.n_classes, weight)
        return decisions

    @staticmethod
    def _centrings(sites: np.ndarray | None, weight: np.ndarray) -> list[Centring]:
        """Return the two centrings: everyone's mean, and each site's."""
        return [Centring.fit(None, weight), Centring.fit(sites, weight)]

    def _kernel(
        self,
        products: list[np.ndarray],
        centrings: list[Centring],
        sites: np.ndarray | None,
        fitted: np.ndarray,
        rows: np.ndarray,
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """Return the average kernel of ``rows`` with the ``fitted``, and the lengths of the fitted in each."""
        total, lengths = np.zeros((len(rows), len(fitted))), []
        for product in products:
            among, of = product[np.ix_(fitted, fitted)], product[np.ix_(rows, fitted)]
            for centring in centrings:
                columns = _groups(centring, sites, fitted)
                own = _groups(centring, sites, rows)
                of_means = (of @ centring.averaging.T)[np.arange(len(rows)), own]
                means = np.einsum("gn,gn->g", centring.averaging @ among, centring.averaging)[own]
                theirs = np.diagonal(centring.kernel(among, among, columns, columns))
                lengths.append(_lengths(theirs))
                ours = _lengths(np.diagonal(product)[rows] - 2.0 * of_means + means)
                total += centring.kernel(of, among, own, columns) / np.outer(ours, lengths[-1])
        return total / len(lengths), lengths

    def held_out(
        self,
        products: list[np.ndarray],
        sites: np.ndarray | None,
        target: np.ndarray,
        weight: np.ndarray,
        fitted: np.ndarray,
        rest: np.ndarray,
    ) -> np.ndarray:
        """Return decisions for ``rest`` of a fit on ``fitted``; only the views stay as they are."""
        centrings = self._centrings(None if sites is None else sites[fitted], weight[fitted])
        kernel, _ = self._kernel(products, centrings, sites, fitted, fitted)
        dual, intercept = solvers.ridge(kernel, target[fitted], weight[fitted], self.n_classes, self.penalty)
        return self._kernel(products, centrings, sites, fitted, rest)[0] @ dual + intercept

    def _keep(
        self,
        features: Mapping[str, np.ndarray],
        centrings: list[Centring],
        sites: np.ndarray | None,
        dual: np.ndarray,
        lengths: list[np.ndarray],
    ) -> None:
        """Turn the dual solution into weights of the features."""
        self.sites = centrings[1].names
        left = iter(lengths)
        for name, part in features.items():
            both = []
            for centring in centrings:
                columns = _groups(centring, sites, np.arange(len(part)))
                both.append(combine(part, centring.spread(dual / next(left)[:, None], columns)))
            self.weights[name] = np.stack(both)  # (2, k, F)

    # -- predicting --------------------------------------------------------------------------------

    def decisions(self, inputs: Inputs) -> np.ndarray:
        """Return decision values, (n, 1) for two classes and regression, (n, C) otherwise."""
        return self.decisions_of(self.features_of(inputs))

    def features_of(self, inputs: Inputs) -> Features:
        """Return the features of each view."""
        if not self.views:
            raise BadInput("This model is not fitted yet: call fit, or load a state.")
        return Features(self.views, inputs)

    def decisions_of(self, features: Features) -> np.ndarray:
        """Return decision values of features."""
        if features.inputs.stored:  # read a few subjects at a time: no file is needed
            return np.concatenate([self.decisions_of(self.features_of(part)) for _, part in features.inputs.blocks()])
        n = len(features.inputs)
        own = site_groups(self.sites, features.inputs.sites, n)
        total = np.tile(self.intercept, (n, 1)).astype(np.float64)
        for name, part in features.items():
            for weights, groups in zip(self.weights[name], (np.zeros_like(own), own)):
                centred = part - self.means[name][groups]
                lengths = np.sqrt(np.einsum("nf,nf->n", centred, centred, dtype=np.float64))
                total += project(centred, weights) / np.maximum(lengths, LEAST_LENGTH)[:, None]
        return total

    def coef(self) -> None:
        """Return None: normalising makes the weight of an edge depend on the subject."""
        return

    # -- keeping -----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return what was learned as plain arrays; names of sites are the bytes of a JSON list."""
        if not self.views:
            raise BadInput("This model is not fitted yet: there is nothing to save.")
        state = {
            "intercept": self.intercept,
            "sites": words_to_array(self.sites),
        }
        for name, view in self.views.items():
            state |= {f"{name}.weights": self.weights[name], f"{name}.means": self.means[name]}
            state |= {f"{name}.view.{key}": value for key, value in view.state().items()}
        return state | self.calibration_state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take what :meth:`state_dict` gave."""
        arrays = {name: np.asarray(value) for name, value in state.items()}
        self.intercept = arrays["intercept"]
        self.sites = tuple(array_to_words(arrays["sites"]))
        self.views = self._views_for("lagged.weights" in arrays)
        self.weights = {name: arrays[f"{name}.weights"] for name in self.views}
        self.means = {name: arrays[f"{name}.means"] for name in self.views}
        for name, view in self.views.items():
            head = f"{name}.view."
            view.load({key.removeprefix(head): value for key, value in arrays.items() if key.startswith(head)})
        self.load_calibration(arrays)


def _groups(centring: Centring, sites: np.ndarray | None, rows: np.ndarray) -> np.ndarray:
    return centring.groups(None if sites is None else sites[rows], len(rows))


def _lengths(squares: np.ndarray) -> np.ndarray:
    return np.maximum(np.sqrt(np.maximum(squares, 0.0)), LEAST_LENGTH)


class Features(Mapping[str, np.ndarray]):
    """The features of each view: kept up to :data:`KEPT_BYTES`, made anew each time they are asked for beyond that.

    Parameters
    ----------
    views : dict of name to FeatureMap
        Fitted.
    """

    def __init__(self, views: dict[str, FeatureMap], inputs: Inputs) -> None:
        self.views, self.inputs, self.left = views, inputs, KEPT_BYTES
        self._kept: dict[str, np.ndarray] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        if name in self._kept:
            return self._kept[name]
        found = self.views[name].transform(self.inputs)
        if self.inputs.stored:
            self._kept[name] = found
        elif found.nbytes <= self.left:
            self._kept[name] = found
            self.left -= found.nbytes
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self.views)

    def __len__(self) -> int:
        return len(self.views)


def views_of(n_rois: int, has_series: bool, shrinkage: float, confounds: str = "") -> dict[str, FeatureMap]:
    """Return the views that the inputs allow, by name, without confounds: five with series, two without."""
    return {name: adjusted(view, confounds) for name, view in _views(n_rois, has_series, shrinkage).items()}


def _views(n_rois: int, has_series: bool, shrinkage: float) -> dict[str, FeatureMap]:
    views: dict[str, FeatureMap] = {"shrunk_tangent": ShrunkTangent(n_rois, shrinkage)}
    if not has_series:
        return {**views, "edges": EdgeFeatures(n_rois)}
    for estimate in ("standardised", "amplitude", "prewhitened"):
        views[f"{estimate}_tangent"] = TangentFeatures(n_rois, shrinkage, estimate)
    return {**views, "lagged": Lagged(n_rois)}
