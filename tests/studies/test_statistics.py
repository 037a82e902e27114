"""Statistics over splits and subjects, each against a closed form, a naive loop or another implementation."""

from __future__ import annotations

import warnings
from itertools import combinations, product
from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import roc_auc_score

from bnt.studies._statistics import (
    delong,
    holm,
    paired_permutation_test,
    paired_test,
    permutation_test,
    summarise,
)
from bnt.training._task import auroc, binary_metrics, calibration_error, multiclass_metrics

scores = st.lists(st.floats(0, 1, width=32), min_size=3, max_size=20)


# -- over splits ------------------------------------------------------------------------------------


@given(scores, st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_without_a_correction_it_is_the_plain_paired_t_test(a, seed):
    b = np.random.default_rng(seed).random(len(a))
    found, oracle = paired_test(a, b.tolist()), stats.ttest_rel(a, b)
    interval = oracle.confidence_interval(0.95)
    assert found.t == pytest.approx(oracle.statistic, rel=1e-9)
    assert found.p == pytest.approx(oracle.pvalue, rel=1e-9, abs=1e-15)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-9, abs=1e-12)


def test_the_corrected_t_test_by_hand():
    # Differences 1, 2, 3, 4, 5 (mean 3, variance 2.5) with n_test / n_train = 1 / 4:
    # t = 3 / sqrt(2.5 (1/5 + 1/4)) = 3 / sqrt(1.125) = 2.828427..., df 4.
    found = paired_test([2, 4, 6, 8, 10], [1, 2, 3, 4, 5], 0.25)
    assert found.t == pytest.approx(2 * sqrt(2), rel=1e-12)
    assert found.df == 4
    # Student's t with 4 degrees of freedom has a closed distribution function:
    # F(t) = 1/2 + (3/8) s (1 - s^2 / 12 * ...) written with x = t / sqrt(4 + t^2): 1/2 + (3 x - x^3) / 4
    x = found.t / sqrt(4 + found.t**2)
    assert found.p == pytest.approx(2 * (0.5 - (3 * x - x**3) / 4), rel=1e-9)
    # 2.776445 is the 97.5 % point of t with 4 degrees of freedom in every printed table
    assert found.high - found.difference == pytest.approx(2.776445 * sqrt(1.125), rel=1e-6)


def test_the_correction_divides_t_by_a_known_factor():
    # Nadeau and Bengio 2003: sqrt((1/n) / (1/n + ratio)); ten-fold, ten repeats: sqrt(0.01 / (0.01 + 1/9))
    rng = np.random.default_rng(1)
    a, b = rng.random(100), rng.random(100)
    factor = sqrt(0.01 / (0.01 + 1 / 9))
    assert paired_test(a, b, 1 / 9).t == pytest.approx(stats.ttest_rel(a, b).statistic * factor, rel=1e-12)


def test_the_corrected_test_keeps_its_level_on_overlapping_splits_and_the_plain_one_does_not():
    # Two useless models scored on random halves of the same 100 subjects, whose errors have nothing to do with a class.
    rng = np.random.default_rng(0)
    plain = corrected = 0
    for _ in range(300):
        gain = rng.normal(size=100)
        tests = [rng.permutation(100)[:33] for _ in range(15)]
        a = [gain[t].mean() for t in tests]
        plain += paired_test(a, [0.0] * 15).p < 0.05
        corrected += paired_test(a, [0.0] * 15, 33 / 67).p < 0.05
    assert plain / 300 > 0.25
    assert corrected / 300 < 0.1


def test_equal_scores_give_no_evidence():
    assert paired_test([0.7, 0.8], [0.7, 0.8]).p == 1
    assert paired_test([0.1 + 0.2, 0.8], [0.3, 0.8]).p == 1  # they differ by rounding only


@pytest.mark.parametrize("ratio", [0, 0.28])
def test_a_constant_gain_is_not_certain(ratio):
    # its spread over splits is not known; 0.6 - 0.5 and 0.7 - 0.6 differ by rounding only
    found = paired_test([0.6, 0.7, 0.8], [0.5, 0.6, 0.7], ratio)
    assert (found.n, found.difference) == (3, pytest.approx(0.1))
    assert np.isnan([found.low, found.high, found.t, found.p]).all()


def test_delong_without_variance_is_not_certain():
    positive = np.array([True, True, False, False])
    found = delong(positive, np.array([0.9, 0.9, 0.1, 0.1]), np.array([0.1, 0.1, 0.9, 0.9]))
    assert found.difference == 1
    assert np.isnan([found.low, found.high, found.z, found.p]).all()
    assert delong(positive, np.arange(4.0), np.arange(4.0)).p == 1


def test_splits_without_a_score_are_left_out_of_a_pair():
    assert paired_test([1, np.nan, 3, 5], [0, 1, 1, np.nan]).n == 2


@given(scores)
@settings(max_examples=40, deadline=None)
def test_summary_interval_is_the_t_interval_of_the_mean(values):
    found = summarise([*values, float("nan")])
    low, high = stats.t.interval(0.95, len(values) - 1, np.mean(values), stats.sem(values) or 1e-300)
    assert found.n == len(values)
    assert found.sd == pytest.approx(np.std(values, ddof=1), abs=1e-12)
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-9)


def test_one_score_has_no_interval_and_no_score_no_mean():
    assert summarise([0.7]).mean == 0.7
    assert np.isnan(summarise([0.7]).low)
    assert np.isnan(summarise([float("nan")]).mean)


# -- several models ---------------------------------------------------------------------------------


def test_holm_by_hand():
    # Sorted 0.005, 0.01, 0.03, 0.04 times 4, 3, 2, 1 = 0.02, 0.03, 0.06, 0.04 -> running maximum 0.02, 0.03, 0.06, 0.06
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_holm_counts_only_tests_that_were_made():
    assert holm([0.01, float("nan"), 0.02]) == pytest.approx([0.02, float("nan"), 0.02], nan_ok=True)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_rejects_what_the_step_down_procedure_rejects(p):
    level = 0.05
    rejected = set()
    for rank, i in enumerate(sorted(range(len(p)), key=lambda i: p[i])):  # Holm 1979, as the procedure is told
        if p[i] * (len(p) - rank) > level:
            break
        rejected.add(i)
    assert {i for i, adjusted in enumerate(holm(p)) if adjusted <= level} == rejected


# -- over subjects ----------------------------------------------------------------------------------


def naive_delong(positive, a, b):
    """Areas and variance of their difference from the m x n comparisons, as the paper of 1988 defines them."""
    parts = []
    for score in (a, b):
        psi = np.array([[(x > y) + 0.5 * (x == y) for y in score[~positive]] for x in score[positive]])
        parts.append((psi.mean(), psi.mean(axis=1), psi.mean(axis=0)))
    m, n = int(positive.sum()), int((~positive).sum())
    s10 = np.cov(np.stack([p[1] for p in parts]))
    s01 = np.cov(np.stack([p[2] for p in parts]))
    s = s10 / m + s01 / n
    return parts[0][0], parts[1][0], s[0, 0] + s[1, 1] - 2 * s[0, 1]


@given(st.integers(0, 10_000), st.integers(4, 30), st.booleans())
@settings(max_examples=50, deadline=None)
def test_delong_is_the_naive_one(seed, n, ties):
    rng = np.random.default_rng(seed)
    positive = np.arange(n) % 2 == 0
    a, b = rng.normal(size=(2, n)) + positive
    if ties:
        a, b = np.round(a), np.round(b)
    area_a, area_b, variance = naive_delong(positive, a, b)
    found = delong(positive, a, b)
    assert found.auroc_a == pytest.approx(area_a)
    assert found.auroc_a == pytest.approx(roc_auc_score(positive, a))
    assert found.auroc_b == pytest.approx(area_b)
    if variance > 1e-12:
        assert found.z == pytest.approx((area_a - area_b) / sqrt(variance))
        assert found.p == pytest.approx(2 * stats.norm.sf(abs(found.z)))


def test_delong_error_is_near_the_bootstrap_one():
    rng = np.random.default_rng(3)
    positive = np.arange(200) < 90
    common = rng.normal(size=200)
    a, b = positive + common + 0.5 * rng.normal(size=200), 0.6 * positive + common + 0.5 * rng.normal(size=200)
    found = delong(positive, a, b)
    draws = []
    for _ in range(600):
        rows = np.concatenate([rng.integers(0, 90, 90), rng.integers(90, 200, 110)])
        draws.append(auroc(positive[rows], a[rows]) - auroc(positive[rows], b[rows]))
    assert (found.high - found.low) / (2 * 1.959964) == pytest.approx(np.std(draws), rel=0.15)


def test_delong_of_equal_scores_is_no_difference():
    positive = np.array([1, 0, 1, 0, 1], dtype=bool)
    assert delong(positive, np.arange(5.0), np.arange(5.0)).p == 1


def test_delong_with_one_subject_of_a_class_has_no_p():
    found = delong(np.array([1, 0, 0], dtype=bool), np.array([0.9, 0.1, 0.2]), np.array([0.5, 0.7, 0.2]))
    assert found.auroc_a == 1
    assert np.isnan(found.p)


def test_permutation_test_is_the_exact_one_on_tiny_data():
    positive = np.array([1, 1, 1, 0, 0, 0, 0], dtype=bool)
    score = np.array([0.9, 0.8, 0.35, 0.4, 0.3, 0.2, 0.8])
    observed = roc_auc_score(positive, score)
    areas = []
    for chosen in combinations(range(7), 3):
        labels = np.isin(np.arange(7), chosen)
        areas.append(roc_auc_score(labels, score))
    exact = np.mean(np.array(areas) >= observed - 1e-12)
    assert permutation_test(positive, score, 20_000) == pytest.approx(exact, abs=0.012)


def test_permutation_within_sites_does_not_take_a_site_effect_for_a_class_effect():
    site = np.repeat([0, 1], 60)
    positive = np.concatenate([np.arange(60) < 50, np.arange(60) < 10])  # one site has the cases, the other controls
    score = site * -1.0 + 0.1 * np.random.default_rng(0).normal(size=120)  # the score only knows the site
    assert permutation_test(positive, score, 500) < 0.01
    assert permutation_test(positive, score, 500, strata=site) > 0.05


def test_paired_permutation_test_is_the_exact_one_on_tiny_data():
    positive = np.array([1, 1, 1, 0, 0, 0, 0], dtype=bool)
    a, b = np.array([7.0, 6, 5, 4, 3, 2, 1]), np.array([1.0, 6, 2, 4, 3, 5, 7])
    observed = abs(roc_auc_score(positive, a) - roc_auc_score(positive, b))
    found = []
    for swap in product([False, True], repeat=7):
        first, second = np.where(swap, b, a), np.where(swap, a, b)
        found.append(abs(roc_auc_score(positive, first) - roc_auc_score(positive, second)) >= observed - 1e-12)
    assert paired_permutation_test(positive, a, b, 20_000) == pytest.approx(np.mean(found), abs=0.012)


def test_paired_permutation_does_not_depend_on_the_scale_of_a_score():
    rng = np.random.default_rng(5)
    positive = np.arange(40) % 2 == 0
    a, b = rng.normal(size=(2, 40)) + positive
    assert paired_permutation_test(positive, a, b, 200) == paired_permutation_test(positive, np.exp(a), b - 50, 200)


# -- of one run -------------------------------------------------------------------------------------


@given(st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_calibration_error_is_the_naive_one(seed):
    rng = np.random.default_rng(seed)
    probability = rng.random(50)
    positive = rng.random(50) < probability
    total = 0.0
    for k in range(10):
        inside = [i for i in range(50) if k / 10 <= probability[i] < (k + 1) / 10]
        if inside:
            total += len(inside) / 50 * abs(np.mean(positive[inside]) - np.mean(probability[inside]))
    assert calibration_error(positive, probability) == pytest.approx(total)


def test_the_undefined_auroc_of_a_run_is_nan_without_a_warning():
    # in a worker it would be a raw line that names no run; the study names the split, once
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = binary_metrics(np.ones(4, dtype=bool), np.array([0.1, 0.6, 0.7, 0.9]))
        several = multiclass_metrics(np.array([0, 1, 1]), np.full((3, 3), 1 / 3))
    assert np.isnan([found["auroc"], *found["auroc_ci"], several["auroc"]]).all()
