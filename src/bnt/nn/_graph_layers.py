"""Dense graph layers: GCN, gated graph convolution and Set2Set, as batched matrix products."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from bnt.errors import BadInput


def symmetric_normalised(adjacency: Tensor) -> Tensor:
    """Return D^-1/2 (A + loops) D^-1/2 of non-negative weights (B, N, N).

    Row i holds the edges into node i and D their sum. Nodes without a self-loop get one of weight 1.
    """
    diagonal = adjacency.diagonal(dim1=-2, dim2=-1)
    looped = adjacency + torch.diag_embed((diagonal == 0).to(adjacency.dtype))
    scale = looped.sum(-1).rsqrt()  # (B, N)
    return looped * scale[:, :, None] * scale[:, None, :]


class GraphConv(nn.Module):
    """GCN layer (Kipf & Welling 2017): ``A^ Z W + b`` with a normalised adjacency A^ made by the caller.

    Parameters
    ----------
    in_features, out_features : int
        Lengths of a node's embedding.
    """

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(in_features, out_features)))
        self.bias = nn.Parameter(torch.zeros(out_features))

    def forward(self, z: Tensor, normalised: Tensor) -> Tensor:
        """Return new embeddings (B, N, out) from (B, N, in) and (B, N, N)."""
        return normalised @ (z @ self.weight) + self.bias


class GatedGraphConv(nn.Module):
    """Gated graph convolution (Li 2016): messages ``A Z W_s`` drive a GRU cell whose state is Z, for some steps.

    Parameters
    ----------
    width : int
        D, the length of a node's embedding.
    n_steps : int
        Rounds of messages; each has its own W.
    """

    def __init__(self, width: int, n_steps: int) -> None:
        super().__init__()
        bound = width**-0.5
        self.weight = nn.Parameter(torch.empty(n_steps, width, width).uniform_(-bound, bound))
        self.cell = nn.GRUCell(width, width)

    def forward(self, z: Tensor, adjacency: Tensor) -> Tensor:
        """Return new embeddings (B, N, D); row i of the adjacency (B, N, N) weights the edges into node i."""
        for weight in self.weight:
            messages = adjacency @ (z @ weight)
            z = self.cell(messages.flatten(0, 1), z.flatten(0, 1)).view_as(z)
        return z


class Set2Set(nn.Module):
    """Set2Set (Vinyals 2016): an LSTM queries the set of nodes a few times; the answer does not see their order.

    Parameters
    ----------
    width : int
        D; a graph becomes 2 D numbers.
    n_steps : int
        Number of queries.
    """

    def __init__(self, width: int, n_steps: int) -> None:
        super().__init__()
        self.width, self.n_steps = width, n_steps
        self.cell = nn.LSTMCell(2 * width, width)

    def forward(self, z: Tensor) -> Tensor:
        """Pool (B, N, D) to (B, 2 D)."""
        b = z.shape[0]
        query = z.new_zeros(b, self.width)
        memory, answer = z.new_zeros(b, self.width), z.new_zeros(b, 2 * self.width)
        for _ in range(self.n_steps):
            query, memory = self.cell(answer, (query, memory))
            weights = (z @ query[..., None]).softmax(1)  # (B, N, 1)
            answer = torch.cat([query, (weights * z).sum(1)], -1)
        return answer


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
        if not 0 < ratio <= 1:
            raise BadInput(f"ratio is {ratio}; TopK pooling keeps a share above 0 and up to 1.")
        if squash not in ("tanh", "sigmoid"):
            raise BadInput(f"squash is {squash!r}; it can be tanh or sigmoid.")
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
