"""Dense graph layers: GCN, gated graph convolution and Set2Set, as batched matrix products."""

from __future__ import annotations

import torch
from torch import Tensor, nn


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
