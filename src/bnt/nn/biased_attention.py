"""Self-attention with a bias for each pair of nodes (Ying 2021, Graphormer), looked up in tables."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bnt.nn.checks import check_heads
from bnt.nn.dropout import dropout

GRAPH_TOKEN, SELF, OTHER, N_RELATIONS = 0, 1, 2, 3


class PairBias(nn.Module):
    """One number a head for each pair of nodes: by the bin of their edge and by how they are related.

    On a complete graph a shortest path has length 0 (a node and itself) or 1 (any other); a third
    relation is that with the graph token. Edge encodings along paths come down to the one edge there is.

    Parameters
    ----------
    n_bins, n_heads : int
    """

    def __init__(self, n_bins: int, n_heads: int) -> None:
        super().__init__()
        self.edge = nn.Embedding(n_bins, n_heads)
        self.relation = nn.Embedding(N_RELATIONS, n_heads)

    def forward(self, bins: Tensor) -> Tensor:
        """Map bins (B, V, V) to biases (B, heads, 1 + V, 1 + V); the graph token comes first."""
        v = bins.shape[-1]
        relation = torch.full((v + 1, v + 1), OTHER, device=bins.device)
        relation.fill_diagonal_(SELF)
        relation[0] = relation[:, 0] = GRAPH_TOKEN
        between = F.pad(self.edge(bins).permute(0, 3, 1, 2), (1, 0, 1, 0))  # (B, M, 1 + V, 1 + V)
        return between + self.relation(relation).permute(2, 0, 1)


class BiasedLayer(nn.Module):
    """A post-norm Transformer layer with GELU whose attention scores get a bias.

    Parameters
    ----------
    width, n_heads, ffn : int
        d, heads and hidden units.
    p : float
        Dropout of attention weights, hidden units and both branches.
    """

    def __init__(self, width: int, n_heads: int, ffn: int, p: float = 0.1) -> None:
        super().__init__()
        check_heads("n_heads", n_heads, width)
        self.n_heads, self.p = n_heads, p
        self.packed = nn.Linear(width, 3 * width)  # queries, keys, values
        self.out = nn.Linear(width, width)
        self.norm1 = nn.LayerNorm(width)
        self.linear1 = nn.Linear(width, ffn)
        self.linear2 = nn.Linear(ffn, width)
        self.norm2 = nn.LayerNorm(width)

    def forward(self, z: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """Map nodes (B, N, d) and biases (B, heads, N, N) to nodes and the attention (B, heads, N, N)."""
        mixed, weights = self.attend(z, bias)
        z = self.norm1(z + dropout(mixed, self.p, self.training))
        hidden = dropout(F.gelu(self.linear1(z)), self.p, self.training)
        return self.norm2(z + dropout(self.linear2(hidden), self.p, self.training)), weights

    def attend(self, z: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """Return the output of the attention (B, N, d) and its weights (B, heads, N, N) before dropout."""
        b, n, d = z.shape
        q, k, value = self.packed(z).view(b, n, 3, self.n_heads, d // self.n_heads).permute(2, 0, 3, 1, 4)
        weights = ((q * (d // self.n_heads) ** -0.5) @ k.mT + bias).softmax(-1)
        mixed = dropout(weights, self.p, self.training) @ value  # (B, M, N, d / M)
        return self.out(mixed.transpose(1, 2).reshape(b, n, d)), weights
