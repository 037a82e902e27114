"""What every readout returns."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Pooled(NamedTuple):
    """A batch of graphs after a readout.

    Attributes
    ----------
    embedding : Tensor, (B, F)
        One vector a graph; F is the readout's ``out_features``.
    loss : Tensor, scalar, or None
        Auxiliary loss, already weighted.
    assignments : Tensor, (B, V, K), or None
        Soft clusters where the readout has any.
    """

    embedding: Tensor
    loss: Tensor | None = None
    assignments: Tensor | None = None


def drop_padding(z: Tensor, mask: Tensor | None, value: float = 0.0) -> Tensor:
    """Return (B, V, D) with the rows of padding nodes set to a value, whatever they held."""
    return z if mask is None else z.masked_fill(~mask[..., None], value)
