"""Support vectors, ridge and logistic regression on a centred kernel.

Each solver returns dual coefficients (n, k) and intercepts (k,): the decision for a subject is
``kernel(subject, training) @ dual + intercept``. k is 1 for two classes and for regression, and the number of
classes otherwise (one against the rest; logistic regression is multinomial).
"""

from __future__ import annotations

import numpy as np

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
