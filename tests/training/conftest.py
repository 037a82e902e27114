"""A small cohort with an easy effect, made without the simulator so that these tests stand alone."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from bnt.cohort import Cohort

N, V = 60, 8


@pytest.fixture(scope="session")
def small_cohort() -> Cohort:
    rng = np.random.default_rng(0)
    y = np.arange(N) % 2
    series = []
    for label in y:
        one = rng.normal(size=(40 + 5 * (label % 3), V))
        one[:, 1] += (0.4 + 1.6 * label) * one[:, 0]  # the class is in one edge
        series.append(one.astype(np.float32))
    matrices = np.stack([np.corrcoef(s.T) for s in series]).astype(np.float32)
    table = pd.DataFrame(
        {
            "participant_id": [f"sub-{i:03d}" for i in range(N)],
            "site": np.where(np.arange(N) % 4 < 2, "A", "B"),
            "diagnosis": y,
            "score": y + 0.1 * rng.normal(size=N),
        }
    )
    return Cohort(matrices, table, timeseries=series)


@pytest.fixture(scope="session")
def split() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rows = np.arange(N)
    return rows[:36], rows[36:46], rows[46:]
