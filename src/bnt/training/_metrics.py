"""What is reported of a set of predictions, with 95 % intervals.

Sensitivity is the recall of the positive class (named in every report), specificity that of the other.
Accuracy, sensitivity and specificity use probability > 0.5, so that accuracy is exactly the
class-share-weighted mean of the two.
"""

from __future__ import annotations

import warnings
from math import sqrt
from typing import Any

import numpy as np

Z95 = 1.959963984540054


def auroc(positive: np.ndarray, score: np.ndarray) -> float:
    """Return the area under the ROC curve (ties count half); NaN with a warning where a class is absent.

    From ranks, as permutation and DeLong tests need them: scikit-learn's trapezoids differ in the last bit.
    """
    area = auroc_or_nan(positive, score)
    if np.isnan(area):
        warnings.warn("AUROC is undefined: only one class is present.", stacklevel=2)
    return area


def auroc_or_nan(positive: np.ndarray, score: np.ndarray) -> float:
    """Return :func:`auroc` without the warning: who made the split knows its name, and says it once."""
    from scipy.stats import rankdata

    positive = np.asarray(positive, dtype=bool)
    n1 = int(positive.sum())
    n0 = positive.size - n1
    if n1 == 0 or n0 == 0:
        return float("nan")
    ranks = rankdata(score)
    return float((ranks[positive].sum() - n1 * (n1 + 1) / 2) / (n1 * n0))


def auroc_interval(positive: np.ndarray, score: np.ndarray) -> tuple[float, float]:
    """Return the 95 % interval of one AUROC by DeLong's variance, on the logit scale so that it stays in [0, 1]."""
    from scipy.stats import rankdata

    positive = np.asarray(positive, dtype=bool)
    area = auroc_or_nan(positive, score)
    n1, n0 = int(positive.sum()), int((~positive).sum())
    if not np.isfinite(area) or min(n1, n0) < 2:
        return float("nan"), float("nan")
    ranks = rankdata(score)
    among1, among0 = rankdata(np.asarray(score)[positive]), rankdata(np.asarray(score)[~positive])
    placed1 = (ranks[positive] - among1) / n0  # share of negatives below each positive
    placed0 = 1 - (ranks[~positive] - among0) / n1
    error = sqrt(placed1.var(ddof=1) / n1 + placed0.var(ddof=1) / n0)
    if area in (0.0, 1.0) or error == 0:  # DeLong's variance is zero there: as sure as the smaller class allows
        few = min(n1, n0)
        return proportion_interval(round(area * few), few)
    centre, half = np.log(area / (1 - area)), Z95 * error / (area * (1 - area))
    return float(1 / (1 + np.exp(half - centre))), float(1 / (1 + np.exp(-half - centre)))


def proportion_interval(successes: int, n: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a proportion."""
    from scipy.stats import binomtest

    if n == 0:
        return float("nan"), float("nan")
    found = binomtest(successes, n).proportion_ci(method="wilson")
    return float(found.low), float(found.high)


def _rate(hits: np.ndarray) -> tuple[float, tuple[float, float]]:
    value = float(hits.mean()) if hits.size else float("nan")
    return value, proportion_interval(int(hits.sum()), hits.size)


def calibration_error(positive: np.ndarray, probability: np.ndarray, n_bins: int = 10) -> float:
    """Return the expected calibration error over ``n_bins`` bins of equal width."""
    bins = np.minimum((np.asarray(probability) * n_bins).astype(int), n_bins - 1)
    total = 0.0
    for b in np.unique(bins):
        inside = bins == b
        total += inside.mean() * abs(positive[inside].mean() - probability[inside].mean())
    return float(total)


def binary_metrics(positive: np.ndarray, probability: np.ndarray) -> dict[str, Any]:
    """Return metrics of a binary prediction and, under ``<name>_ci``, their intervals."""
    positive = np.asarray(positive, dtype=bool)
    called = probability > 0.5
    accuracy, accuracy_ci = _rate(called == positive)
    sensitivity, sensitivity_ci = _rate(called[positive])
    specificity, specificity_ci = _rate(~called[~positive])
    share = positive.mean()
    if 0 < share < 1:
        implied = share * sensitivity + (1 - share) * specificity
        if abs(accuracy - implied) > 1e-9:
            raise AssertionError(f"accuracy {accuracy} is not the weighted mean {implied} of the two recalls")
    return {
        "auroc": auroc_or_nan(positive, probability),
        "auroc_ci": auroc_interval(positive, probability),
        "accuracy": accuracy,
        "accuracy_ci": accuracy_ci,
        "sensitivity": sensitivity,
        "sensitivity_ci": sensitivity_ci,
        "specificity": specificity,
        "specificity_ci": specificity_ci,
        "balanced_accuracy": (sensitivity + specificity) / 2,
        "brier": float(np.mean((probability - positive) ** 2)),
        "calibration_error": calibration_error(positive, probability),
        "n": int(positive.size),
        "n_positive": int(positive.sum()),
    }


def multiclass_metrics(codes: np.ndarray, probabilities: np.ndarray) -> dict[str, Any]:
    """Return metrics of a prediction among three classes or more (AUROC: macro one-vs-rest)."""
    n_classes = probabilities.shape[1]
    called = probabilities.argmax(axis=1)
    accuracy, accuracy_ci = _rate(called == codes)
    recalls = [float((called[codes == c] == c).mean()) for c in range(n_classes) if (codes == c).any()]
    one_hot = np.eye(n_classes)[codes]
    return {
        "auroc": float(np.mean([auroc_or_nan(codes == c, probabilities[:, c]) for c in range(n_classes)])),
        "accuracy": accuracy,
        "accuracy_ci": accuracy_ci,
        "balanced_accuracy": float(np.mean(recalls)),
        "brier": float(np.mean(((probabilities - one_hot) ** 2).sum(axis=1))),
        "n": int(codes.size),
    }


def regression_metrics(y: np.ndarray, predicted: np.ndarray) -> dict[str, Any]:
    """Return errors and correlations of a predicted score; the interval of r is Fisher's."""
    from scipy.stats import spearmanr
    from sklearn.metrics import mean_absolute_error, mean_squared_error, r2_score

    y, predicted = np.asarray(y, dtype=float), np.asarray(predicted, dtype=float)
    same = np.ptp(y) == 0
    flat = predicted.std() == 0 or same
    r = float("nan") if flat else float(np.corrcoef(y, predicted)[0, 1])
    half = Z95 / sqrt(max(y.size - 3, 1))
    r_ci = (float("nan"),) * 2 if flat else tuple(np.tanh(np.arctanh(np.clip(r, -0.999999, 0.999999)) + [-half, half]))
    return {
        "mse": float(mean_squared_error(y, predicted)),
        "mae": float(mean_absolute_error(y, predicted)),
        "r": r,
        "r_ci": (float(r_ci[0]), float(r_ci[1])),
        "spearman": float("nan") if flat else float(spearmanr(y, predicted).statistic),
        "r2": float("nan") if same else float(r2_score(y, predicted)),
        "n": int(y.size),
    }
