"""Checks that several models make of their input and options."""

from __future__ import annotations

from torch import Tensor

from bnt.errors import BadInput


def check_connectomes(x: Tensor, n_rois: int) -> None:
    """Refuse what is not a batch of connectomes (B, V, V) of the V the model was made for."""
    if x.ndim != 3 or x.shape[1:] != (n_rois, n_rois):
        raise BadInput(
            f"The model was made for connectomes of {n_rois} ROIs, shape (B, {n_rois}, {n_rois}), "
            f"but was given {tuple(x.shape)}."
        )


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
