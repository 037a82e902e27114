"""A small cohort and settings that train in a fraction of a second."""

from __future__ import annotations

from typing import Any

import pytest

import bnt
from bnt.training import Recipe

TINY = {"n_heads": 2, "n_layers": 1, "ffn": 16, "n_clusters": 3}


@pytest.fixture(scope="session")
def cohort() -> bnt.Cohort:
    return bnt.simulate_cohort(n_subjects=60, n_rois=16, n_sites=3, effect=3.0, seed=1)


@pytest.fixture(scope="session")
def y(cohort):
    return cohort.labels("diagnosis")


@pytest.fixture(scope="session")
def tiny() -> dict[str, Any]:
    """Parameters of a network that is quick to fit."""
    recipe = Recipe(epochs=3, batch_size=16, drop_last=False, lr=1e-3, ema=0.9)
    return {"model": "bnt", "options": TINY, "recipe": recipe, "random_state": 0}
