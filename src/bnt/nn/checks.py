"""Checks that several models make of their options."""

from __future__ import annotations

from bnt.errors import BadInput


def check_probability(name: str, p: float) -> None:
    """Refuse a dropout that is not a probability below one."""
    if not 0 <= p < 1:
        raise BadInput(f"{name} is {p}; give a probability from 0 to below 1.")


def check_positive(**sizes: int) -> None:
    """Refuse sizes below one."""
    for name, size in sizes.items():
        if size < 1:
            raise BadInput(f"{name} is {size}; it has to be at least 1.")


def check_heads(name: str, n_heads: int, width: int) -> None:
    """Refuse a number of heads that does not divide the width they share."""
    if n_heads < 1 or width % n_heads:
        fitting = ", ".join(str(m) for m in range(1, min(width, 32) + 1) if width % m == 0)
        raise BadInput(f"{name} is {n_heads}, which does not divide the width {width}; use {fitting}.")
