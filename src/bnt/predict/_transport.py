"""Statistics of an external validation: discrimination, calibration, errors, and power of the sample.

Every estimate has a 95 % interval: DeLong's of an AUROC (logit scale), the likelihood ratio's of a calibration slope,
the sandwich estimator's of a calibration intercept, Wilson's of a proportion, Student's of a mean, Fisher's of a
correlation.
``benchmarks/validation_coverage.py`` measures how often they hold the truth.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, logit
from scipy.stats import chi2, norm, t

from bnt.models.classical._solvers import sigmoid
from bnt.training._task import auroc_error, auroc_interval, auroc_or_nan, proportion_interval

POWER = 0.8
NAN = float("nan")
FARTHEST = 50.0  # a slope or intercept beyond it is a separation: no interval
SQUEEZED = 1e-9  # probabilities of 0 and 1 have no logit


class Estimate(NamedTuple):
    """A value and its 95 % interval."""

    value: float
    low: float
    high: float

    def excludes(self, value: float) -> bool:
        """Whether the interval is known and lies on one side of a value."""
        return bool(np.isfinite([self.low, self.high]).all() and not self.low <= value <= self.high)


NOTHING = Estimate(NAN, NAN, NAN)


def mean_of(values: np.ndarray) -> Estimate:
    """Return a mean with Student's interval."""
    n = len(values)
    if n < 2:
        return Estimate(float(np.mean(values)) if n else NAN, NAN, NAN)
    mean = float(np.mean(values))
    half = float(t.ppf(0.975, n - 1) * np.std(values, ddof=1) / sqrt(n))
    return Estimate(mean, mean - half, mean + half)


def share_of(hits: np.ndarray) -> Estimate:
    """Return a proportion with Wilson's interval."""
    if not hits.size:
        return NOTHING
    return Estimate(float(hits.mean()), *proportion_interval(int(hits.sum()), hits.size))


# -- two classes -----------------------------------------------------------------------------------


def calibration(positive: np.ndarray, probability: np.ndarray) -> tuple[Estimate, Estimate]:
    """Return the calibration slope and the calibration in the large, with their intervals.

    The slope is that of a logistic regression of the class on the logit of its probability: 1 is ideal, below 1 the
    probabilities are too extreme. The second is the intercept with the slope held at 1: 0 is ideal, above 0 the
    probabilities are too low (Van Calster et al. 2019). Without both classes, or where probabilities separate them,
    there is no interval.
    """
    positive = np.asarray(positive, dtype=bool)
    x = logit(np.clip(np.asarray(probability, dtype=float), SQUEEZED, 1 - SQUEEZED))
    target, weight = positive.astype(float), np.ones(len(x))
    if len(x) < 3 or positive.all() or not positive.any():
        return NOTHING, NOTHING

    def loss(slope: float, intercept: float) -> float:
        value = slope * x + intercept
        return float((np.logaddexp(0.0, value) - target * value).sum())

    _, large = sigmoid(x, target, weight, 1.0)
    p = expit(x + large)
    # The slope is held at 1, which may be wrong: the spread is that of the residuals, not what probabilities promise.
    half = float(t.ppf(0.975, len(x) - 1) * np.sqrt(((target - p) ** 2).sum()) / (p * (1 - p)).sum())
    in_the_large = Estimate(large, large - half, large + half)
    if np.ptp(x) == 0 or auroc_or_nan(positive, x) in (0.0, 1.0):
        return NOTHING, in_the_large
    slope, _ = sigmoid(x, target, weight, None)
    return _profile(slope, lambda a: loss(a, sigmoid(x, target, weight, a)[1])), in_the_large


def _profile(best: float, loss: Callable[[float], float]) -> Estimate:
    """Return the values whose profile likelihood is not 1.92 below the best."""
    limit = loss(best) + float(chi2.ppf(0.95, 1)) / 2
    ends = []
    for sign in (-1, 1):
        step = 0.25
        while loss(best + sign * step) < limit and step < FARTHEST:
            step *= 2
        if step >= FARTHEST:
            return Estimate(best, NAN, NAN)
        ends.append(float(brentq(lambda a: loss(a) - limit, best, best + sign * step, xtol=1e-6)))
    return Estimate(best, *ends)


def binary_transport(positive: np.ndarray, probability: np.ndarray, threshold: float) -> dict[str, Estimate]:
    """Return what is reported of two classes."""
    positive = np.asarray(positive, dtype=bool)
    called = probability > threshold
    slope, large = calibration(positive, probability)
    return {
        "auroc": Estimate(auroc_or_nan(positive, probability), *auroc_interval(positive, probability)),
        "calibration_slope": slope,
        "calibration_intercept": large,
        "brier": mean_of((probability - positive) ** 2),
        "accuracy": share_of(called == positive),
        "sensitivity": share_of(called[positive]),
        "specificity": share_of(~called[~positive]),
    }


def auroc_difference(
    here: tuple[np.ndarray, np.ndarray], there: tuple[np.ndarray, np.ndarray]
) -> tuple[Estimate, float]:
    """Return AUROC here less there, of different people, and its two-sided p (DeLong's variances added)."""
    areas = [auroc_or_nan(*part) for part in (here, there)]
    error = sqrt(sum(auroc_error(*part) ** 2 for part in (here, there)))
    difference = areas[0] - areas[1]
    if not np.isfinite(error) or not np.isfinite(difference) or error == 0:
        return Estimate(difference, NAN, NAN), NAN
    half = float(norm.ppf(0.975)) * error
    return Estimate(difference, difference - half, difference + half), float(2 * norm.sf(abs(difference) / error))


# -- scores ----------------------------------------------------------------------------------------


def score_transport(y: np.ndarray, predicted: np.ndarray) -> dict[str, Estimate]:
    """Return what is reported of a score: r2 is 1 - squared error / variance here, so it may be negative.

    The interval of r2 is the delta method's for the logarithm of that ratio; slope and intercept are those of a
    regression of the score on its prediction, the intercept that of a slope of 1: the mean error.
    """
    y, predicted = np.asarray(y, dtype=float), np.asarray(predicted, dtype=float)
    n, error = len(y), y - predicted
    found = {"mae": mean_of(np.abs(error)), "calibration_intercept": mean_of(error)}
    if n < 4 or np.ptp(y) == 0 or np.ptp(predicted) == 0:
        return {"r2": NOTHING, "r": NOTHING, "calibration_slope": NOTHING, **found}
    squared, away = error**2, (y - y.mean()) ** 2
    ratio = squared.mean() / away.mean()
    half = float(t.ppf(0.975, n - 1) * np.std(squared / squared.mean() - away / away.mean(), ddof=1) / sqrt(n))
    r2 = (
        Estimate(1 - ratio, 1 - ratio * np.exp(half), 1 - ratio * np.exp(-half)) if ratio > 0 else Estimate(1, NAN, NAN)
    )
    x = predicted - predicted.mean()
    slope = float(x @ y / (x @ x))
    rest = y - y.mean() - slope * x
    width = float(t.ppf(0.975, n - 2) * sqrt(rest @ rest / (n - 2) / (x @ x)))
    r = float(np.corrcoef(y, predicted)[0, 1])
    z = np.arctanh(np.clip(r, -0.999999, 0.999999)) + np.array([-1, 1]) * norm.ppf(0.975) / sqrt(n - 3)
    return {
        "r2": Estimate(*map(float, r2)),
        "r": Estimate(r, *map(float, np.tanh(z))),
        "calibration_slope": Estimate(slope, slope - width, slope + width),
        **found,
    }


# -- what a sample can show ------------------------------------------------------------------------


def auroc_variance(area: float, n_positive: int, n_negative: int) -> float:
    """Return the variance of an AUROC that is not yet measured (Hanley and McNeil 1982)."""
    q1, q2 = area / (2 - area), 2 * area**2 / (1 + area)
    own = area * (1 - area) + (n_positive - 1) * (q1 - area**2) + (n_negative - 1) * (q2 - area**2)
    return own / (n_positive * n_negative)


def detectable_auroc(n_positive: int, n_negative: int) -> float:
    """Return the smallest AUROC that such a sample tells from 0.5 (80 % power, two-sided 5 %); NaN where none."""
    if min(n_positive, n_negative) < 2:
        return NAN
    chance = norm.ppf(0.975) * sqrt(auroc_variance(0.5, n_positive, n_negative))
    return _smallest(
        lambda a: a - 0.5 - chance - norm.ppf(POWER) * sqrt(auroc_variance(a, n_positive, n_negative)), 0.5, 0.999
    )


def detectable_drop(area: float, here: tuple[int, int], there: tuple[int, int]) -> float:
    """Return the smallest fall from an AUROC, measured elsewhere on other people, that such a sample shows.

    Parameters
    ----------
    area : float
        The AUROC there.
    here, there : (int, int)
        Positives and negatives.
    """
    if not np.isfinite(area) or min(*here, *there) < 2:
        return NAN
    known = auroc_variance(area, *there)
    chance = norm.ppf(0.975) * sqrt(known + auroc_variance(area, *here))
    return _smallest(
        lambda d: d - chance - norm.ppf(POWER) * sqrt(known + auroc_variance(area - d, *here)), 0.0, area - 0.001
    )


def detectable_correlation(n: int) -> float:
    """Return the smallest correlation that so many people tell from 0 (80 % power, two-sided 5 %)."""
    return NAN if n < 5 else float(np.tanh((norm.ppf(0.975) + norm.ppf(POWER)) / sqrt(n - 3)))


def _smallest(excess: Callable[[float], float], low: float, high: float) -> float:
    return float(brentq(excess, low, high)) if excess(low) < 0 < excess(high) else NAN
