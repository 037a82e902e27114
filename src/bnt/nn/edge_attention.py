"""SAN's attention, whose scores depend on edges, as two matrix products on a complete graph."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bnt.nn.checks import check_heads
from bnt.nn.dropout import dropout

CLAMP = 5.0  # scores are kept within +-5 before they are exponentiated


class EdgeAttention(nn.Module):
    """Attention with one vector an edge in every product of a query and a key.

    The score of node j for node i is ``sum_c Q_ic K_jc E_ijc / sqrt(d_k)`` within a head, clamped and exponentiated;
    weights are divided by their sum plus 1e-6. An edge is embedded as ``e_ij = w_ij u + b`` from its weight, so that
    E_ij = w_ij u' + b' with u' = W_E u and b' = W_E b, and the scores are ``w_ij (Q_i u').K_j + (Q_i b').K_j``:
    two matrix products in place of (V, V, d) numbers.

    Parameters
    ----------
    width : int
        d.
    n_heads : int
        Heads; has to divide the width.
    """

    def __init__(self, width: int, n_heads: int) -> None:
        super().__init__()
        check_heads("n_heads", n_heads, width)
        self.n_heads = n_heads
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.edge = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)

    def forward(self, z: Tensor, edges: Tensor, embedding: nn.Linear) -> tuple[Tensor, Tensor]:
        """Return the new nodes (B, V, d) and the attention (B, heads, V, V).

        Parameters
        ----------
        z : Tensor, (B, V, d)
            Nodes.
        edges : Tensor, (B, V, V)
            Edge weights w.
        embedding : Linear, 1 to d
            The edge embedding u and b, shared by all layers.
        """
        u = self.edge(embedding.weight[:, 0])  # (d,)
        b = self.edge(embedding.bias)
        q = self.query(z) * (z.shape[-1] // self.n_heads) ** -0.5
        key = self._heads(self.key(z)).mT  # (B, M, d_k, V)
        scores = (self._heads(q * u) @ key) * edges[:, None] + self._heads(q * b) @ key  # (B, M, V, V)
        weights = scores.clamp(-CLAMP, CLAMP).exp()
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-6)
        mixed = weights @ self._heads(self.value(z))
        return mixed.transpose(1, 2).flatten(2), weights

    def _heads(self, z: Tensor) -> Tensor:
        return z.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)


class EdgeTransformerLayer(nn.Module):
    """Edge attention and a d - 2d - d network, each with residual and BatchNorm over nodes.

    Parameters
    ----------
    width, n_heads : int
        d and heads.
    p : float
        Dropout of both branches.
    """

    def __init__(self, width: int, n_heads: int, p: float = 0.0) -> None:
        super().__init__()
        self.p = p
        self.attention = EdgeAttention(width, n_heads)
        self.out = nn.Linear(width, width)
        self.norm1 = nn.BatchNorm1d(width)
        self.linear1 = nn.Linear(width, 2 * width)
        self.linear2 = nn.Linear(2 * width, width)
        self.norm2 = nn.BatchNorm1d(width)

    def forward(self, z: Tensor, edges: Tensor, embedding: nn.Linear) -> tuple[Tensor, Tensor]:
        """Return the new nodes (B, V, d) and the attention (B, heads, V, V)."""
        mixed, weights = self.attention(z, edges, embedding)
        z = _over_nodes(self.norm1, z + self.out(dropout(mixed, self.p, self.training)))
        hidden = dropout(torch.relu(self.linear1(z)), self.p, self.training)
        return _over_nodes(self.norm2, z + self.linear2(hidden)), weights


def _over_nodes(norm: nn.Module, z: Tensor) -> Tensor:
    return norm(z.flatten(0, 1)).view_as(z)
