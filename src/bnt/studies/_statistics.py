"""Statistics over splits and over subjects.

Repeated splits share subjects, so their scores are not independent: a plain t-test finds differences that are not
there. The corrected resampled t-test of Nadeau and Bengio (2003) widens the variance by the overlap; the plain one is
kept, labelled, because the paper used it.

Written here because neither scipy nor scikit-learn has them: the corrected test, Holm's adjustment, DeLong's test, and
permutation tests within sites and of paired scores. Quantiles, ranks and tails are scipy's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

NO_SPREAD = 1e-12  # an SD below this is rounding of the same number


@dataclass(frozen=True)
class Summary:
    """Mean, SD and 95 % interval of a score over splits."""

    n: int
    mean: float
    sd: float
    low: float
    high: float


def variance_factor(n: int, test_to_train: float) -> float:
    """Return 1/n + n_test/n_train: what the variance of the mean is multiplied by (Nadeau and Bengio 2003)."""
    return 1 / n + test_to_train


def summarise(scores: Sequence[float], test_to_train: float = 0.0) -> Summary:
    """Return mean, SD (n - 1) and 95 % t-interval of scores over splits; NaN scores are left out.

    Parameters
    ----------
    scores : sequence of float
    test_to_train : float
        Size of the test set divided by that of the training set, for overlapping splits; 0 treats the splits as
        independent.

    Examples
    --------
    >>> from bnt.studies import summarise
    >>> found = summarise([0.70, 0.74, 0.72], test_to_train=0.25)
    >>> round(found.mean, 2), found.low < found.mean < found.high
    (0.72, True)
    """
    from scipy.stats import t

    values = np.asarray(scores, dtype=float)
    values = values[np.isfinite(values)]
    n = values.size
    if n == 0:
        return Summary(0, float("nan"), float("nan"), float("nan"), float("nan"))
    mean = float(values.mean())
    if n == 1:
        return Summary(1, mean, float("nan"), float("nan"), float("nan"))
    sd = float(values.std(ddof=1))
    half = float(t.ppf(0.975, n - 1)) * sd * sqrt(variance_factor(n, test_to_train))
    return Summary(n, mean, sd, mean - half, mean + half)


@dataclass(frozen=True)
class Comparison:
    """A paired difference over splits: mean, 95 % interval, t, degrees of freedom, two-sided p."""

    n: int
    difference: float
    low: float
    high: float
    t: float
    df: int
    p: float


def paired_test(a: Sequence[float], b: Sequence[float], test_to_train: float = 0.0) -> Comparison:
    """Test whether ``a`` - ``b`` differs from zero over shared splits.

    With ``test_to_train`` = n_test / n_train it is the corrected resampled t-test of Nadeau and Bengio;
    with 0 it is the plain paired t-test. Where the difference is the same on every split, and not 0, its spread is
    not known: interval, t and p are NaN.

    Examples
    --------
    >>> from bnt.studies import paired_test
    >>> found = paired_test([0.74, 0.76, 0.75], [0.70, 0.74, 0.72], test_to_train=0.25)
    >>> round(found.difference, 2), found.p > 0.01
    (0.03, True)
    """
    from scipy.stats import t

    d = np.asarray(a, dtype=float) - np.asarray(b, dtype=float)
    d = d[np.isfinite(d)]
    n = d.size
    nan = float("nan")
    if n < 2:
        return Comparison(n, float(d.mean()) if n else nan, nan, nan, nan, max(n - 1, 0), nan)
    mean, sd = float(d.mean()), float(d.std(ddof=1))
    if sd < NO_SPREAD * max(1.0, abs(mean)):
        if abs(mean) < NO_SPREAD:
            return Comparison(n, 0.0, 0.0, 0.0, nan, n - 1, 1.0)
        return Comparison(n, mean, nan, nan, nan, n - 1, nan)
    error = sd * sqrt(variance_factor(n, test_to_train))
    half = float(t.ppf(0.975, n - 1)) * error
    statistic = mean / error
    return Comparison(n, mean, mean - half, mean + half, statistic, n - 1, float(2 * t.sf(abs(statistic), n - 1)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's step-down adjusted p-values, in the order given; NaN stays NaN and is not counted.

    Examples
    --------
    >>> from bnt.studies import holm
    >>> holm([0.01, 0.04])
    [0.02, 0.04]
    """
    p = np.asarray(p_values, dtype=float)
    adjusted = np.full(p.size, np.nan)
    valid = np.flatnonzero(np.isfinite(p))
    running = 0.0
    for rank, i in enumerate(valid[np.argsort(p[valid], kind="stable")]):
        running = max(running, min(1.0, (valid.size - rank) * p[i]))
        adjusted[i] = running
    return adjusted.tolist()


@dataclass(frozen=True)
class DeLong:
    """DeLong's test of two correlated AUROCs on the same subjects."""

    auroc_a: float
    auroc_b: float
    difference: float
    low: float
    high: float
    z: float
    p: float


def _placements(positive: np.ndarray, score: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return for each positive the share of negatives below it, and for each negative of positives above it."""
    from scipy.stats import rankdata

    ranks = rankdata(score)
    n1, n0 = int(positive.sum()), int((~positive).sum())
    above = (ranks[positive] - rankdata(score[positive])) / n0
    below = 1 - (ranks[~positive] - rankdata(score[~positive])) / n1
    return above, below


def delong(positive: np.ndarray, score_a: np.ndarray, score_b: np.ndarray) -> DeLong:
    """Compare two scores of the same subjects (DeLong, DeLong and Clarke-Pearson 1988; fast form of Sun and Xu 2014).

    On predictions pooled over splits a subject may appear more than once: average its scores first
    (:func:`bnt.studies._results.pooled_predictions` does). With fewer than two subjects of a class, and
    where two AUROCs that differ have no variance, interval, z and p are NaN.

    Examples
    --------
    >>> import numpy as np
    >>> positive = np.arange(40) % 2 == 1
    >>> probability = np.linspace(0, 1, 40)
    >>> from bnt.studies import delong
    >>> delong(positive, probability, probability[::-1]).difference > 0
    True
    """
    from scipy.stats import norm

    positive = np.asarray(positive, dtype=bool)
    n1, n0 = int(positive.sum()), int((~positive).sum())
    nan = float("nan")
    if min(n1, n0) == 0:
        return DeLong(nan, nan, nan, nan, nan, nan, nan)
    above_a, below_a = _placements(positive, np.asarray(score_a))
    above_b, below_b = _placements(positive, np.asarray(score_b))
    area_a, area_b = float(above_a.mean()), float(above_b.mean())
    difference = area_a - area_b
    if min(n1, n0) < 2:
        return DeLong(area_a, area_b, difference, nan, nan, nan, nan)
    # var(A) + var(B) - 2 cov(A, B) of the placements is the variance of their differences
    variance = float((above_a - above_b).var(ddof=1) / n1 + (below_a - below_b).var(ddof=1) / n0)
    if sqrt(variance) < NO_SPREAD:
        if abs(difference) < NO_SPREAD:
            return DeLong(area_a, area_b, 0.0, 0.0, 0.0, 0.0, 1.0)
        return DeLong(area_a, area_b, difference, nan, nan, nan, nan)
    error = sqrt(variance)
    z, half = difference / error, float(norm.ppf(0.975)) * error
    return DeLong(area_a, area_b, difference, difference - half, difference + half, z, float(2 * norm.sf(abs(z))))


def permutation_test(
    positive: np.ndarray,
    score: np.ndarray,
    n_permutations: int = 10_000,
    seed: int = 0,
    strata: np.ndarray | None = None,
) -> float:
    """Return the one-sided p-value of an AUROC under permuted labels, within ``strata`` (sites) where given.

    The observed order counts as one of the permutations, so p is never 0 (Phipson and Smyth 2010).

    Examples
    --------
    >>> import numpy as np
    >>> positive = np.arange(40) % 2 == 1
    >>> probability = np.linspace(0, 1, 40)
    >>> from bnt.studies import permutation_test
    >>> 0 < permutation_test(positive, probability, n_permutations=50) <= 1
    True
    """
    from scipy.stats import rankdata

    positive = np.asarray(positive, dtype=bool)
    ranks = rankdata(score)
    observed = ranks[positive].sum()
    rng = np.random.default_rng(seed)
    groups = [np.arange(positive.size)] if strata is None else [np.flatnonzero(strata == s) for s in np.unique(strata)]
    beaten = 0
    for _ in range(n_permutations):
        total = sum(rng.permutation(ranks[g])[: int(positive[g].sum())].sum() for g in groups)
        beaten += bool(total >= observed - 1e-9)
    return (1 + beaten) / (1 + n_permutations)


def paired_permutation_test(
    positive: np.ndarray, score_a: np.ndarray, score_b: np.ndarray, n_permutations: int = 10_000, seed: int = 0
) -> float:
    """Return the two-sided p-value of a difference of two AUROCs when, subject by subject, the two scores are swapped.

    Each score is replaced by its ranks first, so that models with other scales can be swapped. The observed
    order counts as one of the permutations.
    """
    from scipy.stats import rankdata

    positive = np.asarray(positive, dtype=bool)
    a, b = rankdata(score_a), rankdata(score_b)
    n1 = int(positive.sum())
    n0 = positive.size - n1
    observed = abs((a[positive].sum() - b[positive].sum()) / (n1 * n0))
    rng = np.random.default_rng(seed)
    beaten = 0
    for start in range(0, n_permutations, 500):  # blocks keep the memory small
        swap = rng.random((min(500, n_permutations - start), positive.size)) < 0.5
        first = rankdata(np.where(swap, b, a), axis=1)
        second = rankdata(np.where(swap, a, b), axis=1)
        differences = (first[:, positive].sum(axis=1) - second[:, positive].sum(axis=1)) / (n1 * n0)
        beaten += int((np.abs(differences) >= observed - 1e-12).sum())
    return (1 + beaten) / (1 + n_permutations)
