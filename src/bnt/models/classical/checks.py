"""Refusals that the classical models share."""

from __future__ import annotations

import numpy as np

from bnt.errors import BadInput


def check_target(
    y: np.ndarray, sample_weight: np.ndarray | None, n: int, n_classes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return targets and weights in the form the solvers need, or say what is wrong with them."""
    y = np.asarray(y)
    if y.shape != (n,):
        raise BadInput(f"There are {n} subjects and targets of shape {y.shape}: give one target a subject.")
    weight = np.ones(n) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    if weight.shape != (n,) or not np.isfinite(weight).all() or (weight < 0).any() or weight.sum() <= 0:
        raise BadInput("sample_weight must hold one number of at least 0 a subject, and not only zeros.")
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
