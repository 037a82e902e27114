"""SAN, the spectral attention network: positions from the Laplacian's spectrum, attention that depends on edges."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from bnt.errors import BadInput
from bnt.nn._kernels import dropout as drop
from bnt.nn._kernels import narrow_feed_forward, self_attention
from bnt.nn._network import Network, Output, check_connectomes, check_heads, check_positive, check_probability
from bnt.nn._readouts import create_readout

# -- learned positional encoding (LPE) -----------------------------------------------------------------


@torch.no_grad()
def laplacian_eigenpairs(x: Tensor, m: int) -> tuple[Tensor, Tensor]:
    """Return the m lowest eigenvalues (B, m) of the normalised Laplacian, and their eigenvectors (B, V, m).

    The Laplacian is ``I - D^-1/2 |A| D^-1/2`` with A the connectome without its diagonal and D its row sums of
    absolute values; a node without edges has a row of the identity, and no position: its entries of the eigenvectors,
    zero but for rounding, are set to zero. A sign for each eigenvector is chosen by one rule:
    the entry largest in magnitude is positive. Nothing is differentiated: the pairs are inputs.
    """
    a = x if x.dtype.itemsize >= 4 else x.float()  # half precision has no eigen-decomposition
    a = ((a + a.mT) / 2).abs()
    a.masked_fill_(torch.eye(a.shape[-1], dtype=torch.bool, device=a.device), 0.0)
    degree = a.sum(-1)  # (B, V)
    root = torch.where(degree > 0, degree, 1.0).rsqrt()
    # The lowest eigenvalues of I - S are the highest of S, in reverse.
    values, vectors = torch.linalg.eigh(root[:, :, None] * a * root[:, None, :])
    values, vectors = 1 - values[:, -m:].flip(-1), vectors[..., -m:].flip(-1)
    vectors = vectors.masked_fill((degree == 0)[..., None], 0.0)
    largest = vectors.gather(1, vectors.abs().argmax(1, keepdim=True))  # (B, 1, m)
    return values.to(x.dtype), (vectors * largest.sign()).to(x.dtype)


class PairLayer(nn.TransformerEncoderLayer):
    """torch's encoder layer over the pairs of a node: few numbers, many tokens, so hidden units are made in blocks."""

    def forward(self, z: Tensor) -> Tensor:  # type: ignore[override]
        """Map (N, m, d) to (N, m, d)."""
        p, training = self.dropout.p, self.training
        z = self.norm1(z + drop(self_attention(self.self_attn, z), p, training))
        return self.norm2(z + drop(narrow_feed_forward(z, self.linear1, self.linear2, p, training), p, training))


class LaplacianEncoding(nn.Module):
    """A Transformer over a node's m pairs (entry of the eigenvector, eigenvalue), summed to one vector per node.

    Parameters
    ----------
    width : int
        Length of the encoding.
    n_layers, n_heads, ffn, p
        The encoder's depth, heads, hidden units and dropout.
    n_eigen : int
        m, at most the number of nodes.
    flip : bool
        Multiply each eigenvector by a random sign at every training step.
    """

    def __init__(
        self,
        width: int = 8,
        n_layers: int = 1,
        n_heads: int = 4,
        ffn: int = 2048,
        p: float = 0.1,
        n_eigen: int = 10,
        flip: bool = True,
    ) -> None:
        super().__init__()
        self.n_eigen, self.flip = n_eigen, flip
        self.pair = nn.Linear(2, width)
        self.layers = nn.ModuleList(PairLayer(width, n_heads, ffn, p, batch_first=True) for _ in range(n_layers))

    def forward(self, x: Tensor) -> Tensor:
        """Return the encoding (B, V, width) of connectomes (B, V, V)."""
        b, v, _ = x.shape
        values, vectors = laplacian_eigenpairs(x, min(self.n_eigen, v))
        vectors = nn.functional.normalize(vectors, dim=2)  # a node's entries over frequencies have unit length
        if self.flip and self.training:
            vectors = vectors * (torch.randint(2, values.shape, device=x.device) * 2 - 1)[:, None]
        pairs = torch.stack([vectors, values[:, None].expand_as(vectors)], -1)  # (B, V, m, 2)
        z = self.pair(pairs).flatten(0, 1)  # (B V, m, width)
        for layer in self.layers:
            z = layer(z)
        return z.sum(1).view(b, v, -1)


# -- attention with edges ------------------------------------------------------------------------------

CLAMP = 5.0  # scores are kept within +-5 before they are exponentiated


class EdgeAttention(nn.Module):
    """Attention with one vector per edge in every product of a query and a key.

    The score of node j for node i is ``sum_c Q_ic K_jc E_ijc / sqrt(d_k)`` within a head, clamped and exponentiated;
    weights are divided by their sum plus 1e-6. An edge is embedded as ``e_ij = w_ij u + b`` from its weight, so that
    E_ij = w_ij u' + b' with u' = W_E u and b' = W_E b, and the scores are ``w_ij (Q_i u').K_j + (Q_i b').K_j``:
    two matrix products in place of (V, V, d) numbers.

    Parameters
    ----------
    width : int
        d.
    n_heads : int
        Heads; has to divide the width.
    """

    def __init__(self, width: int, n_heads: int) -> None:
        super().__init__()
        check_heads("n_heads", n_heads, width)
        self.n_heads = n_heads
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.edge = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)

    def forward(self, z: Tensor, edges: Tensor, embedding: nn.Linear) -> tuple[Tensor, Tensor]:
        """Return the new nodes (B, V, d) and the attention (B, heads, V, V).

        Parameters
        ----------
        z : Tensor, (B, V, d)
            Nodes.
        edges : Tensor, (B, V, V)
            Edge weights w.
        embedding : Linear, 1 to d
            The edge embedding u and b, shared by all layers.
        """
        u = self.edge(embedding.weight[:, 0])  # (d,)
        b = self.edge(embedding.bias)
        q = self.query(z) * (z.shape[-1] // self.n_heads) ** -0.5
        key = self._heads(self.key(z)).mT  # (B, M, d_k, V)
        scores = (self._heads(q * u) @ key) * edges[:, None] + self._heads(q * b) @ key  # (B, M, V, V)
        weights = scores.clamp(-CLAMP, CLAMP).exp()
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-6)
        mixed = weights @ self._heads(self.value(z))
        return mixed.transpose(1, 2).flatten(2), weights

    def _heads(self, z: Tensor) -> Tensor:
        return z.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)


class EdgeTransformerLayer(nn.Module):
    """Edge attention and a d - 2d - d network, each with residual and BatchNorm over nodes.

    Parameters
    ----------
    width, n_heads : int
        d and heads.
    p : float
        Dropout of both branches.
    """

    def __init__(self, width: int, n_heads: int, p: float = 0.0) -> None:
        super().__init__()
        self.p = p
        self.attention = EdgeAttention(width, n_heads)
        self.out = nn.Linear(width, width)
        self.norm1 = nn.BatchNorm1d(width)
        self.linear1 = nn.Linear(width, 2 * width)
        self.linear2 = nn.Linear(2 * width, width)
        self.norm2 = nn.BatchNorm1d(width)

    def forward(self, z: Tensor, edges: Tensor, embedding: nn.Linear) -> tuple[Tensor, Tensor]:
        """Return the new nodes (B, V, d) and the attention (B, heads, V, V)."""
        mixed, weights = self.attention(z, edges, embedding)
        z = _over_nodes(self.norm1, z + self.out(drop(mixed, self.p, self.training)))
        hidden = drop(torch.relu(self.linear1(z)), self.p, self.training)
        return _over_nodes(self.norm2, z + self.linear2(hidden)), weights


def _over_nodes(norm: nn.Module, z: Tensor) -> Tensor:
    return norm(z.flatten(0, 1)).view_as(z)


# -- the model -----------------------------------------------------------------------------------------


class MLPReadout(nn.Sequential):
    """SAN's classifier: D - D/2 - D/4 - C with ReLU."""

    def __init__(self, in_features: int, n_classes: int) -> None:
        half, quarter = max(in_features // 2, 1), max(in_features // 4, 1)
        super().__init__(
            nn.Linear(in_features, half), nn.ReLU(), nn.Linear(half, quarter), nn.ReLU(), nn.Linear(quarter, n_classes)
        )


class SAN(Network):
    """Learned spectral positions, a Transformer whose scores depend on edges, a readout and an MLP.

    - Positions (LPE): for each node the m pairs (phi_i, lambda) of the m lowest eigenpairs of the normalised
      Laplacian, through a linear layer and a Transformer over the m pairs, summed.
    - Nodes: a linear map of the connection profile to d - lpe_dim numbers, and the LPE beside them.
    - Layer: ``w_ij ~ exp(clamp(sum_c Q_ic K_jc E_ijc / sqrt(d_k)))``, E from the edge's weight; output projection,
      residual, BatchNorm; d - 2d - d with ReLU, residual, BatchNorm.
    - Readout, then D - D/2 - D/4 - C. For CONCAT, D = d V.

    Parameters
    ----------
    n_layers, n_heads : int
        Layers (the paper searched 1, 2) and heads (2, 4) of the main Transformer.
    width : int
        d.
    lpe_dim, lpe_layers, lpe_heads : int
        Width (4, 8, 16), layers (1, 2) and heads (2, 4) of the position's Transformer.
    n_eigen : int
        m; at most V are taken.
    flip_signs : bool
        Random signs of the eigenvectors while training; at evaluation they follow a fixed rule.
    dropout, lpe_dropout : float
        In the main Transformer and in the position's.
    readout, readout_options
        See :func:`bnt.nn.create_readout`; ``concat`` flattens all nodes as they are.

    Notes
    -----
    "The paper" is that of the Brain Network Transformer, which compares with SAN.

    - Inferred: its 57.7 and 186.7 million parameters fit d = 48 and CONCAT only; the MLP has 57,612,002 and
      186,645,602 of them.
    - Unknown, chosen here: one layer and an LPE of 8 (the paper's sum allows 1-2 and 4-8); 4 heads; m = 10; the
      Laplacian of absolute weights without the diagonal; the signed weight as an edge's feature; the diagonal as an
      edge like the others.
    - Deviations from the public code: a complete graph has no missing edges, so the second set of queries, keys and
      edge maps for them, and gamma, are left out (they would never get a gradient). Signs are flipped while training,
      as in the SAN paper; the public code does so for one of its datasets only. Eigenpairs are computed at every step
      from the input as it is given, after mixup, and not differentiated.

    References
    ----------
    Kreuzer D, Beaini D, Hamilton WL, Létourneau V, Tossou P (2021). Rethinking graph transformers with spectral
    attention. NeurIPS 34.
    """

    small: ClassVar = {"width": 16, "lpe_dim": 4, "lpe_ffn": 16, "lpe_heads": 2}
    per_roi: ClassVar = {r"^embed\.weight": {1: "v"}, r"head\.0\.weight": {1: "vk"}}

    def __init__(
        self,
        n_rois: int,
        n_classes: int = 2,
        *,
        n_layers: int = 1,
        n_heads: int = 4,
        width: int = 48,
        lpe_dim: int = 8,
        lpe_layers: int = 1,
        lpe_heads: int = 4,
        lpe_ffn: int = 2048,
        n_eigen: int = 10,
        flip_signs: bool = True,
        dropout: float = 0.0,
        lpe_dropout: float = 0.1,
        readout: str = "concat",
        readout_options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        check_probability("dropout", dropout)
        check_probability("lpe_dropout", lpe_dropout)
        check_positive(n_layers=n_layers, lpe_layers=lpe_layers, lpe_ffn=lpe_ffn, n_eigen=n_eigen, lpe_dim=lpe_dim)
        check_heads("lpe_heads", lpe_heads, lpe_dim)
        if lpe_dim >= width:
            raise BadInput(f"lpe_dim is {lpe_dim}, but has to be below the width {width} to leave room for features.")
        self.n_rois = n_rois
        self.embed = nn.Linear(n_rois, width - lpe_dim)
        self.edge_embed = nn.Linear(1, width)
        self.positions = LaplacianEncoding(lpe_dim, lpe_layers, lpe_heads, lpe_ffn, lpe_dropout, n_eigen, flip_signs)
        self.layers = nn.ModuleList(EdgeTransformerLayer(width, n_heads, dropout) for _ in range(n_layers))
        options = {"reduce": None} if readout == "concat" else {}
        self.readout = create_readout(readout, n_rois, width, **{**options, **(readout_options or {})})
        self.head = MLPReadout(self.readout.out_features, n_classes)

    def forward(
        self, x: Tensor, series: Tensor | None = None, target: Tensor | None = None, explain: bool = False
    ) -> Output:
        """Answer for connectomes (B, V, V); see :meth:`bnt.nn.Network.forward`."""
        check_connectomes(x, self.n_rois)
        z = torch.cat([self.embed(x), self.positions(x)], -1)  # (B, V, d)
        attention = []
        for layer in self.layers:
            z, weights = layer(z, x, self.edge_embed)
            attention.append(weights)
        shown = tuple(attention) if explain else ()
        pooled = self.readout(z, adjacency=x)
        return Output(self.head(pooled.embedding), pooled.loss, shown, pooled.assignments if explain else None)
