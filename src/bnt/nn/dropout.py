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
