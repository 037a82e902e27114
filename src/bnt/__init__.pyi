__all__ = [
    "__version__",
    "BadInput",
    "BrainNetworkClassifier",
    "BrainNetworkRegressor",
    "Cohort",
    "LeaveOneSiteOut",
    "RandomSplit",
    "ReleasedSplit",
    "RepeatedKFold",
    "SiteStratifiedSplit",
    "Split",
    "cohort",
    "connectivity",
    "create_model",
    "estimators",
    "explain",
    "fetch_abide",
    "import_cohort",
    "list_models",
    "load_cohort",
    "models",
    "nn",
    "paper",
    "plotting",
    "predict",
    "read_cohort",
    "report",
    "simulate_cohort",
    "sources",
    "splits",
    "studies",
    "training",
]

from . import (
    cohort,
    connectivity,
    estimators,
    explain,
    models,
    nn,
    paper,
    plotting,
    predict,
    report,
    sources,
    splits,
    studies,
    training,
)
from .cohort import Cohort, load_cohort
from .errors import BadInput
from .estimators import BrainNetworkClassifier, BrainNetworkRegressor
from .models import create_model, list_models
from .sources import fetch_abide, import_cohort, read_cohort, simulate_cohort
from .splits import LeaveOneSiteOut, RandomSplit, ReleasedSplit, RepeatedKFold, SiteStratifiedSplit, Split

__version__: str
