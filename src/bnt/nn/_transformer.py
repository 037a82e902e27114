"""Multi-head self-attention over nodes, the paper's equation 1."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from bnt.errors import BadInput
from bnt.nn._kernels import dropout, feed_forward, keep_mask, survivor_scale
from bnt.nn._output import Output
from bnt.nn._readouts import create_readout


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


class EncoderLayer(nn.Module):
    """Attention and a feed-forward network, each with dropout, residual and LayerNorm after it.

    Names, shapes and initial draws are those of :class:`torch.nn.TransformerEncoderLayer`.

    Parameters
    ----------
    width : int
        D, the length of a node's embedding.
    n_heads : int
        Heads of the attention.
    ffn : int
        Hidden units of the feed-forward network.
    p : float
        Dropout of attention weights, hidden units and both residual branches.
    """

    def __init__(self, width: int, n_heads: int = 4, ffn: int = 1024, p: float = 0.1) -> None:
        super().__init__()
        self.p = p
        self.self_attn = MultiHeadAttention(width, n_heads, p)
        self.linear1 = nn.Linear(width, ffn)
        self.linear2 = nn.Linear(ffn, width)
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)

    def forward(
        self, z: Tensor, explain: bool = False, bias: Tensor | None = None, factor: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Return the embeddings (B, V, D) and, if asked to explain, the attention (B, M, V, V)."""
        mixed, weights = self.self_attn(z, explain, bias, factor)
        z = self.norm1(z + dropout(mixed, self.p, self.training))
        one, two = self.linear1, self.linear2
        fed = feed_forward(z, one.weight, one.bias, two.weight, two.bias, self.p, self.training)
        return self.norm2(z + dropout(fed, self.p, self.training)), weights


class Encoder(nn.Module):
    """L layers, one after the other.

    Parameters
    ----------
    width, n_layers, n_heads, ffn, p
        L, and see :class:`EncoderLayer`.
    attention_only : bool
        Layers of attention without biases and nothing else, as the paper's equation 1 is printed; ``ffn`` is unused.
    """

    def __init__(
        self,
        width: int,
        n_layers: int = 2,
        n_heads: int = 4,
        ffn: int = 1024,
        p: float = 0.1,
        attention_only: bool = False,
    ) -> None:
        super().__init__()

        def layer() -> nn.Module:
            if attention_only:
                return MultiHeadAttention(width, n_heads, p, bias=False)
            return EncoderLayer(width, n_heads, ffn, p)

        self.layers = nn.ModuleList(layer() for _ in range(n_layers))

    def forward(
        self, z: Tensor, explain: bool = False, bias: Tensor | None = None, factor: Tensor | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return Z^L (B, V, D) and the attention of each layer, an empty tuple unless asked to explain."""
        attention = []
        for layer in self.layers:
            z, weights = layer(z, explain, bias, factor)
            attention.append(weights)
        return z, tuple(attention) if explain else ()


NODE_FEATURES = ("profile", "no-diagonal", "identity", "learned-identity", "eigen")
RELEASED_IDENTITY_WIDTH = 360  # the released code's learned identity, whatever the atlas
DEFAULT_EIGENVECTORS = 32  # the paper does not give its number


class NodeFeatures(nn.Module):
    """The connection profile of each node, alone or with something about its identity beside it.

    Parameters
    ----------
    kind : {"profile", "no-diagonal", "identity", "learned-identity", "eigen"}
        ``profile``: row i of the connectome; ``no-diagonal``: the same with 0 for its entry i. The others concatenate
        to the profile: a one-hot code of the node; a learned vector a node (Kaiming normal); the node's entries in the
        k leading eigenvectors.
    n_rois : int
        V.
    n_heads : int
        The width is made a multiple of it where there is freedom to.
    extra_width : int, optional
        Length of the learned identity (default about 360) or number of eigenvectors (default about 32).

    Notes
    -----
    Eigenvectors belong to the eigenvalues largest in magnitude, in that order. Their sign is fixed by one rule:
    the entry largest in magnitude is positive (the first of them on ties). They are inputs, not differentiated.
    """

    def __init__(self, kind: str, n_rois: int, n_heads: int = 1, extra_width: int | None = None) -> None:
        super().__init__()
        if kind not in NODE_FEATURES:
            raise BadInput(f"node_features is {kind!r}; it can be {', '.join(NODE_FEATURES)}.")
        if extra_width is not None and kind in ("profile", "no-diagonal", "identity"):
            raise BadInput(f"extra_width is {extra_width}, but node_features={kind!r} leaves no width to choose.")
        self.kind, self.n_rois = kind, n_rois
        self.extra = self._extra_width(kind, n_rois, n_heads, extra_width)
        self.width = n_rois + self.extra
        if kind == "learned-identity":
            self.identity = nn.Parameter(nn.init.kaiming_normal_(torch.empty(n_rois, self.extra)))

    @staticmethod
    def _extra_width(kind: str, n_rois: int, n_heads: int, asked: int | None) -> int:
        if kind in ("profile", "no-diagonal"):
            return 0
        if kind == "identity":
            return n_rois
        if asked is not None:
            if asked < 1 or (kind == "eigen" and asked > n_rois):
                raise BadInput(f"extra_width is {asked}; a connectome of {n_rois} ROIs allows 1 to {n_rois} for eigen.")
            return asked
        if kind == "learned-identity":
            return RELEASED_IDENTITY_WIDTH + -(n_rois + RELEASED_IDENTITY_WIDTH) % n_heads
        most = min(DEFAULT_EIGENVECTORS, n_rois)
        return max(most - (n_rois + most) % n_heads, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the features (B, V, D) of connectomes (B, V, V)."""
        if self.kind == "profile":
            return x
        if self.kind == "no-diagonal":
            return x - torch.diag_embed(x.diagonal(dim1=-2, dim2=-1))
        if self.kind == "eigen":
            return torch.cat([x, leading_eigenvectors(x, self.extra)], -1)
        own = torch.eye(self.n_rois, dtype=x.dtype, device=x.device) if self.kind == "identity" else self.identity
        return torch.cat([x, own.to(x.dtype).expand(x.shape[0], -1, -1)], -1)


@torch.no_grad()
def leading_eigenvectors(x: Tensor, k: int) -> Tensor:
    """Return the k eigenvectors (B, V, k) of symmetric matrices whose eigenvalues are largest in magnitude."""
    values, vectors = torch.linalg.eigh(((x + x.mT) / 2).float() if x.dtype.itemsize < 4 else (x + x.mT) / 2)
    order = values.abs().argsort(dim=-1, descending=True, stable=True)[..., None, :k]
    leading = vectors.gather(-1, order.expand(-1, x.shape[-1], -1))  # (B, V, k)
    largest = leading.gather(1, leading.abs().argmax(1, keepdim=True))  # (B, 1, k)
    return (leading * largest.sign()).to(x.dtype)


EDGE_WEIGHTS = ("none", "bias", "factor")


class Head(nn.Sequential):
    """The released code's classifier: F - 256 - 32 - classes with LeakyReLU and without dropout."""

    def __init__(self, in_features: int, n_classes: int) -> None:
        super().__init__(
            nn.Linear(in_features, 256), nn.LeakyReLU(), nn.Linear(256, 32), nn.LeakyReLU(), nn.Linear(32, n_classes)
        )


class GraphTransformer(nn.Module):
    """A Transformer over the nodes of a connectome, with any node features and any readout.

    Parameters
    ----------
    n_rois, n_classes : int
        V and C; one class means regression.
    n_layers, n_heads, ffn, dropout, attention_only
        See :class:`bnt.nn.Encoder`.
    node_features, extra_width
        See :class:`bnt.nn.NodeFeatures`.
    readout : str
        See :func:`bnt.nn.create_readout`.
    readout_options : dict, optional
        Options of the readout.
    edge_weights : {"none", "bias", "factor"}
        How attention uses the connectome: not at all, added to the scores of every head and layer before the softmax,
        or multiplied with the weights after it.
    """

    def __init__(
        self,
        n_rois: int,
        n_classes: int,
        *,
        n_layers: int,
        n_heads: int,
        ffn: int,
        dropout: float,
        node_features: str,
        extra_width: int | None,
        readout: str,
        readout_options: dict[str, Any] | None = None,
        attention_only: bool = False,
        edge_weights: str = "none",
    ) -> None:
        super().__init__()
        if edge_weights not in EDGE_WEIGHTS:
            raise BadInput(f"edge_weights is {edge_weights!r}; it can be {', '.join(EDGE_WEIGHTS)}.")
        self.edge_weights = edge_weights
        if not 0 <= dropout < 1:
            raise BadInput(f"dropout is {dropout}; give a probability from 0 to below 1.")
        if n_layers < 1 or ffn < 1:
            raise BadInput(f"n_layers is {n_layers} and ffn is {ffn}; both have to be at least 1.")
        self.n_rois = n_rois
        self.features = NodeFeatures(node_features, n_rois, n_heads, extra_width)
        self.encoder = Encoder(self.features.width, n_layers, n_heads, ffn, dropout, attention_only)
        self.readout = create_readout(readout, n_rois, self.features.width, **(readout_options or {}))
        self.head = Head(self.readout.out_features, n_classes)

    def forward(
        self, x: Tensor, series: Tensor | None = None, target: Tensor | None = None, explain: bool = False
    ) -> Output:
        """Return the answer for connectomes (B, V, V).

        Parameters
        ----------
        x : Tensor, (B, V, V)
            Connectomes; row i is the connection profile of ROI i.
        series, target : optional
            Not used; part of every model's interface.
        explain : bool
            Whether to return attention and assignments too.
        """
        if x.ndim != 3 or x.shape[1:] != (self.n_rois, self.n_rois):
            raise BadInput(
                f"The model was made for connectomes of {self.n_rois} ROIs, shape (B, {self.n_rois}, {self.n_rois}), "
                f"but was given {tuple(x.shape)}."
            )
        edges = {self.edge_weights: x} if self.edge_weights != "none" else {}
        z, attention = self.encoder(self.features(x), explain, **edges)  # (B, V, D)
        pooled = self.readout(z, adjacency=x)
        return Output(self.head(pooled.embedding), pooled.loss, attention, pooled.assignments if explain else None)
