"""The feed-forward network as one step of autograd: two thirds of an encoder's work."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from bnt.nn.dropout import dropout, keep_mask, survivor_scale


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
