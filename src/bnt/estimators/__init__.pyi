__all__ = ["BrainNetworkClassifier", "BrainNetworkRegressor"]

from ._estimators import BrainNetworkClassifier, BrainNetworkRegressor
