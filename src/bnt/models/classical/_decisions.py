"""Decision values to probabilities, by Platt scaling on decisions for subjects a fit has not seen.

Platt (1999), "Probabilistic outputs for support vector machines"; the Newton iteration follows the remarks of
Lin, Lin and Weng (2007).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np
from scipy.special import expit

from bnt.errors import BadInput
from bnt.models._inputs import Inputs
from bnt.models.classical._solvers import refuse_regression

FOLDS = 5
LEAST_SLOPE = 1e-2  # per standard deviation of the decisions


def folds(target: np.ndarray, n_classes: int, n_folds: int = FOLDS) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield (fitted on, held out) rows: each class is dealt out in turn, in the order of the subjects.

    There are fewer folds where a class has fewer subjects, and none where one has a single subject.
    """
    order = np.argsort(target, kind="stable") if n_classes > 1 else np.arange(len(target))
    smallest = np.unique(target, return_counts=True)[1].min() if n_classes > 1 else len(target)
    n_folds = min(n_folds, int(smallest))
    turn = np.empty(len(target), dtype=np.int64)
    turn[order] = np.arange(len(target)) % max(n_folds, 1)
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
    slope, intercept = _sigmoid(scaled, target, weight, None)
    if slope < LEAST_SLOPE:
        slope, intercept = _sigmoid(scaled, target, weight, LEAST_SLOPE)
    return (slope / sd if sd > 0 else 1.0), intercept


def _sigmoid(x: np.ndarray, target: np.ndarray, weight: np.ndarray, fixed: float | None) -> tuple[float, float]:
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
    """A model that gives decision values; a child says how, and fits ``calibration`` for its probabilities."""

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
