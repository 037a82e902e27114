"""Brain Network Transformer and VanillaTF, in the order of section 3 of the paper.

3.1  a connectome X (V, V) and its prediction     BNT.forward
3.2  node features Z^0 = X                        NodeFeatures
3.2  equation 1, multi-head self-attention        Attention
     the layer around it, L times                 EncoderLayer, Encoder
3.3  equations 2 and 3, the readout               bnt.nn.OCRead
     the model, and the paper's own baseline      BNT, VanillaTF

All layers are torch's; :mod:`bnt.nn._kernels` computes them faster on a CPU.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bnt.errors import BadInput
from bnt.nn._kernels import dropout as drop
from bnt.nn._kernels import feed_forward, self_attention, split_heads
from bnt.nn._network import (
    Network,
    Output,
    check_choice,
    check_connectomes,
    check_heads,
    check_positive,
    check_probability,
)
from bnt.nn._readouts import Head, create_readout, readout_options

# -- 3.2  Node features: the connection profile --------------------------------------------------------

NODE_FEATURES = ("profile", "no-diagonal", "identity", "learned-identity", "eigen")
RELEASED_IDENTITY_WIDTH = 360  # the released code's learned identity, whatever the atlas
DEFAULT_EIGENVECTORS = 32  # the paper does not give its number


class NodeFeatures(nn.Module):
    """Z^0, the connection profile of each node: row i of X. The variants of Appendix B add positions beside it.

    Parameters
    ----------
    kind : {"profile", "no-diagonal", "identity", "learned-identity", "eigen"}
        ``profile``: row i of the connectome; ``no-diagonal``: the same with 0 for its entry i. The others concatenate
        to the profile: a one-hot code of the node; a learned vector per node (Kaiming normal); the node's entries in
        the k leading eigenvectors.
    n_rois : int
        V.
    n_heads : int
        Where the width is free it is made a multiple of this.
    extra_width : int, optional
        Length of the learned identity (default about 360) or number of eigenvectors (default about 32).
    """

    def __init__(self, kind: str, n_rois: int, n_heads: int = 1, extra_width: int | None = None) -> None:
        super().__init__()
        check_choice("node_features", kind, NODE_FEATURES)
        if extra_width is not None and kind in ("profile", "no-diagonal", "identity"):
            raise BadInput(f"extra_width is {extra_width}, but node_features={kind!r} leaves no width to choose.")
        self.kind, self.n_rois = kind, n_rois
        self.extra = self._extra_width(kind, n_rois, n_heads, extra_width)
        self.width = n_rois + self.extra  # D
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
            return x  # Z^0 = X
        if self.kind == "no-diagonal":
            return x - torch.diag_embed(x.diagonal(dim1=-2, dim2=-1))
        if self.kind == "eigen":
            return torch.cat([x, leading_eigenvectors(x, self.extra)], -1)
        own = torch.eye(self.n_rois, dtype=x.dtype, device=x.device) if self.kind == "identity" else self.identity
        return torch.cat([x, own.to(x.dtype).expand(x.shape[0], -1, -1)], -1)


@torch.no_grad()
def leading_eigenvectors(x: Tensor, k: int) -> Tensor:
    """Return the k eigenvectors (B, V, k) of symmetric matrices whose eigenvalues are largest in magnitude.

    Their sign is fixed by one rule: the entry largest in magnitude is positive (the first of them on ties). They are
    inputs and not differentiated.
    """
    values, vectors = torch.linalg.eigh(((x + x.mT) / 2).float() if x.dtype.itemsize < 4 else (x + x.mT) / 2)
    order = values.abs().argsort(dim=-1, descending=True, stable=True)[..., None, :k]
    leading = vectors.gather(-1, order.expand(-1, x.shape[-1], -1))  # (B, V, k)
    largest = leading.gather(1, leading.abs().argmax(1, keepdim=True))  # (B, 1, k)
    return (leading * largest.sign()).to(x.dtype)


# -- 3.2  Equation 1: multi-head self-attention --------------------------------------------------------


class Attention(nn.MultiheadAttention):
    """Equation 1: h^m = softmax(Q^m (K^m)^T / sqrt(d)) V^m for M heads, and Z' = (h^1 | ... | h^M) W_O.

    The paper writes W Z, which would mix nodes; Z W is meant and done here.

    Parameters
    ----------
    width : int
        D, the length of a node's embedding.
    n_heads : int
        M; d = D / M.
    p : float
        Dropout of the attention weights.
    bias : bool
        Whether projections have biases.
    """

    def __init__(self, width: int, n_heads: int, p: float = 0.1, bias: bool = True) -> None:
        check_heads("n_heads", n_heads, width)
        super().__init__(width, n_heads, p, bias, batch_first=True)

    def forward(  # type: ignore[override]
        self, z: Tensor, explain: bool = False, bias: Tensor | None = None, factor: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Return the new embeddings (B, V, D) and, with ``explain``, the weights (B, M, V, V) before dropout.

        ``bias`` (B, V, V) is added to the scores of every head; ``factor`` (B, V, V) multiplies the weights.
        """
        if not explain and bias is None and factor is None:
            return self_attention(self, z), None
        q, k, v = split_heads(F.linear(z, self.in_proj_weight, self.in_proj_bias), self.num_heads)  # (B, M, V, d)
        scores = (q * q.shape[-1] ** -0.5) @ k.mT  # (B, M, V, V)
        weights = (scores if bias is None else scores + bias[:, None]).softmax(-1)
        weights = weights if factor is None else weights * factor[:, None]
        heads = drop(weights, self.dropout, self.training) @ v  # (B, M, V, d)
        return self.out_proj(heads.transpose(1, 2).flatten(2)), weights if explain else None


class EncoderLayer(nn.Module):
    """Equation 1 as the released code has it: a Transformer's layer, with a feed-forward network and post-norm.

    Parts, names and initial draws are those of :class:`torch.nn.TransformerEncoderLayer`.

    Parameters
    ----------
    width : int
        D, the length of a node's embedding.
    n_heads : int
        M, heads of the attention.
    ffn : int
        Hidden units of the feed-forward network.
    p : float
        Dropout of attention weights, hidden units and both residual branches.
    """

    def __init__(self, width: int, n_heads: int = 4, ffn: int = 1024, p: float = 0.1) -> None:
        super().__init__()
        self.p = p
        self.self_attn = Attention(width, n_heads, p)
        self.linear1 = nn.Linear(width, ffn)
        self.linear2 = nn.Linear(ffn, width)
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)

    def forward(
        self, z: Tensor, explain: bool = False, bias: Tensor | None = None, factor: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Return the embeddings (B, V, D) and, with ``explain``, the attention (B, M, V, V)."""
        mixed, weights = self.self_attn(z, explain, bias, factor)
        z = self.norm1(z + drop(mixed, self.p, self.training))
        fed = feed_forward(z, self.linear1, self.linear2, self.p, self.training)
        return self.norm2(z + drop(fed, self.p, self.training)), weights


class Encoder(nn.Module):
    """Z^L: L layers, one after the other.

    Parameters
    ----------
    width, n_layers, n_heads, ffn, p
        L is ``n_layers``; for the others see :class:`EncoderLayer`.
    attention_only : bool
        Equation 1 as it is printed: attention without biases and nothing else; ``ffn`` is unused.
    """

    def __init__(
        self, width: int, n_layers: int, n_heads: int, ffn: int, p: float, attention_only: bool = False
    ) -> None:
        super().__init__()
        check_probability("dropout", p)
        check_positive(n_layers=n_layers, ffn=ffn)
        self.layers = nn.ModuleList(
            Attention(width, n_heads, p, bias=False) if attention_only else EncoderLayer(width, n_heads, ffn, p)
            for _ in range(n_layers)
        )

    def forward(
        self, z: Tensor, explain: bool = False, bias: Tensor | None = None, factor: Tensor | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return Z^L (B, V, D) and, with ``explain``, the attention of each layer, otherwise an empty tuple."""
        attention = []
        for layer in self.layers:
            z, weights = layer(z, explain, bias, factor)
            attention.append(weights)
        return z, tuple(attention) if explain else ()


# -- The model -----------------------------------------------------------------------------------------


class BNT(Network):
    """Connection profiles, L Transformer layers, OCRead, and a small classifier.

    Section 3 of the paper:

    - Z^0 = X: the features of node i are row i of the connectome.
    - Equation 1: Z^l, multi-head self-attention. The paper prints the attention's products alone; as in the released
      code the layer here is a Transformer's, with biases, a feed-forward network, residuals and post-norm.
    - Equation 2: P = softmax(Z^L E^T) over K clusters, and Z_G = P^T Z^L.
    - Equation 3: E, the Gram-Schmidt process on a Xavier-uniform draw, frozen.
    - Each cluster to 8 numbers, then 8K - 256 - 32 - C (the released code; the paper does not say).

    Parameters
    ----------
    n_layers, n_heads, ffn, dropout
        L, heads, hidden units and dropout of the encoder.
    attention_only : bool
        Equation 1 to the letter: no biases, feed-forward network (``ffn`` is unused), residual or norm.
    n_clusters : int
        K. 10 is the best of the paper's ablation; its main table must have used 100, the released value.
    assignment, hidden_mlp, centres, frozen, normalise_first, dec_weight
        Options of :class:`bnt.nn.OCRead`.
    node_features : {"profile", "no-diagonal", "identity", "learned-identity", "eigen"}
        The connection profile, alone or with a position beside it.
    extra_width : int, optional
        Length of the learned identity, or number of eigenvectors.
    readout : str
        Another readout in OCRead's place, for ablations; options of OCRead that it does not have are then unused.

    Notes
    -----
    ``bnt-released`` sets what the authors' code does and the paper does not tell: K = 100, squared projection,
    a hidden MLP before clustering (65 % of the parameters at V = 200) and a first centre that is not of unit length.

    References
    ----------
    Kan X, Dai W, Cui H, Zhang Z, Guo Y, Yang C (2022). Brain Network Transformer. NeurIPS 35.
    """

    small: ClassVar = {"n_clusters": 4, "ffn": 32, "n_heads": 1}
    per_roi: ClassVar = {
        r"self_attn\.in_proj_weight": {1: "v"},
        r"(out_proj|linear2)\.(weight|bias)": {0: "v"},
        r"linear1\.weight": {1: "v"},
        r"encoder.*norm\d\.(weight|bias)": {0: "v"},
        r"readout\.(centres|reduce\.0\.weight)": {1: "v"},
        r"readout\.hidden\.0\.weight": {1: "vv"},
        r"readout\.hidden\.4\.(weight|bias)": {0: "vv"},
    }
    edge_weights = "none"  # an option of VanillaTF

    def __init__(
        self,
        n_rois: int,
        n_classes: int = 2,
        *,
        n_layers: int = 2,
        n_heads: int = 4,
        ffn: int = 1024,
        dropout: float = 0.1,
        attention_only: bool = False,
        n_clusters: int = 10,
        assignment: str = "softmax",
        hidden_mlp: bool = False,
        centres: str = "orthonormal",
        frozen: bool | None = None,
        normalise_first: bool = True,
        dec_weight: float = 0.0,
        node_features: str = "profile",
        extra_width: int | None = None,
        readout: str = "ocread",
    ) -> None:
        super().__init__()
        if n_clusters > n_rois:
            raise BadInput(f"n_clusters is {n_clusters}, more than the {n_rois} ROIs; use at most {n_rois}.")
        options: dict[str, Any] = {
            "n_clusters": n_clusters,
            "assignment": assignment,
            "hidden_mlp": hidden_mlp,
            "centres": centres,
            "frozen": frozen,
            "normalise_first": normalise_first,
            "dec_weight": dec_weight,
        }
        if readout != "ocread":
            known = readout_options(readout)
            if hidden_mlp and "hidden_mlp" not in known:
                raise BadInput(f"hidden_mlp=True goes with the readouts ocread and concat, not with {readout!r}.")
            options = {name: value for name, value in options.items() if name in known}
        self.n_rois = n_rois
        self.features = NodeFeatures(node_features, n_rois, n_heads, extra_width)
        width = self.features.width  # D; with connection profiles alone D = V
        self.encoder = Encoder(width, n_layers, n_heads, ffn, dropout, attention_only)
        self.readout = create_readout(readout, n_rois, width, **options)
        self.head = Head(self.readout.out_features, n_classes)

    def forward(
        self, x: Tensor, series: Tensor | None = None, target: Tensor | None = None, explain: bool = False
    ) -> Output:
        """Answer for connectomes (B, V, V); see :meth:`bnt.nn.Network.forward`."""
        check_connectomes(x, self.n_rois)
        z = self.features(x)  # Z^0 = X, (B, V, D)
        edges = {} if self.edge_weights == "none" else {self.edge_weights: x}
        z, attention = self.encoder(z, explain, **edges)  # equation 1: Z^L, (B, V, D)
        pooled = self.readout(z, adjacency=x)  # equations 2, 3: P = softmax(Z^L E^T), Z_G = P^T Z^L, to (B, 8K)
        logits = self.head(pooled.embedding)  # (B, C)
        return Output(logits, pooled.loss, attention, pooled.assignments if explain else None)


# -- The paper's baseline ------------------------------------------------------------------------------

EDGE_WEIGHTS = ("none", "bias", "factor")


class VanillaTF(BNT):
    """Connection profiles, L Transformer layers, a plain readout, and a small classifier.

    With ``readout="ocread"`` it is the same model as BNT; with the other readouts it gives the rows of the paper's
    Table 2.

    Parameters
    ----------
    n_layers, n_heads, ffn, dropout
        L, heads, hidden units and dropout of the encoder.
    readout : {"concat", "mean", "max", "sum", "sort", "diffpool", "ocread"}
        From nodes to a graph.
    readout_options : dict, optional
        See :func:`bnt.nn.readout_options`.
    node_features, extra_width
        As in BNT.
    edge_weights : {"none", "bias", "factor"}
        Whether attention uses the connectome, which the paper advises against: added to the scores of every head and
        layer before the softmax, or multiplied with the weights after it.

    Notes
    -----
    The paper prints 15.6 and 32.7 million parameters; there are 1.56 and 3.27 million.

    References
    ----------
    Kan X, Dai W, Cui H, Zhang Z, Guo Y, Yang C (2022). Brain Network Transformer. NeurIPS 35.
    """

    small: ClassVar = {"ffn": 32, "n_heads": 1}
    per_roi: ClassVar = {**BNT.per_roi, r"head\.0\.weight": {1: "vk"}}

    def __init__(
        self,
        n_rois: int,
        n_classes: int = 2,
        *,
        n_layers: int = 2,
        n_heads: int = 4,
        ffn: int = 1024,
        dropout: float = 0.1,
        readout: str = "concat",
        readout_options: dict[str, Any] | None = None,
        node_features: str = "profile",
        extra_width: int | None = None,
        edge_weights: str = "none",
    ) -> None:
        Network.__init__(self)  # the forward pass is BNT's, the parts are not
        check_choice("edge_weights", edge_weights, EDGE_WEIGHTS)
        self.n_rois, self.edge_weights = n_rois, edge_weights
        self.features = NodeFeatures(node_features, n_rois, n_heads, extra_width)
        self.encoder = Encoder(self.features.width, n_layers, n_heads, ffn, dropout)
        self.readout = create_readout(readout, n_rois, self.features.width, **(readout_options or {}))
        self.head = Head(self.readout.out_features, n_classes)
