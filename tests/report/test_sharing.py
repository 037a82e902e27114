"""Pages and cards can be shared: no subject's id and no path of this machine, unless they are asked for."""

from __future__ import annotations

import base64
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest

import bnt
from bnt.cli._main import main
from bnt.cohort import load_cohort
from bnt.report import write_report


def everything(page: Path) -> str:
    """A page's text with all that it holds for download, decoded."""
    text = page.read_text()
    parts = re.findall(r"data:(?:text|application)/[a-z]+;base64,([A-Za-z0-9+/=]*)", text)
    return "\n".join([text, *(base64.b64decode(part).decode() for part in parts)])


@pytest.fixture
def names(cohort_folder: Path) -> list[str]:
    return load_cohort(cohort_folder).ids.tolist()


def leaked(text: str, names: list[str], folder: Path) -> list[str]:
    """The ids and the folders of this machine that a text holds."""
    places = {str(folder), str(folder.parent), str(folder.parent.parent), str(Path.home()) + "/", str(Path.cwd())}
    return [name for name in [*names, *sorted(places)] if name in text]


@pytest.fixture
def copy(study: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(study, tmp_path / "study"))


def test_the_page_of_a_study_names_no_subject_and_no_folder(pages, study, names, cohort_folder):
    text = everything(pages["study"])
    assert leaked(text, names, cohort_folder) == []
    assert str(study.parent) not in text
    assert f"bnt compare {cohort_folder.name}" in text


def test_the_page_of_a_run_and_its_card_name_no_subject_and_no_folder(pages, explained_run, names, cohort_folder):
    text = everything(pages["run"])
    assert leaked(text, names, cohort_folder) == []
    assert leaked((explained_run / "model_card.md").read_text(), names, cohort_folder) == []
    assert f"bnt train {cohort_folder.name}" in text


@pytest.mark.usefixtures("undrawn")
def test_the_page_of_a_validation_names_no_subject_and_no_folder(explained_run, tmp_path):
    other = bnt.simulate_cohort(n_subjects=60, n_rois=12, n_modules=3, n_sites=2, seed=11)
    other.save(tmp_path / "elsewhere")
    words = ["validate", str(explained_run), str(tmp_path / "elsewhere"), "--allow-same-ids"]
    assert main([*words, "--out", str(tmp_path / "validated")]) == 0
    text = everything(tmp_path / "validated" / "validation.html")
    assert leaked(text, other.ids.tolist(), tmp_path / "elsewhere") == []
    assert leaked(text, [], explained_run) == []
    assert "elsewhere" in text


@pytest.mark.usefixtures("undrawn")
def test_with_ids_has_the_part_of_each_subject_and_the_cohorts_folder(copy, names, cohort_folder, capsys):
    assert main(["report", str(copy), "--with-ids"]) == 0
    text = everything(copy / "report.html")
    assert {*names, str(cohort_folder)} <= set(leaked(text, names, cohort_folder))


@pytest.mark.usefixtures("undrawn")
def test_a_leak_and_a_failure_are_told_without_names(copy, names, cohort_folder, tmp_path):
    changed = Path(shutil.copytree(cohort_folder, tmp_path / "cohort"))
    people = pd.read_csv(changed / "participants.tsv", sep="\t", dtype=str).assign(family="all")
    people.to_csv(changed / "participants.tsv", sep="\t", index=False)
    file = copy / "study.json"
    file.write_text(file.read_text().replace(str(cohort_folder), str(changed)))
    run = next(copy.glob("runs/logistic*"))
    (run / "DONE").unlink()
    reason = f"The connectome of {names[3]} in {changed}/connectomes.npy contains NaN."
    pd.DataFrame([{"run": run.name, "reason": reason}]).to_csv(copy / "failures.csv", index=False)
    text = everything(write_report(copy))
    assert "LEAK" in text
    assert "contains NaN" in text
    assert leaked(text, names, cohort_folder) == []
    assert str(tmp_path) not in text
    assert names[3] in everything(write_report(copy, with_ids=True))
