"""Brain Network Transformer and its baselines, from fMRI derivatives to a leak-checked score.

Names are imported when they are first used, so that ``import bnt`` costs milliseconds.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "BadInput": "bnt.errors",
    "Cohort": "bnt.cohort",
    "load_cohort": "bnt.cohort",
    "fetch_abide": "bnt.sources",
    "import_cohort": "bnt.sources",
    "simulate_cohort": "bnt.sources",
    "SiteStratifiedSplit": "bnt.splits",
    "RandomSplit": "bnt.splits",
    "RepeatedKFold": "bnt.splits",
    "LeaveOneSiteOut": "bnt.splits",
    "ReleasedSplit": "bnt.splits",
    "create_model": "bnt.models",
    "list_models": "bnt.models",
    "BrainNetworkClassifier": "bnt.estimators",
    "BrainNetworkRegressor": "bnt.estimators",
}
_SUBPACKAGES = (
    "cohort",
    "connectivity",
    "sources",
    "estimators",
    "studies",
    "paper",
    "plotting",
    "predict",
    "explain",
    "models",
    "nn",
    "report",
    "splits",
    "training",
)

__all__ = [*_HOME, "__version__"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if name in _SUBPACKAGES:
        return import_module(f"bnt.{name}")
    raise AttributeError(f"module 'bnt' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_SUBPACKAGES])
