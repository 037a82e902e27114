"""The commands of docs/how-to.md run as they are typed, on derivatives of a few people."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bnt
from bnt.cli._main import main

PAGE = Path(__file__).resolve().parents[1] / "docs" / "how-to.md"
SPACE = "space-MNI152NLin6Asym"
# What is typed is done with fewer splits, epochs, draws and values; the rest is as on the page.
LESS: dict[str, dict[str, list[str]]] = {
    "import": {"--jobs": ["1"]},
    "compare": {"--splits": ["2"], "--epochs": ["1"], "--jobs": ["1"]},
    "explain": {"--sanity": ["2"]},
}
MADE = ("cohort", "run", "study", "splits.csv", "predictions.csv", "other_cohort", "new_scans")


def questions() -> dict[str, list[list[str]]]:
    """Return the commands of each question."""
    found = {}
    for part in PAGE.read_text(encoding="utf-8").split("\n### ")[1:]:
        question, _, answer = part.partition("\n")
        lines = "".join(re.findall(r"```sh\n(.*?)```", answer, re.DOTALL)).splitlines()
        if lines:
            found[question.strip(". ?")] = [shlex.split(line, comments=True)[1:] for line in lines]
    return found


QUESTIONS = questions()
# tests/training/test_hub.py, tests/report/test_paper.py and tests/studies do these.
ELSEWHERE = ("share a model", "write the paper", "work with a small sample")


def write(file: Path, columns: dict[str, object]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(columns).to_csv(file, sep="\t", index=False, na_rep="n/a")


def write_derivatives(folder: Path, n: int, seed: int, atlases: str) -> None:
    """Write two sessions of each person as XCP-D does, with motion and families, in a folder of BIDS."""
    people = bnt.simulate_cohort(n_subjects=n, n_rois=15, n_sites=2, effect=2, n_volumes=60, male_share=0.5, seed=seed)
    names = [f"sub-{seed}{i:03d}" for i in range(n)]
    patient = people.labels("diagnosis") == 1
    write(
        folder / "participants.tsv",
        {
            "participant_id": names,
            "site": np.where(people.sites == people.sites[0], "NYU", "UM_1"),
            "diagnosis": np.where(patient, "patient", "control"),
            "age": np.round(people.labels("age"), 1),
            "sex": people.labels("sex"),
            "COLUMN": [f"F{i // 2 if i < 6 else i}" for i in range(n)],
        },
    )
    for name, series, motion in zip(names, people.timeseries, people.labels("mean_fd")):
        for session, part in zip("12", np.split(np.asarray(series), 2)):
            stem = f"{folder}/derivatives/{name}/ses-{session}/func/{name}_ses-{session}_task-rest"
            write(Path(f"{stem}_motion.tsv"), {"framewise_displacement": np.full(len(part), motion)})
            for atlas in atlases:
                table = {f"{atlas}{i}": column for i, column in enumerate(part.T)}
                table[f"{atlas}0"] = np.full(len(part), np.nan) if name == names[0] else table[f"{atlas}0"]
                write(Path(f"{stem}_{SPACE}_seg-{atlas}_stat-mean_timeseries.tsv"), table)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """Return a folder with what the page's commands read."""
    folder = tmp_path_factory.mktemp("how-to")
    write_derivatives(folder, 36, 1, "A")
    write_derivatives(folder / "several", 36, 1, "AB")
    write_derivatives(folder / "other", 20, 2, "A")
    shutil.copytree(folder / "other" / "derivatives", folder / "new_scans")
    for words in (
        f"import {folder}/derivatives {folder}/cohort --jobs 1",
        f"import {folder}/other/derivatives {folder}/other_cohort --jobs 1",
        f"train {folder}/cohort --model ridge --out {folder}/run",
        f"compare {folder}/cohort --models svm ridge --splits 2 --jobs 1 --out {folder}/study",
        f"split {folder}/cohort --n-splits 2 --out {folder}/splits.csv",
    ):
        assert main(words.split()) == 0
    tests = [
        pd.read_csv(folder / f"study/runs/svm--split{k}--seed0/predictions.csv").assign(split=f"split{k}")
        for k in range(2)
    ]
    table = pd.concat(tests).rename(columns={"p_patient": "probability"})
    table.drop(columns="p_control").to_csv(folder / "predictions.csv", index=False)
    return folder


def shortened(words: list[str]) -> list[str]:
    """Return a command with less to do: options of LESS in place of those that are typed."""
    less = LESS.get(words[0], {})
    kept = [w for k, w in enumerate(words) if w not in less and (k == 0 or words[k - 1] not in less)]
    return [*kept, *(part for name, values in less.items() for part in (name, *values))]


@pytest.mark.parametrize("question", [q for q in QUESTIONS if q not in ELSEWHERE])
def test_the_commands_of_a_question_run(question, made, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    typed = [word.rstrip("/") for words in QUESTIONS[question] for word in words]
    new = {"cohort"} if "import" in typed else {"study"} if "compare" in typed else set()  # made by the commands
    bids = made / "several" if "--atlas" in typed else made
    for source in (bids / "derivatives", bids / "participants.tsv", *(made / name for name in MADE if name not in new)):
        if source.name in typed or source.name == "participants.tsv" or any(w.startswith(source.name) for w in typed):
            (shutil.copytree if source.is_dir() else shutil.copy)(source, tmp_path / source.name)
    for words in QUESTIONS[question]:
        code = main(shortened(words))
        assert code == 0, (words, capsys.readouterr().err)
