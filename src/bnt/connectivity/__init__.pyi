__all__ = [
    "ALIASES",
    "KINDS",
    "Kind",
    "TangentSpace",
    "connectomes",
    "covariances",
    "kind_of",
]

from ._kinds import ALIASES, KINDS, Kind, connectomes, kind_of
from ._tangent import TangentSpace, covariances
