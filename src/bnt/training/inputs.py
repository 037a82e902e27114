"""Inputs that a network starts from: as they are, or centred on the training part.

A correlation matrix is mostly what all brains share; what tells people apart is a small deviation from it. A network
that sees the raw matrix spends its first epochs learning to subtract the mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from bnt.nn.output import Output

Source = Callable[[], Iterable[Tensor]]  # gives the training matrices, batch by batch, as often as it is called


class CentredInputs(nn.Module):
    """A network behind (x - mean) / sd: the training part's mean matrix and one SD for all entries.

    Both are buffers, so they are saved with the weights and new subjects are treated alike.
    """

    def __init__(self, model: nn.Module, n_rois: int) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("mean", torch.zeros(n_rois, n_rois))
        self.register_buffer("sd", torch.ones(()))
        self.mean: Tensor
        self.sd: Tensor

    @property
    def n_volumes(self) -> int:
        """Volumes that the network reads of each series; 0 if none."""
        return int(getattr(self.model, "n_volumes", 0))

    @property
    def series_kind(self) -> str:
        """Kind of connectivity that the network reads of each series; none if empty."""
        return str(getattr(self.model, "series_kind", ""))

    @torch.no_grad()
    def learn(self, source: Source) -> None:
        """Take mean and SD from the training matrices, in float64, a batch at a time."""
        count, total = 0, torch.zeros_like(self.mean, dtype=torch.float64)
        for x in source():
            count += len(x)
            total += x.sum(dim=0, dtype=torch.float64)
        self.mean.copy_(total / count)
        spread = sum(float((x - self.mean).double().square().sum()) for x in source())
        sd = (spread / (count * self.mean.numel())) ** 0.5
        self.sd.fill_(sd if sd > 0 else 1.0)

    def transform(self, x: Tensor) -> Tensor:
        """Return what the network sees of ``x``."""
        return (x - self.mean) / self.sd

    def forward(self, x: Tensor, **more: Any) -> Output:
        """Return the network's answer for centred matrices."""
        return self.model(self.transform(x), **more)


def prepare(model: nn.Module, source: Source) -> None:
    """Let a model take what it needs from the training part before its first step."""
    inner, given = model, source
    if isinstance(model, CentredInputs):
        model.learn(source)
        inner, given = model.model, lambda: map(model.transform, source())
    hook = getattr(inner, "prepare", None)
    if hook is not None:
        hook(given())
