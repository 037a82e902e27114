__all__ = [
    "KINDS",
    "Kind",
    "TangentSpace",
    "connectomes",
    "covariances",
    "kind_of",
]

from ._estimate import KINDS, Kind, connectomes, kind_of
from ._tangent import TangentSpace, covariances
