"""Mixup: one mixing weight and one permutation for matrix, series and label."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Batch:
    """What one step of training sees.

    Attributes
    ----------
    x : Tensor, (B, V, V)
    target : Tensor, (B, C) class probabilities, or (B, 1) standardised targets
    weight : Tensor, (B,), or None
    series : Tensor, (B, T, V), or None
    """

    x: Tensor
    target: Tensor
    weight: Tensor | None = None
    series: Tensor | None = None


def mixup(batch: Batch, alpha: float) -> Batch:
    """Mix a batch with a permutation of itself: x' = l x + (1 - l) x[perm], l ~ Beta(alpha, alpha).

    Both draws come from torch's global generator. Weights are mixed like labels.
    """
    lam = torch.distributions.Beta(alpha, alpha).sample().item()
    permutation = torch.randperm(len(batch.x)).to(batch.x.device)

    def mixed(values: Tensor | None) -> Tensor | None:
        return None if values is None else torch.lerp(values[permutation], values, lam)

    x, target = mixed(batch.x), mixed(batch.target)
    assert x is not None
    assert target is not None
    return Batch(x, target, mixed(batch.weight), mixed(batch.series))
