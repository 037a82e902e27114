"""Folders that bnt 0.1.0 wrote (``tests/data/version_0_1_0``): they open, and give the numbers that it gave."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bnt
from bnt.cli._main import main
from bnt.explain._attention import mean_attention
from bnt.explain._decisions import baseline_edges
from bnt.explain._edges import edge_map
from bnt.training import TrainedRun, find_recipe
from bnt.training._config import read_config
from bnt.training._trained import load_result

OLD = Path(__file__).parents[1] / "data" / "version_0_1_0"


@pytest.fixture(scope="module")
def cohort():
    return bnt.load_cohort(OLD / "cohort")


@pytest.fixture
def old(tmp_path, monkeypatch):
    """A copy of the folders, where they may be written to, with their parent as the working directory."""
    shutil.copytree(OLD, tmp_path / "old")
    monkeypatch.chdir(tmp_path / "old")
    return tmp_path / "old"


def test_a_cohort_opens_under_the_new_name_of_its_kind(cohort):
    assert (cohort.kind, cohort.n_rois, len(cohort)) == ("pearson", 8, 24)


@pytest.mark.parametrize("name", ["svm", "bnt"])
def test_a_run_predicts_what_it_predicted(name, cohort):
    run = TrainedRun(OLD / name)
    table = run.table(cohort).set_index("participant_id")
    kept = load_result(OLD / name).predictions.set_index("participant_id")
    np.testing.assert_allclose(table.loc[kept.index, "p_1"], kept["p_1"], atol=1e-6)
    everyone = pd.read_csv(OLD / f"{name}_predictions.csv")
    np.testing.assert_allclose(table["p_1"], everyone["p_1"], atol=2e-6)


def test_settings_that_are_newer_than_a_run_have_their_defaults():
    text = (OLD / "bnt" / "config.toml").read_text()
    assert "count_dropped" not in text
    assert "halve_every" not in text
    recipe = read_config(OLD / "bnt").recipe
    assert recipe == replace(find_recipe("default", epochs=2), batch_size=4)


def test_the_split_of_a_run_is_read(cohort):
    run = TrainedRun(OLD / "svm")
    split = run.splits()
    assert split.sizes == (16, 2, 6)
    assert split.digest() == run.config.split_sha256
    assert all(len(rows) for rows in split.rows(cohort))


def test_a_finished_run_is_resumed_as_it_is(old, capsys):
    before = (old / "svm" / "report.json").read_bytes()
    assert main(["train", "cohort", "--model", "svm", "--out", "svm", "--threads", "1", "--resume"]) == 0
    assert (old / "svm" / "report.json").read_bytes() == before


def test_a_study_has_nothing_left_to_do(old, capsys):
    words = ["compare", "cohort", "--models", "svm", "ridge", "--splits", "1", "--jobs", "1", "--permutations", "0"]
    before = {file: file.read_bytes() for file in old.glob("study/runs/*/predictions.csv")}
    assert main([*words, "--out", "study"]) == 0
    assert {file: file.read_bytes() for file in old.glob("study/runs/*/predictions.csv")} == before
    assert len(before) == 2


@pytest.mark.usefixtures("undrawn")
def test_runs_and_studies_are_reported(old, capsys):
    for folder in ("bnt", "study"):
        assert main(["report", folder]) == 0
        assert (old / folder / "report.html").stat().st_size > 5000


def test_a_network_shows_its_attention_and_a_linear_model_its_edges(cohort):
    rows = np.arange(len(cohort))
    assert mean_attention(TrainedRun(OLD / "bnt"), cohort, rows).matrix(layer=0).shape == (8, 8)
    svm = TrainedRun(OLD / "svm")
    found = edge_map(svm, cohort, rows, baseline_edges(svm, None))
    assert found.score.shape == (28,)
    assert np.ptp(found.score) > 0


def test_new_subjects_are_predicted(old, capsys):
    assert main(["predict", "svm", "cohort", "--out", "new.csv"]) == 0
    new, kept = pd.read_csv(old / "new.csv"), pd.read_csv(old / "svm_predictions.csv")
    np.testing.assert_allclose(new["p_1"], kept["p_1"], atol=1e-6)
    assert new["seen_in"].tolist() == kept["seen_in"].tolist()


def test_a_saved_estimator_predicts_what_it_predicted(cohort):
    clf = bnt.BrainNetworkClassifier.load(OLD / "estimator")
    kept = pd.read_csv(OLD / "estimator_predictions.csv").to_numpy()
    np.testing.assert_allclose(clf.predict_proba(cohort), kept, atol=1e-9)
