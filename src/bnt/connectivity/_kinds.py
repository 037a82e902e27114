"""The kinds of connectome, by name: what stands off the diagonal and what stands on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bnt.cohort._cohort import canonical_kind
from bnt.errors import BadInput


@dataclass(frozen=True)
class Kind:
    """One kind of connectome.

    Parameters
    ----------
    name : str
    diagonal : float
        What stands on the diagonal of its square matrices.
    shrunk : bool
        Whether the covariance is shrunk (Ledoit and Wolf 2004).
    fisher : bool
        Whether ``arctanh`` is taken of the correlations.
    partial : bool
        Whether the correlations are partial ones.
    description : str

    Examples
    --------
    >>> from bnt.connectivity import KINDS
    >>> KINDS["pearson"].diagonal
    1.0
    """

    name: str
    diagonal: float
    shrunk: bool
    fisher: bool
    partial: bool
    description: str


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("pearson", 1.0, False, False, False, "Pearson correlation, unit diagonal"),
        Kind("shrunk-z", 0.0, True, True, False, "Ledoit-Wolf correlation, arctanh, zero diagonal"),
        Kind("fisher-z", 0.0, False, True, False, "arctanh of Pearson correlation, zero diagonal"),
        Kind("ledoit-wolf", 1.0, True, False, False, "Ledoit-Wolf correlation, unit diagonal"),
        Kind("partial", 1.0, True, False, True, "partial correlation of the Ledoit-Wolf covariance, unit diagonal"),
    )
}


def kind_of(name: str) -> Kind:
    """Return the kind with this name or alias, or say which there are.

    Parameters
    ----------
    name : str
        For example ``"pearson"`` or ``"partial"``; the names of bnt 0.1.0, ``paper`` and ``released``, are read too.

    Examples
    --------
    >>> from bnt.connectivity import kind_of
    >>> kind_of("paper").name  # the name of version 0.1.0
    'pearson'
    """
    kind = KINDS.get(canonical_kind(str(name)))
    if kind is None:
        raise BadInput(f"kind is {str(name)!r}: choose one of {', '.join(KINDS)}.")
    return kind


if TYPE_CHECKING:
    import torch


def connectomes(
    series: Sequence[np.ndarray], kind: str = "pearson", *, device: str | torch.device = "cpu"
) -> np.ndarray:
    """Return the connectomes of subjects whose series may differ in length.

    A region that is constant or holds a missing value has no connections: its edges are 0.

    Parameters
    ----------
    series : sequence of (T_i, V) arrays
    kind : str
        A name of :data:`bnt.connectivity.KINDS`.
    device : str or torch.device
        Where to compute.

    Returns
    -------
    array, (n, V(V-1)/2) float32
        Off-diagonal entries in the order of :mod:`bnt.cohort._triangle`. The diagonal is
        ``KINDS[kind].diagonal``.

    Examples
    --------
    >>> import numpy as np
    >>> from bnt.connectivity import connectomes
    >>> rng = np.random.default_rng(0)
    >>> connectomes([rng.normal(size=(120, 10)), rng.normal(size=(90, 10))]).shape
    (2, 45)
    """
    import torch

    from bnt.cohort._triangle import endpoints, n_edges
    from bnt.connectivity._estimate import centred_batches, check_series

    chosen = kind_of(kind)
    n_rois = check_series(series)
    low, high = endpoints(n_rois)
    positions = torch.from_numpy(high * n_rois + low).to(device)
    # arctanh stretches what lies near 1 and an inverse stretches small eigenvalues: both need float64.
    exact = chosen.fisher or chosen.partial
    series = [np.asarray(one) for one in series]
    out = np.empty((len(series), n_edges(n_rois)), dtype=np.float32)
    for rows, centred in centred_batches(series, torch.float64 if exact else torch.float32, device):
        matrices = _matrices(centred, chosen)  # (B, V, V)
        edges = matrices.reshape(len(rows), -1).index_select(1, positions)  # (B, V(V-1)/2)
        out[rows] = edges.to(torch.float32).cpu().numpy()
    return out


def _matrices(centred: torch.Tensor, kind: Kind) -> torch.Tensor:
    """Return (B, V, V) matrices of one kind; their diagonal is not set."""
    from bnt.connectivity import _estimate as estimate

    if kind.partial:
        matrices = estimate.partial_correlation(estimate.ledoit_wolf_covariance(centred))
    elif kind.shrunk:
        matrices = estimate.ledoit_wolf_correlation(centred)
    else:
        matrices = estimate.pearson(centred)
    return estimate.fisher_z(matrices) if kind.fisher else matrices
