"""The command ``bnt compare``: models with options, the reference, permutation tests, failures."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest

import bnt
from bnt.cli._main import main
from bnt.cli._parsing import parse_variant
from bnt.cli._study_commands import of_groups_that_fit
from bnt.cohort import Cohort, load_cohort
from bnt.errors import BadInput
from bnt.models import expand_models
from bnt.report._pages import write_report


def test_a_model_with_options_keeps_the_name_as_given():
    found = parse_variant("bnt:n_clusters=4,readout=mean,recipe.lr=1e-3", "paper", {"epochs": 7})
    assert found.name == "bnt:n_clusters=4,readout=mean,recipe.lr=1e-3"
    assert (found.model, found.options) == ("bnt", {"n_clusters": 4, "readout": "mean"})
    assert (found.recipe.lr, found.recipe.epochs, found.recipe.batch_size) == (1e-3, 7, 64)


def test_commas_inside_brackets_and_quotes_do_not_end_an_option():
    assert parse_variant("bnt:a=[1, 2],b='x,y'", "default", {}).options == {"a": [1, 2], "b": "x,y"}


@pytest.mark.parametrize("word", ["bnt:", "bnt:n_clusters", "nothing:x=1", "bnt:recipe.speed=1"])
def test_words_that_mean_nothing_are_refused(word):
    with pytest.raises(BadInput):
        parse_variant(word, "default", {})


def test_models_of_a_group_are_fitted_to_the_cohort_and_typed_ones_are_not(capsys):
    cohort = bnt.simulate_cohort(n_subjects=40, n_rois=10, n_sites=2, n_modules=3, seed=0)
    typed = ("all", "bnt-released:ffn=64")
    variants = [parse_variant(word, "default", {}) for word in expand_models(typed)]
    found = {v.name: v for v in of_groups_that_fit(variants, typed, cohort, n_train=28)}
    assert found["bnt-released"].options["n_clusters"] == 10  # its default, 100, does not fit
    assert found["vanilla"].options["n_heads"] == 2  # 4 do not divide 10
    assert found["bnt-released:ffn=64"].options == {"ffn": 64}
    assert "com-braintf" not in found  # batches of 64
    said = capsys.readouterr().err
    assert "n_clusters=10" in said
    assert re.search(r"Skipped: .*com-braintf.*: 28 training subjects", said)


def test_what_a_group_has_and_the_cohort_does_not_allow_is_said(tmp_path, capsys):
    bnt.simulate_cohort(n_subjects=40, n_rois=10, n_sites=2, n_modules=3, seed=0, series=False, out=tmp_path / "c")
    models = ["--models", "*mlp", "atlas*", "--splits", "1"]
    assert main(["compare", str(tmp_path / "c"), "--out", str(tmp_path / "study"), *models]) == 2
    said = capsys.readouterr().err
    assert "Skipped: atlas-ensemble: it reads several atlases, and the cohort has one." in said
    assert "Skipped: meanmlp, brainnetmlp: the cohort has no time series." in said


def compare(folder, out, *rest):
    return main(["compare", str(folder), "--out", str(out), "--jobs", "2", *rest])


def test_compare_prints_a_table_and_resumes_with_more_models(cohort_folder, tmp_path, capsys):
    out = tmp_path / "study"
    assert compare(cohort_folder, out, "--models", "logistic", "logistic:C=0.01", "--splits", "2") == 0
    printed = capsys.readouterr()
    assert "| logistic:C=0.01 |" in printed.out
    assert "Task: classification of diagnosis" in printed.err
    more = ("--models", "svm", "--splits", "2", "--reference", "logistic", "--permutations", "50")
    assert compare(cohort_folder, out, *more) == 0
    printed = capsys.readouterr().out
    named = [line.split(" | ")[0].removeprefix("| ") for line in printed.splitlines() if line.startswith("| ")]
    assert named[1:4] == ["logistic", "logistic:C=0.01", "svm"]
    assert "differences from logistic" in printed
    assert "Against chance" in printed
    table = pd.read_csv(out / "comparisons.csv")
    assert table["variant"].tolist() == ["logistic:C=0.01", "svm"]
    assert {"p_corrected_holm", "p_plain", "p_delong_holm", "p_permutation_holm"} <= set(table)
    commands = json.loads((out / "study.json").read_text())["commands"]
    assert [command.split("--models ")[1].split()[0] for command in commands] == ["logistic", "svm"]
    assert commands[1].endswith("--permutations 50")
    runs = pd.read_csv(out / "runs.csv")
    assert (runs["command"] == "; ".join(commands)).all()
    assert runs["versions"].str.contains("torch").all()


def test_text_predicted_as_a_score_is_refused_in_one_sentence(cohort_folder, tmp_path, capsys):
    people = pd.read_csv(cohort_folder / "participants.tsv", sep="\t", dtype={"family": str, "group": str})
    cohort = load_cohort(cohort_folder)
    Cohort(np.asarray(cohort.connectomes), people.assign(sex=["F", "M"] * 30)).save(tmp_path / "sexed")
    for command in (["compare", "--models", "ridge"], ["train", "--model", "ridge"]):
        words = [command[0], str(tmp_path / "sexed"), *command[1:], "--out", str(tmp_path / "out")]
        assert main([*words, "--label", "sex", "--task", "regression"]) == 2
        error = capsys.readouterr().err
        assert "'F'" in error
        assert "--task" in error
        assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_failed_model_is_listed_and_the_others_are_shown(cohort_folder, tmp_path, capsys):
    words = ("--models", "bnt:n_heads=2,n_clusters=2,recipe.lr=1e30", "logistic", "--splits", "1")
    assert compare(cohort_folder, tmp_path / "study", *words, "--change", "epochs=2") == 1
    printed = capsys.readouterr().out
    assert "| logistic |" in printed
    assert "failed: bnt_n_heads=2" in printed


def test_bad_input_ends_with_2_and_writes_nothing(cohort_folder, tmp_path, capsys):
    assert compare(cohort_folder, tmp_path / "study", "--models", "bnt:n_heads=3") == 2
    assert compare(cohort_folder, tmp_path / "study", "--models", "svm", "--reference", "ridge") == 2
    assert not (tmp_path / "study").exists()
    assert capsys.readouterr().err.count("\n") == 2


@pytest.mark.parametrize("words", ["--split-seed -1", "--seeds -1", "--splits 0", "--device cuda:9", "--threads 0"])
def test_numbers_and_devices_that_cannot_be_are_one_sentence(cohort_folder, tmp_path, capsys, words):
    assert compare(cohort_folder, tmp_path / "study", "--models", "svm", *words.split()) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert words.split()[0].removeprefix("--").removesuffix("s").removeprefix("split-") in said
    assert not (tmp_path / "study").exists()


@pytest.fixture(scope="module")
def odd_folder(cohort, tmp_path_factory):
    """The small cohort with a site of one class, three classes and a class of two subjects."""
    people = cohort.participants.copy()
    y = people["diagnosis"].to_numpy()
    people["site"] = np.where((y == 1) & (np.arange(len(y)) < 20), "C", people["site"])
    people["three"] = np.arange(len(y)) % 3
    people["rare"] = (np.arange(len(y)) < 2).astype(int)
    folder = tmp_path_factory.mktemp("odd") / "cohort"
    Cohort(cohort.connectomes, people).save(folder)
    return folder


@pytest.mark.usefixtures("undrawn")
def test_a_site_of_one_class_is_said_once_and_below_the_table(odd_folder, tmp_path, capfd):
    words = ("--models", "logistic", "svm", "--protocol", "loso")
    assert compare(odd_folder, tmp_path / "study", *words) == 0
    said = capfd.readouterr()
    sentence = "AUROC is undefined on split leave-one-site-out:0:C"
    assert said.err.count(sentence) == said.out.count(sentence) == 1
    assert "UserWarning" not in said.err
    assert "(n = 2)" in said.out
    assert compare(odd_folder, tmp_path / "study", *words) == 0
    assert "All 6 runs are done already." in capfd.readouterr().err
    page = write_report(tmp_path / "study").read_text()
    assert page.count("(n = 2)") == 6  # AUROC, also within sites, and specificity of two models
    assert f"<p>{sentence}" in page


def test_training_on_a_test_part_of_one_class_says_what_is_undefined(odd_folder, tmp_path, capsys):
    words = ["--model", "svm", "--protocol", "loso", "--split", "2", "--out", str(tmp_path / "run")]
    assert main(["train", str(odd_folder), *words]) == 0
    said = capsys.readouterr().out
    assert "AUROC undefined (a class is missing in the test set)" in said
    assert "nan" not in said


def test_predicting_with_a_study_names_one_of_its_runs(whole, cohort_folder, capsys):
    assert main(["predict", str(whole), str(cohort_folder)]) == 2
    said = capsys.readouterr().err
    assert f"{whole}/runs/bnt--split0--seed0" in said


def test_a_class_too_rare_to_be_split_is_one_sentence(odd_folder, tmp_path, capsys):
    assert compare(odd_folder, tmp_path / "study", "--models", "bnt", "--label", "rare", "--splits", "2") == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "has rare = 1 (2 of 60 subjects have it)" in said
    assert not (tmp_path / "study").exists()


def test_three_classes_are_not_told_of_tests_that_were_not_done(odd_folder, tmp_path, capsys):
    words = ("--models", "logistic", "svm", "--label", "three", "--splits", "2")
    assert compare(odd_folder, tmp_path / "study", *words, "--permutations", "10") == 2
    assert "label 'three' has 3 classes" in capsys.readouterr().err
    assert compare(odd_folder, tmp_path / "study", *words) == 0
    printed = capsys.readouterr().out
    assert "p_plain" in printed
    assert "DeLong" not in printed
    assert "nan" not in printed
