"""The kinds of connectome, by name: what stands off the diagonal and what stands on it."""

from __future__ import annotations

from dataclasses import dataclass

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
        Kind("paper", 1.0, False, False, False, "Pearson correlation, unit diagonal"),
        Kind("released", 0.0, True, True, False, "Ledoit-Wolf correlation, arctanh, zero diagonal"),
        Kind("fisher-z", 0.0, False, True, False, "arctanh of Pearson correlation, zero diagonal"),
        Kind("ledoit-wolf", 1.0, True, False, False, "Ledoit-Wolf correlation, unit diagonal"),
        Kind("partial", 1.0, True, False, True, "partial correlation of the Ledoit-Wolf covariance, unit diagonal"),
    )
}

ALIASES = {"pearson": "paper", "correlation": "paper"}


def kind_of(name: str) -> Kind:
    """Return the kind with this name or alias, or say which there are.

    Parameters
    ----------
    name : str
        For example ``"paper"`` or ``"partial"``.
    """
    name = str(name)
    kind = KINDS.get(ALIASES.get(name, name))
    if kind is None:
        known = ", ".join([*KINDS, *ALIASES])
        raise BadInput(f"There is no connectivity kind {name!r}: choose one of {known}.")
    return kind
