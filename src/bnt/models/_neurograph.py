"""NeuroGraph's GNN*: graph convolutions on the strongest correlations; an MLP reads their means and all edges."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from bnt.nn._kernels import dropout
from bnt.nn._network import Network, Output, check_connectomes, check_positive, check_probability, check_share

# -- the graph -----------------------------------------------------------------------------------------


def strongest(edges: Tensor, density: float) -> Tensor:
    """Return the threshold of each subject, (B, 1): the percentile 100 (1 - density) of its positive edges (B, E).

    Interpolated as numpy does it, in a matrix that has every edge twice. Without positive edges it is infinite.
    """
    counts = 2 * (edges > 0).sum(1, keepdim=True)  # (B, 1)
    above = (counts - 1).clamp_min(0).double() * density  # places from the largest, which is number 0
    first = above.floor().long()
    largest = edges.topk(min(int(first.max()) // 2 + 2, edges.shape[1]), dim=1).values  # each stands for two places
    upper, lower = (
        largest.gather(1, (first + i).div(2, rounding_mode="floor").clamp_max(largest.shape[1] - 1)) for i in (0, 1)
    )
    threshold = torch.lerp(upper, lower, (above - first).to(edges.dtype))
    return threshold.masked_fill(counts == 0, torch.inf)


class DenseGCN(nn.Module):
    """``D^-1/2 (A + I) D^-1/2 Z W + b`` of dense graphs, D the degrees of A + I.

    Parameters
    ----------
    n_in, width : int
        Length of a node's features before and after.
    """

    def __init__(self, n_in: int, width: int) -> None:
        super().__init__()
        self.lin = nn.Linear(n_in, width, bias=False)
        self.bias = nn.Parameter(torch.zeros(width))
        nn.init.xavier_uniform_(self.lin.weight)

    def forward(self, z: Tensor, graph: Tensor) -> Tensor:
        """Map nodes (B, V, n_in) to nodes (B, V, width), with normalised graphs (B, V, V)."""
        return graph @ self.lin(z) + self.bias


def normalised(adjacency: Tensor) -> Tensor:
    """Return D^-1/2 (A + I) D^-1/2 of adjacency matrices (B, V, V) without loops."""
    graph = adjacency + torch.eye(adjacency.shape[-1], dtype=adjacency.dtype, device=adjacency.device)
    scale = graph.sum(-1).rsqrt()
    return scale[..., None] * graph * scale[:, None]


# -- the model -----------------------------------------------------------------------------------------


class NeuroGraph(Network):
    """Residual graph convolutions: the mean nodes of every layer, and all edges, into one MLP.

    - Graph: A_ij = 1 where x_ij is among the ``density`` strongest positive correlations of the subject, otherwise 0.
      Node features Z_0 are the rows of X with 0 on the diagonal.
    - ``Z_l = tanh(GCN_l(Z_l-1, A))``, (V, h), l = 1 ... L, see :class:`DenseGCN`.
    - ``y = [BatchNorm(upper triangle of X), BatchNorm([mean_v Z_1, ..., mean_v Z_L])]``, V(V-1)/2 + L h numbers.
    - MLP: m, m / 2, m / 2, C, with BatchNorm, ReLU and dropout after each but the last.

    Parameters
    ----------
    hidden : int
        h, the width of the convolutions.
    mlp : int
        m, the width of the first layer of the MLP.
    n_layers : int
        L.
    density : float
        Share of the positive correlations that are edges.
    dropout : float
        Probability, in the MLP.

    Notes
    -----
    - Compared with the published code (Anwar-Said/NeuroGraph, commit 0a2abf5, ``ResidualGNNs`` with ``GCNConv`` and
      ``construct_data`` on PyTorch Geometric 2.8.1) with the same weights on 60, 61 and 200 ROIs: the graphs are
      equal, and the logits after its log-softmax differ by at most 1.2e-7.
    - The published model ends in a log-softmax, which its cross-entropy applies again: the loss is the same. Here are
      the logits.
    - The published code finds edges by being above the diagonal and not 0, and fails where a correlation is exactly
      0; here every edge has its place. The first layer of the MLP is two, for edges and for nodes, whose sum is the
      published one.
    - Recipe as published: Adam 1e-5, weight decay 5e-4, batches of 16, 100 epochs, mean cross-entropy, no mixup, the
      best epoch on validation (published: by accuracy and in the second half only, batches in a fixed order).

    References
    ----------
    Said A, Bayrak RG, Derr T, Shabbir M, Moyer D, Chang C, Koutsoukos X (2023). NeuroGraph: benchmarks for graph
    machine learning in brain connectomics. NeurIPS Datasets and Benchmarks.
    """

    small: ClassVar = {"hidden": 8, "mlp": 16}
    per_roi: ClassVar = {
        r"^convs\.0\.lin\.weight": {1: "v"},
        r"^norm_edges\.(weight|bias|running)": {0: "pair"},
        r"^of_edges\.weight": {1: "pair"},
    }

    def __init__(
        self,
        n_rois: int,
        n_classes: int = 2,
        *,
        hidden: int = 32,
        mlp: int = 64,
        n_layers: int = 3,
        density: float = 0.05,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        check_positive(hidden=hidden, mlp=mlp // 2, n_layers=n_layers)
        check_share("density", density)
        check_probability("dropout", dropout)
        self.n_rois, self.density, self.dropout = n_rois, density, dropout
        rows, columns = torch.triu_indices(n_rois, n_rois, 1, device="cpu")
        self.register_buffer("upper", n_rois * rows + columns, persistent=False)  # (E,)
        self.upper: Tensor
        self.convs = nn.ModuleList(DenseGCN(hidden if i else n_rois, hidden) for i in range(n_layers))
        self.norm_edges, self.norm_nodes = nn.BatchNorm1d(len(rows)), nn.BatchNorm1d(n_layers * hidden)
        # One layer of E + L h numbers, in two parts; both start as that layer would.
        joined = nn.Linear(len(rows) + n_layers * hidden, mlp)
        self.of_edges = nn.Linear(len(rows), mlp)
        self.of_nodes = nn.Linear(n_layers * hidden, mlp, bias=False)
        with torch.no_grad():
            self.of_edges.weight.copy_(joined.weight[:, : len(rows)])
            self.of_nodes.weight.copy_(joined.weight[:, len(rows) :])
            self.of_edges.bias.copy_(joined.bias)
        self.norm1, self.second = nn.BatchNorm1d(mlp), nn.Linear(mlp, mlp // 2)
        self.norm2, self.third = nn.BatchNorm1d(mlp // 2), nn.Linear(mlp // 2, mlp // 2)
        self.norm3, self.last = nn.BatchNorm1d(mlp // 2), nn.Linear(mlp // 2, n_classes)

    def forward(
        self, x: Tensor, series: Tensor | None = None, target: Tensor | None = None, explain: bool = False
    ) -> Output:
        """Answer for connectomes (B, V, V); see :meth:`bnt.nn.Network.forward`.

        The attention returned, (B, 1, V, V), is the graph A.
        """
        check_connectomes(x, self.n_rois)
        loops = torch.eye(self.n_rois, dtype=torch.bool, device=x.device)
        z = x.masked_fill(loops, 0.0)  # (B, V, V)
        edges = x.flatten(1).index_select(1, self.upper)  # (B, E)
        adjacency = (z >= strongest(edges.detach(), self.density)[..., None]).to(x.dtype)
        graph, means = normalised(adjacency), []
        for conv in self.convs:
            z = conv(z, graph).tanh()  # (B, V, h)
            means.append(z.mean(1))
        nodes = self.norm_nodes(torch.cat(means, 1))  # (B, L h)
        y = self.of_edges(self.norm_edges(edges)) + self.of_nodes(nodes)  # (B, m)
        y = self.second(self._activate(self.norm1(y)))
        y = self.third(self._activate(self.norm2(y)))
        logits = self.last(self._activate(self.norm3(y)))
        return Output(logits, attention=(adjacency[:, None],) if explain else ())

    def _activate(self, y: Tensor) -> Tensor:
        return dropout(y.relu(), self.dropout, self.training)
