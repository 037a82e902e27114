"""Connectomes from time series, batched: Pearson, Ledoit-Wolf, partial, Fisher z, tangent space."""

from bnt.connectivity.kinds import ALIASES, KINDS, Kind, kind_of
from bnt.connectivity.measure import connectomes

__all__ = ["ALIASES", "KINDS", "Kind", "connectomes", "kind_of"]
