"""Graph attention on complete graphs with the messages of BrainGB, without an edge list."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bnt.errors import BadInput

MESSAGES = ("edge_weighted", "node_edge_concat", "node_concat")


class DenseGAT(nn.Module):
    """Every node attends to every node, itself included; messages are summed over the V senders.

    With h_i = W x_i a head and weights ``alpha_ij = softmax_j leaky_relu(a.h_i + a'.h_j)``, the message from j to i is

    - ``edge_weighted``: alpha_ij w_ij h_j,
    - ``node_concat``: M [h_i, alpha_ij h_j] + m,
    - ``node_edge_concat``: M [h_i, alpha_ij h_j, w_ij] + m,

    where w_ii is the mean of the other w_ij: what PyTorch Geometric gives the loops that it adds in place of the
    graph's own.

    Messages are linear, so that with M = [M1, M2, m3] their sum over senders is
    ``V M1 h_i + M2 (alpha h)_i + m3 sum_j w_ij + V m``: products of (V, V) and (V, h) matrices.

    Parameters
    ----------
    n_in, width : int
        Length of a node's features and h, the width of a head.
    n_heads : int
        Heads, concatenated.
    message : {"edge_weighted", "node_edge_concat", "node_concat"}
        See above. M and m are shared by the heads.
    """

    def __init__(self, n_in: int, width: int, n_heads: int = 2, message: str = "node_concat") -> None:
        super().__init__()
        if message not in MESSAGES:
            raise BadInput(f"message is {message!r}; it can be {', '.join(MESSAGES)}.")
        self.width, self.n_heads, self.message = width, n_heads, message
        self.lin = nn.Linear(n_in, n_heads * width, bias=False)
        self.receiver = nn.Parameter(torch.empty(n_heads, width))  # a
        self.sender = nn.Parameter(torch.empty(n_heads, width))  # a'
        self.bias = nn.Parameter(torch.zeros(n_heads * width))
        for weight in (self.lin.weight, self.receiver, self.sender):
            nn.init.xavier_uniform_(weight)
        n_parts = {"edge_weighted": 0, "node_concat": 2 * width, "node_edge_concat": 2 * width + 1}[message]
        self.concat = nn.Linear(n_parts, width) if n_parts else None

    def forward(self, z: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
        """Map nodes (B, V, n_in) and edge weights (B, V, V) to nodes (B, V, heads h) and attention (B, heads, V, V)."""
        b, v, _ = z.shape
        h = self.lin(z).view(b, v, self.n_heads, self.width).transpose(1, 2)  # (B, M, V, h)
        to = (h * self.receiver[:, None]).sum(-1)  # (B, M, V)
        of = (h * self.sender[:, None]).sum(-1)
        alpha = F.leaky_relu(to[..., None] + of[..., None, :], 0.2).softmax(-1)  # (B, M, V, V)
        if self.concat is None:
            summed = (alpha * mean_loops(edges)[:, None]) @ h
        else:
            own, mixed = self.concat.weight[:, : self.width], self.concat.weight[:, self.width : 2 * self.width]
            summed = F.linear(h, v * own, v * self.concat.bias) + F.linear(alpha @ h, mixed)
            if self.message == "node_edge_concat":
                strength = mean_loops(edges).sum(-1)[:, None, :, None]  # (B, 1, V, 1)
                summed = summed + strength * self.concat.weight[:, -1]
        return summed.transpose(1, 2).reshape(b, v, -1) + self.bias, alpha


def mean_loops(edges: Tensor) -> Tensor:
    """Return edge weights (B, V, V) with the mean of the other weights of its row in each place of the diagonal."""
    loops = torch.eye(edges.shape[-1], dtype=torch.bool, device=edges.device)
    others = edges.masked_fill(loops, 0.0)
    mean = others.sum(-1, keepdim=True) / max(edges.shape[-1] - 1, 1)
    return torch.where(loops, mean, others)
