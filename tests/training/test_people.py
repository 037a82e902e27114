"""Several scans of one person: counts, intervals and tests are of people, not of scans."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest

from bnt.cli._main import main
from bnt.cohort import Cohort
from bnt.cohort._findings import layout
from bnt.cohort._inspect import inspect_cohort, people_of
from bnt.errors import BadInput
from bnt.predict import validate_run
from bnt.report._pages import write_report
from bnt.splits import Split, named_splits
from bnt.studies._job import Variant
from bnt.studies._results import comparison_table, pooled_predictions, run_table
from bnt.studies._study import Study
from bnt.training._config import describe
from bnt.training._recipe import Adjustments, find_recipe
from bnt.training._run import train_run
from bnt.training._task import best_threshold, binary_metrics, regression_metrics
from bnt.training._trained import TrainedRun, load_result, of_people

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
    assert f"{n} people of the test set ({len(test)} scans" in (tmp_path / "run" / "model_card.md").read_text()


def test_a_score_is_of_people_too(cohort, tmp_path):
    _, result = trained(cohort, "score", tmp_path / "run")
    test = result.predictions[result.predictions["part"] == "test"]
    means = test.groupby("person")[["label", "predicted"]].mean()
    expected = regression_metrics(means["label"].to_numpy(), means["predicted"].to_numpy())
    assert result.report["test"]["r_ci"] == pytest.approx(expected["r_ci"])
    assert result.report["test"]["n"] == len(means)


@pytest.mark.usefixtures("undrawn")
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


def test_people_with_scans_of_two_classes_are_named(cohort, tmp_path, capsys):
    changing = cohort.participants.drop(columns="scan", errors="ignore")
    changing["state"] = np.where((np.arange(len(changing)) % SCANS > 0) & (changing["diagnosis"] == 1), "well", "ill")
    made = Cohort(np.array(cohort.connectomes), changing).save(tmp_path / "changing")
    assert main(["train", str(made.path), "--label", "state", "--model", "ridge", "--out", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out
    test = load_result(tmp_path / "run").predictions.query("part == 'test'")
    both = int((test.groupby("person")["label"].nunique() > 1).sum())
    assert both > 0
    assert f"{both} test subjects have scans of two classes" in said


def test_the_scans_of_a_cohort_of_0_2_are_told_by_their_names():
    table = pd.DataFrame(
        {"participant_id": ["sub-01_ses-1", "sub-01_ses-2", "sub-02", "sub-03"], "family": ["sub-01"] * 2 + ["F7"] * 2}
    )
    assert people_of(table).tolist() == ["sub-01", "sub-01", "sub-02", "sub-03"]


def test_an_epoch_is_selected_on_people_not_on_scans(cohort, tmp_path):
    """With 12 scans of one person and 1 of each other, the selected epoch's score is that of the people's means."""
    rng = np.random.default_rng(3)
    many = np.concatenate([np.zeros(12, dtype=int), np.arange(1, 48)])  # person of each scan
    y = np.where(many == 0, 1, many % 2)
    edges = np.tanh(rng.normal(0, 0.3, (len(many), V * (V - 1) // 2)) + 0.2 * y[:, None]).astype(np.float32)
    ids = [f"p{who:02d}_{i}" for i, who in enumerate(many)]
    person = [f"p{who:02d}" for who in many]
    table = pd.DataFrame({"participant_id": ids, "person": person, "family": person, "diagnosis": y})
    uneven = Cohort(edges, table)
    rows = np.arange(len(many))
    val = np.concatenate([rows[:12], rows[12:32]])  # the person of 12 scans among twenty others
    split = Split.of(uneven, (rows[32:50], val, rows[50:]), "one", "table")
    recipe = find_recipe("default", "vanilla", epochs=2, min_steps=0)
    config = describe(uneven, "diagnosis", split, model="vanilla", options={"n_heads": 2}, recipe=recipe)
    result = train_run(uneven, split, config, tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    chosen = max(line["val_score"] for line in lines)
    assert chosen == pytest.approx(result.report["validation"]["auroc"])
    scans = result.predictions[result.predictions["part"] == "validation"]
    by_scan = binary_metrics(scans["label"].to_numpy() == 1, scans["p_1"].to_numpy())["auroc"]
    assert chosen != pytest.approx(by_scan)


def test_a_threshold_is_chosen_on_people(cohort, tmp_path):
    (split,) = named_splits(cohort, "diagnosis", "site-stratified", n_splits=1)
    how = {"model": "ridge", "recipe": find_recipe("default"), "adjustments": Adjustments(threshold="validation")}
    config = describe(cohort, "diagnosis", split, **how)
    result = train_run(cohort, split, config, tmp_path / "run")
    people = of_people(result.predictions[result.predictions["part"] == "validation"])
    assert result.report["threshold"] == best_threshold(people["label"].to_numpy() == 1, people["p_1"].to_numpy())


def test_validation_elsewhere_counts_people(cohort, tmp_path):
    rows = np.arange(len(cohort))
    here, there = cohort.select(rows[: 25 * SCANS]), cohort.select(rows[25 * SCANS :])
    here = here.save(tmp_path / "here")
    _, result = trained(here, "diagnosis", tmp_path / "run")
    found = validate_run(TrainedRun(tmp_path / "run"), there)
    scans = (
        TrainedRun(tmp_path / "run")
        .table(there)
        .assign(person=there.participants["person"], y=there.labels("diagnosis"))
    )
    means = scans.groupby("person").agg(p=("p_1", "mean"), y=("y", "first"))
    expected = binary_metrics(means["y"].to_numpy() == 1, means["p"].to_numpy())
    assert (found.facts["n"], found.facts["n_scans"], found.facts["n_positive"]) == (15, 45, int(means["y"].sum()))
    assert [found.metrics["accuracy"].low, found.metrics["accuracy"].high] == pytest.approx(expected["accuracy_ci"])
    assert found.people["participant_id"].tolist() == list(dict.fromkeys(there.participants["person"]))
    assert found.own_test["n"] == result.report["n"]["test"]
    unlike = found.facts["unlike_training"]
    assert max([unlike["people"], *unlike["reasons"].values()]) <= 15


def test_another_scan_of_a_person_trained_on_is_refused(cohort, tmp_path):
    first = np.arange(len(cohort)) % SCANS == 0
    here = cohort.select(first).save(tmp_path / "here")
    trained(here, "diagnosis", tmp_path / "run")
    with pytest.raises(BadInput, match="sub-"):
        validate_run(TrainedRun(tmp_path / "run"), cohort.select(~first))


def test_info_counts_people(cohort):
    assert f"120 scans of {PEOPLE} people" in "\n".join(layout(inspect_cohort(cohort)))
