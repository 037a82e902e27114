"""A feed-forward network from few numbers to very many and back, a block of rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from bnt.nn.dropout import LEVELS, dropout, survivor_scale

ROWS = 512  # 512 rows of 2048 hidden units are 4 MB: they stay in the cache


def _kept(seed: int | None, n_rows: int, width: int, p: float) -> Iterator[tuple[slice, Tensor | None]]:
    """Yield blocks of rows and their dropout masks; the same seed gives the same masks again."""
    words = None if seed is None else np.random.Generator(np.random.SFC64(seed))
    for start in range(0, n_rows, ROWS):
        rows = slice(start, min(start + ROWS, n_rows))
        if words is None:
            yield rows, None
            continue
        n = (rows.stop - start) * width
        drawn = words.integers(0, 2**64 - 1, size=-(-n // 4), dtype=np.uint64, endpoint=True).view(np.int16)[:n]
        keep = torch.from_numpy(drawn).ge_(round(p * LEVELS) - LEVELS // 2)
        yield rows, keep.view(-1, width)


class _NarrowFeedForward(torch.autograd.Function):
    """``linear2(dropout(relu(linear1(z))))`` that never holds more than a block of the hidden units.

    Backward computes each block again: with a width of 8 that is cheaper than reading it back from memory.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, p: float) -> Tensor:
        ctx.p, ctx.seed = p, int(torch.randint(2**63 - 1, (1,))) if p > 0 else None
        ctx.scale = survivor_scale(p) if p > 0 else 1.0
        ctx.save_for_backward(z, w1, b1, w2)
        out = torch.empty_like(z)
        for rows, keep in _kept(ctx.seed, len(z), len(w1), p):
            hidden = _hidden(z[rows], w1, b1, keep)
            torch.addmm(b2, hidden, w2.T, alpha=ctx.scale, out=out[rows])
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        z, w1, b1, w2 = ctx.saved_tensors
        scaled = (grad * ctx.scale).contiguous()
        grad_z, grad_w1, grad_b1, grad_w2 = (torch.zeros_like(t) for t in (z, w1, b1, w2))
        for rows, keep in _kept(ctx.seed, len(z), len(w1), ctx.p):
            hidden = _hidden(z[rows], w1, b1, keep)
            # An entry is positive exactly where it was active and kept.
            grad_hidden = torch.ops.aten.threshold_backward(scaled[rows] @ w2, hidden, 0)
            grad_w2.addmm_(scaled[rows].T, hidden)
            grad_w1.addmm_(grad_hidden.T, z[rows])
            grad_b1 += grad_hidden.sum(0)
            torch.mm(grad_hidden, w1, out=grad_z[rows])
        return grad_z, grad_w1, grad_b1, grad_w2, grad.sum(0), None


def _hidden(z: Tensor, w1: Tensor, b1: Tensor, keep: Tensor | None) -> Tensor:
    hidden = torch.addmm(b1, z, w1.T).relu_()
    return hidden if keep is None else hidden.mul_(keep)


def narrow_feed_forward(z: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, p: float, training: bool) -> Tensor:
    """Return ``linear2(dropout(relu(linear1(z))))`` of (N, m, d), with dropout while training."""
    if z.device.type == "cpu" and not torch.is_autocast_enabled("cpu"):
        rows = z.reshape(-1, z.shape[-1])
        return _NarrowFeedForward.apply(rows, w1, b1, w2, b2, p if training else 0.0).view_as(z)
    return F.linear(dropout(F.relu(F.linear(z, w1, b1)), p, training), w2, b2)
