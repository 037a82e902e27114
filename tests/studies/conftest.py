"""A small cohort on disk, and a study that nothing interrupted.

Tests of this folder share small_studies.py, which pytest's importlib mode does not put on the path.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bnt.cohort import Cohort, load_cohort

sys.path.insert(0, str(Path(__file__).parent))

from small_studies import LOGISTIC, make_study, tiny  # noqa: E402

N, V = 60, 8


@pytest.fixture(scope="session")
def cohort_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    y = np.arange(N) % 2
    series = []
    for label in y:
        one = rng.normal(size=(40, V))
        one[:, 1] += (0.4 + 1.6 * label) * one[:, 0]  # the class is in one edge
        series.append(one)
    matrices = np.stack([np.corrcoef(s.T) for s in series]).astype(np.float32)
    table = pd.DataFrame(
        {
            "participant_id": [f"sub-{i:03d}" for i in range(N)],
            "site": np.where(np.arange(N) % 4 < 2, "A", "B"),
            "diagnosis": y,
            "age": rng.normal(30, 5, size=N),
        }
    )
    folder = tmp_path_factory.mktemp("cohort") / "cohort"
    Cohort(matrices, table).save(folder)
    return folder


@pytest.fixture(scope="session")
def cohort(cohort_folder: Path) -> Cohort:
    return load_cohort(cohort_folder)


@pytest.fixture(scope="session")
def whole(cohort: Cohort, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study that nothing interrupted: a network and a linear model on two splits."""
    folder = tmp_path_factory.mktemp("whole") / "study"
    assert make_study(folder, cohort, [tiny(), LOGISTIC]).run(n_processes=2) == {}
    return folder
