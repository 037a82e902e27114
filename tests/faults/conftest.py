"""One small cohort, one run of a network and one study, made once and copied by whoever damages them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import bnt
from bnt.cli._main import main

TRAIN = ["--model", "bnt", "--option", "n_clusters=3", "--epochs", "2", "--threads", "1"]


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``cohort``, ``run`` and ``study``, as the commands make them."""
    folder = tmp_path_factory.mktemp("made")
    bnt.simulate_cohort(n_subjects=60, n_rois=20, n_sites=2, seed=0).save(folder / "cohort")
    assert main(["train", str(folder / "cohort"), *TRAIN, "--out", str(folder / "run")]) == 0
    words = ["compare", str(folder / "cohort"), "--models", "ridge", "logistic", "--splits", "2", "--jobs", "1"]
    assert main([*words, "--out", str(folder / "study")]) == 0
    return folder


@pytest.fixture
def copy(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it to damage, as the working directory."""
    target = Path(shutil.copytree(made, tmp_path / "copy"))
    monkeypatch.chdir(target)
    return target
