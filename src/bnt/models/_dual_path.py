"""Dual path: sum of a linear model on the edges and a graph attention network on the time series."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bnt.nn._network import Network, Output, check_connectomes, check_heads, check_positive, check_series

# -- node features from series -------------------------------------------------------------------------

ROWS = 64  # series searched at a time: 64 of 100 volumes and 32 filters are 0.8 MB, which stay in the cache


class SeriesEncoder(nn.Module):
    """Each ROI's series to h numbers: h convolutions of three volumes, their largest response, a linear map.

    The largest response of a filter is its response to one window. The windows are searched without gradients, and
    only the responses to those found are computed with them: nothing of size (B, V, h, T) is kept for the backward
    pass.

    Parameters
    ----------
    hidden : int
        h, filters and length of the embedding.
    """

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.filters = nn.Conv1d(1, hidden, kernel_size=3, padding=1)
        self.map = nn.Linear(hidden, hidden)

    def forward(self, series: Tensor) -> Tensor:
        """Return embeddings (B, V, h) of series (B, T, V)."""
        b, t, v = series.shape
        padded = F.pad(series.transpose(1, 2).reshape(b * v, t), (1, 1))  # (B V, T + 2)
        with torch.no_grad():
            taps = self.filters.weight[:, 0].T  # (3, h)
            parts = (padded,) if torch.compiler.is_exporting() else padded.split(ROWS)  # parts would fix B
            best = torch.cat([(rows.unfold(1, 3, 1) @ taps).max(1).indices for rows in parts])  # (B V, h)
        windows = torch.stack([padded.gather(1, best + k) for k in range(3)], -1)  # (B V, h, 3)
        assert self.filters.bias is not None
        responses = (windows * self.filters.weight[:, 0]).sum(-1) + self.filters.bias
        return self.map(responses.relu()).view(b, v, -1)


# -- graph attention -----------------------------------------------------------------------------------


class GraphAttention(nn.Module):
    """Graph attention (Velickovic 2018) on dense graphs: each node averages its neighbours and itself.

    With h_i = W z_i per head: ``alpha_ij = softmax_j leaky_relu(a.h_i + a'.h_j)`` over the neighbours j of i and i
    itself, and z'_i = sum_j alpha_ij h_j + b, heads concatenated.

    Parameters
    ----------
    width : int
        Length of a node's embedding, before and after.
    """

    def __init__(self, width: int, n_heads: int) -> None:
        super().__init__()
        check_heads("n_heads", n_heads, width)
        self.lin = nn.Linear(width, width, bias=False)  # W
        self.receiver = nn.Parameter(torch.empty(n_heads, width // n_heads))  # a
        self.sender = nn.Parameter(torch.empty(n_heads, width // n_heads))  # a'
        self.bias = nn.Parameter(torch.zeros(width))  # b
        for weight in (self.lin.weight, self.receiver, self.sender):
            nn.init.xavier_uniform_(weight)

    def forward(self, z: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
        """Map nodes (B, V, h) to nodes (B, V, h) and attention (B, M, V, V).

        ``edges`` (B, 1, V, V) are added to the scores: 0 where there is an edge, otherwise minus infinity.
        """
        b, v, _ = z.shape
        h = self.lin(z).view(b, v, *self.sender.shape).transpose(1, 2)  # (B, M, V, h / M)
        to = (h * self.receiver[:, None]).sum(-1)  # (B, M, V)
        of = (h * self.sender[:, None]).sum(-1)
        scores = F.leaky_relu(to[..., None] + of[..., None, :], 0.2)  # (B, M, V, V)
        alpha = (scores + edges).softmax(-1)
        return (alpha @ h).transpose(1, 2).flatten(2) + self.bias, alpha


# -- the model -----------------------------------------------------------------------------------------


class DualPath(Network):
    """Two paths to the logits, added up: a linear map of all edges, and a graph attention network on the series.

    - Linear path: w . (x_ij, i < j) + b, one w per class.
    - Graph path: node features from each ROI's series by a convolution, L graph attention layers with ReLU between
      them on the graph of positive correlations, LayerNorm per node, a linear map of all nodes side by side.
    - Logits: the sum of both.

    Parameters
    ----------
    n_volumes : int
        Volumes of each series that are read; the authors' ABIDE file has 100.
    hidden : int
        h, the width of the graph path: 32 as published for ABIDE, PNC and HCP, 128 for ABCD.
    n_layers, n_heads : int
        Graph attention layers and their heads.

    Notes
    -----
    - Compared with commit 9e04c81 of github.com/LearningKeqi/RethinkingBCA, its ``mixed_model`` with the options of
      ``runscripts/table1/dual_pathway_abide.sh`` and PyTorch Geometric 2.8.1, V = 200: for the same weights no logit
      differs by more than 1e-6.
    - The published class also registers two Transformer layers and a reduction that this model never uses (164,744 of
      its 220,836 parameters at V = 200). They are left out here.
    - The published run trains the graph path alone in the first 50 of its 100 epochs, beside a linear path that stays
      as drawn. Here both are trained from the start.
    - Mixup mixes connectomes and series. The published code then keeps the graph of the unmixed subject; here it is
      that of the mixed connectome. Evaluation does not mix.
    - The largest response of a filter grows with the length of a scan. So every scan is read at the same length, not
      whole.
    - The published code standardises all series by one mean and SD; a run of bnt standardises each ROI's.

    References
    ----------
    Han K, Su Y, He L, Zhan L, Plis S, Calhoun V, Yang C (2025). Rethinking functional brain connectome analysis: do
    graph deep learning models help? arXiv:2501.17207.
    """

    needs_series: ClassVar = True
    small: ClassVar = {"n_volumes": 32, "hidden": 8}
    per_roi: ClassVar = {r"^edges\.weight": {1: "pair"}, r"^nodes\.weight": {1: "vk"}}

    def __init__(
        self,
        n_rois: int,
        n_classes: int = 2,
        *,
        n_volumes: int = 100,
        hidden: int = 32,
        n_layers: int = 2,
        n_heads: int = 2,
    ) -> None:
        super().__init__()
        check_positive(n_volumes=n_volumes, hidden=hidden, n_layers=n_layers)
        self.n_rois, self.n_volumes = n_rois, n_volumes
        self.edges = nn.Linear(n_rois * (n_rois - 1) // 2, n_classes)
        self.encoder = SeriesEncoder(hidden)
        self.layers = nn.ModuleList(GraphAttention(hidden, n_heads) for _ in range(n_layers))
        self.norm = nn.LayerNorm(hidden)
        self.nodes = nn.Linear(n_rois * hidden, n_classes)

    def forward(
        self, x: Tensor, series: Tensor | None = None, target: Tensor | None = None, explain: bool = False
    ) -> Output:
        """Answer for connectomes (B, V, V) and series (B, T, V); see :meth:`bnt.nn.Network.forward`."""
        check_connectomes(x, self.n_rois)
        series = check_series(series, x.shape[0], self.n_volumes, self.n_rois)
        rows, columns = torch.triu_indices(self.n_rois, self.n_rois, offset=1, device=x.device)
        linear = self.edges(x[:, rows, columns])  # (B, C)
        loops = torch.eye(self.n_rois, dtype=torch.bool, device=x.device)
        absent = ((x <= 0) & ~loops)[:, None]  # (B, 1, V, V)
        edges = torch.zeros_like(x)[:, None].masked_fill_(absent, float("-inf"))
        z = self.encoder(series)  # (B, V, h)
        attention = []
        for number, layer in enumerate(self.layers):
            z, weights = layer(F.relu(z) if number else z, edges)
            attention.append(weights)
        logits = linear + self.nodes(self.norm(z).flatten(1))
        return Output(logits, attention=tuple(attention) if explain else ())
