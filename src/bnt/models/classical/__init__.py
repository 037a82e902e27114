"""Linear models of connectomes: deterministic, fast, and fitted on the training subjects alone."""

from bnt.models.classical.ensemble import LinearEnsemble
from bnt.models.classical.linear import SVM, LinearModel, Logistic, Ridge

__all__ = ["SVM", "LinearEnsemble", "LinearModel", "Logistic", "Ridge"]
