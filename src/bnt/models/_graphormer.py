"""Graphormer on binned connectivity: attention with a learned bias for each pair of nodes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bnt.errors import BadInput
from bnt.nn._kernels import biased_attention, pair_biases
from bnt.nn._kernels import dropout as drop
from bnt.nn._network import (
    Network,
    Output,
    check_connectomes,
    check_heads,
    check_positive,
    check_probability,
    check_share,
)
from bnt.nn._readouts import Head, create_readout

# -- connectivity as integers --------------------------------------------------------------------------

MAX_VALUES = 2_000_000  # quantiles are computed from at most so many values


class Bins(nn.Module):
    """Put each entry of a connectome into one of some bins.

    Before :meth:`learn` is called the bins divide [-1, 1] evenly. The edges are a buffer, saved with the weights.
    """

    edges: Tensor

    def __init__(self, n_bins: int) -> None:
        super().__init__()
        self.n_bins = n_bins
        self.register_buffer("edges", torch.linspace(-1, 1, n_bins + 1)[1:-1])  # (n_bins - 1,)

    @torch.no_grad()
    def learn(self, batches: Iterable[Tensor]) -> None:
        """Set the edges to quantiles of all off-diagonal entries of batches (B, V, V).

        Of large cohorts every k-th value is taken, so that no more than two million are sorted.
        """
        kept: list[Tensor] = []
        step = 1
        for x in batches:
            above = torch.triu(torch.ones(x.shape[1:], dtype=torch.bool, device=x.device), 1)
            kept.append(x[:, above].flatten()[::step].double())
            while sum(part.numel() for part in kept) > MAX_VALUES:
                kept = [part[::2] for part in kept]
                step *= 2
        values = torch.cat(kept).sort().values
        if values.numel():
            position = torch.linspace(0, values.numel() - 1, self.n_bins + 1, dtype=torch.float64)[1:-1]
            self.edges.copy_(values[position.round().long().to(values.device)])

    def forward(self, x: Tensor) -> Tensor:
        """Return the bin (int64) of each entry, 0 to n_bins - 1."""
        return torch.bucketize(x.detach().contiguous(), self.edges.to(x.dtype))


def pair_kinds(bins: Tensor, n_bins: int) -> Tensor:
    """Return the kind of each pair (B, 1 + V, 1 + V) from the bins of edges (B, V, V).

    Kinds 0 to n_bins - 1 are the bins of edges between two nodes, n_bins is a pair with the graph token, which comes
    first, and n_bins + 1 a node and itself.
    """
    kinds = F.pad(bins, (1, 0, 1, 0), value=n_bins)
    itself = torch.eye(kinds.shape[-1], dtype=torch.bool, device=kinds.device)
    itself[0, 0] = False
    return kinds.masked_fill_(itself, n_bins + 1)


# -- centrality encoding: where nodes start ------------------------------------------------------------


class BinnedNodes(nn.Module):
    """Node embeddings from binned connection profiles and from degrees.

    With k_ij the bin of edge (i, j), node i starts as

        mean_j T[k_ij] + sum_j s[k_ij] C[j] / sqrt(V) + D[number of edges of i in the highest bins]

    T, one vector per bin, is Graphormer's sum of categorical embeddings with one vocabulary for all columns; alone, it
    forgets which node an edge goes to. The second term remembers: a vector per column times a learned number per bin.

    Parameters
    ----------
    columns : bool
        Whether there is the second term.
    density : float
        Share of the bins whose edges count for the degree.
    """

    def __init__(self, n_rois: int, n_bins: int, width: int, columns: bool = True, density: float = 0.1) -> None:
        super().__init__()
        self.n_bins, self.first_strong = n_bins, n_bins - max(round(density * n_bins), 1)
        self.table = nn.Embedding(n_bins, width)  # T
        self.degree = nn.Embedding(n_rois + 1, width)  # D
        self.values = nn.Parameter(torch.linspace(-1, 1, n_bins)) if columns else None  # s
        self.columns = nn.Embedding(n_rois, width) if columns else None  # C

    def forward(self, bins: Tensor) -> Tensor:
        """Map bins (B, V, V) to nodes (B, V, d)."""
        b, v, _ = bins.shape
        weight = self.table.weight
        # How many edges of a node fall into each bin: the sum over columns is a product with the table.
        counts = weight.new_zeros(b, v, self.n_bins).scatter_add_(2, bins, weight.new_ones(1).expand(b, v, v))
        z = (counts / v) @ weight + self.degree((bins >= self.first_strong).sum(-1))
        if self.columns is not None and self.values is not None:
            z = z + self.values[bins] @ (self.columns.weight * v**-0.5)
        return z


# -- spatial and edge encoding: attention with biases --------------------------------------------------


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
        z = self.norm1(z + drop(mixed, self.p_branch, self.training))
        hidden = drop(F.gelu(self.linear1(z)), self.p_hidden, self.training)
        return self.norm2(z + drop(self.linear2(hidden), self.p_branch, self.training)), weights

    def attend(self, z: Tensor, table: Tensor, kinds: Tensor, explain: bool = False) -> tuple[Tensor, Tensor | None]:
        """Return the output of the attention (B, N, d) and, if asked to explain, its weights before dropout."""
        b, n, d = z.shape
        q, k, value = self.packed(z).view(b, n, 3, self.n_heads, d // self.n_heads).permute(2, 0, 3, 1, 4).contiguous()
        q = q * (d // self.n_heads) ** -0.5
        weights = None
        if explain:
            weights = (q @ k.mT + pair_biases(table, kinds)).softmax(-1)
            mixed = drop(weights, self.p_attention, self.training) @ value  # (B, M, N, d / M)
        else:
            mixed = biased_attention(q, k, value, table, kinds, self.p_attention, self.training)
        return self.out(mixed.transpose(1, 2).reshape(b, n, d)), weights


# -- the model -----------------------------------------------------------------------------------------


class Graphormer(Network):
    """Binned connectivity, a Transformer with a bias for each pair of nodes, a readout and a small classifier.

    - Centrality encoding: nodes start from embeddings of their binned features and of their degree.
    - Spatial and edge encoding: the score of (i, j) gets a bias per head, looked up by the bin of the edge; a node and
      itself, and pairs with the graph token, have rows of their own. All layers share the table.
    - A graph token takes part in the attention; embeddings are layer-normalised before the first layer;
      layers are post-norm with GELU; initial values, but those of readout and head, are drawn
      from N(0, 0.02).
    - CONCAT in place of the graph token: each node to 8 numbers, then 8V - 256 - 32 - C.

    Parameters
    ----------
    n_layers : int
        The paper searched 1 and 2.
    width : int
        d; the paper searched 256 and 512.
    n_heads, ffn
        Heads and hidden units of a layer.
    dropout, attention_dropout, activation_dropout : float
        Dropout of embeddings and both branches of a layer, of attention weights, and of hidden units: 0, 0.1 and 0.1,
        as in the public code's base model.
    n_bins : int
        Bins of connectivity, of equal share in the training set once :meth:`prepare` was called.
    columns : bool
        Whether a node's embedding remembers which node an edge goes to, see :class:`BinnedNodes`.
    density : float
        Share of the bins whose edges count for the degree.
    readout, readout_options
        See :func:`bnt.nn.create_readout`; the readout sees nodes, not the graph token.

    Notes
    -----
    "The paper" is that of the Brain Network Transformer. Its version of Graphormer is not public; known are that
    connectivity was binned, and the two grids above.

    - Inferred: the 1.23 and 1.66 million parameters of the paper are met within 1 % by what is chosen here: one layer,
      d = 256, 32 heads, 768 hidden units, 200 bins of equal share, the tables of :class:`BinnedNodes`.
    - Deviations from the public code: in a complete graph all degrees are equal, so degrees are counted in the tenth
      of the bins with the highest values, and in one table, because in- and out-degree are the same. Shortest paths
      have length 0 or 1 and at most one edge, so spatial and edge encoding are one table, without mixing along hops.
    - One vocabulary per column would take 26 million parameters: one is shared, and ``columns=False`` shows what that
      alone can do.
    - Bins are not differentiable: gradients do not reach the input.

    References
    ----------
    Ying C, Cai T, Luo S, Zheng S, Ke G, He D, Shen Y, Liu TY (2021). Do transformers really perform badly for graph
    representation? NeurIPS 34.
    """

    small: ClassVar = {"width": 32, "n_heads": 4, "ffn": 32, "n_bins": 16}
    per_roi: ClassVar = {r"nodes\.columns\.weight": {0: "v"}, r"head\.0\.weight": {1: "vk"}}

    def __init__(
        self,
        n_rois: int,
        n_classes: int = 2,
        *,
        n_layers: int = 1,
        width: int = 256,
        n_heads: int = 32,
        ffn: int = 768,
        dropout: float = 0.0,
        attention_dropout: float = 0.1,
        activation_dropout: float = 0.1,
        n_bins: int = 200,
        columns: bool = True,
        density: float = 0.1,
        readout: str = "concat",
        readout_options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        check_probability("dropout", dropout)
        check_probability("attention_dropout", attention_dropout)
        check_probability("activation_dropout", activation_dropout)
        check_positive(n_layers=n_layers, width=width, ffn=ffn)
        check_heads("n_heads", n_heads, width)
        if n_bins < 2:
            raise BadInput(f"n_bins is {n_bins}; give at least 2 bins.")
        check_share("density", density)
        self.n_rois, self.p = n_rois, dropout
        self.bins = Bins(n_bins)
        self.nodes = BinnedNodes(n_rois, n_bins, width, columns, density)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.norm = nn.LayerNorm(width)
        self.bias = nn.Embedding(n_bins + 2, n_heads)  # edges by bin, the graph token, a node and itself
        rates = (attention_dropout, activation_dropout, dropout)
        self.layers = nn.ModuleList(BiasedLayer(width, n_heads, ffn, *rates) for _ in range(n_layers))
        self.apply(_draw)
        nn.init.normal_(self.token, std=0.02)
        self.readout = create_readout(readout, n_rois, width, **(readout_options or {}))
        self.head = Head(self.readout.out_features, n_classes)

    def prepare(self, batches: Iterable[Tensor]) -> None:
        """Set the bins to quantiles of the training set, given as batches (B, V, V)."""
        self.bins.learn(batches)

    def forward(
        self, x: Tensor, series: Tensor | None = None, target: Tensor | None = None, explain: bool = False
    ) -> Output:
        """Answer for connectomes (B, V, V); see :meth:`bnt.nn.Network.forward`.

        The attention returned is between nodes; what is missing to one goes to the graph token.
        """
        check_connectomes(x, self.n_rois)
        bins = self.bins(x)  # (B, V, V)
        nodes = self.nodes(bins)  # (B, V, d)
        z = torch.cat([self.token.expand(x.shape[0], -1, -1), nodes], 1)  # (B, 1 + V, d)
        z = drop(self.norm(z), self.p, self.training)
        kinds = pair_kinds(bins, self.bins.n_bins)  # (B, 1 + V, 1 + V)
        attention = []
        for layer in self.layers:
            z, weights = layer(z, self.bias.weight, kinds, explain)
            if weights is not None:
                attention.append(weights[:, :, 1:, 1:])
        pooled = self.readout(z[:, 1:], adjacency=x)
        assignments = pooled.assignments if explain else None
        return Output(self.head(pooled.embedding), pooled.loss, tuple(attention), assignments)


def _draw(module: nn.Module) -> None:
    """Draw weights as Graphormer does: N(0, 0.02), biases zero."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)
