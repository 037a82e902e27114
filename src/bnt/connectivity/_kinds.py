"""The kinds of connectome, by name: what stands off the diagonal and what stands on it."""

from __future__ import annotations

from dataclasses import dataclass

from bnt.cohort._store import canonical_kind
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
        raise BadInput(f"kind is {str(name)!r}: choose one of {', '.join(KINDS)}.", "kind")
    return kind
