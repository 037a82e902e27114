"""Sources of cohorts: ABIDE, derivatives and tables on disk, simulation.

Names are imported when they are first used: the readers pull in nilearn, nibabel and scipy only
where they are needed.
"""

from importlib import import_module
from typing import Any

_HOME = {
    "simulate_cohort": "bnt.data.simulation",
    "fetch_abide": "bnt.data.abide",
    "import_cohort": "bnt.data.importing",
}

__all__ = ["fetch_abide", "import_cohort", "simulate_cohort"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'bnt.data' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
