"""Shared functions of the classical models: target checks, centred kernels, and solvers in kernel space."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import solve
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC, SVR

from bnt.errors import BadInput
from bnt.models.classical._inputs import COLUMNS_AT_ONCE, Inputs, Streamed


def check_target(
    y: np.ndarray, sample_weight: np.ndarray | None, n: int, n_classes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return targets and weights in the form the solvers need, or say what is wrong with them."""
    y = np.asarray(y)
    if y.shape != (n,):
        raise BadInput(f"There are {n} subjects and targets of shape {y.shape}: give one target per subject.")
    weight = np.ones(n) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    if weight.shape != (n,) or not np.isfinite(weight).all() or (weight < 0).any() or weight.sum() <= 0:
        raise BadInput("sample_weight must hold one number per subject, none below 0 and not all 0.")
    if n_classes == 1:
        target = y.astype(np.float64)
        if not np.isfinite(target).all():
            raise BadInput(f"The target of subject {int(np.argmin(np.isfinite(target)))} is missing: leave it out.")
        return target, weight
    if (y != y.astype(np.int64)).any() or y.min() < 0 or y.max() >= n_classes:
        raise BadInput(f"Class codes must be whole numbers from 0 to {n_classes - 1}; there are {np.unique(y)[:10]}.")
    codes = y.astype(np.int64)
    if len(np.unique(codes[weight > 0])) < 2:
        raise BadInput(f"All {n} training subjects are of class {codes[0]}: a classifier needs at least two classes.")
    return codes, weight


def check_positive(name: str, value: float) -> float:
    """Return ``value``, or say that it must be above 0."""
    if not value > 0:
        raise BadInput(f"{name} is {value}: give a number above 0.")
    return float(value)


def refuse_regression(n_classes: int) -> None:
    """Say that a regression model has no probabilities."""
    if n_classes == 1:
        raise BadInput("A regression model has no class probabilities: use predict.")


LEAST_LENGTH = 1e-12  # a subject who equals the mean has no direction


def gram(features: np.ndarray) -> np.ndarray:
    """Return all inner products in double precision: (n, F) float32 -> (n, n) float64; also of streamed features."""
    total = np.zeros((len(features), len(features)))
    for start in range(0, features.shape[1], COLUMNS_AT_ONCE):
        columns = slice(start, min(start + COLUMNS_AT_ONCE, features.shape[1]))
        part = features.columns(columns) if isinstance(features, Streamed) else features[:, columns]
        part = part.astype(np.float64)
        total += part @ part.T
    return total


def combine(features: np.ndarray, dual: np.ndarray) -> np.ndarray:
    """Return the weights that subjects stand for: (n, F), (n, k) -> (k, F) float64; also of streamed features."""
    if isinstance(features, Streamed):
        return np.sum([combine(features.block(rows), dual[rows]) for rows in features.slices()], axis=0)
    out = np.empty((dual.shape[1], features.shape[1]))
    for start in range(0, features.shape[1], COLUMNS_AT_ONCE):
        part = slice(start, start + COLUMNS_AT_ONCE)
        out[:, part] = dual.T @ features[:, part].astype(np.float64)
    return out


def project(features: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return inner products with weights, in double precision: (n, F), (k, F) -> (n, k); also of streamed features."""
    if isinstance(features, Streamed):
        return np.concatenate([project(features.block(rows), weights) for rows in features.slices()])
    total = np.zeros((len(features), len(weights)))
    for start in range(0, features.shape[1], COLUMNS_AT_ONCE):
        part = slice(start, start + COLUMNS_AT_ONCE)
        total += features[:, part].astype(np.float64) @ weights[:, part].T
    return total


@dataclass(frozen=True)
class Centring:
    """Whose mean is subtracted from whom.

    Group 0 is everyone in training; group ``1 + s`` is site ``s``. A subject of a site that training has not seen
    belongs to group 0: the mean of all training subjects is subtracted. No mean is ever taken over new subjects,
    so that a prediction does not depend on who else is in the batch.

    Attributes
    ----------
    names : tuple of str
        Sites seen in training; empty where sites are not centred.
    averaging : array, (1 + sites, n)
        Row g averages the training subjects of group g.
    """

    names: tuple[str, ...]
    averaging: np.ndarray

    @classmethod
    def fit(cls, sites: np.ndarray | None, weight: np.ndarray) -> Centring:
        """Fit on the training subjects' sites (None: one mean for all) and weights."""
        names = () if sites is None else tuple(np.unique(sites[weight > 0]).tolist())
        rows = [weight] + [weight * (sites == name) for name in names]
        return cls(names, np.stack([row / row.sum() for row in rows]))

    def groups(self, sites: np.ndarray | None, n: int) -> np.ndarray:
        """Return the group of each of ``n`` subjects."""
        return site_groups(self.names, sites, n)

    def kernel(self, of: np.ndarray, among: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Return the centred kernel of any subjects with the training subjects.

        Parameters
        ----------
        of : array, (m, n)
            Inner products of the subjects with the training subjects.
        among : array, (n, n)
            Those among the training subjects.
        rows, columns : array of int, (m,) and (n,)
            Groups of the subjects and of the training subjects.
        """
        means = self.averaging @ among  # (groups, n)
        between = means @ self.averaging.T  # (groups, groups)
        return of - means[rows] - (of @ self.averaging.T)[:, columns] + between[np.ix_(rows, columns)]

    def spread(self, dual: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Return the combination of raw features that equals a combination ``dual`` of centred ones, (n, k)."""
        per_group = np.zeros((len(self.averaging), dual.shape[1]))
        np.add.at(per_group, columns, dual)
        return dual - self.averaging.T @ per_group


def site_groups(names: tuple[str, ...], sites: np.ndarray | None, n: int) -> np.ndarray:
    """Return 1 + the position of each subject's site among ``names``; 0 where it is not there or not known."""
    if sites is None or not names:
        return np.zeros(n, dtype=np.int64)
    position = {name: 1 + i for i, name in enumerate(names)}
    return np.array([position.get(str(site), 0) for site in sites], dtype=np.int64)


Solution = tuple[np.ndarray, np.ndarray]

ABSENT = -30.0  # logit of a class without a training subject: a probability of about 1e-13


def signs(codes: np.ndarray, n_classes: int) -> np.ndarray:
    """Return +1 for the class and -1 for the rest: (n,) -> (n, 1) for two classes, (n, C) for more."""
    wanted = [1] if n_classes == 2 else range(n_classes)
    return np.stack([np.where(codes == c, 1.0, -1.0) for c in wanted], axis=1)


def svm(kernel: np.ndarray, target: np.ndarray, weight: np.ndarray, n_classes: int, C: float) -> Solution:
    """Fit linear support vector machines, hinge loss, or for ``n_classes`` 1 an epsilon-insensitive regression."""
    if n_classes == 1:
        return _support_regression(kernel, target, weight, C)
    columns = signs(target, n_classes)
    dual, intercept = np.zeros_like(columns), np.empty(columns.shape[1])
    for k, column in enumerate(columns.T):
        if len(np.unique(column)) == 1:  # a class that is absent from this part
            intercept[k] = column[0]
            continue
        machine = SVC(C=C, kernel="precomputed", tol=1e-5).fit(kernel, column, sample_weight=weight)
        dual[machine.support_, k] = machine.dual_coef_[0]
        intercept[k] = machine.intercept_[0]
    return dual, intercept


def _support_regression(kernel: np.ndarray, target: np.ndarray, weight: np.ndarray, C: float) -> Solution:
    """Fit on the standardised target, so that C and the tube (0.1 SD) do not depend on its unit."""
    mean = np.average(target, weights=weight)
    sd = np.sqrt(np.average((target - mean) ** 2, weights=weight)) or 1.0
    machine = SVR(C=C, kernel="precomputed", epsilon=0.1, tol=1e-5)
    machine.fit(kernel, (target - mean) / sd, sample_weight=weight)
    dual = np.zeros((len(kernel), 1))
    dual[machine.support_, 0] = machine.dual_coef_[0] * sd
    return dual, machine.intercept_ * sd + mean


def ridge(kernel: np.ndarray, target: np.ndarray, weight: np.ndarray, n_classes: int, penalty: float) -> Solution:
    """Solve (K + penalty I) dual = centred target; classes are coded +1 and -1.

    With weights W the system is (W^1/2 K W^1/2 + penalty I) u = W^1/2 target and dual = W^1/2 u.
    """
    columns = target[:, None].astype(np.float64) if n_classes == 1 else signs(target, n_classes)
    mean = np.average(columns, axis=0, weights=weight)
    root = np.sqrt(weight)[:, None]
    system = root * kernel * root.T
    system[np.diag_indices_from(system)] += penalty
    return root * solve(system, root * (columns - mean), assume_a="pos"), mean


def logistic(kernel: np.ndarray, target: np.ndarray, weight: np.ndarray, n_classes: int, C: float) -> Solution:
    """Fit logistic regression with an L2 penalty (C as in scikit-learn) in the span of the training subjects."""
    values, vectors = np.linalg.eigh(kernel)
    kept = values > 1e-12 * max(values[-1], 1e-300)
    basis = vectors[:, kept] / np.sqrt(values[kept])  # kernel @ basis are coordinates in that span, (n, r)
    if not kept.any():  # nothing varies: the intercepts alone
        basis = np.zeros((len(kernel), 1))
    coefficients, intercept = logistic_on(kernel @ basis, target, weight, n_classes, C)
    return basis @ coefficients, intercept


def logistic_on(x: np.ndarray, target: np.ndarray, weight: np.ndarray, n_classes: int, C: float) -> Solution:
    """Fit logistic regression on a few features (n, F); return coefficients (F, k) and intercepts (k,)."""
    present = np.unique(target)
    model = LogisticRegression(C=C, tol=1e-8, max_iter=2000).fit(x, target, sample_weight=weight)
    coefficients, intercept = model.coef_.T, model.intercept_
    if n_classes == 2 or len(present) == n_classes:
        return coefficients, intercept
    if len(present) == 2:  # one logit for two classes: the first has logit 0
        coefficients = np.concatenate([np.zeros_like(coefficients), coefficients], axis=1)
        intercept = np.concatenate([[0.0], intercept])
    every, intercepts = np.zeros((x.shape[1], n_classes)), np.full(n_classes, ABSENT)
    every[:, present], intercepts[present] = coefficients, intercept
    return every, intercepts


# -- decision values to probabilities ------------------------------------------------------------------

FOLDS = 5
LEAST_SLOPE = 1e-2  # per standard deviation of the decisions


def folds(
    target: np.ndarray,
    n_classes: int,
    n_folds: int = FOLDS,
    *,
    sites: np.ndarray | None = None,
    groups: np.ndarray | None = None,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield (fitted on, held out) rows: each class is dealt out in turn, in the order of the subjects.

    With ``sites``, each class of each site is dealt out in turn, or a score in its order within the site. People of
    one group (a family) stay together, where the first of them is. There are fewer folds where a class has fewer
    subjects, and none where one has a single subject.
    """
    if n_classes > 1:
        order = np.lexsort([target] if sites is None else [sites, target])  # by class, then by site
    else:
        order = np.arange(len(target)) if sites is None else np.lexsort([target, sites])
    smallest = np.unique(target, return_counts=True)[1].min() if n_classes > 1 else len(target)
    n_folds = min(n_folds, int(smallest))
    turn = np.empty(len(target), dtype=np.int64)
    turn[order] = np.arange(len(target)) % max(n_folds, 1)
    if groups is not None:
        _, first, group = np.unique(groups, return_index=True, return_inverse=True)
        turn = turn[first][group]
    for fold in range(n_folds if n_folds > 1 else 0):
        yield np.flatnonzero(turn != fold), np.flatnonzero(turn == fold)


def platt(decision: np.ndarray, positive: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """Return slope and intercept of the sigmoid that turns decisions into probabilities.

    Targets are Platt's, drawn in from 0 and 1 by the class sizes. The slope is held at or above 0.01 per standard
    deviation: without any signal the fitted one may be negative, which would reverse the order of subjects.
    """
    n_positive, n_negative = weight[positive].sum(), weight[~positive].sum()
    target = np.where(positive, (n_positive + 1) / (n_positive + 2), 1 / (n_negative + 2))
    sd = float(np.sqrt(np.average((decision - np.average(decision, weights=weight)) ** 2, weights=weight)))
    scaled = decision / sd if sd > 0 else np.zeros_like(decision)
    slope, intercept = sigmoid(scaled, target, weight, None)
    if slope < LEAST_SLOPE:
        slope, intercept = sigmoid(scaled, target, weight, LEAST_SLOPE)
    return (slope / sd if sd > 0 else 1.0), intercept


def sigmoid(x: np.ndarray, target: np.ndarray, weight: np.ndarray, fixed: float | None) -> tuple[float, float]:
    """Minimise the weighted cross-entropy by damped Newton steps, with the slope free or fixed."""
    design = np.stack([x, np.ones_like(x)], axis=1)  # (n, 2)
    free = slice(1, 2) if fixed is not None else slice(0, 2)
    theta = np.array([0.0 if fixed is None else fixed, np.log(weight @ target) - np.log(weight @ (1 - target))])

    def loss(at: np.ndarray) -> float:
        logit = design @ at
        return float(weight @ (np.logaddexp(0.0, logit) - target * logit))

    for _ in range(100):
        p = expit(design @ theta)
        gradient = (design.T @ (weight * (p - target)))[free]
        if np.abs(gradient).max() < 1e-10 * weight.sum():
            break
        part = design[:, free]
        hessian = (part * (weight * p * (1 - p))[:, None]).T @ part
        step = np.zeros(2)
        step[free] = np.linalg.solve(hessian + 1e-12 * np.eye(len(hessian)) * weight.sum(), gradient)
        size = 1.0
        while size > 1e-10 and loss(theta - size * step) > loss(theta):
            size /= 2
        theta = theta - size * step
    return float(theta[0]), float(theta[1])


class Calibration:
    """One sigmoid per decision column; several columns are normalised to sum to 1.

    Attributes
    ----------
    slopes, intercepts : array, (k,)
    """

    def __init__(self, slopes: np.ndarray, intercepts: np.ndarray) -> None:
        self.slopes, self.intercepts = slopes, intercepts

    @classmethod
    def fit(cls, decisions: np.ndarray, codes: np.ndarray, n_classes: int, weight: np.ndarray) -> Calibration:
        """Fit on decisions (n, k) for subjects held out of the fits that made them."""
        wanted = [1] if n_classes == 2 else range(n_classes)
        pairs = [platt(decisions[:, k], codes == c, weight) for k, c in enumerate(wanted)]
        return cls(np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs]))

    def probabilities(self, decisions: np.ndarray) -> np.ndarray:
        """Return (n, C) probabilities."""
        p = expit(decisions * self.slopes + self.intercepts)
        if p.shape[1] == 1:
            return np.concatenate([1.0 - p, p], axis=1)
        return p / p.sum(axis=1, keepdims=True)


class Decides(ABC):
    """A model that gives decision values; a child says how, and fits ``calibration`` for its probabilities.

    ``fit(inputs, y, sample_weight)`` takes class codes 0 to C-1, or targets, (n,), and optionally a weight of each
    subject, (n,): a subject of weight 2 counts as two.
    """

    n_classes: int
    calibration: Calibration

    @abstractmethod
    def decisions(self, inputs: Inputs) -> np.ndarray:
        """Return decision values, (n, 1) for two classes and regression, (n, C) otherwise."""

    def decision(self, inputs: Inputs) -> np.ndarray:
        """Return the decision value of two classes, (n,); positive values speak for class 1."""
        if self.n_classes != 2:
            raise BadInput(f"A model of {self.n_classes} classes has no single decision value: use predict_proba.")
        return self.decisions(inputs)[:, 0]

    def predict_proba(self, inputs: Inputs) -> np.ndarray:
        """Return class probabilities, (n, C)."""
        refuse_regression(self.n_classes)
        return self.calibration.probabilities(self.decisions(inputs))

    def predict(self, inputs: Inputs) -> np.ndarray:
        """Return the most probable class, or the predicted target, (n,)."""
        if self.n_classes == 1:
            return self.decisions(inputs)[:, 0]
        return self.predict_proba(inputs).argmax(axis=1)

    def calibration_state(self) -> dict[str, np.ndarray]:
        """Return the calibration for ``state_dict``; nothing where there is none."""
        found = getattr(self, "calibration", None)
        return {} if found is None else {"slopes": found.slopes, "shifts": found.intercepts}

    def load_calibration(self, state: dict[str, Any]) -> None:
        """Take what :meth:`calibration_state` gave."""
        if "slopes" in state:
            self.calibration = Calibration(np.asarray(state["slopes"]), np.asarray(state["shifts"]))
