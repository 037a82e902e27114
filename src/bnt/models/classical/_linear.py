"""Linear models of connectomes: support vector machine, ridge and logistic regression.

They are solved in kernel space, because there are far more edges than subjects, and kept as primal weights.
All of them read Fisher z of the edges (``space="edges"``) or the tangent space (``space="tangent"``: Varoquaux et al.
2010, with the mean covariance of the training subjects as the reference), and subtract each site's training mean
on request (``center_sites=True``; a subject of an unseen site has the mean of all training subjects subtracted).

The kernel is centred on the training subjects and divided by its mean diagonal before it is penalised, so that the
penalties do not depend on the number of ROIs: ``C=1`` here is not ``C=1`` on raw edges.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from typing import Any

import numpy as np
from scipy.special import expit, softmax

from bnt.cohort._triangle import n_edges
from bnt.errors import BadInput
from bnt.models._inputs import Inputs
from bnt.models.classical import _solvers as solvers
from bnt.models.classical._confounds import adjusted
from bnt.models.classical._decisions import Calibration, Decides, folds
from bnt.models.classical._features import feature_map
from bnt.models.classical._solvers import Centring, check_positive, check_target, combine, gram, project, site_groups


class LinearModel(Decides):
    """What the three have in common; a child gives the solver.

    Parameters
    ----------
    n_rois : int
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

    calibrated = True  # whether probabilities come from Platt scaling of held-out decisions

    def __init__(
        self, n_rois: int, n_classes: int, space: str, center_sites: bool, shrinkage: float, confounds: str = ""
    ) -> None:
        self.n_rois, self.n_classes = n_rois, n_classes
        self.space, self.center_sites = space, center_sites
        self.features = adjusted(feature_map(space, n_rois, shrinkage), confounds)
        self.weights: np.ndarray | None = None  # (k, F)

    @abstractmethod
    def _solve(self, kernel: np.ndarray, target: np.ndarray, weight: np.ndarray) -> solvers.Solution:
        """Return the dual solution for one target."""

    # -- fitting -----------------------------------------------------------------------------------

    def fit(self, inputs: Inputs, y: np.ndarray, sample_weight: np.ndarray | None = None) -> LinearModel:
        """Fit on training subjects.

        Parameters
        ----------
        inputs : Inputs
        y : array, (n,)
            Class codes 0 to C-1, or targets.
        sample_weight : array, (n,), optional
            A subject of weight 2 counts as two.
        """
        target, weight = check_target(y, sample_weight, len(inputs), self.n_classes)
        features = self.features.fit(inputs, weight).transform(inputs)
        held_out = self.fit_features(features, gram(features), inputs.sites, target, weight, self.calibrated)
        if held_out is not None and self.n_classes > 1:
            self.calibration = Calibration.fit(held_out, target, self.n_classes, weight)
        return self

    def fit_features(
        self,
        features: np.ndarray,
        products: np.ndarray,
        sites: np.ndarray | None,
        target: np.ndarray,
        weight: np.ndarray,
        held_out: bool,
    ) -> np.ndarray | None:
        """Fit on feature vectors (n, F) and their inner products (n, n).

        Returns decisions (n, k) for held-out folds of the same subjects, where asked for.

        In these folds everything is fitted anew, but for the reference of the tangent space and the regression of
        confounds, which have seen all training subjects; groups may sit on both sides of a fold.
        """
        sites = sites if self.center_sites else None
        centring, columns, scale, dual, self.intercept = self._fit_rows(products, sites, target, weight)
        self.weights = combine(features, centring.spread(dual, columns) / scale)
        self.sites = centring.names
        self.offsets = centring.averaging @ project(features, self.weights)  # (groups, k)
        if not held_out or self.n_classes == 1:
            return None
        decisions = project(features, self.weights) - self.offsets[columns] + self.intercept
        for fitted, rest in folds(target, self.n_classes):
            there = None if sites is None else sites[fitted]
            block = products[np.ix_(fitted, fitted)]
            fold = self._fit_rows(block, there, target[fitted], weight[fitted])
            groups = fold[0].groups(None if sites is None else sites[rest], len(rest))
            kernel = fold[0].kernel(products[np.ix_(rest, fitted)], block, groups, fold[1]) / fold[2]
            decisions[rest] = kernel @ fold[3] + fold[4]
        return decisions

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

    # -- predicting --------------------------------------------------------------------------------

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

    # -- keeping -----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return what was learned as plain arrays; names of sites are the bytes of a JSON list."""
        if self.weights is None:
            raise BadInput(f"This {type(self).__name__} model is not fitted yet: there is nothing to keep.")
        state = {
            "weights": self.weights,
            "intercept": self.intercept,
            "offsets": self.offsets,
            "sites": np.frombuffer(json.dumps(self.sites).encode(), dtype=np.uint8).copy(),
            **self.features.state(),
        }
        return {**state, **self._calibration_state()}

    def _calibration_state(self) -> dict[str, np.ndarray]:
        if not hasattr(self, "calibration"):
            return {}
        return {"slopes": self.calibration.slopes, "shifts": self.calibration.intercepts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take what :meth:`state_dict` gave."""
        arrays = {name: np.asarray(value) for name, value in state.items()}
        self.weights, self.intercept, self.offsets = arrays["weights"], arrays["intercept"], arrays["offsets"]
        self.sites = tuple(json.loads(arrays["sites"].tobytes()))
        self.features.load(arrays)
        if "slopes" in arrays:
            self.calibration = Calibration(arrays["slopes"], arrays["shifts"])


class SVM(LinearModel):
    """Linear support vector machine; epsilon-insensitive regression for ``n_classes=1``.

    Probabilities are Platt's, fitted on decisions for held-out folds of the training subjects; several classes
    are one against the rest.

    Parameters
    ----------
    n_rois, n_classes, space, center_sites, shrinkage, confounds
        See :class:`LinearModel`.
    C : float
        Cost of a margin violation.
    """

    def __init__(
        self,
        n_rois: int,
        n_classes: int = 2,
        *,
        C: float = 1.0,
        space: str = "edges",
        center_sites: bool = False,
        shrinkage: float = 0.3,
        confounds: str = "",
    ) -> None:
        super().__init__(n_rois, n_classes, space, center_sites, shrinkage, confounds)
        self.C = check_positive("C", C)

    def _solve(self, kernel: np.ndarray, target: np.ndarray, weight: np.ndarray) -> solvers.Solution:
        return solvers.svm(kernel, target, weight, self.n_classes, self.C)


class Ridge(LinearModel):
    """Kernel ridge regression, of the target or of classes coded +1 and -1.

    Probabilities as for :class:`SVM`.

    Parameters
    ----------
    n_rois, n_classes, space, center_sites, shrinkage, confounds
        See :class:`LinearModel`.
    penalty : float
        Added to the diagonal of the kernel, whose mean is 1.
    """

    def __init__(
        self,
        n_rois: int,
        n_classes: int = 2,
        *,
        penalty: float = 1.0,
        space: str = "edges",
        center_sites: bool = False,
        shrinkage: float = 0.3,
        confounds: str = "",
    ) -> None:
        super().__init__(n_rois, n_classes, space, center_sites, shrinkage, confounds)
        self.penalty = check_positive("penalty", penalty)

    def _solve(self, kernel: np.ndarray, target: np.ndarray, weight: np.ndarray) -> solvers.Solution:
        return solvers.ridge(kernel, target, weight, self.n_classes, self.penalty)


class Logistic(LinearModel):
    """Logistic regression with an L2 penalty, multinomial for several classes; its probabilities are its own.

    Parameters
    ----------
    n_rois, n_classes, space, center_sites, shrinkage, confounds
        See :class:`LinearModel`.
    C : float
        Inverse of the penalty, as in scikit-learn. 10 gave the best likelihood on edges, and near it in tangent
        space, on three development splits of ABIDE.
    """

    calibrated = False

    def __init__(
        self,
        n_rois: int,
        n_classes: int = 2,
        *,
        C: float = 10.0,
        space: str = "edges",
        center_sites: bool = False,
        shrinkage: float = 0.3,
        confounds: str = "",
    ) -> None:
        super().__init__(n_rois, n_classes, space, center_sites, shrinkage, confounds)
        if n_classes == 1:
            raise BadInput("Logistic regression predicts classes: for a continuous target choose ridge or svm.")
        self.C = check_positive("C", C)

    def _solve(self, kernel: np.ndarray, target: np.ndarray, weight: np.ndarray) -> solvers.Solution:
        return solvers.logistic(kernel, target, weight, self.n_classes, self.C)

    def predict_proba(self, inputs: Inputs) -> np.ndarray:
        """Return class probabilities, (n, C)."""
        logits = self.decisions(inputs)
        if self.n_classes == 2:
            return np.concatenate([expit(-logits), expit(logits)], axis=1)
        return softmax(logits, axis=1)
