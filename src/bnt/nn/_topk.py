"""TopK pooling of graphs, which BrainGNN and BrainNetGNN share."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from bnt.nn._network import check_choice, check_share


class Kept(NamedTuple):
    """Graphs after TopK pooling.

    Attributes
    ----------
    z : Tensor, (B, k, D)
        The kept nodes, each multiplied by its score, largest score first.
    adjacency : Tensor, (B, k, k)
        The edges among them.
    nodes : Tensor of int, (B, k)
        Which nodes they were.
    scores : Tensor, (B, N)
        What every node was ranked by, before the squashing function.
    """

    z: Tensor
    adjacency: Tensor
    nodes: Tensor
    scores: Tensor


class TopKPool(nn.Module):
    """Score nodes by a learned direction, keep the first ``ceil(ratio * N)`` and scale them by their score.

    Parameters
    ----------
    width : int
        D, the length of a node's embedding.
    ratio : float
        Share of nodes to keep.
    squash : {"tanh", "sigmoid"}
        What the score goes through before it multiplies the node.
    standardise : bool
        Whether scores are brought to mean 0 and variance 1 within each graph first.

    Notes
    -----
    Ties are broken by the order of the nodes, so the same graph always gives the same answer.
    """

    def __init__(self, width: int, ratio: float, squash: str = "tanh", standardise: bool = False) -> None:
        super().__init__()
        check_share("ratio", ratio)
        check_choice("squash", squash, ("tanh", "sigmoid"))
        self.ratio, self.squash, self.standardise = ratio, squash, standardise
        self.weight = nn.Parameter(torch.empty(width).uniform_(-(width**-0.5), width**-0.5))

    def score(self, z: Tensor) -> Tensor:
        """Return the scores (B, N) of nodes (B, N, D), before squashing."""
        scores = z @ (self.weight / self.weight.norm().clamp_min(1e-12))
        if self.standardise:
            centred = scores - scores.mean(1, keepdim=True)
            scores = centred * (centred.square().mean(1, keepdim=True) + 1e-5).rsqrt()
        return scores

    def forward(self, z: Tensor, adjacency: Tensor) -> Kept:
        """Pool graphs with nodes (B, N, D) and edges (B, N, N)."""
        scores = self.score(z)
        keep = math.ceil(self.ratio * z.shape[1])
        index = scores.argsort(dim=1, descending=True, stable=True)[:, :keep]  # (B, k)
        gate = getattr(torch, self.squash)(scores.gather(1, index))
        kept = z.gather(1, index[..., None].expand(-1, -1, z.shape[2])) * gate[..., None]
        rows = adjacency.gather(1, index[..., None].expand(-1, -1, z.shape[1]))
        return Kept(kept, rows.gather(2, index[:, None, :].expand(-1, keep, -1)), index, scores)
