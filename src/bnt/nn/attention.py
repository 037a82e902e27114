"""Multi-head self-attention over nodes, the paper's equation 1."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from bnt.errors import BadInput
from bnt.nn.dropout import dropout, keep_mask, survivor_scale


class MultiHeadAttention(nn.Module):
    """Pairwise attention between all nodes; without edge weights or positions unless they are given.

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
    bias : bool
        Whether projections have biases.

    Notes
    -----
    The paper writes W Z, which would mix nodes; Z W is meant and done here.
    """

    def __init__(self, width: int, n_heads: int, p: float = 0.1, bias: bool = True) -> None:
        super().__init__()
        if n_heads < 1 or width % n_heads:
            fitting = ", ".join(str(m) for m in range(1, min(width, 16) + 1) if width % m == 0)
            raise BadInput(f"n_heads is {n_heads}, which does not divide the width {width} of a node; use {fitting}.")
        self.width, self.n_heads, self.p = width, n_heads, p
        self.in_proj_weight = nn.Parameter(torch.empty(3 * width, width))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * width)) if bias else None
        self.out_proj = nn.Linear(width, width, bias=bias)
        nn.init.xavier_uniform_(self.in_proj_weight)
        if bias:
            nn.init.zeros_(self.out_proj.bias)

    def forward(
        self, z: Tensor, explain: bool = False, bias: Tensor | None = None, factor: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Return the new embeddings (B, V, D) and, if asked to explain, the weights (B, M, V, V) before dropout.

        ``bias`` (B, V, V) is added to the scores of every head, and weights are multiplied by ``factor`` (B, V, V).
        """
        packed = F.linear(z, self.in_proj_weight, self.in_proj_bias)  # (B, V, 3D)
        weights = None
        if explain or bias is not None or factor is not None:
            mixed, weights = self._explicit(packed, bias, factor)
        elif self.training and z.device.type == "cpu" and not torch.is_autocast_enabled("cpu"):
            mixed = _Attend.apply(packed, self.n_heads, self.p)
        else:
            q, k, value = _heads(packed, self.n_heads)
            mixed = F.scaled_dot_product_attention(q, k, value, dropout_p=self.p if self.training else 0.0)
            mixed = mixed.transpose(1, 2).flatten(2)
        return self.out_proj(mixed), weights if explain else None

    def _explicit(self, packed: Tensor, bias: Tensor | None, factor: Tensor | None) -> tuple[Tensor, Tensor]:
        q, k, value = _heads(packed, self.n_heads)
        scores = (q * q.shape[-1] ** -0.5) @ k.mT  # (B, M, V, V)
        weights = (scores if bias is None else scores + bias[:, None]).softmax(-1)
        weights = weights if factor is None else weights * factor[:, None]
        mixed = dropout(weights, self.p, self.training) @ value
        return mixed.transpose(1, 2).flatten(2), weights


def _heads(packed: Tensor, n_heads: int) -> Tensor:
    """View (B, V, 3D) as queries, keys and values, (3, B, M, V, d)."""
    b, v, d = packed.shape
    return packed.view(b, v, 3, n_heads, d // (3 * n_heads)).permute(2, 0, 3, 1, 4)


class _Attend(torch.autograd.Function):
    """Softmax attention with dropout on the CPU, from packed projections (B, V, 3D) to (B, V, D).

    The (B M, V, V) tensors are the cost besides the products, so they are few: the weights, the weights after
    dropout (which are their own mask: zero where dropped), and in the backward pass one that is
    changed in place. The scale of dropout is applied to the small tensors.
    """

    @staticmethod
    def forward(ctx: Any, packed: Tensor, n_heads: int, p: float) -> Tensor:
        b, v, width = packed.shape
        q, k, value = _heads(packed, n_heads).contiguous().flatten(1, 2)  # (B M, V, d) each
        ctx.shape, ctx.n_heads, ctx.scale = (b, v, width), n_heads, 1.0
        ctx.temper = q.shape[-1] ** -0.5
        scores = torch.baddbmm(q.new_empty(1), q, k.mT, beta=0, alpha=ctx.temper)
        weights = torch.softmax(scores, -1, out=scores)  # (B M, V, V)
        kept = weights
        if p > 0:
            kept = weights * keep_mask(weights.shape, p)
            ctx.scale = survivor_scale(p)
        ctx.save_for_backward(q, k, value, weights, kept)
        mixed = torch.baddbmm(q.new_empty(1), kept, value, beta=0, alpha=ctx.scale)  # (B M, V, d)
        return mixed.view(b, n_heads, v, -1).transpose(1, 2).reshape(b, v, width // 3)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        q, k, value, weights, kept = ctx.saved_tensors
        b, v, width = ctx.shape
        by_head = (grad * ctx.scale).view(b, v, ctx.n_heads, -1).transpose(1, 2).flatten(0, 1)  # (B M, V, d)
        packed = grad.new_empty(3, *q.shape)
        torch.bmm(kept.mT, by_head, out=packed[2])
        through = by_head @ value.mT  # (B M, V, V): gradient of the kept weights, then of the scores
        if kept is not weights:
            torch.ops.aten.threshold_backward.grad_input(through, kept, 0, grad_input=through)
        torch.ops.aten._softmax_backward_data.out(through, weights, -1, weights.dtype, grad_input=through)
        torch.baddbmm(packed[0], through, k, beta=0, alpha=ctx.temper, out=packed[0])
        torch.baddbmm(packed[1], through.mT, q, beta=0, alpha=ctx.temper, out=packed[1])
        unpacked = packed.view(3, b, ctx.n_heads, v, -1).permute(1, 3, 0, 2, 4)  # (B, V, 3, M, d)
        return unpacked.reshape(b, v, width), None, None
