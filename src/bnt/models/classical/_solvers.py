"""What the classical models share: checks of targets, centred kernels, and the solvers in kernel space."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bnt.errors import BadInput


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


COLUMNS_AT_ONCE = 8192


def gram(features: np.ndarray) -> np.ndarray:
    """Return all inner products in double precision: (n, F) float32 -> (n, n) float64."""
    total = np.zeros((len(features), len(features)))
    for start in range(0, features.shape[1], COLUMNS_AT_ONCE):
        part = features[:, start : start + COLUMNS_AT_ONCE].astype(np.float64)
        total += part @ part.T
    return total


def combine(features: np.ndarray, dual: np.ndarray) -> np.ndarray:
    """Return the weights that a combination of subjects stands for: (n, F), (n, k) -> (k, F) float64."""
    out = np.empty((dual.shape[1], features.shape[1]))
    for start in range(0, features.shape[1], COLUMNS_AT_ONCE):
        part = slice(start, start + COLUMNS_AT_ONCE)
        out[:, part] = dual.T @ features[:, part].astype(np.float64)
    return out


def project(features: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return inner products with weights, in double precision: (n, F), (k, F) -> (n, k)."""
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
    from sklearn.svm import SVC

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
    from sklearn.svm import SVR

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
    from scipy.linalg import solve

    columns = target[:, None].astype(np.float64) if n_classes == 1 else signs(target, n_classes)
    mean = np.average(columns, axis=0, weights=weight)
    root = np.sqrt(weight)[:, None]
    system = root * kernel * root.T
    system[np.diag_indices_from(system)] += penalty
    return root * solve(system, root * (columns - mean), assume_a="pos"), mean


def logistic(kernel: np.ndarray, target: np.ndarray, weight: np.ndarray, n_classes: int, C: float) -> Solution:
    """Fit logistic regression with an L2 penalty (C as in scikit-learn) in the span of the training subjects."""
    from sklearn.linear_model import LogisticRegression

    values, vectors = np.linalg.eigh(kernel)
    kept = values > 1e-12 * max(values[-1], 1e-300)
    basis = vectors[:, kept] / np.sqrt(values[kept])  # kernel @ basis are coordinates in that span, (n, r)
    present = np.unique(target)
    model = LogisticRegression(C=C, tol=1e-8, max_iter=2000)
    if not kept.any():  # nothing varies: the intercepts alone
        basis = np.zeros((len(kernel), 1))
    model.fit(kernel @ basis, target, sample_weight=weight)
    dual, intercept = basis @ model.coef_.T, model.intercept_
    if n_classes == 2 or len(present) == n_classes:
        return dual, intercept
    if len(present) == 2:  # one logit for two classes: the first has logit 0
        dual = np.concatenate([np.zeros_like(dual), dual], axis=1)
        intercept = np.concatenate([[0.0], intercept])
    all_dual, all_intercept = np.zeros((len(kernel), n_classes)), np.full(n_classes, ABSENT)
    all_dual[:, present], all_intercept[present] = dual, intercept
    return all_dual, all_intercept
