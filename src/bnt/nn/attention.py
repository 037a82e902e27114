"""Multi-head self-attention over nodes, the paper's equation 1."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bnt.errors import BadInput
from bnt.nn.dropout import dropout, survivor_scale


class MultiHeadAttention(nn.Module):
    """Pairwise attention between all nodes, without edge weights or positions.

    The parameters are laid out, named and drawn as in :class:`torch.nn.MultiheadAttention`, so weights
    can be carried over either way and the same seed gives the same start.

    Parameters
    ----------
    width : int
        D, the length of a node's embedding.
    n_heads : int
        M; has to divide the width.
    p : float
        Dropout of the attention weights.

    Notes
    -----
    The paper writes W Z, which would mix nodes; Z W is meant and done here.
    """

    def __init__(self, width: int, n_heads: int, p: float = 0.1) -> None:
        super().__init__()
        if n_heads < 1 or width % n_heads:
            fitting = ", ".join(str(m) for m in range(1, min(width, 16) + 1) if width % m == 0)
            raise BadInput(f"n_heads is {n_heads}, which does not divide the width {width} of a node; use {fitting}.")
        self.width, self.n_heads, self.p = width, n_heads, p
        self.in_proj_weight = nn.Parameter(torch.empty(3 * width, width))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * width))
        self.out_proj = nn.Linear(width, width)
        nn.init.xavier_uniform_(self.in_proj_weight)
        nn.init.zeros_(self.out_proj.bias)

    def forward(self, z: Tensor, explain: bool = False) -> tuple[Tensor, Tensor | None]:
        """Return the new embeddings (B, V, D) and, if asked to explain, the weights (B, M, V, V) before dropout."""
        b, v, d = z.shape
        packed = F.linear(z, self.in_proj_weight, self.in_proj_bias)  # (B, V, 3D)
        q, k, value = packed.view(b, v, 3, self.n_heads, d // self.n_heads).permute(2, 0, 3, 1, 4)  # (B, M, V, d) each
        drops = self.training and self.p > 0
        weights = None
        if explain or (drops and z.device.type == "cpu"):
            scores = (q * (d // self.n_heads) ** -0.5) @ k.transpose(-2, -1)
            weights = scores.softmax(-1)  # (B, M, V, V)
            if drops:  # the values are scaled in the weights' stead: four times fewer numbers
                value = value * survivor_scale(self.p)
            mixed = dropout(weights, self.p, self.training, scaled=False) @ value
        else:
            mixed = F.scaled_dot_product_attention(q, k, value, dropout_p=self.p if drops else 0.0)
        out = self.out_proj(mixed.transpose(1, 2).reshape(b, v, d))
        return out, weights if explain else None
