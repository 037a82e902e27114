"""Files of a run and of a study that changed after they were written: a sentence each, and made anew by the command."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

import bnt
from bnt.cli._main import main
from bnt.errors import BadInput
from bnt.splits import audit_splits, named_splits
from bnt.training import TrainedRun, describe, find_recipe, train_run
from bnt.training._config import read_config
from bnt.training._trained import SEALED, damage, load_result, seal

TRAIN = ["--model", "bnt", "--option", "n_clusters=3", "--epochs", "2", "--threads", "1"]
FILES = [name for name in SEALED if name != "estimator.json"]


def flip(file: Path, at: int = -9) -> None:
    """Change one bit."""
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(bytes(data))


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command that must end with one sentence and code 2, and return the sentence."""
    capsys.readouterr()
    assert main(words) == 2
    said = capsys.readouterr().err
    last = said.splitlines()[-1]
    assert last.startswith(f"bnt {words[0]}: ")
    assert "Traceback" not in said
    return last


@pytest.mark.parametrize("name", FILES)
def test_a_changed_bit_of_any_file_is_found(copy, name):
    assert damage(copy / "run") is None
    flip(copy / "run" / name)
    assert damage(copy / "run")[0] == name


def test_the_digests_are_those_of_sha256sum(copy):
    import subprocess

    done = subprocess.run(["sha256sum", "--check", "--quiet", "DONE"], cwd=copy / "run", capture_output=True)
    assert done.returncode == 0
    assert len((copy / "run" / "DONE").read_text().splitlines()) == len(FILES)


@pytest.mark.parametrize("command", ["predict", "explain", "report", "validate"])
@pytest.mark.parametrize("name", ["weights.safetensors", "predictions.csv", "report.json"])
def test_commands_refuse_a_damaged_run_and_name_the_file(copy, command, name, capsys):
    file = copy / "run" / name
    file.write_bytes(file.read_bytes()[:-5])
    words = [command, "run", *(["cohort"] if command != "report" else [])]
    said = refused([*words, *(["--out", "explained"] if command in ("explain", "validate") else [])], capsys)
    assert "run" in said
    assert name in said
    assert not (copy / "explained").exists()


def test_a_missing_report_is_a_sentence(copy, capsys):
    (copy / "run" / "report.json").unlink()
    assert "report.json" in refused(["report", "run"], capsys)


def test_train_makes_a_damaged_run_anew_to_the_same_bits(copy, capsys):
    flip(copy / "run" / "weights.safetensors")
    with pytest.warns(UserWarning, match="weights.safetensors"):
        assert main(["train", "cohort", *TRAIN, "--out", "run", "--resume"]) == 0
    assert damage(copy / "run") is None


def test_compare_says_which_run_is_damaged_and_makes_it_anew(copy, capsys):
    runs = sorted((copy / "study" / "runs").iterdir())
    before = (runs[0] / "weights.safetensors").read_bytes()
    flip(runs[0] / "weights.safetensors")
    (runs[1] / "config.toml").write_text("model =")
    kept = (runs[2] / "DONE").stat().st_mtime_ns
    words = ["compare", "cohort", "--models", "ridge", "logistic", "--splits", "2", "--jobs", "1", "--out", "study"]
    with pytest.warns(UserWarning, match="made anew") as said:
        assert main(words) == 0
    told = " ".join(str(warning.message) for warning in said)
    assert [run.name in told for run in runs] == [True, True, False, False]
    assert (runs[0] / "weights.safetensors").read_bytes() == before
    assert (runs[2] / "DONE").stat().st_mtime_ns == kept
    assert all(damage(run) is None for run in runs)


def test_a_run_of_an_earlier_version_is_checked_by_what_it_has(copy, capsys):
    (copy / "run" / "DONE").write_text(json.loads((copy / "run" / "report.json").read_text())["config_sha256"] + "\n")
    assert main(["predict", "run", "cohort", "--out", "p.csv"]) == 0
    flip(copy / "run" / "weights.safetensors")
    assert "weights.safetensors" in refused(["predict", "run", "cohort"], capsys)


def test_a_table_of_a_study_that_changed_is_not_shown(copy, capsys):
    file = copy / "study" / "summary.csv"
    file.write_text(file.read_text().replace("0.", "0.9", 1))
    assert "summary.csv" in refused(["report", "study"], capsys)


DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("study.json", "{"),
        ("study.json", DEEP),
        ("study.json", "[1]"),
        ("study.json", '{"variants": 3, "splits": [], "seeds": []}'),
        ("summary.csv", "\0"),
        ("comparisons.csv", "a,b\n1,2,3\n"),
        ("runs.csv", ""),
    ],
)
@pytest.mark.usefixtures("undrawn")
def test_damaged_files_of_a_study_are_a_sentence(copy, name, text, capsys):
    (copy / "study" / "tables.sha256").unlink()  # as bnt 0.2 left it
    (copy / "study" / name).write_text(text)
    code = main(["report", "study"])
    said = capsys.readouterr().err
    assert code in (0, 2)  # tables of an earlier version are made anew where they are empty
    assert code == 0 or (len(said.splitlines()) == 1 and "study" in said)


@pytest.mark.parametrize(
    "text", ["{}", '{"splits": 7, "seeds": [], "variants": []}', '{"splits": [], "seeds": [], "variants": {"a": 1}}']
)
def test_a_study_with_a_damaged_description_is_not_resumed(copy, text, capsys):
    (copy / "study" / "study.json").write_text(text)
    words = ["compare", "cohort", "--models", "ridge", "logistic", "--splits", "2", "--jobs", "1", "--out", "study"]
    assert "study.json" in refused(words, capsys)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("predictions.csv", "participant_id,part\n1,test\n"),
        ("predictions.csv", "\x00\x01"),
        ("splits.csv", "participant_id,split0\n1,nowhere\n"),
        ("splits.csv", ""),
        ("report.json", DEEP),
        ("report.json", "{}"),
        ("metrics.jsonl", '{"epoch": "x"}\n' + DEEP),
        ("config.toml", "model = " + DEEP),
    ],
)
@pytest.mark.usefixtures("undrawn")
def test_files_of_a_run_that_were_sealed_with_nonsense_are_a_sentence(copy, name, text, capsys):
    """Whoever changes a file can change its digest too."""
    (copy / "run" / name).write_text(text)
    seal(copy / "run")
    code = main(["report", "run"])
    said = capsys.readouterr().err
    assert code in (0, 2)
    assert code == 0 or len(said.splitlines()) == 1


@pytest.mark.parametrize("odd", ["member1000000000.x", "x", "member-1.x", "member0", "memberx.y"])
def test_weights_with_odd_names_are_a_sentence(copy, odd, capsys):
    import torch
    from safetensors.torch import load_file, save_file

    file = copy / "run" / "weights.safetensors"
    save_file(load_file(file) | {odd: torch.zeros(1)}, file)
    seal(copy / "run")
    assert "train again" in refused(["predict", "run", "cohort"], capsys)


def test_weights_have_the_permissions_of_their_neighbours(made):
    modes = {file.stat().st_mode for file in (made / "run").iterdir() if file.is_file()}
    assert len(modes) == 1


def test_overwriting_a_link_is_refused_and_nothing_is_lost(copy, capsys):
    os.symlink(copy / "cohort", copy / "link")
    os.symlink(copy / "run", copy / "run-link")
    assert "link" in refused(["simulate", "link", "--subjects", "60", "--overwrite"], capsys)
    assert "link" in refused(["train", "cohort", *TRAIN, "--out", "run-link", "--overwrite"], capsys)
    assert (copy / "cohort" / "cohort.json").is_file()
    assert damage(copy / "run") is None


# -- found by the campaign -------------------------------------------------------------------------------


def interrupted(cohort: bnt.Cohort, folder: Path, *, resume: bool, at: int = 2) -> bytes | None:
    """Train a network of three epochs and stop after one of them, or resume; return the weights."""
    (split,) = named_splits(cohort, "diagnosis", "site-stratified", n_splits=1)
    recipe = find_recipe("default", epochs=3, min_steps=0)
    options = {"n_clusters": 3, "ffn": 16}
    config = describe(cohort, "diagnosis", split, model="bnt", recipe=recipe, options=options)

    def watch(stage: str, line: dict) -> None:
        if line["epoch"] == at and not resume:
            raise KeyboardInterrupt

    try:
        train_run(cohort, split, config, folder, resume=resume, watch=watch)
    except KeyboardInterrupt:
        return None
    return (folder / "weights.safetensors").read_bytes()


def test_a_checkpoint_with_a_changed_bit_is_not_resumed_from(copy):
    cohort = bnt.load_cohort("cohort")
    whole = interrupted(cohort, copy / "whole", resume=False, at=9)
    assert interrupted(cohort, copy / "cut", resume=False) is None
    flip(copy / "cut" / "checkpoint.safetensors", at=-2000)
    with pytest.warns(UserWarning, match="checkpoint.safetensors"):
        assert interrupted(cohort, copy / "cut", resume=True) == whole


def test_an_emptied_done_is_no_finished_run(copy):
    (copy / "run" / "DONE").write_text("")
    assert damage(copy / "run")[0] == "DONE"


@pytest.mark.parametrize("change", [lambda t: t.replace(",0.", ",0.1"), lambda t: t.partition("\n")[0] + "\n"])
def test_predictions_that_cannot_be_are_refused(copy, change):
    file = copy / "run" / "predictions.csv"
    file.write_text(change(file.read_text()))
    seal(copy / "run")
    with pytest.raises(BadInput, match=r"predictions\.csv"):
        load_result(copy / "run")


def test_weights_that_are_no_numbers_predict_nothing(copy):
    from safetensors.torch import load_file, save_file

    file = copy / "run" / "weights.safetensors"
    save_file({name: value * float("nan") for name, value in load_file(file).items()}, file)
    seal(copy / "run")
    with pytest.raises(BadInput, match="a finite number"):
        TrainedRun(copy / "run").predict(bnt.load_cohort("cohort"))


@pytest.mark.parametrize("name", ["kind", "diagonal", "findings"])
def test_a_manifest_that_lost_a_fact_is_a_sentence(copy, name):
    file = copy / "cohort" / "cohort.json"
    manifest = json.loads(file.read_text())
    del manifest[name]
    file.write_text(json.dumps(manifest))
    with pytest.raises(BadInput, match=r"cohort\.json"):
        bnt.load_cohort("cohort")


def test_a_manifest_that_is_nested_deeply_is_a_sentence(copy):
    (copy / "cohort" / "cohort.json").write_text(DEEP)
    with pytest.raises(BadInput, match=r"cohort\.json"):
        bnt.load_cohort("cohort")


def test_an_array_whose_header_ends_early_is_a_sentence(copy):
    file = copy / "cohort" / "connectomes.npy"
    file.write_bytes(file.read_bytes().replace(b"}", b" ", 1))
    with pytest.raises(BadInput, match=r"connectomes\.npy"):
        bnt.load_cohort("cohort")


def test_rois_in_another_order_are_refused_and_other_edits_are_not(copy):
    file = copy / "cohort" / "rois.tsv"
    head, first, second, *rest = file.read_text().splitlines(keepends=True)
    file.write_text("".join([head, first.replace("n/a", "1.5", 1), second, *rest]))
    assert bnt.load_cohort("cohort").rois["x"].iloc[0] == 1.5
    for lines, word in (([head, second, first, *rest], "order"), ([first, head, second, *rest], "column")):
        file.write_text("".join(lines))
        with pytest.raises(BadInput, match=rf"rois\.tsv.*{word}"):
            bnt.load_cohort("cohort")


def test_a_table_of_people_that_lost_its_sites_is_refused(copy):
    file = copy / "cohort" / "participants.tsv"
    file.write_text(file.read_text().replace("\tsite\t", "\tcentre\t", 1))
    with pytest.raises(BadInput, match="site"):
        bnt.load_cohort("cohort")


def test_an_explanation_that_is_no_text_is_a_sentence(copy):
    from bnt.report._explained import read_explanation

    (copy / "explain").mkdir()
    (copy / "explain" / "edges.png").write_bytes(b"png")
    (copy / "explain" / "edges.csv").write_bytes(b"roi_a,roi_b\n\x83\xff")
    with pytest.raises(BadInput, match="explain"):
        read_explanation(copy / "explain")


@pytest.mark.parametrize("content", [b"participant_id,split,part\n\xff", b'participant_id,split,part\n"a'])
def test_splits_that_cannot_be_read_are_a_sentence_in_the_audit(copy, content):
    (copy / "theirs.csv").write_bytes(content)
    with pytest.raises(BadInput, match=r"theirs\.csv"):
        audit_splits("theirs.csv", bnt.load_cohort("cohort"))


def test_covariates_and_searches_that_are_no_tables_are_sentences(copy):
    from bnt.studies._chance import read_covariates
    from bnt.studies._tuning import read_search

    (copy / "study" / "covariates.csv").write_text("variant\n1\n")
    with pytest.raises(BadInput, match=r"covariates\.csv"):
        read_covariates("study", ["a"])
    (copy / "study" / "trials.csv").write_text("split\n1\n")
    with pytest.raises(BadInput, match=r"trials\.csv"):
        read_search(copy / "study")


def test_another_recipe_of_a_study_is_not_told_as_damage(copy):
    from bnt.studies._results import merged

    found = json.loads((copy / "study" / "study.json").read_text())
    found["variants"][0]["options"] = {"penalty": 9.0}
    with pytest.raises(BadInput, match="with other options") as error:
        merged(copy / "study", found | {"data_sha256_of_0_2": ""})
    assert "damaged" not in str(error.value)


def test_a_number_beyond_all_numbers_in_a_configuration_is_a_sentence(copy):
    file = copy / "run" / "config.toml"
    file.write_text(re.sub(r"(?m)^lr = .*$", "lr = " + "9" * 400, file.read_text()))
    with pytest.raises(BadInput, match=r"config\.toml"):
        read_config(copy / "run")
