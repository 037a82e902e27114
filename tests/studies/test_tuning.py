"""Tuning: the paper's grids, choosing on validation only, and resuming after an interruption."""

from __future__ import annotations

import io
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from small_studies import tiny

from bnt._words import duration
from bnt.cli._main import main
from bnt.cli._options import Machine
from bnt.cli._study_commands import Tune, how_long, parse_grid
from bnt.errors import BadInput
from bnt.models import create_model, list_models, model_options
from bnt.splits import check_split, named_splits, read_splits
from bnt.studies import _job as estimate
from bnt.studies import _tuning as tuning_module
from bnt.studies._grids import (
    FREE_RANGES,
    PAPER_GRIDS,
    TRAINING,
    GridSearch,
    free_ranges,
    make_search,
    own_grid,
    paper_grid,
)
from bnt.studies._job import REPEAT, Variant
from bnt.studies._tuning import Tuning, inner_split, status_of, with_setting
from bnt.training._config import read_config
from bnt.training._recipe import Recipe, find_recipe


@pytest.mark.parametrize(
    ("model", "cells"),
    # Kan et al. 2022, appendix F: the product of the printed choices
    [
        ("braingb", 9),
        ("braingnn", 6),
        ("fbnetgen", 6),
        ("brainnetcnn", 3),
        ("vanilla", 9),
        ("san", 24),
        ("graphormer", 4),
    ],
)
def test_the_grids_have_the_papers_number_of_cells(model, cells):
    source, found = paper_grid(model)
    assert "appendix F" in source
    assert len(found) == len({json.dumps(cell, sort_keys=True) for cell in found}) == cells


@pytest.mark.parametrize(
    ("model", "values"),
    # the choices that appendix F prints
    [
        (
            "braingb",
            {
                "readout": {"mean", "max", "concat"},
                "message": {"edge_weighted", "node_edge_concat", "node_concat"},
            },
        ),
        ("braingnn", {"recipe.lr": {0.01, 0.005, 0.001}, "feature_dim": {100, 200}}),
        ("fbnetgen", {"encoder": {"cnn", "gru"}, "hidden": {8, 12, 16}}),
        ("brainnetcnn", {"dropout": {0.3, 0.5, 0.7}}),
        ("vanilla", {"n_layers": {1, 2, 3}, "n_heads": {2, 4, 6}}),
        ("san", {"lpe_dim": {4, 8, 16}, "lpe_layers": {1, 2}, "n_layers": {1, 2}, "n_heads": {2, 4}}),
        ("graphormer", {"n_layers": {1, 2}, "width": {256, 512}}),
    ],
)
def test_the_grids_have_the_papers_values(model, values):
    _, cells = paper_grid(model)
    assert {name: {cell[name] for cell in cells} for name in values} == values
    assert all(cell["n_heads"] == cell["lpe_heads"] for cell in cells if "lpe_heads" in cell)


@pytest.mark.parametrize("model", sorted(PAPER_GRIDS))
def test_every_cell_is_an_option_or_a_field_of_the_recipe(model):
    known = {*model_options(model), *(f"recipe.{name}" for name in Recipe.__dataclass_fields__)}
    assert all(set(cell) <= known for cell in paper_grid(model)[1])


@pytest.mark.parametrize("model", sorted(FREE_RANGES))
def test_every_free_range_is_an_option_or_a_field_of_the_recipe(model):
    known = {*model_options(model), *(f"recipe.{name}" for name in Recipe.__dataclass_fields__)}
    assert {*FREE_RANGES[model], *TRAINING} <= known


def test_of_the_vanilla_grid_only_six_heads_are_impossible_at_200_rois():
    # docs/facts.md, Training: 200 is not divisible by 6
    import torch

    def possible(cell):
        try:
            with torch.device("meta"):
                create_model("vanilla", 200, 2, **cell)
        except BadInput:
            return False
        return True

    cells = paper_grid("vanilla")[1]
    assert [cell for cell in cells if not possible(cell)] == [cell for cell in cells if cell["n_heads"] == 6]


def test_models_that_the_paper_did_not_tune_say_so():
    for model in set(list_models()) - set(PAPER_GRIDS):
        if model.removesuffix("-released") not in PAPER_GRIDS:
            with pytest.raises(BadInput, match="no grid"):
                paper_grid(model)


def test_the_inner_split_never_holds_a_test_subject(cohort):
    for split in named_splits(cohort, "diagnosis", "site-stratified", n_splits=5):
        inner = inner_split(cohort, "diagnosis", split)
        check_split(cohort, *inner.rows(cohort))
        assert not set(inner.train + inner.validation + inner.test) & set(split.test)
        assert set(inner.train) | set(inner.validation) == set(split.train)
        assert inner.test == split.validation
        assert len(inner.validation) == len(split.validation)


def test_a_setting_changes_options_and_recipe():
    found = with_setting(tiny(), {"n_clusters": 3, "recipe.lr": 0.5}, "x")
    assert (found.options["n_clusters"], found.options["ffn"], found.recipe.lr) == (3, 8, 0.5)


GRID = [{"n_heads": h, "recipe.lr": r} for h in (2, 3) for r in (1e-4, 1e-2)]


def search_the_grid(*_, **__):
    """Two possible and two impossible cells (8 ROIs do not divide into 3 heads)."""
    return GridSearch("a test", list(GRID))


def tuning_of(folder, cohort):
    """A tuning of two splits."""
    splits = named_splits(cohort, "diagnosis", "site-stratified", n_splits=2)
    base = replace(tiny(epochs=4), name="bnt")
    return Tuning(folder, cohort, "diagnosis", base, splits, protocol="site-stratified")


@pytest.fixture
def make_tuning(cohort, tmp_path, monkeypatch):
    """The same tuning, as often as it is asked for."""
    monkeypatch.setattr(tuning_module, "make_search", search_the_grid)
    return lambda: tuning_of(tmp_path / "study", cohort)


@pytest.fixture(scope="module")
def undisturbed(cohort, tmp_path_factory):
    """The tuning, finished without an interruption."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning_module, "make_search", search_the_grid)
        tuning = tuning_of(tmp_path_factory.mktemp("tuning") / "study", cohort)
        assert tuning.run(n_processes=2) == {}
    return tuning


def test_the_best_setting_on_validation_is_tested_once(undisturbed):
    tuning = undisturbed
    trials = pd.read_csv(tuning.folder / "trials.csv")
    assert trials["status"].value_counts().to_dict() == {"done": 4, "impossible": 4}
    assert trials.loc[trials["status"] == "impossible", "reason"].str.contains("n_heads is 3").all()

    chosen = pd.read_csv(tuning.folder / "chosen.csv")
    best = trials.groupby("split")["validation_score"].max()
    assert chosen.set_index("split")["validation_score"].to_dict() == best.to_dict()
    tested = {
        name: set(read_splits(folder / "splits.csv")[0].test)
        for folder in (tuning.folder / "trials" / "runs").iterdir()
        for name in [folder.name]
    }
    for split, number in zip(tuning.study.splits, (0, 1)):
        outer = set(split.test)
        inside = [who for name, who in tested.items() if f"split{number}" in name]
        assert inside
        assert not any(who & outer for who in inside)
    assert len(list((tuning.folder / "runs").glob("bnt-tuned--*/DONE"))) == 2
    assert len(list((tuning.folder / "runs").glob("bnt-default--*/DONE"))) == 2


def test_a_resumed_search_reads_its_trials_and_ends_at_the_same_choice(make_tuning, undisturbed, monkeypatch):
    first = make_tuning()
    with monkeypatch.context() as patch:  # the driver ends after the trials
        patch.setattr(Tuning, "_finals", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            first.run(n_processes=2)
    files = {f: f.stat().st_mtime_ns for f in (first.folder / "trials" / "runs").rglob("*")}
    again = make_tuning()
    assert again.run(n_processes=2) == {}
    assert {f: f.stat().st_mtime_ns for f in (first.folder / "trials" / "runs").rglob("*")} == files
    columns = ["split", "setting", "validation_score", "test_auroc_tuned", "test_auroc_default"]
    mine, theirs = (pd.read_csv(one.folder / "chosen.csv")[columns] for one in (again, undisturbed))
    pd.testing.assert_frame_equal(mine, theirs)


def test_bnt_tune_prints_what_it_chose(cohort_folder, tmp_path, capsys):
    out = tmp_path / "study"
    assert main(["tune", str(cohort_folder), "--model", "ridge", "--out", str(out), "--jobs", "2"]) == 0
    printed = capsys.readouterr().out
    assert "Chosen for split0: penalty=" in printed
    assert "ridge-tuned" in printed
    assert {"trials.csv", "chosen.csv", "summary.md", "study.json"} <= {f.name for f in out.iterdir()}


def test_trials_and_what_is_tested_are_adjusted_alike(cohort_folder, tmp_path, capsys):
    out = tmp_path / "study"
    words = ["tune", str(cohort_folder), "--model", "ridge", "--grid", "penalty=1,10", "--out", str(out), "--jobs", "1"]
    around = ["--harmonise", "combat", "--harmonise-keep", "age", "--confounds", "age", "--class-weight", "balanced"]
    assert main([*words, *around, "--threshold", "validation"]) == 0
    expected = {"harmonise": "combat", "keep": "age", "class_weight": "balanced", "threshold": "validation"}
    configs = [read_config(file.parent) for file in out.rglob("config.toml")]
    assert len(configs) == 4
    for config in configs:
        assert config.adjustments.to_dict() == expected
        assert config.options["confounds"] == "age"
    assert "harmonisation" in (out / "summary.md").read_text() + capsys.readouterr().out
    assert main(words) == 2  # the folder holds a search of harmonised edges


def test_a_free_search_without_optuna_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    with pytest.raises(BadInput, match="Optuna is not installed"):
        make_search("free", "svm", 3, seed=[0, 0])


def test_a_free_search_told_the_same_scores_asks_for_the_same_settings():
    pytest.importorskip("optuna", reason="Optuna is not installed (extra [hpo])")

    def asked():
        search, found = make_search("free", "bnt", 14, seed=[0, 1]), []
        while batch := search.ask():
            found += batch
            for number, setting in batch:
                search.tell(number, float("nan") if number == 3 else -abs(setting["dropout"] - 0.2))
        return found

    first = asked()
    assert len(first) == 14
    assert first == asked()


def test_an_unknown_search_is_refused():
    with pytest.raises(BadInput, match="search 'random'"):
        make_search("random", "svm", 3, seed=[0, 0])


def test_a_network_without_ranges_is_searched_in_its_training_and_others_take_a_grid(monkeypatch):
    monkeypatch.delitem(FREE_RANGES, "dgm")
    assert free_ranges("dgm") == TRAINING
    with pytest.raises(BadInput, match="no ranges to search 'linear-ensemble' in.*grid"):
        make_search("free", "linear-ensemble", 3, seed=[0, 0])


def test_a_grid_of_ones_own_is_every_combination():
    axes = parse_grid(("n_clusters=4,10", "recipe.lr=1e-3,1e-4", "readout=mean"))
    source, cells = own_grid("bnt", axes)
    assert source == "--grid n_clusters=4,10 recipe.lr=0.001,0.0001 readout=mean"
    assert len(cells) == 4
    assert cells[-1] == {"n_clusters": 10, "recipe.lr": 1e-4, "readout": "mean"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("n_clusters", "is not name=value,value"),
        ("n_clusters=4,,5", "is not name=value,value"),
        ("n_clusters=4 n_clusters=5", "names n_clusters twice"),
        ("clusters=4", "has no option 'clusters'"),
        ("recipe.speed=4", "no field 'speed'"),
        ("recipe.lr=fast", "recipe: lr"),
        ("recipe.lr=0.100001,0.100002", "twice"),
    ],
)
def test_a_grid_that_means_nothing_is_refused(words, message):
    with pytest.raises(BadInput, match=f"(?i){message}"):
        own_grid("bnt", parse_grid(tuple(words.split())))


def test_the_recipe_of_a_model_that_has_none_is_not_searched():
    with pytest.raises(BadInput, match=r"svm is not trained by a recipe, so recipe.lr would change nothing"):
        own_grid("svm", {"recipe.lr": [1e-3]})
    assert len(own_grid("svm", {"C": [0.1], "recipe.refit": [True, False]})[1]) == 2


def test_epochs_in_a_setting_are_the_number_of_epochs():
    base = Variant("bnt", "bnt", recipe=find_recipe("default", "bnt"))
    assert with_setting(base, {"recipe.epochs": 3}, "x").recipe.min_steps == 0


def test_tune_resumes_with_fewer_splits_and_refuses_another_search(cohort_folder, tmp_path, capsys):
    out = tmp_path / "study"
    words = ["tune", str(cohort_folder), "--out", str(out), "--jobs", "2", "--epochs", "2"]
    assert main([*words, "--model", "logistic", "--splits", "2", "--grid", "C=0.01,1"]) == 0
    before = {name: (out / name).read_text() for name in ("trials.csv", "chosen.csv", "study.json")}
    capsys.readouterr()
    assert main([*words, "--model", "logistic", "--splits", "2", "--grid", "C=0.1,1"]) == 2
    assert "another search (--grid C=0.01,1, not --grid C=0.1,1)" in capsys.readouterr().err
    assert main([*words, "--model", "ridge", "--grid", "penalty=1"]) == 2
    assert "another model (logistic, not ridge)" in capsys.readouterr().err
    assert main([*words, "--model", "logistic", "--grid", "C=0.01,1", "--seed", "1"]) == 2
    assert {name: (out / name).read_text() for name in before} == before
    assert main([*words, "--model", "logistic", "--splits", "1", "--grid", "C=0.01,1"]) == 0
    for name in ("trials.csv", "chosen.csv"):
        rows = pd.read_csv(out / name).set_index("split").sort_index()
        assert rows.equals(pd.read_csv(io.StringIO(before[name])).set_index("split").sort_index())
    assert pd.read_csv(out / "runs.csv")["split"].nunique() == 2


def test_a_search_that_was_interrupted_is_not_mixed_with_another(make_tuning, monkeypatch):
    first = make_tuning()
    with monkeypatch.context() as patch:
        patch.setattr(Tuning, "_search", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            first.run()
    monkeypatch.setattr(tuning_module, "make_search", lambda *_, **__: GridSearch("another", list(GRID)))
    with pytest.raises(BadInput, match=r"another search \(a test, not another\)"):
        make_tuning().run()


def test_variants_keep_their_own_options_when_tuned(cohort, tmp_path):
    splits = named_splits(cohort, "diagnosis", "site-stratified", n_splits=1)
    found = Tuning(tmp_path, cohort, "diagnosis", Variant("r", "ridge", {"shrinkage": 0.1}), splits)
    trial = found._trial(found.study.splits[0], 0, {"penalty": 10.0})
    assert trial.jobs[0].variant.options == {"shrinkage": 0.1, "penalty": 10.0}


def test_a_split_that_was_tested_keeps_its_setting_when_a_better_one_is_found(
    make_tuning, undisturbed, tmp_path, monkeypatch
):
    shutil.copytree(undisturbed.folder, tmp_path / "study")
    chosen = pd.read_csv(undisturbed.folder / "chosen.csv")
    # Read again, the trials would be scored the other way round.
    real = tuning_module.score_of
    monkeypatch.setattr(tuning_module, "score_of", lambda report: -real(report))
    again = make_tuning()
    assert again.run(n_processes=2) == {}
    assert pd.read_csv(again.folder / "chosen.csv")["setting"].tolist() == chosen["setting"].tolist()


def test_a_folder_of_another_study_is_refused(make_tuning, tmp_path):
    (tmp_path / "study").mkdir()
    described = '{"variants": [], "splits": [], "seeds": []}'
    (tmp_path / "study" / "study.json").write_text(described)
    with pytest.raises(BadInput, match=r"a study of bnt compare"):
        make_tuning().run()
    assert (tmp_path / "study" / "study.json").read_text() == described


@pytest.fixture
def losing(monkeypatch):
    """The first trial of the second split is lost the first time, as to a kill; all else is run."""
    real, lost = tuning_module.run_jobs, []

    def some(jobs, **engine):
        gone = [job for job in jobs if not lost and "split1" in job.name and "trials" in job.folder][:1]
        lost.extend(gone)
        found = real([job for job in jobs if job not in gone], **engine)
        return found | {job.name: f"its process was killed by signal 9: {REPEAT}" for job in gone}

    monkeypatch.setattr(tuning_module, "run_jobs", some)
    return lost


def test_a_split_with_a_lost_trial_is_neither_chosen_for_nor_tested_until_it_is_there(make_tuning, undisturbed, losing):
    tuning = make_tuning()
    failures = tuning.run(n_processes=2)
    assert list(failures) == [losing[0].name]
    assert tuning.lost() == ["site-stratified:0:split1"]
    assert pd.read_csv(tuning.folder / "chosen.csv")["split"].tolist() == ["site-stratified:0:split0"]
    assert not list((tuning.folder / "runs").glob("*split1*"))
    assert "killed by signal 9" in (tuning.folder / "failures.csv").read_text()
    again = make_tuning()
    assert again.run(n_processes=2) == {}
    assert not (tuning.folder / "failures.csv").exists()
    for table in ("chosen.csv", "trials.csv"):
        a, b = (pd.read_csv(one.folder / table) for one in (again, undisturbed))
        pd.testing.assert_frame_equal(a, b)


def test_a_training_that_diverges_is_a_finding_and_an_accident_is_not():
    assert [status_of(reason) for reason in ("", "The loss became nan in epoch 2: lower the learning rate.")] == [
        "done",
        "failed",
    ]
    assert status_of(f"its process was killed by signal 9 (out of memory?): {REPEAT}") == "lost"


@pytest.mark.parametrize("words", [["svm:foo=1", "--grid", "C=0.1,1"], ["svm", "--device", "cuda:9"]])
def test_what_cannot_be_tuned_is_refused_before_anything_is_written(cohort_folder, tmp_path, capsys, words):
    out = tmp_path / "study"
    assert main(["tune", str(cohort_folder), "--out", str(out), "--model", *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not out.exists()


@pytest.mark.parametrize(("words", "epochs"), [([], 50), (["--epochs", "7"], 7), (["--search", "free"], 12)])
def test_sans_grid_has_the_papers_epochs_for_all_that_is_compared(cohort_folder, tmp_path, monkeypatch, words, epochs):
    class Seen(Exception):
        pass

    def stop(*args, **_):
        raise Seen(args[3].recipe.epochs)

    monkeypatch.setattr("bnt.studies.Tuning", stop, raising=False)
    with pytest.raises(Seen, match=str(epochs)):
        main(["tune", str(cohort_folder), "--model", "san", "--out", str(tmp_path / "x"), *words])


def test_how_long_a_search_takes_is_said_before_it_starts(make_tuning, monkeypatch):
    monkeypatch.setattr(estimate, "step_seconds", lambda *_, **__: 10.0)
    tuning = make_tuning()
    options = Tune(cohort=Path("."), out=tuning.folder, machine=Machine(jobs=2))
    said = how_long(tuning, options)
    trial, final = (
        estimate.most_steps(tuning.base.recipe, len(study.splits[0].train)) for study in (tuning.inner, tuning.study)
    )
    seconds = (8 * trial + 4 * final) * 10.0 * estimate.BEYOND_STEPS / 2
    assert said == f": about {duration(seconds)} with 4 epochs each, at the speed of the model as it is"
