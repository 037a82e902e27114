"""Several scans of one person: counts, intervals and tests are of people, not of scans."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from bnt.cohort import Cohort
from bnt.cohort._findings import layout
from bnt.cohort._inspect import inspect_cohort, people_of
from bnt.report._build import write_report
from bnt.splits import named_splits
from bnt.studies._job import Variant
from bnt.studies._results import comparison_table, pooled_predictions, run_table
from bnt.studies._study import Study
from bnt.training._config import describe
from bnt.training._recipe import find_recipe
from bnt.training._run import train_run
from bnt.training._task import binary_metrics, regression_metrics
from bnt.training._trained import of_people

PEOPLE, SCANS, V = 40, 3, 6


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    """Forty people with three scans each; the scans of a person are nearly alike."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(PEOPLE) % 2, SCANS)
    own = np.repeat(rng.normal(size=(PEOPLE, V * (V - 1) // 2)), SCANS, axis=0)
    edges = np.tanh(0.3 * own + 0.2 * y[:, None] + 0.03 * rng.normal(size=own.shape))
    person = np.repeat([f"sub-{i:02d}" for i in range(PEOPLE)], SCANS)
    table = pd.DataFrame(
        {
            "participant_id": [f"{name}_ses-{s}" for name, s in zip(person, list(range(SCANS)) * PEOPLE)],
            "person": person,
            "family": person,
            "site": np.where(np.arange(len(y)) < 60, "A", "B"),
            "diagnosis": y,
            "score": 3.0 * y + np.repeat(rng.normal(size=PEOPLE), SCANS) + np.tile([0.0, 0.5, 1.0], PEOPLE),
        }
    )
    return Cohort(edges.astype(np.float32), table).save(tmp_path_factory.mktemp("people") / "cohort")


def trained(cohort, label, folder):
    (split,) = named_splits(cohort, label, "site-stratified", n_splits=1)
    config = describe(cohort, label, split, model="ridge", recipe=find_recipe("default"))
    return split, train_run(cohort, split, config, folder)


def test_a_run_counts_and_scores_people(cohort, tmp_path):
    split, result = trained(cohort, "diagnosis", tmp_path / "run")
    test = result.predictions[result.predictions["part"] == "test"]
    n = test["person"].nunique()
    assert len(test) == SCANS * n
    assert result.report["n"]["test"] == result.report["test"]["n"] == n
    assert result.report["n_scans"]["test"] == len(test)
    means = test.groupby("person").agg(p=("p_1", "mean"), y=("label", "first"))
    expected = binary_metrics(means["y"].to_numpy() == 1, means["p"].to_numpy())
    for name in ("auroc", "auroc_ci", "accuracy_ci", "brier"):
        assert result.report["test"][name] == pytest.approx(expected[name])
    by_scan = binary_metrics(test["label"].to_numpy() == 1, test["p_1"].to_numpy())
    width = np.diff(result.report["test"]["accuracy_ci"])[0]
    assert width > 1.3 * np.diff(by_scan["accuracy_ci"])[0]
    assert f"{n} people of the test part ({len(test)} scans" in (tmp_path / "run" / "model_card.md").read_text()


def test_a_score_is_of_people_too(cohort, tmp_path):
    _, result = trained(cohort, "score", tmp_path / "run")
    test = result.predictions[result.predictions["part"] == "test"]
    means = test.groupby("person")[["label", "predicted"]].mean()
    expected = regression_metrics(means["label"].to_numpy(), means["predicted"].to_numpy())
    assert result.report["test"]["r_ci"] == pytest.approx(expected["r_ci"])
    assert result.report["test"]["n"] == len(means)


def test_tables_tests_and_pages_of_a_study_are_of_people(cohort, tmp_path):
    splits = named_splits(cohort, "diagnosis", "site-stratified", n_splits=2)
    variants = [Variant("ridge", "ridge"), Variant("svm", "svm")]
    study = Study(tmp_path / "study", cohort, "diagnosis", variants, splits, protocol="site-stratified")
    assert study.run(n_processes=1) == {}
    runs = run_table(tmp_path / "study")
    assert runs["n_test"].tolist() == [len({name[:6] for name in split.test}) for split in splits] * 2
    pooled = pooled_predictions(tmp_path / "study", runs, "ridge")
    assert len(pooled) == pooled["participant_id"].nunique() < PEOPLE
    compared = comparison_table(tmp_path / "study", runs, "ridge", n_permutations=20)
    assert compared["n_subjects"].tolist() == [len(pooled)]
    page = write_report(tmp_path / "study").read_text()
    assert f"120 scans of {PEOPLE} people" in page
    assert re.search(r"all sites</td>\s*<td[^>]*>20</td>\s*<td[^>]*>20</td>", page)


def test_a_person_whose_class_changes_has_one_row_per_class():
    table = pd.DataFrame(
        {
            "participant_id": ["a_ses-1", "a_ses-2", "b_ses-1", "b_ses-2"],
            "part": "test",
            "site": "A",
            "label": ["ill", "well", "ill", "ill"],
            "person": ["a", "a", "b", "b"],
            "p_ill": [0.9, 0.3, 0.6, 0.8],
            "p_well": [0.1, 0.7, 0.4, 0.2],
        }
    )
    people = of_people(table)
    assert people["participant_id"].tolist() == ["a ill", "a well", "b"]
    assert people["p_ill"].tolist() == pytest.approx([0.9, 0.3, 0.7])


def test_the_scans_of_a_cohort_of_0_2_are_told_by_their_names():
    table = pd.DataFrame(
        {"participant_id": ["sub-01_ses-1", "sub-01_ses-2", "sub-02", "sub-03"], "family": ["sub-01"] * 2 + ["F7"] * 2}
    )
    assert people_of(table).tolist() == ["sub-01", "sub-01", "sub-02", "sub-03"]


def test_info_counts_people(cohort):
    assert f"120 scans of {PEOPLE} people" in "\n".join(layout(inspect_cohort(cohort)))
