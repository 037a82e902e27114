__all__ = [
    "KINDS",
    "Kind",
    "TangentSpace",
    "connectomes",
    "covariances",
    "kind_of",
]

from ._estimate import connectomes
from ._kinds import KINDS, Kind, kind_of
from ._tangent import TangentSpace, covariances
