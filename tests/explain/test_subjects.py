from __future__ import annotations

import shutil

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bnt.cohort import Cohort
from bnt.predict._certainty import (
    UNAVAILABLE,
    CalibrationSubjects,
    TrainingProfile,
    conformal_quantile,
    prediction_intervals,
    venn_abers,
)
from bnt.predict._subjects import explained_target, subject_table, top_connections
from bnt.training._task import Task
from bnt.training._trained import TrainedRun, seal


def naive_isotonic(x: np.ndarray, y: np.ndarray, at: float) -> float:
    """The min-max formula of isotonic regression, over ties averaged as one."""
    values = np.unique(x)
    means = [y[x == v] for v in values]
    i = int(np.flatnonzero(values == at)[0])
    return max(min(np.concatenate(means[a : b + 1]).mean() for b in range(i, len(values))) for a in range(i + 1))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(3, 25))
def test_venn_abers_equals_isotonic_regression_with_either_label(seed, n):
    rng = np.random.default_rng(seed)
    calibration = rng.random(n).round(1)
    positive = rng.random(n) < calibration
    new = float(rng.random())
    low, high = venn_abers(new, calibration, positive)
    x = np.append(calibration, new)
    assert low == pytest.approx(naive_isotonic(x, np.append(positive, 0.0), new))
    assert high == pytest.approx(naive_isotonic(x, np.append(positive, 1.0), new))
    assert low <= high


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(9, 60))
def test_a_conformal_quantile_covers_ninety_per_cent(seed, n):
    # Of n + 1 exchangeable values, the share that the quantile of the others covers is at least the level.
    values = np.random.default_rng(seed).normal(size=n + 1)
    covered = [values[i] <= conformal_quantile(np.delete(values, i), 0.9) for i in range(n + 1)]
    assert np.mean(covered) >= 0.9


def test_too_few_calibration_subjects_rule_nothing_out():
    assert conformal_quantile(np.arange(8.0), 0.9) == np.inf
    task = Task("regression", mean=0.0, sd=1.0)
    few = CalibrationSubjects("validation", np.array(["a"]), np.array([[1.0]]), np.array([2.0]))
    assert prediction_intervals(task, np.array(["b"]), np.array([[1.0]]), few)["high"][0] == np.inf


def test_nobody_calibrates_their_own_prediction(svm):
    calibration = CalibrationSubjects.of(svm.folder, svm.config)
    assert calibration.part == "validation"
    name = calibration.ids[0]
    assert name not in calibration.without(name).ids
    assert len(calibration.without("somebody else").ids) == len(calibration.ids)


def test_classes_that_are_not_ruled_out_are_listed():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, 60)
    sure = 0.1 + 0.7 * np.eye(3)[truth]
    calibration = CalibrationSubjects("validation", np.arange(60).astype(str), sure, truth)
    task = Task("classification", classes=("a", "b", "c"))
    found = prediction_intervals(task, np.array(["x", "y"]), np.array([[0.8, 0.1, 0.1], [0.4, 0.4, 0.2]]), calibration)
    assert found["classes_90"].tolist() == ["a", "none"]
    assert found["interval_from"][0] == "conformal, 60 validation subjects"


def strange(cohort: Cohort) -> Cohort:
    """A subject as it was, and one from elsewhere who moved and whose connectome is flat."""
    table = cohort.participants.iloc[[0, 1]].drop(columns="family").assign(participant_id=["usual", "strange"])
    table["site"] = [cohort.sites[0], "Mars"]
    table["mean_fd"] = [float(table["mean_fd"].iloc[0]), 9.0]
    table["n_missing_rois"] = [0, 3]
    table["n_volumes"] = [120, 20]
    edges = cohort.edges([0, 1])
    edges[1] = 0.9 + 0.01 * edges[1]
    return Cohort(edges, table, cohort.rois, kind=cohort.kind)


def test_a_strange_scan_is_told_from_a_usual_one(svm, cohort):
    table = subject_table(svm, strange(cohort))
    assert table["unlike_training"][0] == ""
    for word in ("site Mars", "motion (9", "ROIs without signal (3", "short scan (20", "connectome ("):
        assert word in table["unlike_training"][1]


def test_few_training_subjects_are_rarely_unlike_themselves(cohort, split):
    profile = TrainingProfile.from_cohort(cohort, np.asarray(split[0]))
    found = profile.compare(cohort.select(split[2]))
    assert (found["unlike_training"] != "").mean() < 0.1
    assert 0.3 < found["as_far"].median() < 0.7


def test_without_the_training_cohort_it_is_said(svm, cohort, tmp_path):
    folder = tmp_path / "moved"
    shutil.copytree(svm.folder, folder)
    text = (folder / "config.toml").read_text().replace(str(cohort.path), "/nowhere")
    (folder / "config.toml").write_text(text)
    seal(folder)
    table = subject_table(TrainedRun(folder), cohort.select([0]))
    assert table["unlike_training"].tolist() == [UNAVAILABLE]
    assert 0 <= table["low"][0] <= table["high"][0] <= 1


def test_plain_columns_come_first_and_unchanged(pair, cohort):
    some = cohort.select([0, 1, 2])
    plain, full = pair.table(some), subject_table(pair, some, explain=2)
    pd.testing.assert_frame_equal(full[list(plain.columns)], plain)
    assert list(full.columns[: len(plain.columns)]) == ["participant_id", "p_0", "p_1", "predicted"]
    assert (full["members_low"] <= full["p_1"]).all()
    assert (full["p_1"] <= full["members_high"]).all()
    assert full["top_connections"].str.count(";").tolist() == [1, 1, 1]


def test_top_connections_are_the_largest_contributions(svm, cohort, split):
    from bnt.explain._decisions import baseline_edges
    from bnt.explain._edges import attributions

    one = cohort.select([5])
    table = top_connections(svm, one, n_top=3)
    baseline, _ = baseline_edges(svm, (cohort, np.asarray(split[0])))
    ((_, values),) = attributions(svm, one, np.array([0]), baseline)
    expected = sorted(values[0].tolist(), key=abs, reverse=True)[:3]
    assert table["contribution"].tolist() == pytest.approx(expected, rel=1e-5)
    assert table["rank"].tolist() == [1, 2, 3]


@pytest.mark.parametrize("option", ["confounds=age+sex", "center_sites=true"])
def test_linear_models_of_confounds_and_of_sites_name_their_connections(option, cohort, tmp_path):
    from bnt.cli._main import main

    run = tmp_path / "run"
    assert main(["train", str(cohort.path), "--model", "ridge", "--option", option, "--out", str(run)]) == 0
    table = subject_table(TrainedRun(run), cohort.select([0, 1]), explain=2)
    assert table["top_connections"].str.count(";").tolist() == [1, 1]
    assert ("site" in explained_target(TrainedRun(run))) == option.startswith("center")
