"""Every model as a scikit-learn estimator."""

from bnt.estimators._base import EXPECTED_FAILED_CHECKS
from bnt.estimators._estimators import BrainNetworkClassifier, BrainNetworkRegressor

__all__ = ["EXPECTED_FAILED_CHECKS", "BrainNetworkClassifier", "BrainNetworkRegressor"]
