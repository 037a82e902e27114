"""What pages say: cells, classes with their names, caveats, and commands that repeat what they describe."""

from __future__ import annotations

import base64
import json
import re
import shlex
import shutil
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from markupsafe import escape

from bnt.cli._main import main
from bnt.errors import BadInput
from bnt.report import _evidence as evidence
from bnt.report._explained import read_explanation
from bnt.report._pages import LARGEST, run_page, watch_report, write_report
from bnt.report._render import cell, compare_command, split_table, train_command
from bnt.splits import read_splits
from bnt.training._trained import seal


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (float("nan"), ""),
        (None, ""),
        (np.float64(0.12345), "0.123"),
        (307802, "307,802"),
        (3980890.0, "3,980,890"),
        (0.00001, "1e-05"),
        ("a<b", "a&lt;b"),
        ("bnt:k=1,l=2", "bnt:<wbr>k=1,<wbr>l=2"),
    ],
)
def test_cells_are_empty_where_there_is_nothing_and_have_commas_where_numbers_are_large(value: object, shown: str):
    assert escape(cell(value)) == shown


@pytest.mark.parametrize("name", ["study", "run"])
def test_tables_and_figures_are_numbered_apart_and_sections_listed(pages: dict[str, Path], name: str):
    text = pages[name].read_text()
    for kind in ("Table", "Figure"):
        numbers = [int(n) for n in re.findall(rf"<b>{kind} (\d+)\.</b>", text)]
        assert numbers == list(range(1, len(numbers) + 1))
        assert numbers
    assert re.findall(r'<li><a href="#([^"]+)">', text) == re.findall(r'<h2 id="([^"]+)">', text)


@pytest.mark.usefixtures("undrawn")
def test_names_from_files_are_text_not_html(study: Path, tmp_path: Path):
    copy = Path(shutil.copytree(next(study.glob("runs/logistic*split1*")), tmp_path / "run"))
    config = (copy / "config.toml").read_text()
    (copy / "config.toml").write_text(re.sub('label = "diagnosis"', 'label = "<script>x</script>"', config))
    seal(copy)
    text = write_report(copy).read_text()
    assert "<script>" not in text
    assert "&lt;script&gt;x" in text


def downloads(text: str) -> dict[str, str]:
    """The files inside a page, by name."""
    found = re.findall(r'download="([^"]+)" href="data:[^;]+;base64,([^"]+)"', text)
    return {name: base64.b64decode(data).decode() for name, data in found}


def test_the_study_page_says_who_was_in_it_and_what_to_doubt(pages: dict[str, Path]):
    text = pages["study"].read_text()
    assert len(text) < LARGEST
    assert "Caveats" in text
    assert "The test sets have 18 subjects" in text
    assert "1 ASD" in text  # the class with the name that cohort.json gives it
    assert "no subject, family or scan in two sets" in text
    assert 'http-equiv="refresh"' not in text
    assert "Against chance (labels permuted within sites, 50 draws" in text  # the tables of bnt compare are shown
    assert text.count("p (") == text.count("p (corrected t-test, Holm)")  # one p-value in the table, named
    assert "--permutations 50" in text
    counts = pd.read_csv(StringIO(downloads(text)["cohort.csv"])).set_index("site")
    assert counts.loc["all sites", ["0 control", "1 ASD", "total"]].tolist() == [45, 45, 90]


@pytest.mark.usefixtures("undrawn")
def test_a_report_leaves_the_study_as_it_was(study: Path, tmp_path: Path):
    def contents() -> dict[str, bytes]:
        return {f.name: f.read_bytes() for f in study.iterdir() if f.is_file() and f.name != "report.html"}

    before = contents()
    write_report(study, tmp_path / "page.html")
    assert contents() == before


def test_the_run_page_has_the_map_in_three_dimensions_and_the_pictures(pages: dict[str, Path]):
    text = pages["run"].read_text()
    assert len(text) < LARGEST
    assert "Attention between networks." in text
    assert "rank correlation is 0.12" in text  # the map's own check, among the caveats
    assert "<iframe sandbox=" in text
    assert "raw.githubusercontent" not in text
    assert downloads(text)["explain-attention.csv"] == "a,b\n1,2\n"


@pytest.mark.parametrize(
    ("method", "target", "drawn", "meaning"),
    [
        (
            "pattern",
            "diagnosis = 0",
            "vary most with the model's decision",
            "the model decides for diagnosis = 0",
        ),
        ("pattern", "age", "vary most with the model's decision", "the model predicts a higher age"),
        ("coefficients", "age", "have the largest weights", "orange connections raise the predicted age"),
        ("gradient", "diagnosis = 0", "moved the prediction most", "orange connections speak for diagnosis = 0"),
        (None, None, "are strongest", "Orange is positive, blue negative."),
    ],
)
def test_captions_of_edges_follow_the_method_and_the_target(
    method: str | None, target: str | None, drawn: str, meaning: str, tmp_path: Path
):
    edges = {} if method is None else {"method": method, "target": target}
    (tmp_path / "explain.json").write_text(json.dumps({"edges": edges}))
    for name in ("edges", "connectome", "enrichment"):
        (tmp_path / f"{name}.png").write_bytes(b"")
    found = read_explanation(tmp_path)
    assert found is not None
    assert drawn in found.strongest
    assert meaning in found.signs
    said = {picture.name: picture.caption for picture in found.pictures}
    if method is not None:
        assert meaning in said["edges"]
        assert drawn in said["connectome"]
        assert ("moved the prediction" in said["edges"]) == (method == "gradient")
    assert "filled where" in said["enrichment"]
    assert "beside" not in said["enrichment"]


@pytest.mark.parametrize(("model", "select", "said"), [("bnt", "best", 1), ("bnt", "last", 0), ("logistic", "best", 0)])
def test_only_an_epoch_that_was_chosen_can_have_fitted_the_validation_part(
    study: Path, tmp_path: Path, model: str, select: str, said: int
):
    run = Path(shutil.copytree(next(study.glob(f"runs/{model}*split2*")), tmp_path / "run"))
    report = json.loads((run / "report.json").read_text())
    report["validation"]["auroc"], report["test"]["auroc"] = 0.9, 0.6
    (run / "report.json").write_text(json.dumps(report))
    config = (run / "config.toml").read_text()
    (run / "config.toml").write_text(re.sub('select = "[a-z]+"', f'select = "{select}"', config))
    seal(run)
    assert sum("overfitted the validation set" in caveat for caveat in run_page(run)["caveats"]) == said


@pytest.mark.usefixtures("undrawn")
def test_a_run_without_places_in_the_brain_has_no_brain(study: Path, tmp_path: Path):
    run = next(study.glob("runs/logistic*split1*"))
    text = write_report(run, tmp_path / "page.html").read_text()
    assert "<iframe" not in text
    assert "models on the same split and seed" in text


def test_the_train_command_repeats_the_run_bit_by_bit(study: Path, tmp_path: Path):
    from bnt.training._trained import load_result

    run = next(study.glob("runs/bnt*split1*"))
    first = load_result(run)
    words = shlex.split(train_command(first.config).replace("\\\n", " "))
    assert words[:2] == ["bnt", "train"]
    words[words.index("RUN")] = str(tmp_path / "again")
    assert main(words[1:]) == 0
    again = load_result(tmp_path / "again")
    assert again.config.recipe == first.config.recipe
    assert again.config.split_sha256 == first.config.split_sha256
    assert again.report["weights_sha256"] == first.report["weights_sha256"]


def test_the_compare_command_means_the_same_study(study: Path, tmp_path: Path):
    """Given to the study's own folder, it has nothing left to do and refuses nothing."""
    from bnt.studies._results import read_study
    from bnt.training._config import read_config

    copy = tmp_path / "study"
    shutil.copytree(study, copy)
    command = compare_command(read_study(copy), read_config(next(copy.glob("runs/bnt*"))))
    words = shlex.split(command.replace("\\\n", " "))
    words[words.index("STUDY")] = str(copy)
    before = {f: f.stat().st_mtime_ns for f in copy.glob("runs/*/DONE")}
    assert main(words[1:]) == 0
    assert {f: f.stat().st_mtime_ns for f in copy.glob("runs/*/DONE")} == before
    again, first = read_study(copy), read_study(study)
    assert len(again.pop("commands")) == len(first.pop("commands")) + 1
    assert again == first


def test_the_table_of_splits_in_the_page_is_a_protocol(study: Path, cohort_folder: Path, tmp_path: Path):
    from bnt.cohort import load_cohort
    from bnt.splits import named_splits

    file = tmp_path / "splits.csv"
    file.write_text(split_table({f"split{k}": next(study.glob(f"runs/logistic*split{k}*")) for k in range(3)}))
    cohort = load_cohort(cohort_folder)
    wanted = named_splits(cohort, "diagnosis", "site-stratified", n_splits=3)
    assert [found.parts for found in read_splits(file, cohort)] == [split.parts for split in wanted]


@pytest.mark.usefixtures("undrawn")
def test_a_run_from_a_table_is_repeated_with_the_table_in_its_page(
    cohort_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from bnt.training._trained import load_result

    words = ["train", str(cohort_folder), "--model", "logistic", "--threads", "1"]
    assert main(["split", str(cohort_folder), "--n-splits", "2", "--out", str(tmp_path / "mine.csv")]) == 0
    table = ["--protocol", str(tmp_path / "mine.csv"), "--split", "split1", "--out", str(tmp_path / "run")]
    assert main([*words, *table]) == 0
    text = write_report(tmp_path / "run", with_ids=True).read_text()
    monkeypatch.chdir(tmp_path)
    Path("splits.csv").write_text(downloads(text)["splits.csv"])
    first = load_result(tmp_path / "run")
    again = shlex.split(train_command(first.config).replace("\\\n", " "))
    assert main(again[1:]) == 0
    assert load_result("RUN").report["weights_sha256"] == first.report["weights_sha256"]


def test_a_leak_on_disk_is_called_a_leak(study: Path, cohort_folder: Path, tmp_path: Path):
    run = tmp_path / "run"
    shutil.copytree(next(study.glob("runs/logistic*split0*")), run)
    split = read_splits(run / "splits.csv")[0]
    changed = shutil.copytree(cohort_folder, tmp_path / "cohort")
    people = pd.read_csv(changed / "participants.tsv", sep="\t", dtype=str)
    people.loc[people["participant_id"].isin([split.train[0], split.test[0]]), "family"] = "one-family"
    people.to_csv(changed / "participants.tsv", sep="\t", index=False)
    config = run / "config.toml"
    config.write_text(config.read_text().replace(str(cohort_folder.resolve()), str(changed)))
    seal(run)
    leak = evidence.leaks(run, evidence.look_up_cohort(str(changed)))
    assert leak is not None
    assert all(word in leak for word in (split.train[0], split.test[0], "one-family"))
    assert run_page(run)["caveats"][0].startswith("LEAK")


@pytest.mark.usefixtures("undrawn")
def test_an_unfinished_study_is_refused_without_watch_and_refreshes_with_it(study: Path, tmp_path: Path):
    copy = tmp_path / "study"
    shutil.copytree(study, copy)
    for name in ("runs.csv", "summary.csv", "comparisons.csv"):
        (copy / name).unlink()
    for done in copy.glob("runs/*/DONE"):
        done.unlink()
    with pytest.raises(BadInput, match="no finished run yet"):
        write_report(copy)
    text = write_report(copy, refresh=7).read_text()
    assert '<meta http-equiv="refresh" content="7">' in text
    assert "None of 6 runs is finished yet." in text
    assert "Unfinished runs" in text


@pytest.mark.usefixtures("undrawn")
def test_watch_ends_with_the_study_and_leaves_a_page_that_stays(study: Path, tmp_path: Path):
    copy = tmp_path / "study"
    shutil.copytree(study, copy)
    last = next(copy.glob("runs/logistic*split2*/DONE"))
    text = last.read_text()
    last.unlink()
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        last.write_text(text)  # the last run finishes after the first look

    page = watch_report(copy, every=0.01, say=say)
    assert [line[:6] for line in said] == ["5 of 6", "6 of 6"]
    assert 'http-equiv="refresh"' not in page.read_text()
    assert not list(copy.glob("*.tmp"))


@pytest.mark.usefixtures("undrawn")
def test_watch_ends_when_the_command_ended_with_failures(study: Path, tmp_path: Path):
    copy = tmp_path / "study"
    shutil.copytree(study, copy)
    next(copy.glob("runs/logistic*split2*/DONE")).unlink()
    (copy / ".lock").write_text("process 1 on here")
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        (copy / ".lock").write_text("")  # the command ends after the first look
        (copy / "failures.csv").write_text("run,reason\nlogistic--split2--seed0,no memory\n")

    text = watch_report(copy, every=0.01, say=say).read_text()
    assert "ended with 5 of 6 runs" in said[-1]
    assert "Failed runs" in text
    assert 'http-equiv="refresh"' not in text


def test_a_folder_that_is_neither_is_refused_in_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["report", str(tmp_path)]) == 2
    assert "neither a run nor a study" in capsys.readouterr().err


def test_only_files_of_the_folder_are_taken_into_a_page(tmp_path):
    """Neither an absolute path, nor one that goes up, nor a link: a folder does not choose what else to show."""
    secret, folder = tmp_path / "secret.csv", tmp_path / "run" / "explain"
    secret.write_text("a secret\n")
    np.save(tmp_path / "secret.npy", np.full((1, 2, 2), 12345.0))
    folder.mkdir(parents=True)
    names = ["absolute", "above", "linked", "array", "good"]
    for name in names:
        (folder / f"{name}.png").write_bytes(b"picture")
    (folder / "linked.csv").symlink_to(secret)
    (folder / "array.npy").symlink_to(tmp_path / "secret.npy")
    (folder / "edges.csv").symlink_to(secret)
    (folder / "stolen.png").symlink_to(secret)
    (folder / "own.csv").write_text("mine\n")
    data = {"absolute": str(secret), "above": "../../secret.csv", "good": "own.csv"}
    figures = [{"file": f"{name}.png", "caption": name, "data": data.get(name)} for name in names]
    figures += [{"file": name, "caption": "x"} for name in (str(secret), "../../secret.csv", "a" * 5000, "\0")]
    (folder / "explain.json").write_text(json.dumps({"figures": figures}))
    found = read_explanation(folder)
    assert found is not None
    assert {p.name: p.data for p in found.pictures} == dict.fromkeys(names) | {"good": "mine\n"}
    assert all(p.png == b"picture" for p in found.pictures)
    assert found.edges is None
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "explain").symlink_to(folder)
    assert read_explanation(tmp_path / "other" / "explain") is None
    (folder / "explain.json").unlink()
    (tmp_path / "notes.json").write_text(json.dumps({"summary": "a secret"}))
    (folder / "explain.json").symlink_to(tmp_path / "notes.json")
    assert read_explanation(folder).sentences == []


def test_sets_count_people_not_scans(tmp_path: Path):
    """``a_1`` and ``a_2`` are two scans of one person."""
    (tmp_path / "splits.csv").write_text("participant_id,split0\na_1,train\na_2,train\nb,train\nc,validation\nd,test\n")
    people = pd.DataFrame({"participant_id": ["a_1", "a_2", "b", "c", "d"], "person": ["a", "a", "b", "c", "d"]})
    people = people.assign(site="x", diagnosis=[1, 1, 0, 1, 0])
    found = evidence.parts_by_class(tmp_path, evidence.CohortFacts("", people), "diagnosis")
    assert found is not None
    assert found.set_index("set")["total"].to_dict() == {"train": 2, "validation": 1, "test": 1}
