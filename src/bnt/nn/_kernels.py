"""Fast CPU versions of the layers that networks are made of, behind one switch.

Each function here computes what stock torch layers compute, and falls back to them on a GPU, under autocast, or with
the switch set to ``stock``:

- ``BNT_KERNELS=stock`` in the environment, for a whole process, or
- ``with bnt.nn.kernels("stock"):`` for a part of it.

Without dropout both give the same numbers up to rounding. With dropout the masks differ, and so do the weights that a
seed leads to: published numbers are those of ``fast``.

Why it is worth it: torch draws dropout masks on the CPU one Bernoulli number at a time, 8 ns per entry, nearly half of
a training step of ``bnt-released``. Here one draw of 63 bits from torch's generator seeds a small fast generator
(SFC64), whose 64-bit words are read as four 16-bit numbers each and compared with a threshold: 0.6 ns per entry. Large
intermediate tensors are changed in place where their first content is no longer needed. ``bnt bench train`` measures
the gain.

Matrix products of a training step go through :func:`wide_products`, which makes them twice as fast on some CPUs.

Entries of a mask are independent, and masks are never reused. The probability is resolved to 2^-16: 0.1 becomes
6554 / 65536 = 0.100006, and survivors are scaled by that probability, so that the expectation is kept exactly. The same
state of torch's global generator gives the same masks, so that checkpoints that keep it resume to the bit.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from bnt.errors import BadInput

# -- the switch ----------------------------------------------------------------------------------------

KERNELS = ("fast", "stock")
_CHOSEN: ContextVar[str | None] = ContextVar("kernels", default=None)


@contextmanager
def kernels(which: str) -> Iterator[None]:
    """Choose the kernels of all networks within a ``with`` block.

    Parameters
    ----------
    which : {"fast", "stock"}
        Our kernels, or torch's own. Outside any block, the environment variable ``BNT_KERNELS`` decides (``fast`` if
        unset).

    Examples
    --------
    >>> import bnt, torch
    >>> net = bnt.create_model("bnt", n_rois=20, n_clusters=4, dropout=0.0)
    >>> x = torch.randn(2, 20, 20)
    >>> with bnt.nn.kernels("stock"):
    ...     stock = net(x).logits
    >>> torch.allclose(net(x).logits, stock, atol=1e-5)
    True
    """
    _check(which, "kernels")
    token = _CHOSEN.set(which)
    try:
        yield
    finally:
        _CHOSEN.reset(token)


def fast_kernels() -> bool:
    """Return whether the switch is set to ``fast``."""
    which = _CHOSEN.get()
    return (which or _check(os.environ.get("BNT_KERNELS") or "fast", "BNT_KERNELS")) == "fast"


def _check(which: str, name: str) -> str:
    if which not in KERNELS:
        raise BadInput(f"{name} is {which!r}; it can be {', '.join(KERNELS)}.")
    return which


def _fast(x: Tensor) -> bool:
    return x.device.type == "cpu" and not torch.is_autocast_enabled("cpu") and fast_kernels()


# -- matrix products -----------------------------------------------------------------------------------


@contextmanager
def wide_products() -> Iterator[None]:
    """Multiply float32 matrices with all of the CPU's registers within a ``with`` block.

    Torch multiplies with MKL, which uses AVX-512 on CPUs of Intel only. On those of AMD that have it, oneDNN, which is
    part of torch too, is up to twice as fast. Torch has one setting that leads to oneDNN: that which allows products
    in bfloat16. Without AMX, oneDNN still computes them in float32; a small product shows that it does.
    """
    if fast_kernels() and _wider_than_mkl():
        with _onednn():
            yield
    else:
        yield


@contextmanager
def _onednn() -> Iterator[None]:
    products = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before = products.fp32_precision
    products.fp32_precision = "bf16"
    try:
        yield
    finally:
        products.fp32_precision = before


@cache
def _wider_than_mkl() -> bool:
    """Return whether oneDNN has registers that MKL leaves unused, and computes in float32."""
    if not hasattr(torch.backends.mkldnn, "matmul"):  # torch before 2.9
        return False
    try:
        vendor = "AuthenticAMD" in Path("/proc/cpuinfo").read_text()
    except OSError:  # not Linux
        return False
    if not (vendor and torch.backends.cpu.get_cpu_capability() == "AVX512" and torch.backends.mkldnn.is_available()):
        return False
    with _onednn():
        return computes_in_float32()


def computes_in_float32(dtype: torch.dtype = torch.float32) -> bool:
    """Return whether products keep the bits that bfloat16 has no room for: 1 + 2^-20 times 1 is itself."""
    a, one = torch.full((64, 64), 1 + 2.0**-20).to(dtype), torch.eye(64, dtype=dtype)
    return all(
        bool(((x @ y).float() == 1 + 2.0**-20).all())
        for x, y in ((a, one), (a.expand(4, 64, 64), one.expand(4, 64, 64)))
    )


# -- dropout -------------------------------------------------------------------------------------------

LEVELS = 2**16


def resolved(p: float) -> float:
    """Return the probability that is drawn when ``p`` is asked for: the nearest multiple of 2^-16."""
    return round(p * LEVELS) / LEVELS


def _words(generator: np.random.Generator, n: int, p: float) -> Tensor:
    """Draw n numbers of int16: 0 with probability ``resolved(p)`` and 1 otherwise."""
    words = generator.integers(0, 2**64 - 1, size=-(-n // 4), dtype=np.uint64, endpoint=True)
    drawn = torch.from_numpy(words.view(np.int16))[:n]  # uniform on -2^15 .. 2^15 - 1
    # Compared in place: 16-bit lanes of SIMD, where a comparison to bool goes entry by entry.
    return drawn.ge_(round(p * LEVELS) - LEVELS // 2)


def keep_mask(shape: torch.Size | tuple[int, ...], p: float) -> Tensor:
    """Draw a CPU tensor of int16: 0 with probability ``resolved(p)`` and 1 otherwise, each entry on its own.

    Within :func:`rows_of_batch` it is drawn for the whole batch.
    """
    start, stop, total = _ROWS.get()
    each, rest = divmod(int(np.prod(shape)), stop - start)  # entries per subject; a rest is of no subjects
    if rest or (start, stop) == (0, total):
        return _words(_generator(_seed()), int(np.prod(shape)), p).view(shape)
    return _words(_generator(_seed()), total * each, p)[start * each : stop * each].view(shape)


_ROWS: ContextVar[tuple[int, int, int]] = ContextVar("rows", default=(0, 1, 1))


@contextmanager
def rows_of_batch(start: int, stop: int, total: int) -> Iterator[None]:
    """Say that what a network is given within a block are these rows of a batch of ``total``: masks are drawn for all.

    Several processes that train on one batch then use the masks that one process would use.
    """
    token = _ROWS.set((start, stop, total))
    try:
        yield
    finally:
        _ROWS.reset(token)


def _seed() -> int:
    return int(torch.randint(2**63 - 1, (1,), device="cpu"))


def _generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.SFC64(seed))


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
        Any floating-point tensor.
    p : float
        Probability, from 0 to below 1.
    training : bool
        False returns ``x`` itself.
    """
    if not training or p == 0.0:
        return x
    if x.device.type != "cpu" or not fast_kernels():
        return F.dropout(x, p)
    return _Masked.apply(x, keep_mask(x.shape, p).to(torch.int8), survivor_scale(p))


def survivor_scale(p: float) -> float:
    """Return what the entries that survive on the CPU are multiplied by."""
    q = resolved(p)
    return 1 / (1 - q) if q < 1 else 0.0


# -- feed-forward network ------------------------------------------------------------------------------


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


def feed_forward(z: Tensor, linear1: nn.Linear, linear2: nn.Linear, p: float, training: bool) -> Tensor:
    """Return ``linear2(dropout(relu(linear1(z))))`` of embeddings (B, V, D), with dropout while training."""
    if training and _fast(z):
        rows = z.reshape(-1, z.shape[-1])
        return _FeedForward.apply(rows, linear1.weight, linear1.bias, linear2.weight, linear2.bias, p).view_as(z)
    return linear2(dropout(F.relu(linear1(z)), p, training))


ROWS = 512  # 512 rows of 2048 hidden units are 4 MB: they stay in the cache


def _kept(seed: int | None, n_rows: int, width: int, p: float) -> Iterator[tuple[slice, Tensor | None]]:
    """Yield blocks of rows and their dropout masks; the same seed gives the same masks again."""
    generator = None if seed is None else _generator(seed)
    for start in range(0, n_rows, ROWS):
        rows = slice(start, min(start + ROWS, n_rows))
        yield rows, None if generator is None else _words(generator, (rows.stop - start) * width, p).view(-1, width)


class _NarrowFeedForward(torch.autograd.Function):
    """``linear2(dropout(relu(linear1(z))))`` that never holds more than a block of the hidden units.

    Backward computes each block again: with a width of 8 that is cheaper than reading it back from memory.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, p: float) -> Tensor:
        ctx.p, ctx.seed = p, _seed() if p > 0 else None
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


def narrow_feed_forward(z: Tensor, linear1: nn.Linear, linear2: nn.Linear, p: float, training: bool) -> Tensor:
    """Do the same for few numbers per token and many tokens (N, m, d), in blocks."""
    if _fast(z):
        rows = z.reshape(-1, z.shape[-1])
        p = p if training else 0.0
        return _NarrowFeedForward.apply(rows, linear1.weight, linear1.bias, linear2.weight, linear2.bias, p).view_as(z)
    return linear2(dropout(F.relu(linear1(z)), p, training))


# -- attention -----------------------------------------------------------------------------------------


def split_heads(packed: Tensor, n_heads: int) -> Tensor:
    """View packed projections (B, V, 3D) as queries, keys and values, (3, B, M, V, d)."""
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
        q, k, value = split_heads(packed, n_heads).contiguous().flatten(1, 2)  # (B M, V, d) each
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


def self_attention(layer: nn.MultiheadAttention, z: Tensor) -> Tensor:
    """Return what torch's layer computes of (B, V, D) with itself as query, key and value."""
    packed = F.linear(z, layer.in_proj_weight, layer.in_proj_bias)  # (B, V, 3D)
    return layer.out_proj(attend(packed, layer.num_heads, layer.dropout, layer.training))


def attend(packed: Tensor, n_heads: int, p: float, training: bool) -> Tensor:
    """Return softmax attention (B, V, D), with dropout while training, of packed projections (B, V, 3D)."""
    if training and _fast(packed):
        return _Attend.apply(packed, n_heads, p)
    q, k, value = split_heads(packed, n_heads)
    mixed = F.scaled_dot_product_attention(q, k, value, dropout_p=p if training else 0.0)
    return mixed.transpose(1, 2).flatten(2)


# -- attention with biases -----------------------------------------------------------------------------


def pair_biases(table: Tensor, kinds: Tensor) -> Tensor:
    """Return the biases (..., heads, N, N) of kinds (..., N, N), from a table (kinds, heads)."""
    return table.T[:, kinds].movedim(0, -3)


class _AttendBiased(torch.autograd.Function):
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
            scores = torch.baddbmm(pair_biases(table, kind), q[i], k[i].mT)
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


def biased_attention(q: Tensor, k: Tensor, v: Tensor, table: Tensor, kinds: Tensor, p: float, training: bool) -> Tensor:
    """Return ``dropout(softmax(q k^T + bias)) v``, (B, heads, N, d), with a bias per head and kind of pair.

    Parameters
    ----------
    q, k, v : Tensor, (B, heads, N, d)
        Queries, scaled; keys; values.
    table : Tensor, (kinds, heads)
        The bias of each kind of pair.
    kinds : Tensor of int, (B, N, N)
        The kind of each pair.
    p, training
        Dropout of the weights.
    """
    if _fast(q):
        return _AttendBiased.apply(q, k, v, table, kinds, p if training else 0.0)
    return dropout((q @ k.mT + pair_biases(table, kinds)).softmax(-1), p, training) @ v
