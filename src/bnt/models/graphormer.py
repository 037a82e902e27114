"""Graphormer (Ying et al., NeurIPS 2021), as the Brain Network Transformer's paper may have adapted it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from bnt.errors import BadInput
from bnt.nn.biased_attention import BiasedLayer, pair_kinds
from bnt.nn.bins import Bins
from bnt.nn.checks import check_heads, check_positive, check_probability
from bnt.nn.dropout import dropout as drop
from bnt.nn.graph_transformer import Head
from bnt.nn.inputs import check_connectomes
from bnt.nn.output import Output
from bnt.nn.readouts import create_readout


class BinnedNodes(nn.Module):
    """Node embeddings from binned connection profiles and from degrees.

    With k_ij the bin of edge (i, j), node i starts as

        mean_j T[k_ij] + sum_j s[k_ij] C[j] / sqrt(V) + D[number of edges of i in the highest bins]

    T, a vector a bin, is Graphormer's sum of categorical embeddings with one vocabulary for all columns; alone, it
    forgets which node an edge goes to. The second term remembers: a vector a column, times a learned number a bin.

    Parameters
    ----------
    n_rois, n_bins, width : int
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


class Graphormer(nn.Module):
    """Binned connectivity, a Transformer with a bias for each pair of nodes, a readout and a small classifier.

    - Centrality encoding: nodes start from embeddings of their binned features and of their degree.
    - Spatial and edge encoding: the score of (i, j) gets a bias a head, looked up by the bin of the edge; a node and
      itself, and pairs with the graph token, have rows of their own. All layers share the table.
    - A graph token takes part in the attention; embeddings are layer-normalised before the first layer;
      layers are post-norm with GELU; initial values, but those of readout and head, are drawn
      from N(0, 0.02).
    - CONCAT in place of the graph token: each node to 8 numbers, then 8V - 256 - 32 - C.

    Parameters
    ----------
    n_rois : int
        V.
    n_classes : int
        C; 1 for regression.
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
        Bins of connectivity, of equal share in the training part once :meth:`prepare` was called.
    columns : bool
        Whether a node's embedding remembers which node an edge goes to, see :class:`BinnedNodes`.
    density : float
        Share of the bins whose edges count for the degree.
    readout, readout_options
        See :func:`bnt.nn.create_readout`; the readout sees nodes, not the graph token.

    Notes
    -----
    The paper's version is not public; known are that connectivity was binned, and the two grids above. Its 1.23 and
    1.66 million parameters are met within 1 % by what is chosen here: one layer, d = 256, 32 heads, 768 hidden units,
    200 bins of equal share, the tables of :class:`BinnedNodes`.

    Departures from the public code: a complete graph has one degree, so degrees are counted in the tenth of the
    bins with the highest values, and in one table, because in- and out-degree are the same; its shortest paths are
    of length 0 or 1 and of one edge at most, so spatial and edge encoding are one table, without mixing along hops.
    A vocabulary a column would take 26 million parameters: one is shared, and ``columns=False`` shows what that alone
    can do. Bins are not differentiable: gradients do not reach the input.
    """

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
        if not 0 < density <= 1:
            raise BadInput(f"density is {density}; give a share above 0 and at most 1.")
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
        """Set the bins to quantiles of the training part, given as batches (B, V, V)."""
        self.bins.learn(batches)

    def forward(
        self, x: Tensor, series: Tensor | None = None, target: Tensor | None = None, explain: bool = False
    ) -> Output:
        """Return the answer for connectomes (B, V, V).

        Parameters
        ----------
        x : Tensor, (B, V, V)
            Connectomes.
        series, target : optional
            Not used; part of every model's interface.
        explain : bool
            Whether to return attention (between nodes; what is missing to one goes to the graph token) and
            assignments too.
        """
        check_connectomes(x, self.n_rois)
        bins = self.bins(x)  # (B, V, V)
        nodes = self.nodes(bins)  # (B, V, d)
        z = torch.cat([self.token.expand(len(x), -1, -1), nodes], 1)  # (B, 1 + V, d)
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
