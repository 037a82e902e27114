"""Covariates alone, beside the models of a study."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import bnt
from bnt.cli._main import main
from bnt.report._evidence import CohortFacts, covariate_caveat, study_caveats
from bnt.report._study_page import site_table
from bnt.splits import named_splits
from bnt.studies._chance import adjusted_notes, covariate_sets, covariate_table


def people_with_motion(n=120):
    """Return people whose motion, and nothing else, goes with the class."""
    rng = np.random.default_rng(0)
    y = np.arange(n) % 2
    table = pd.DataFrame(
        {
            "participant_id": [f"s{i:03d}" for i in range(n)],
            "site": np.where(np.arange(n) % 4 < 2, "A", "B"),
            "diagnosis": y,
            "age": rng.normal(20, 4, n),
            "mean_fd": 0.1 + 0.1 * y + rng.gamma(2, 0.02, n),
        }
    )
    return bnt.Cohort(rng.uniform(-0.5, 0.5, (n, 190)).astype(np.float32), table)


def test_motion_alone_has_the_auroc_of_a_regression_on_motion():
    cohort = people_with_motion()
    splits = named_splits(cohort, "diagnosis", "site-stratified", n_splits=1)
    sets = covariate_sets(cohort, "diagnosis")
    assert list(sets.values()) == [("age", "mean_fd"), ("mean_fd",), ("site",)]
    found = covariate_table(cohort, "diagnosis", splits, sets, "auto", None).set_index("variant")
    train, _, test = splits[0].rows(cohort)
    x, y = cohort.participants[["mean_fd"]].to_numpy(), cohort.labels("diagnosis")
    oracle = LogisticRegression().fit(x[train] / x[train].std(), y[train]).predict_proba(x[test] / x[train].std())[:, 1]
    assert found.loc["motion only (mean_fd)", "auroc"] == roc_auc_score(y[test], oracle)


def test_the_label_is_not_among_its_own_covariates():
    assert "age" not in covariate_sets(people_with_motion(), "age")["confounds only (mean_fd)"]


@pytest.mark.usefixtures("undrawn")
def test_a_comparison_shows_covariates_below_its_models_and_tests_none(tmp_path, capsys):
    people_with_motion().save(tmp_path / "cohort")
    words = ["compare", str(tmp_path / "cohort"), "--models", "ridge", "svm", "--splits", "2", "--jobs", "1"]
    assert main([*words, "--harmonise", "combat", "--out", str(tmp_path / "study")]) == 0
    printed = capsys.readouterr().out
    assert "motion only" in printed
    assert "before" in printed
    comparisons = pd.read_csv(tmp_path / "study" / "comparisons.csv")
    assert comparisons["variant"].tolist() == ["svm"]
    assert main(["report", str(tmp_path / "study")]) == 0
    page = (tmp_path / "study" / "report.html").read_text()
    assert "motion only" in page
    assert 'id="site-accuracy"' in page
    assert "--harmonise combat" in page


def test_covariates_can_be_left_out(tmp_path, capsys):
    people_with_motion().save(tmp_path / "cohort")
    words = [
        "compare",
        str(tmp_path / "cohort"),
        "--models",
        "ridge",
        "--splits",
        "1",
        "--jobs",
        "1",
        "--no-covariates",
    ]
    assert main([*words, "--out", str(tmp_path / "study")]) == 0
    assert "motion only" not in capsys.readouterr().out


def test_a_class_never_predicted_is_a_caution():
    runs = pd.DataFrame({"variant": ["svm", "svm"], "never_predicted": ["1", np.nan]})
    (said,) = adjusted_notes(runs)
    assert "svm" in said
    assert "1 of 2" in said


def test_of_several_classes_each_has_its_own_number_of_runs_that_never_predict_it():
    (said,) = adjusted_notes(pd.DataFrame({"variant": "svm", "never_predicted": ["a", "a, b", np.nan]}))
    assert "predicts nobody as a in 2 of 3 runs, b in 1 of 3 runs" in said
    assert "--threshold" not in said  # which several classes do not have


def test_a_class_with_few_people_in_a_test_part_is_a_caveat():
    people = pd.DataFrame({"participant_id": [str(k) for k in range(100)], "dx": ["a"] * 80 + ["b"] * 20})
    study = {"label": "dx", "n_subjects": 100, "protocol": "kfold", "splits": ["s"] * 20, "variants": [{}, {}]}
    runs = pd.DataFrame({"variant": ["svm", "ridge"], "accuracy": 0.8, "n_test": 20})
    (_, said) = study_caveats(study, runs, 2, "", CohortFacts("", people))
    assert "Fewer than 10 people per test set in class “b” (20 in all)" in said
    assert len(study_caveats(study, runs.assign(n_test=100), 2, "", CohortFacts("", people))) == 0


def test_covariates_that_alone_score_as_high_as_the_best_model_are_a_caveat():
    summary = pd.DataFrame({"variant": ["svm", "ridge"], "r": [0.4, 0.65]})
    alone = pd.DataFrame({"variant": ["motion only", "site only"], "r": [0.64, 0.837]})
    (said,) = covariate_caveat(summary, alone, "r")
    assert "site only (0.837)" in said
    assert "ridge (r 0.650)" in said
    assert "motion" not in said
    assert covariate_caveat(summary, alone[:1], "r") == []
    assert covariate_caveat(summary, pd.DataFrame(), "r") == []


def test_the_number_of_sites_told_is_a_whole_number():
    runs = pd.DataFrame({"variant": ["a", "a", "b", "b"], "n_told_sites": [3.0, 3.0, 2.0, 3.0]})
    runs = runs.assign(site_accuracy_before=0.9, site_accuracy_after=0.3, site_chance=0.4)
    assert site_table(runs)["sites"].tolist() == ["3", "2 to 3"]


def test_covariates_alone_are_scored_on_people():
    people = people_with_motion()
    rows = np.concatenate([np.arange(len(people)), np.flatnonzero(people.labels("diagnosis") == 1)[:40]])
    table = people.participants.iloc[rows].reset_index(drop=True)
    table["person"] = table["family"] = table["participant_id"]
    table["participant_id"] = [f"{name}_{i}" for i, name in enumerate(table["person"])]
    noise = np.random.default_rng(0).normal(0, 0.01, (len(rows), people.shape[1]))
    several = bnt.Cohort(people.edges(rows) + noise.astype(np.float32), table.drop(columns="scan", errors="ignore"))
    splits = named_splits(several, "diagnosis", "site-stratified", n_splits=1)
    found = covariate_table(several, "diagnosis", splits, {"motion": ("mean_fd",)}, "auto", None)
    test = splits[0].rows(several)[2]
    assert found["n_test"].tolist() == [table["person"].iloc[test].nunique()]
    assert found["n_test"].iloc[0] < len(test)


def test_the_site_alone_predicts_nothing_where_training_has_one_site():
    cohort = people_with_motion()
    splits = named_splits(cohort, "diagnosis", "leave-one-site-out")
    found = covariate_table(cohort, "diagnosis", splits, {"site only": ("site",)}, "auto", None)
    assert found["auroc"].tolist() == [0.5, 0.5]


def test_models_that_never_predict_the_same_classes_share_a_sentence():
    rows = [{"variant": name, "never_predicted": "1" if name == "h" else "0"} for name in "abcdefgh"]
    said = adjusted_notes(pd.DataFrame(rows))
    assert [text.partition(" predict")[0] for text in said] == ["Caution: a, b, c, d, e and 2 more", "Caution: h"]
