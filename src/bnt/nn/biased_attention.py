"""Self-attention with a bias for each pair of nodes (Ying 2021, Graphormer), looked up in a table."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from bnt.nn.checks import check_heads
from bnt.nn.dropout import dropout, keep_mask, survivor_scale


def pair_kinds(bins: Tensor, n_bins: int) -> Tensor:
    """Return the kind of each pair (B, 1 + V, 1 + V) from the bins of edges (B, V, V).

    Kinds 0 to n_bins - 1 are the bins of edges between two nodes, n_bins is a pair with the graph token, which comes
    first, and n_bins + 1 a node and itself.
    """
    kinds = F.pad(bins, (1, 0, 1, 0), value=n_bins)
    kinds[:, 1:, 1:].diagonal(dim1=-2, dim2=-1).fill_(n_bins + 1)
    return kinds


def biases(table: Tensor, kinds: Tensor) -> Tensor:
    """Return the biases (..., heads, N, N) of kinds (..., N, N), from a table (kinds, heads)."""
    return table.T[:, kinds].movedim(0, -3)


class _Attend(torch.autograd.Function):
    """``dropout(softmax(q k^T + bias)) v`` one graph at a time, so that (heads, N, N) numbers stay in the cache.

    What is remembered are the weights and, as bytes, the dropout mask; biases are never made for a whole batch.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, table: Tensor, kinds: Tensor, p: float) -> Tensor:
        weights = q.new_empty(*q.shape[:-1], q.shape[-2])  # (B, M, N, N)
        ctx.scale = survivor_scale(p) if p > 0 else 1.0
        keeps = []
        out = torch.empty_like(v)
        for i, kind in enumerate(kinds):
            scores = torch.baddbmm(biases(table, kind), q[i], k[i].mT)
            torch.softmax(scores, -1, out=weights[i])
            if p > 0:
                keeps.append(keep_mask(scores.shape, p))
                torch.mul(weights[i], keeps[i], out=scores)
                torch.bmm(scores, v[i] * ctx.scale, out=out[i])
            else:
                torch.bmm(weights[i], v[i], out=out[i])
        ctx.keeps = keeps
        ctx.save_for_backward(q, k, v, kinds, weights)
        ctx.n_kinds = len(table)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, kinds, weights = ctx.saved_tensors
        grad_q, grad_k, grad_v = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        grad_table = q.new_zeros(ctx.n_kinds, q.shape[1])
        for i, kind in enumerate(kinds):
            g = grad[i] * ctx.scale  # (M, N, d)
            if ctx.keeps:
                keep = ctx.keeps[i].to(g.dtype)
                torch.bmm((weights[i] * keep).mT, g, out=grad_v[i])
                grad_weights = torch.bmm(g, v[i].mT).mul_(keep)
            else:
                torch.bmm(weights[i].mT, g, out=grad_v[i])
                grad_weights = torch.bmm(g, v[i].mT)
            grad_scores = torch._softmax_backward_data(grad_weights, weights[i], -1, q.dtype)  # (M, N, N)
            torch.bmm(grad_scores, k[i], out=grad_q[i])
            torch.bmm(grad_scores.mT, q[i], out=grad_k[i])
            grad_table.index_add_(0, kind.flatten(), grad_scores.flatten(1).T.contiguous())
        return grad_q, grad_k, grad_v, grad_table, None, None


class BiasedLayer(nn.Module):
    """A post-norm Transformer layer with GELU whose attention scores get a bias.

    Parameters
    ----------
    width, n_heads, ffn : int
        d, heads and hidden units.
    attention_dropout, activation_dropout, branch_dropout : float
        Dropout of attention weights, of hidden units, and of both branches before they are added.
    """

    def __init__(
        self,
        width: int,
        n_heads: int,
        ffn: int,
        attention_dropout: float = 0.1,
        activation_dropout: float = 0.1,
        branch_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_heads("n_heads", n_heads, width)
        self.n_heads = n_heads
        self.p_attention, self.p_hidden, self.p_branch = attention_dropout, activation_dropout, branch_dropout
        self.packed = nn.Linear(width, 3 * width)  # queries, keys, values
        self.out = nn.Linear(width, width)
        self.norm1 = nn.LayerNorm(width)
        self.linear1 = nn.Linear(width, ffn)
        self.linear2 = nn.Linear(ffn, width)
        self.norm2 = nn.LayerNorm(width)

    def forward(self, z: Tensor, table: Tensor, kinds: Tensor, explain: bool = False) -> tuple[Tensor, Tensor | None]:
        """Return the new nodes (B, N, d) and, if asked to explain, the attention (B, heads, N, N).

        Parameters
        ----------
        z : Tensor, (B, N, d)
            Nodes.
        table : Tensor, (kinds, heads)
            A bias for each kind of pair.
        kinds : Tensor of int, (B, N, N)
            The kind of each pair.
        explain : bool
            Whether to return the attention.
        """
        mixed, weights = self.attend(z, table, kinds, explain)
        z = self.norm1(z + dropout(mixed, self.p_branch, self.training))
        hidden = dropout(F.gelu(self.linear1(z)), self.p_hidden, self.training)
        return self.norm2(z + dropout(self.linear2(hidden), self.p_branch, self.training)), weights

    def attend(self, z: Tensor, table: Tensor, kinds: Tensor, explain: bool = False) -> tuple[Tensor, Tensor | None]:
        """Return the output of the attention (B, N, d) and, if asked to explain, its weights before dropout."""
        b, n, d = z.shape
        q, k, value = self.packed(z).view(b, n, 3, self.n_heads, d // self.n_heads).permute(2, 0, 3, 1, 4).contiguous()
        q = q * (d // self.n_heads) ** -0.5
        weights = None
        if explain or z.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
            weights = (q @ k.mT + biases(table, kinds)).softmax(-1)
            mixed = dropout(weights, self.p_attention, self.training) @ value  # (B, M, N, d / M)
        else:
            mixed = _Attend.apply(q, k, value, table, kinds, self.p_attention if self.training else 0.0)
        return self.out(mixed.transpose(1, 2).reshape(b, n, d)), weights if explain else None
