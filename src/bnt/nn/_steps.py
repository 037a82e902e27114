"""The training step that every network of the package goes through, and the pieces around it.

:mod:`bnt.training._loop` calls :func:`take_steps` once per epoch; the kernel-transformer once per member.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

import torch
from torch import Tensor, nn

B = TypeVar("B")  # whatever the loss is computed from


def take_steps(
    network: nn.Module,
    optimiser: torch.optim.Optimizer,
    batches: Iterable[B],
    loss_of: Callable[[B], Tensor],
    rate_of: Callable[[int], float],
    *,
    steps_before: int = 0,
    averaged: AveragedWeights | None = None,
    clip: float = 0.0,
) -> Iterator[tuple[B, Tensor]]:
    """Train on one batch after the other; yield each batch and its loss.

    Parameters
    ----------
    network : Module
        In training mode.
    optimiser : Optimizer
    batches : iterable
    loss_of : callable
        From a batch to its loss.
    rate_of : callable
        From the number of a step, counted from 1, to its learning rate.
    steps_before : int
        Steps taken already.
    averaged : AveragedWeights, optional
        Updated after each step.
    clip : float
        Largest norm of the gradient; 0 is off.
    """
    for step, batch in enumerate(batches, start=steps_before + 1):
        for group in optimiser.param_groups:
            group["lr"] = rate_of(step)
        loss = loss_of(batch)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(network.parameters(), clip)
        optimiser.step()
        if averaged is not None:
            averaged.update(network)
        yield batch, loss.detach()


def draw_mixup(n: int, alpha: float) -> tuple[float, Tensor]:
    """Return the mixing weight l ~ Beta(alpha, alpha) and a permutation of a batch, from torch's global generator."""
    share = torch.distributions.Beta(alpha, alpha).sample().item()
    return share, torch.randperm(n)


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
