"""What every model returns."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass
class Output:
    """A model's answer for a batch.

    Attributes
    ----------
    logits : Tensor, (B, C)
        One column a class; a single column for regression.
    loss : Tensor, scalar, or None
        Auxiliary loss, already weighted, for the training loop to add to the task's.
    attention : tuple of Tensor, (B, heads, V, V) each
        One a layer; empty unless ``explain=True`` was asked for.
    assignments : Tensor, (B, V, K), or None
        Soft clusters of a pooling readout; None unless ``explain=True`` was asked for.
    """

    logits: Tensor
    loss: Tensor | None = None
    attention: tuple[Tensor, ...] = ()
    assignments: Tensor | None = None
