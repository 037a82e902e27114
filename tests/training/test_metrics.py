"""Metrics against scikit-learn and published formulas."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm
from sklearn import metrics as sk

from bnt.errors import BadInput
from bnt.training._task import (
    auroc,
    auroc_interval,
    binary_metrics,
    calibration_error,
    multiclass_metrics,
    proportion_interval,
    regression_metrics,
    task_for,
)


@given(st.integers(0, 10_000), st.integers(4, 60))
def test_auroc_equals_scikit_learn_with_ties(seed, n):
    rng = np.random.default_rng(seed)
    y = np.r_[0, 1, rng.integers(0, 2, n)]
    score = rng.integers(0, 5, n + 2) / 5
    assert auroc(y == 1, score) == pytest.approx(sk.roc_auc_score(y, score), abs=1e-12)


def test_auroc_of_one_class_is_nan_with_a_warning():
    with pytest.warns(UserWarning, match="only one class"):
        assert np.isnan(auroc(np.ones(4, bool), np.arange(4)))


def test_delong_interval_equals_the_loop_over_pairs():
    rng = np.random.default_rng(3)
    y = rng.integers(0, 2, 80)
    score = np.round(rng.normal(size=80) + y, 1)
    psi = (score[y == 1][:, None] > score[y == 0]) + 0.5 * (score[y == 1][:, None] == score[y == 0])
    m, n = psi.shape
    error = np.sqrt(psi.mean(1).var(ddof=1) / m + psi.mean(0).var(ddof=1) / n)
    area = psi.mean()
    centre, half = np.log(area / (1 - area)), norm.ppf(0.975) * error / (area * (1 - area))
    expected = 1 / (1 + np.exp(-(centre + np.array([-half, half]))))
    assert auroc_interval(y == 1, score) == pytest.approx(tuple(expected), abs=1e-9)


def test_wilson_interval_equals_the_published_example():
    # Newcombe 1998, table I, method 3: 81 of 263 -> 0.2553 to 0.3662; 0 of 20 -> 0 to 0.1611.
    assert proportion_interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=1e-4)
    assert proportion_interval(0, 20) == pytest.approx((0.0, 0.1611), abs=1e-4)


@given(st.integers(0, 10_000), st.integers(2, 80))
def test_binary_metrics_equal_scikit_learn(seed, n):
    rng = np.random.default_rng(seed)
    y = np.r_[0, 1, rng.integers(0, 2, n)]
    p = rng.random(n + 2)
    found = binary_metrics(y == 1, p)
    called = (p > 0.5).astype(int)
    assert found["accuracy"] == pytest.approx(sk.accuracy_score(y, called))
    assert found["sensitivity"] == pytest.approx(sk.recall_score(y, called, zero_division=0))
    assert found["specificity"] == pytest.approx(sk.recall_score(1 - y, 1 - called, zero_division=0))
    assert found["balanced_accuracy"] == pytest.approx(sk.balanced_accuracy_score(y, called))
    assert found["brier"] == pytest.approx(sk.brier_score_loss(y, p))
    share = y.mean()  # docs/facts.md, Training
    weighted = share * found["sensitivity"] + (1 - share) * found["specificity"]
    assert found["accuracy"] == pytest.approx(weighted, abs=1e-9)


def test_calibration_error_of_a_calibrated_and_of_a_boastful_model():
    p = np.repeat([0.25, 0.75], 400)
    y = np.tile([1, 0, 0, 0], 100).tolist() + np.tile([1, 1, 1, 0], 100).tolist()
    assert calibration_error(np.array(y), p) == pytest.approx(0, abs=1e-12)
    assert calibration_error(np.zeros(10), np.full(10, 0.9)) == pytest.approx(0.9)


def test_multiclass_and_regression_metrics_equal_scikit_learn():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 3, 50)
    p = rng.dirichlet(np.ones(3), 50)
    found = multiclass_metrics(codes, p)
    assert found["auroc"] == pytest.approx(sk.roc_auc_score(codes, p, multi_class="ovr"))
    assert found["balanced_accuracy"] == pytest.approx(sk.balanced_accuracy_score(codes, p.argmax(1)))
    y, z = rng.normal(size=50), rng.normal(size=50)
    score = regression_metrics(y, z)
    assert score["mse"] == pytest.approx(sk.mean_squared_error(y, z))
    assert score["r2"] == pytest.approx(sk.r2_score(y, z))
    assert score["r"] == pytest.approx(np.corrcoef(y, z)[0, 1])
    assert score["medae"] == pytest.approx(sk.median_absolute_error(y, z))


def test_intervals_of_errors_and_r2_are_those_of_a_naive_bootstrap():
    rng = np.random.default_rng(1)
    y = rng.normal(50, 10, size=120)
    z = y + rng.normal(0, 6, size=120)
    found = regression_metrics(y, z)
    rows = rng.integers(120, size=(1500, 120))
    error, spread = np.abs(y - z)[rows], ((y[rows] - y[rows].mean(1, keepdims=True)) ** 2).sum(1)
    drawn = {"r2": 1 - (error**2).sum(1) / spread, "mae": error.mean(1), "medae": np.median(error, axis=1)}
    for name, values in drawn.items():
        low, high = np.quantile(values, [0.025, 0.975])
        width = high - low
        assert found[f"{name}_ci"] == pytest.approx((low, high), abs=0.12 * width), name
        assert found[f"{name}_ci"][0] < found[name] < found[f"{name}_ci"][1]
    half = 1.96 * np.abs(y - z).std(ddof=1) / np.sqrt(120)  # the closed form of a mean
    assert found["mae_ci"] == pytest.approx((found["mae"] - half, found["mae"] + half), rel=0.03)
    assert regression_metrics(y, z) == found  # seeded


def test_task_is_read_from_the_labels():
    assert task_for(np.array(["F", "M", "F"])).classes == ("F", "M")
    assert task_for(np.array([1.0, 0.0, 1.0])).classes == (0, 1)
    assert task_for(np.array([0.5, 1.5, 2.0])).kind == "regression"
    assert task_for(np.arange(30)).kind == "regression"
    assert task_for(np.arange(30), "classification").n_outputs == 30


@pytest.mark.parametrize("n", [72, 31, 12])
def test_a_whole_number_score_is_a_score_in_a_small_sample_too(n):
    hamd = np.random.default_rng(0).integers(0, 53, size=n)
    assert task_for(hamd).kind == "regression"


def test_text_is_no_score():
    with pytest.raises(BadInput, match="'F'") as error:
        task_for(np.array(["F", "M", "F"]), "regression")
    assert error.value.parameter == "task"


@pytest.mark.parametrize("y", [[1.0, 1.5, 2.0], [1.0, 2.0, np.nan], [1.0, 2.0, np.inf]])
def test_numbers_that_are_not_whole_are_no_classes(y):
    with pytest.raises(BadInput, match="not a whole number and so not a class"):
        task_for(np.array(y), "classification")


def test_task_statistics_come_from_the_training_part_only():
    y = np.array([1.5, 2.5, 3.5, 1000.5])
    task = task_for(y, train=np.array([0, 1, 2]))
    assert task.mean == pytest.approx(2.5)
    assert task.targets(y[:3]).std(unbiased=False).item() == pytest.approx(1, abs=1e-6)


def test_task_refuses_one_class_and_constant_targets():
    for label in (0, "a"):
        with pytest.raises(BadInput, match=f"have the label {label!r}: classification needs two classes"):
            task_for(np.array([label] * 5))
    with pytest.raises(BadInput, match="nothing to learn"):
        task_for(np.full(5, 0.5), "regression")
    with pytest.raises(BadInput, match="No training subject"):
        task_for(np.array([0, 0, 1]), train=np.array([0, 1]))


def test_a_perfect_auroc_of_a_few_subjects_is_not_certain():
    low, high = auroc_interval(np.array([0, 0, 0, 1, 1, 1]) == 1, np.arange(6.0))
    assert low < 0.6
    assert high == pytest.approx(1.0)
