__all__ = [
    "EXPECTED_FAILED_CHECKS",
    "BrainNetworkClassifier",
    "BrainNetworkRegressor",
]

from ._base import EXPECTED_FAILED_CHECKS
from ._estimators import BrainNetworkClassifier, BrainNetworkRegressor
