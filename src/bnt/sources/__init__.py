"""Sources of cohorts: ABIDE, derivatives and tables on disk, simulation."""

from importlib import import_module
from typing import Any

_HOME = {
    "simulate_cohort": "bnt.sources._simulate",
    "fetch_abide": "bnt.sources._abide",
    "import_cohort": "bnt.sources._ingest",
}

__all__ = ["fetch_abide", "import_cohort", "simulate_cohort"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'bnt.sources' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
