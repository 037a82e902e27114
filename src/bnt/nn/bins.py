"""Connectivity as integers: bins of equal share, learned from the training part."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

MAX_VALUES = 2_000_000  # as many values a quantile is computed from


class Bins(nn.Module):
    """Put each entry of a connectome into one of some bins.

    Before :meth:`learn` is called the bins divide [-1, 1] evenly. The edges are a buffer, saved with the weights.

    Parameters
    ----------
    n_bins : int
    """

    edges: Tensor

    def __init__(self, n_bins: int) -> None:
        super().__init__()
        self.n_bins = n_bins
        self.register_buffer("edges", torch.linspace(-1, 1, n_bins + 1)[1:-1])  # (n_bins - 1,)

    @torch.no_grad()
    def learn(self, batches: Iterable[Tensor]) -> None:
        """Set the edges to quantiles of all off-diagonal entries of batches (B, V, V).

        Of large cohorts every k-th value is taken, so that no more than two million are sorted.
        """
        kept: list[Tensor] = []
        step = 1
        for x in batches:
            above = torch.triu(torch.ones(x.shape[1:], dtype=torch.bool, device=x.device), 1)
            kept.append(x[:, above].flatten()[::step].double())
            while sum(part.numel() for part in kept) > MAX_VALUES:
                kept = [part[::2] for part in kept]
                step *= 2
        values = torch.cat(kept).sort().values
        if values.numel():
            position = torch.linspace(0, values.numel() - 1, self.n_bins + 1, dtype=torch.float64)[1:-1]
            self.edges.copy_(values[position.round().long().to(values.device)])

    def forward(self, x: Tensor) -> Tensor:
        """Return the bin (int64) of each entry, 0 to n_bins - 1."""
        return torch.bucketize(x.detach().contiguous(), self.edges.to(x.dtype))
