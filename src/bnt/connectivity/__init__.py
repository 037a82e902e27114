"""Connectomes from time series, batched: Pearson, Ledoit-Wolf, partial, Fisher z, tangent space."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bnt.connectivity._kinds import ALIASES, KINDS, Kind, connectomes, kind_of

if TYPE_CHECKING:
    from bnt.connectivity._tangent import TangentSpace, covariances

__all__ = ["ALIASES", "KINDS", "Kind", "TangentSpace", "connectomes", "covariances", "kind_of"]


def __getattr__(name: str) -> Any:
    """Import what needs torch when it is first asked for."""
    if name in ("TangentSpace", "covariances"):
        return getattr(import_module("bnt.connectivity._tangent"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
