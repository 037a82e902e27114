"""Linear models of connectomes: support vector machine, ridge and logistic regression, and an average of three.

They are solved in kernel space, because there are far more edges than subjects, and kept as primal weights.
All of them read Fisher z of the edges (``space="edges"``) or the tangent space (``space="tangent"``: Varoquaux et al.
2010, with the mean covariance of the training subjects as the reference), and subtract each site's training mean
on request (``center_sites=True``; a subject of an unseen site has the mean of all training subjects subtracted).

The kernel is centred on the training subjects and divided by its mean diagonal before it is penalised, so that the
penalties do not depend on the number of ROIs: ``C=1`` here is not ``C=1`` on raw edges.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, cast

import numpy as np
from scipy.special import expit, softmax

from bnt.cohort._triangle import n_edges
from bnt.errors import BadInput
from bnt.models.classical import _solvers as solvers
from bnt.models.classical import _streaming as streaming
from bnt.models.classical._features import adjusted, feature_map
from bnt.models.classical._inputs import Inputs, Streamed, array_to_words, words_to_array
from bnt.models.classical._solvers import (
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
from bnt.models.classical._streaming import Design, Hinge, LogLoss, Squared, Tube, coded, minimise


@dataclass(eq=False)
class Linear(Decides):
    """A weight for each feature, learned in any way: decisions from it, and what is kept.

    Parameters
    ----------
    n_classes : int
        1 makes a regression model.
    space : {"edges", "tangent"}
    center_sites : bool
        Subtract each site's training mean from the features.
    shrinkage : float
        Share of the identity in the correlation matrices of inputs without series; only the tangent space needs it.
    confounds : str
        Columns of ``participants.tsv`` to regress out of the features on the training subjects, joined by ``+``.
    """

    n_rois: int
    n_classes: int = 2
    _: KW_ONLY
    space: str = "edges"
    center_sites: bool = False
    shrinkage: float = 0.3
    confounds: str = ""

    def __post_init__(self) -> None:
        self.features = adjusted(feature_map(self.space, self.n_rois, self.shrinkage), self.confounds)
        self.weights: np.ndarray | None = None  # (k, F)

    def decisions(self, inputs: Inputs) -> np.ndarray:
        """Return decision values, (n, 1) for two classes and regression, (n, C) otherwise."""
        if self.weights is None:
            raise BadInput(f"This {type(self).__name__} model is not fitted yet: call fit, or load a state.")
        return self.decisions_of(self.features.transform(inputs), inputs.sites)

    def decisions_of(self, features: np.ndarray, sites: np.ndarray | None) -> np.ndarray:
        """Return decision values of feature vectors."""
        assert self.weights is not None
        groups = site_groups(self.sites, sites, len(features))
        return project(features, self.weights) - self.offsets[groups] + self.intercept

    def coef(self) -> np.ndarray | None:
        """Return the weight of each edge in the model's space, (E,), or (C, E) for more than two classes.

        The unit is the decision's per unit of Fisher z or of the tangent matrix' entry.
        """
        if self.weights is None:
            return None
        edges = self.weights[:, : n_edges(self.n_rois)]
        return edges[0] if len(edges) == 1 else edges

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return what was learned as plain arrays; names of sites are the bytes of a JSON list."""
        if self.weights is None:
            raise BadInput(f"This {type(self).__name__} model is not fitted yet: there is nothing to save.")
        return {
            "weights": self.weights,
            "intercept": self.intercept,
            "offsets": self.offsets,
            "sites": words_to_array(self.sites),
            **self.features.state(),
            **self.calibration_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take what :meth:`state_dict` gave."""
        arrays = {name: np.asarray(value) for name, value in state.items()}
        self.weights, self.intercept, self.offsets = arrays["weights"], arrays["intercept"], arrays["offsets"]
        self.sites = tuple(array_to_words(arrays["sites"]))
        self.features.load(arrays)
        self.load_calibration(arrays)


class LinearModel(Linear):
    """What machine, ridge and logistic regression have in common; a child adds its penalty and gives the solver."""

    calibrated: ClassVar[bool] = True  # whether probabilities come from Platt scaling of held-out decisions

    @abstractmethod
    def _solve(self, kernel: np.ndarray, target: np.ndarray, weight: np.ndarray) -> solvers.Solution:
        """Return the dual solution for one target."""

    def fit(self, inputs: Inputs, y: np.ndarray, sample_weight: np.ndarray | None = None) -> LinearModel:
        """Fit on training subjects; see :class:`bnt.models.classical._solvers.Decides`."""
        target, weight = check_target(y, sample_weight, len(inputs), self.n_classes)
        features = self.features.fit(inputs, weight).transform(inputs)
        parts = folds(target, self.n_classes) if self.calibrated and self.n_classes > 1 else None
        products = self.features.products(inputs, features)
        held_out = self.fit_features(features, products, inputs.sites, target, weight, parts)
        if held_out is not None:
            self.calibration = Calibration.fit(held_out, target, self.n_classes, weight)
        return self

    def fit_features(
        self,
        features: np.ndarray,
        products: np.ndarray | None,
        sites: np.ndarray | None,
        target: np.ndarray,
        weight: np.ndarray,
        parts: Iterable[tuple[np.ndarray, np.ndarray]] | None,
    ) -> np.ndarray | None:
        """Fit on feature vectors (n, F) and their inner products (n, n); without products, by passes over features.

        Returns decisions (n, k) for the held-out rows of ``parts``, pairs of rows to fit on and to hold out.

        In these folds everything is fitted anew, but for the reference of the tangent space and the regression of
        confounds, which have seen all training subjects; groups may sit on both sides of a fold.
        """
        sites = sites if self.center_sites else None
        if products is None:
            return self._fit_streamed(cast(Streamed, features), sites, target, weight, parts)
        centring, columns, scale, dual, self.intercept = self._fit_rows(products, sites, target, weight)
        self.weights = combine(features, centring.spread(dual, columns) / scale)
        self.sites = centring.names
        self.offsets = centring.averaging @ project(features, self.weights)  # (groups, k)
        if parts is None:
            return None
        decisions = project(features, self.weights) - self.offsets[columns] + self.intercept
        for fitted, rest in parts:
            decisions[rest] = self.held_out(products, sites, target, weight, fitted, rest)
        return decisions

    def _fit_streamed(
        self,
        features: Streamed,
        sites: np.ndarray | None,
        target: np.ndarray,
        weight: np.ndarray,
        parts: Iterable[tuple[np.ndarray, np.ndarray]] | None,
    ) -> np.ndarray | None:
        """Fit on streamed features, all folds in the same passes."""
        weights, rest = streaming.problems(weight, parts)
        design = Design([features], (self.center_sites,), sites, weights)
        found, intercepts, z = self._solve_streamed(design, target)
        self.weights, self.intercept = found[0] / design.scales[0] ** 0.5, intercepts[0]
        self.sites = design.centrings[0][0].names
        self.offsets = design.means[0][0].astype(np.float64) @ self.weights.T
        return None if parts is None else streaming.held_out_decisions(z, rest)

    @abstractmethod
    def _solve_streamed(self, design: Design, target: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return weights (P, k, F), intercepts (P, k) and decisions (n, P, k) of the problems of a design."""

    def held_out(
        self,
        products: np.ndarray,
        sites: np.ndarray | None,
        target: np.ndarray,
        weight: np.ndarray,
        fitted: np.ndarray,
        rest: np.ndarray,
    ) -> np.ndarray:
        """Return decisions (m, k) for ``rest`` of a fit on ``fitted``, from inner products of all subjects (n, n)."""
        sites = sites if self.center_sites else None
        block = products[np.ix_(fitted, fitted)]
        there = None if sites is None else sites[fitted]
        centring, columns, scale, dual, intercept = self._fit_rows(block, there, target[fitted], weight[fitted])
        groups = centring.groups(None if sites is None else sites[rest], len(rest))
        return centring.kernel(products[np.ix_(rest, fitted)], block, groups, columns) / scale @ dual + intercept

    def _fit_rows(
        self, products: np.ndarray, sites: np.ndarray | None, target: np.ndarray, weight: np.ndarray
    ) -> tuple[Centring, np.ndarray, float, np.ndarray, np.ndarray]:
        """Centre, normalise and solve; return centring, groups, scale, dual coefficients and intercept."""
        centring = Centring.fit(sites, weight)
        columns = centring.groups(sites, len(target))
        kernel = centring.kernel(products, products, columns, columns)
        scale = float(np.average(np.diagonal(kernel), weights=weight))
        scale = scale if scale > 0 else 1.0
        return centring, columns, scale, *self._solve(kernel / scale, target, weight)


@dataclass(eq=False)
class SVM(LinearModel):
    """Linear support vector machine; epsilon-insensitive regression for ``n_classes=1``.

    Probabilities come from Platt scaling, fitted on decisions for held-out folds of the training subjects. Several
    classes are fitted one against the rest.

    Parameters
    ----------
    n_rois, n_classes, space, center_sites, shrinkage, confounds
        See :class:`Linear`.
    C : float
        Cost of a margin violation.
    """

    C: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.C = check_positive("C", self.C)

    def _solve(self, kernel: np.ndarray, target: np.ndarray, weight: np.ndarray) -> solvers.Solution:
        return solvers.svm(kernel, target, weight, self.n_classes, self.C)

    def _solve_streamed(self, design: Design, target: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        y, weights, penalties = coded(target, self.n_classes), design.weights, np.full(len(design.weights), 1 / self.C)
        if self.n_classes > 1:
            return minimise(design, Hinge(y), penalties)
        share = weights / weights.sum(axis=1, keepdims=True)
        mean = share @ target  # (P,): as for products, the target is standardised
        sd = np.sqrt(np.maximum(share @ target**2.0 - mean**2, 0.0))
        sd = np.where(sd > 0, sd, 1.0)
        w, b, z = minimise(design, Tube((y - mean[:, None]) / sd[:, None]), penalties)
        return w * sd[:, None, None], b * sd[:, None] + mean[:, None], z * sd[:, None] + mean[:, None]


@dataclass(eq=False)
class Ridge(LinearModel):
    """Kernel ridge regression of the target, or of classes coded +1 and -1.

    Probabilities as for :class:`SVM`.

    Parameters
    ----------
    n_rois, n_classes, space, center_sites, shrinkage, confounds
        See :class:`Linear`.
    penalty : float
        Added to the diagonal of the kernel, whose mean is 1.
    """

    penalty: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.penalty = check_positive("penalty", self.penalty)

    def _solve(self, kernel: np.ndarray, target: np.ndarray, weight: np.ndarray) -> solvers.Solution:
        return solvers.ridge(kernel, target, weight, self.n_classes, self.penalty)

    def _solve_streamed(self, design: Design, target: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        penalties = np.full(len(design.weights), self.penalty)
        return minimise(design, Squared(coded(target, self.n_classes)), penalties)


@dataclass(eq=False)
class Logistic(LinearModel):
    """Logistic regression with an L2 penalty, multinomial for several classes; its probabilities are not recalibrated.

    Parameters
    ----------
    n_rois, n_classes, space, center_sites, shrinkage, confounds
        See :class:`Linear`.
    C : float
        Inverse of the penalty, as in scikit-learn. 10 gave the best likelihood on edges, and near it in tangent
        space, on three development splits of ABIDE.
    """

    calibrated: ClassVar[bool] = False

    C: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_classes == 1:
            raise BadInput("Logistic regression predicts classes: for a continuous target choose ridge or svm.")
        self.C = check_positive("C", self.C)

    def _solve(self, kernel: np.ndarray, target: np.ndarray, weight: np.ndarray) -> solvers.Solution:
        return solvers.logistic(kernel, target, weight, self.n_classes, self.C)

    def _solve_streamed(self, design: Design, target: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        y = coded(target, self.n_classes)
        loss = LogLoss(y if self.n_classes == 2 else (y + 1.0) / 2.0)
        return minimise(design, loss, np.full(len(design.weights), 1.0 / self.C))

    def predict_proba(self, inputs: Inputs) -> np.ndarray:
        """Return class probabilities, (n, C)."""
        logits = self.decisions(inputs)
        if self.n_classes == 2:
            return np.concatenate([expit(-logits), expit(logits)], axis=1)
        return softmax(logits, axis=1)


class LinearEnsemble(Decides):
    """Tangent SVM, site-centred tangent ridge and site-centred Fisher z ridge, averaged.

    The decision values of the three models are averaged without scaling. The ridges predict -1 and +1, the margins of
    the SVM are at -1 and +1, and the kernels are normalised, so all three have the same scale.

    For a subject of an unseen site, and for all subjects if sites are not known, the mean of all training subjects is
    subtracted. For regression, the three predictions are averaged.

    Parameters
    ----------
    n_classes : int
        1 makes a regression model.
    C : float
        Cost of the support vector machine.
    tangent_penalty, edge_penalty : float
        Penalties of the two ridges.
    shrinkage : float
        Share of the identity in the correlation matrices of inputs without series.
    confounds : str
        Columns of ``participants.tsv`` to regress out of the features on the training subjects, joined by ``+``.
    """

    def __init__(
        self,
        n_rois: int,
        n_classes: int = 2,
        *,
        C: float = 1.0,
        tangent_penalty: float = 0.3,
        edge_penalty: float = 1.0,
        shrinkage: float = 0.3,
        confounds: str = "",
    ) -> None:
        self.n_rois, self.n_classes = n_rois, n_classes
        shared: dict[str, Any] = {"space": "tangent", "shrinkage": shrinkage, "confounds": confounds}
        self.members: dict[str, LinearModel] = {
            "tangent_svm": SVM(n_rois, n_classes, C=C, **shared),
            "tangent_ridge": Ridge(n_rois, n_classes, penalty=tangent_penalty, center_sites=True, **shared),
            "edge_ridge": Ridge(n_rois, n_classes, penalty=edge_penalty, center_sites=True, confounds=confounds),
        }
        # The two tangent members share one feature map, so that each subject is projected once.
        self.members["tangent_ridge"].features = self.members["tangent_svm"].features

    def fit(self, inputs: Inputs, y: np.ndarray, sample_weight: np.ndarray | None = None) -> LinearEnsemble:
        """Fit the three on training subjects; see :meth:`LinearModel.fit`."""
        target, weight = check_target(y, sample_weight, len(inputs), self.n_classes)
        for name in ("tangent_svm", "edge_ridge"):
            self.members[name].features.fit(inputs, weight)
        vectors = self._features(inputs)
        maps = {member.space: member.features for member in self.members.values()}
        products = {space: maps[space].products(inputs, part) for space, part in vectors.items()}
        parts = list(folds(target, self.n_classes)) if self.n_classes > 1 else None
        held_out = [
            member.fit_features(vectors[member.space], products[member.space], inputs.sites, target, weight, parts)
            for member in self.members.values()
        ]
        if self.n_classes > 1:
            average = np.mean([one for one in held_out if one is not None], axis=0)
            self.calibration = Calibration.fit(average, target, self.n_classes, weight)
        return self

    def _features(self, inputs: Inputs) -> dict[str, np.ndarray]:
        return {
            self.members[m].space: self.members[m].features.transform(inputs) for m in ("tangent_svm", "edge_ridge")
        }

    def member_decisions(self, inputs: Inputs) -> dict[str, np.ndarray]:
        """Return the decision values of each member, (n, k)."""
        if self.members["edge_ridge"].weights is None:
            raise BadInput("This LinearEnsemble model is not fitted yet: call fit, or load a state.")
        vectors = self._features(inputs)
        return {name: m.decisions_of(vectors[m.space], inputs.sites) for name, m in self.members.items()}

    def decisions(self, inputs: Inputs) -> np.ndarray:
        """Return the averaged decision values, (n, 1) for two classes and regression, (n, C) otherwise."""
        return np.mean(list(self.member_decisions(inputs).values()), axis=0)

    def coef(self) -> None:
        """Return None: the members live in two spaces; ask ``members[...]`` for theirs."""
        return

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return what was learned as plain arrays, each named after its member."""
        state = {f"{name}.{key}": a for name, m in self.members.items() for key, a in m.state_dict().items()}
        return state | self.calibration_state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take what :meth:`state_dict` gave."""
        for name, member in self.members.items():
            head = name + "."
            member.load_state_dict({k.removeprefix(head): v for k, v in state.items() if k.startswith(head)})
        self.load_calibration(state)
