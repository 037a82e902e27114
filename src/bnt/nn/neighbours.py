"""Sampled nearest neighbours of the discrete differentiable graph module (Kazi 2023)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Neighbours(NamedTuple):
    """A sampled graph.

    Attributes
    ----------
    nodes : Tensor of int, (B, N, k)
        The neighbours of each node.
    log_p : Tensor, (B, N, k)
        What the rewards are multiplied to: unnormalised log-probabilities, differentiable.
    """

    nodes: Tensor
    log_p: Tensor

    def adjacency(self) -> Tensor:
        """Return the graph as 0 and 1, (B, N, N); row i marks the neighbours of node i."""
        b, n, _ = self.nodes.shape
        return self.log_p.new_zeros(b, n, n).scatter_(2, self.nodes, 1.0)


def gumbel(shape: tuple[int, ...], generator: torch.Generator | None = None) -> Tensor:
    """Draw standard Gumbel noise on the CPU."""
    return -torch.log(-torch.log(torch.rand(shape, generator=generator).clamp(1e-8, 1 - 1e-7)))


def sample_neighbours(
    z: Tensor, temperature: Tensor, k: int, noise: Tensor | None = None, released: bool = False
) -> Neighbours:
    """Sample k neighbours of each node without replacement, likelier the nearer (Gumbel top-k).

    With ``l_ij = -|z_i - z_j|^2 exp(clamp(t, -5, 5))``, the k largest ``l_ij + g_ij`` are taken, g standard Gumbel
    noise: that draws without replacement from softmax(l_i). A node is its own nearest neighbour.

    Parameters
    ----------
    z : Tensor, (B, N, E)
        Embeddings that distances are measured in.
    temperature : Tensor, scalar
        t.
    k : int
        Number of neighbours.
    noise : Tensor, (B, N, N) or (N, N), optional
        g; without it the k nearest are taken.
    released : bool
        Subtract the noise, and leave it in the log-probabilities, as the published dense code does.
    """
    scale = temperature.clamp(-5, 5).exp()
    with torch.no_grad():
        centred = z - z.mean(1, keepdim=True)  # less cancellation in the expansion of the square
        norms = centred.square().sum(-1)
        distances = (norms[:, :, None] + norms[:, None, :] - 2 * centred @ centred.mT).clamp_min(0)
        score = -distances * scale
        if noise is not None:
            score = score - noise if released else score + noise
        index = score.topk(k, dim=-1).indices  # (B, N, k)
    b, n, e = z.shape
    near = z.gather(1, index.flatten(1)[..., None].expand(-1, -1, e)).view(b, n, k, e)
    log_p = -(near - z[:, :, None]).square().sum(-1) * scale
    if released and noise is not None:
        log_p = log_p - noise.expand(b, n, n).gather(2, index)
    return Neighbours(index, log_p)
