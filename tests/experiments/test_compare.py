"""The command ``bnt compare``: models with options, the reference, permutation tests, failures."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from bnt.cli.main import main
from bnt.cli.variants import parse_variant
from bnt.errors import BadInput


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


def compare(folder, out, *rest):
    return main(["compare", str(folder), "--out", str(out), "--jobs", "2", *rest])


def test_compare_prints_a_table_and_goes_on_with_more_models(cohort_folder, tmp_path, capsys):
    out = tmp_path / "study"
    assert compare(cohort_folder, out, "--models", "logistic", "logistic:C=0.01", "--splits", "2") == 0
    assert "| logistic:C=0.01 |" in capsys.readouterr().out
    more = ("--models", "svm", "--splits", "2", "--reference", "logistic", "--permutations", "50")
    assert compare(cohort_folder, out, *more) == 0
    printed = capsys.readouterr().out
    assert printed.count("\n| ") == 3
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


@pytest.mark.parametrize("words", ["--split-seed -1", "--seeds -1", "--splits 0", "--device cuda:9"])
def test_numbers_and_devices_that_cannot_be_are_one_sentence(cohort_folder, tmp_path, capsys, words):
    assert compare(cohort_folder, tmp_path / "study", "--models", "svm", *words.split()) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "study").exists()


def test_reproduce_refuses_no_threads(cohort_folder, tmp_path, capsys):
    assert main(["reproduce", "table1", str(cohort_folder), "--threads", "0", "--out", str(tmp_path / "t")]) == 2
    assert "--threads is 0" in capsys.readouterr().err
