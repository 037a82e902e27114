"""A simulated cohort whose effect is known, and runs trained on it: a network that learned, and a linear model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bnt
from bnt.cohort import Cohort
from bnt.splits import Split
from bnt.splits._protocols import choose_split
from bnt.splits._split import Rows
from bnt.training import find_recipe
from bnt.training._config import describe
from bnt.training._run import train_run
from bnt.training._trained import TrainedRun

OPTIONS: dict[str, dict[str, Any]] = {"bnt": {"n_clusters": 4, "ffn": 32, "n_heads": 2, "dropout": 0.0}, "svm": {}}


@pytest.fixture(scope="session")
def cohort(tmp_path_factory: pytest.TempPathFactory) -> Cohort:
    """240 subjects, 24 ROIs; an effect so strong that a small network finds it in seconds."""
    folder = tmp_path_factory.mktemp("explain") / "cohort"
    settings: dict[str, Any] = {"n_rois": 24, "n_sites": 3, "effect": 3.0, "seed": 0, "n_volumes": 120}
    return bnt.simulate_cohort(n_subjects=240, series=False, out=folder, **settings)


@pytest.fixture(scope="session")
def split(cohort: Cohort) -> Rows:
    return choose_split(cohort, "diagnosis", "site-stratified", which="0", seed=0).rows(cohort)


def configure(cohort: Cohort, split: Rows, model: str, **changes: Any):
    recipe = find_recipe(
        "default", **({"ema": 0.0, "mixup": 0.0, "select": "best", "lr": 2e-3, "reduction": "mean"} | changes)
    )
    return describe(cohort, "diagnosis", Split.of(cohort, split), model=model, options=OPTIONS[model], recipe=recipe)


@pytest.fixture(scope="session")
def make_run(cohort: Cohort, split: Rows, tmp_path_factory: pytest.TempPathFactory):
    def make(model: str, **changes: Any) -> TrainedRun:
        folder: Path = tmp_path_factory.mktemp("run") / model
        train_run(cohort, Split.of(cohort, split), configure(cohort, split, model, **changes), folder)
        return TrainedRun(folder)

    return make


@pytest.fixture(scope="session")
def configured(cohort: Cohort, split: Rows):
    return lambda model, **changes: configure(cohort, split, model, **changes)


@pytest.fixture(scope="session")
def network(make_run) -> TrainedRun:
    """A network that learned the planted effect."""
    return make_run("bnt", epochs=25)


@pytest.fixture(scope="session")
def pair(make_run) -> TrainedRun:
    """A run of two members with centred inputs, hardly trained."""
    return make_run("bnt", epochs=1, n_members=2, inputs="centred")


@pytest.fixture(scope="session")
def svm(make_run) -> TrainedRun:
    return make_run("svm")


@pytest.fixture(scope="session")
def test_rows(split: Rows) -> np.ndarray:
    return np.asarray(split[2])
