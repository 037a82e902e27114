"""Averaged weights: an exponential moving average of the parameters, a step at a time."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn


class AveragedWeights:
    """Exponential moving average of a model's floating-point state.

    The decay grows as (1 + s) / (10 + s) up to ``decay``, so that the random start is forgotten quickly.
    Running statistics of BatchNorm are averaged as well.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.steps = 0
        self.state = {k: v.detach().clone() for k, v in model.state_dict().items()}

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Move the average towards the model's weights of this step."""
        self.steps += 1
        decay = min(self.decay, (1 + self.steps) / (10 + self.steps))
        current = model.state_dict()
        mine, theirs = [], []
        for key, value in self.state.items():
            if value.is_floating_point():
                mine.append(value)
                theirs.append(current[key])
            else:
                value.copy_(current[key])
        torch._foreach_lerp_(mine, theirs, 1 - decay)

    def load(self, state: Mapping[str, Tensor], steps: int) -> None:
        """Continue from a checkpoint."""
        self.steps = steps
        for key, value in self.state.items():
            value.copy_(state[key])
