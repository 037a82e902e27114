"""Models of two parts, fitted on the same subjects: a linear one that is solved, and small networks."""

from bnt.models.hybrid.kernel_transformer import KernelTransformer

__all__ = ["KernelTransformer"]
