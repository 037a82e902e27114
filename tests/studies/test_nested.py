"""Nested cross-validation: outer folds are tested, inner folds of the others choose."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bnt.cli._main import main
from bnt.cohort import Cohort, load_cohort
from bnt.splits import check_split, named_splits
from bnt.splits._splitters import inner_folds
from bnt.studies import Tuning, Variant, run_table
from bnt.training._config import describe
from bnt.training._learner import make_learner
from bnt.training._recipe import find_recipe

GRID = {"penalty": [0.01, 1.0, 100.0]}


def nested(folder: Path, cohort: Cohort, n_splits: int = 2) -> Tuning:
    splits = named_splits(cohort, "diagnosis", "nested", n_splits=n_splits, n_folds=3)
    ridge = Variant("ridge", "ridge")
    return Tuning(folder, cohort, "diagnosis", ridge, splits, grid=GRID, inner_folds=3, protocol="nested")


@pytest.fixture(scope="module")
def tuned(cohort: Cohort, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nested") / "study"
    assert nested(folder, cohort).run(n_processes=2) == {}
    return folder


def test_inner_folds_score_everyone_once_and_no_outer_test_subject(cohort: Cohort) -> None:
    for outer in named_splits(cohort, "diagnosis", "nested", n_splits=3, n_folds=3):
        inner = inner_folds(cohort, "diagnosis", outer, 4)
        scored = [name for one in inner for name in one.test]
        assert sorted(scored) == sorted(outer.train + outer.validation)
        for one in inner:
            check_split(cohort, *one.rows(cohort))
            assert not set(one.train + one.validation + one.test) & set(outer.test)


def test_the_outer_folds_are_those_of_kfold(cohort: Cohort) -> None:
    ours, theirs = (named_splits(cohort, "diagnosis", name, n_splits=5) for name in ("nested", "kfold"))
    assert [one.parts for one in ours] == [one.parts for one in theirs]


def test_the_choice_is_that_of_a_naive_loop(cohort: Cohort, tuned: Path) -> None:
    y, chosen = cohort.labels("diagnosis"), pd.read_csv(tuned / "chosen.csv").set_index("split")
    for outer in named_splits(cohort, "diagnosis", "nested", n_splits=2, n_folds=3):
        means = {}
        for penalty in GRID["penalty"]:
            scores = []
            for inner in inner_folds(cohort, "diagnosis", outer, 3):
                train, val, test = inner.rows(cohort)
                recipe = find_recipe("default")
                config = describe(
                    cohort, "diagnosis", inner, model="ridge", recipe=recipe, options={"penalty": penalty}
                )
                learner = make_learner(config)
                learner.fit(cohort, y, train, val)
                scores.append(config.task.score(y[test], learner.predict(cohort, test)))
            means[penalty] = np.mean(scores)
        best = max(means, key=lambda penalty: means[penalty])  # the earliest on ties
        assert chosen.loc[outer.name, "setting"] == f"penalty={best:.4g}"
        assert chosen.loc[outer.name, "validation_score"] == pytest.approx(means[best], abs=1e-12)


def test_outer_test_subjects_do_not_reach_the_inner_choice(cohort: Cohort, tuned: Path, tmp_path: Path) -> None:
    """With the labels of the first fold's test subjects turned round, its choice and trials stay as they are."""
    outer = named_splits(cohort, "diagnosis", "nested", n_splits=2, n_folds=3)[0]
    hidden = cohort.participants["participant_id"].isin(outer.test)
    turned = cohort.participants.assign(diagnosis=cohort.labels("diagnosis"))
    turned.loc[hidden, "diagnosis"] = 1 - turned.loc[hidden, "diagnosis"]
    Cohort(cohort.connectomes, turned).save(tmp_path / "cohort")
    other = load_cohort(tmp_path / "cohort")
    again = Tuning(
        tmp_path / "study",
        other,
        "diagnosis",
        Variant("ridge", "ridge"),
        [outer],
        grid=GRID,
        inner_folds=3,
        protocol="nested",
        baseline=False,
    )
    assert [one.parts for one in again.inside[outer.name]] == [
        one.parts for one in inner_folds(cohort, "diagnosis", outer, 3)
    ]
    assert again.run(n_processes=2) == {}
    before, after = (pd.read_csv(folder / "trials.csv") for folder in (tuned, tmp_path / "study"))
    before = before[before["split"] == outer.name]
    assert after["validation_score"].tolist() == before["validation_score"].tolist()
    tested, turned_round = (run_table(folder) for folder in (tuned, tmp_path / "study"))
    first = tested[(tested["split"] == outer.name) & (tested["variant"] == "ridge-tuned")]
    assert turned_round["auroc"].iloc[0] == pytest.approx(1 - first["auroc"].iloc[0])  # only what is tested changed


def test_nothing_is_chosen_by_bnt_compare(cohort_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    words = ["compare", str(cohort_folder), "--models", "ridge", "--protocol", "nested", "--out", str(tmp_path / "x")]
    assert main(words) == 2
    assert "bnt tune" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()
