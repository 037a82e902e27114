"""One small cohort on disk for all tests of the paper's parts."""

from __future__ import annotations

import pytest

import bnt
from bnt.cohort import Cohort


@pytest.fixture(scope="session")
def cohort(tmp_path_factory: pytest.TempPathFactory) -> Cohort:
    """Sixty subjects of two sites, 8 ROIs: 42 of them are trained on."""
    made = bnt.simulate_cohort(n_subjects=60, n_rois=8, n_sites=2, n_modules=2, n_volumes=30, series=False, seed=0)
    return made.save(tmp_path_factory.mktemp("paper") / "cohort")
