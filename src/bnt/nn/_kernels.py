"""Dropout whose masks cost little to draw on a CPU.

Torch draws a dropout mask on the CPU one Bernoulli number at a time, 8 ns an entry on the machine this was
measured on: nearly half of a training step of the released model. Here one draw of 63 bits from
torch's generator seeds a small fast generator (SFC64), whose 64-bit words are read as four 16-bit numbers each
and compared with a threshold: 0.6 ns an entry, and 1.3 ns with the multiplication.

Entries are independent, and masks are never reused. The probability is resolved to 2^-16: 0.1 becomes
6554 / 65536 = 0.100006, and survivors are scaled by that probability, so that the expectation is kept exactly.
The same state of torch's global generator gives the same masks, so checkpoints that keep it resume to the bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

LEVELS = 2**16


def resolved(p: float) -> float:
    """Return the probability that is drawn when ``p`` is asked for: the nearest multiple of 2^-16."""
    return round(p * LEVELS) / LEVELS


def keep_mask(shape: torch.Size | tuple[int, ...], p: float) -> Tensor:
    """Draw a CPU tensor of int16: 0 with probability ``resolved(p)`` and 1 otherwise, each entry on its own."""
    n = int(np.prod(shape))
    seed = int(torch.randint(2**63 - 1, (1,), device="cpu"))
    words = np.random.Generator(np.random.SFC64(seed)).integers(
        0, 2**64 - 1, size=-(-n // 4), dtype=np.uint64, endpoint=True
    )
    drawn = torch.from_numpy(words.view(np.int16))[:n]  # uniform on -2^15 .. 2^15 - 1
    # Compared in place: 16-bit lanes of SIMD, where a comparison to bool goes entry by entry.
    return drawn.ge_(round(p * LEVELS) - LEVELS // 2).view(shape)


class _Masked(torch.autograd.Function):
    """``x * keep * scale``, remembering nothing but the mask."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, keep: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(keep)
        ctx.scale = scale
        return (x * keep).mul_(scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (keep,) = ctx.saved_tensors
        return (grad * keep).mul_(ctx.scale), None, None


def dropout(x: Tensor, p: float, training: bool = True) -> Tensor:
    """Zero each entry with probability ``p`` and scale the rest by ``1 / (1 - p)``.

    Parameters
    ----------
    x : Tensor
        Anything of floating point.
    p : float
        Probability, from 0 to below 1.
    training : bool
        False returns ``x`` itself.
    """
    if not training or p == 0.0:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, p)
    return _Masked.apply(x, keep_mask(x.shape, p).to(torch.int8), survivor_scale(p))


def survivor_scale(p: float) -> float:
    """Return what the entries that survive on the CPU are multiplied by."""
    q = resolved(p)
    return 1 / (1 - q) if q < 1 else 0.0


class _FeedForward(torch.autograd.Function):
    """``linear2(dropout(relu(linear1(z))))`` on the CPU.

    ReLU and dropout work in place on the one hidden tensor there is, and the scale of dropout rides on the matrix
    product after it. An entry of the hidden tensor is positive exactly where it was active and kept, so it is its
    own mask: nothing else has to be remembered.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, p: float) -> Tensor:
        hidden = torch.addmm(b1, z, w1.T).relu_()  # (N, H)
        ctx.scale = 1.0
        if p > 0:
            hidden.mul_(keep_mask(hidden.shape, p))
            ctx.scale = survivor_scale(p)
        ctx.save_for_backward(z, hidden, w1, w2)
        return torch.addmm(b2, hidden, w2.T, alpha=ctx.scale)  # (N, D)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        z, hidden, w1, w2 = ctx.saved_tensors
        needs = ctx.needs_input_grad
        scaled = grad * ctx.scale if ctx.scale != 1.0 else grad  # (N, D): five times smaller than what it scales
        grad_hidden = scaled @ w2  # (N, H)
        torch.ops.aten.threshold_backward.grad_input(grad_hidden, hidden, 0, grad_input=grad_hidden)
        return (
            grad_hidden @ w1 if needs[0] else None,
            grad_hidden.T @ z if needs[1] else None,
            grad_hidden.sum(0) if needs[2] else None,
            scaled.T @ hidden if needs[3] else None,
            grad.sum(0) if needs[4] else None,
            None,
        )


def feed_forward(z: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, p: float, training: bool) -> Tensor:
    """Return ``linear2(dropout(relu(linear1(z))))`` of embeddings (B, V, D), with dropout while training."""
    if training and z.device.type == "cpu" and not torch.is_autocast_enabled("cpu"):
        return _FeedForward.apply(z.reshape(-1, z.shape[-1]), w1, b1, w2, b2, p).view_as(z)
    return F.linear(dropout(F.relu(F.linear(z, w1, b1)), p, training), w2, b2)


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
