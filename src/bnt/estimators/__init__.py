"""Every model as a scikit-learn estimator."""

from bnt.estimators.classifier import BrainNetworkClassifier
from bnt.estimators.contract import EXPECTED_FAILED_CHECKS
from bnt.estimators.regressor import BrainNetworkRegressor

__all__ = ["EXPECTED_FAILED_CHECKS", "BrainNetworkClassifier", "BrainNetworkRegressor"]
