"""Linear models of connectomes: deterministic, fast, and fitted on the training subjects alone."""

from bnt.models.classical._behaviour import CPM, KRR
from bnt.models.classical._best import Best
from bnt.models.classical._linear import SVM, LinearEnsemble, LinearModel, Logistic, Ridge
from bnt.models.classical._multi_kernel import MultiKernel

__all__ = ["CPM", "KRR", "SVM", "Best", "LinearEnsemble", "LinearModel", "Logistic", "MultiKernel", "Ridge"]
