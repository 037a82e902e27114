"""BrainGB: graph attention on complete graphs, with concatenated messages and without an edge list."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bnt.nn._network import Network, Output, check_choice, check_connectomes, check_positive
from bnt.nn._readouts import Head, create_readout

# -- message passing -----------------------------------------------------------------------------------

MESSAGES = ("edge_weighted", "node_edge_concat", "node_concat")


class DenseGAT(nn.Module):
    """Every node attends to every node, itself included; messages are summed over the V senders.

    With h_i = W x_i per head and ``alpha_ij = softmax_j leaky_relu(a.h_i + a'.h_j)``, the message from j to i is

    - ``edge_weighted``: alpha_ij w_ij h_j,
    - ``node_concat``: M [h_i, alpha_ij h_j] + m,
    - ``node_edge_concat``: M [h_i, alpha_ij h_j, w_ij] + m,

    where w_ii is the mean of the other w_ij: what PyTorch Geometric gives the loops that it adds in place of the
    graph's own.

    Messages are linear, so that with M = [M1, M2, m3] their sum over senders is
    ``V M1 h_i + M2 (alpha h)_i + m3 sum_j w_ij + V m``: products of (V, V) and (V, h) matrices.

    Parameters
    ----------
    n_in, width : int
        Length of a node's features and h, the width of a head.
    n_heads : int
        Heads, concatenated.
    message : {"edge_weighted", "node_edge_concat", "node_concat"}
        See above. M and m are shared by the heads.
    """

    def __init__(self, n_in: int, width: int, n_heads: int = 2, message: str = "node_concat") -> None:
        super().__init__()
        check_choice("message", message, MESSAGES)
        self.width, self.n_heads, self.message = width, n_heads, message
        self.lin = nn.Linear(n_in, n_heads * width, bias=False)
        self.receiver = nn.Parameter(torch.empty(n_heads, width))  # a
        self.sender = nn.Parameter(torch.empty(n_heads, width))  # a'
        self.bias = nn.Parameter(torch.zeros(n_heads * width))
        for weight in (self.lin.weight, self.receiver, self.sender):
            nn.init.xavier_uniform_(weight)
        n_parts = {"edge_weighted": 0, "node_concat": 2 * width, "node_edge_concat": 2 * width + 1}[message]
        self.concat = nn.Linear(n_parts, width) if n_parts else None

    def forward(self, z: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
        """Map nodes (B, V, n_in) and edge weights (B, V, V) to nodes (B, V, heads h) and attention (B, heads, V, V)."""
        b, v, _ = z.shape
        h = self.lin(z).view(b, v, self.n_heads, self.width).transpose(1, 2)  # (B, M, V, h)
        to = (h * self.receiver[:, None]).sum(-1)  # (B, M, V)
        of = (h * self.sender[:, None]).sum(-1)
        alpha = F.leaky_relu(to[..., None] + of[..., None, :], 0.2).softmax(-1)  # (B, M, V, V)
        if self.concat is None:
            summed = (alpha * mean_loops(edges)[:, None]) @ h
        else:
            own, mixed = self.concat.weight[:, : self.width], self.concat.weight[:, self.width : 2 * self.width]
            summed = F.linear(h, v * own, v * self.concat.bias) + F.linear(alpha @ h, mixed)
            if self.message == "node_edge_concat":
                strength = mean_loops(edges).sum(-1)[:, None, :, None]  # (B, 1, V, 1)
                summed = summed + strength * self.concat.weight[:, -1]
        return summed.transpose(1, 2).reshape(b, v, -1) + self.bias, alpha


def mean_loops(edges: Tensor) -> Tensor:
    """Return edge weights (B, V, V) with the mean of the other weights of its row in each place of the diagonal."""
    loops = torch.eye(edges.shape[-1], dtype=torch.bool, device=edges.device)
    others = edges.masked_fill(loops, 0.0)
    mean = others.sum(-1, keepdim=True) / max(edges.shape[-1] - 1, 1)
    return torch.where(loops, mean, others)


# -- the model -----------------------------------------------------------------------------------------

SLOPE = 0.2


class _NodeNorm(nn.BatchNorm1d):
    """Batch normalisation whose samples are all nodes of all graphs."""

    def forward(self, z: Tensor) -> Tensor:
        """Normalise (B, V, D)."""
        return super().forward(z.flatten(0, 1)).view_as(z)


def _dense(*sizes: int) -> list[nn.Module]:
    """Return linear layers with LeakyReLU after each."""
    return [layer for pair in pairwise(sizes) for layer in (nn.Linear(*pair), nn.LeakyReLU(SLOPE))]


class BrainGB(Network):
    """Two graph attention layers on the complete graph, a readout and a small classifier.

    In the terms of Cui et al.: node features are connection profiles; message passing (their section III-B) is
    attention-enhanced, with concatenated messages; the readout is CONCAT.

    - Block 1: attention layer V - h, linear to h, LeakyReLU 0.2, BatchNorm over nodes.
    - Block 2: attention layer h - h; for CONCAT linear to 64 and to 8, LeakyReLU 0.2 after each, BatchNorm over
      nodes; for the other readouts linear to h, LeakyReLU, BatchNorm.
    - Head: 256 - 32 - C, LeakyReLU 0.2.

    Parameters
    ----------
    message : {"node_concat", "node_edge_concat", "edge_weighted"}
        What a node sends, see :class:`DenseGAT`; the paper searched these three.
    readout : {"concat", "mean", "max", ...}
        The paper searched these three; the others of :func:`bnt.nn.create_readout` work too.
    readout_options : dict, optional
        The readout's own options.
    hidden : int
        h.
    n_heads : int
        Heads of each attention layer, concatenated.

    Notes
    -----
    - Inferred: the Brain Network Transformer's paper does not say which design it took. Of all configurations of the
      public code only attention with 2 heads and h = 256 has its 1.08 and 1.49 million parameters, with either of the
      two concatenated messages; ours is node concat.
    - Edge weights are absolute values. A node's edge to itself weighs the mean of its other edges, whatever the
      diagonal: PyTorch Geometric 2 removes the loops and adds its own.
    - Deviations: the public code registers an MLP that it never uses (left out); has no ``max`` readout (taken from
      :mod:`bnt.nn`); needs h = 256 for ``mean`` (any h works here); sums without BatchNorm where ``sum`` has one here.
    - Its training loop stays in evaluation mode after the first epoch, does not shuffle, and puts unmixed edge weights
      back after mixup. These belong to a loop, not to a model, and none of them is imitated.

    References
    ----------
    Cui H, Dai W, Zhu Y, Kan X, Chen Gu AA, Lukemire J, Zhan L, He L, Guo Y, Yang C (2022). BrainGB: a benchmark for
    brain network analysis with graph neural networks. IEEE Transactions on Medical Imaging 42(2).
    """

    small: ClassVar = {"hidden": 16}
    per_roi: ClassVar = {r"conv1\.lin\.weight": {1: "v"}, r"head\.0\.weight": {1: "vk"}}

    def __init__(
        self,
        n_rois: int,
        n_classes: int = 2,
        *,
        message: str = "node_concat",
        readout: str = "concat",
        readout_options: dict[str, Any] | None = None,
        hidden: int = 256,
        n_heads: int = 2,
    ) -> None:
        super().__init__()
        check_positive(hidden=hidden, n_heads=n_heads)
        self.n_rois = n_rois
        self.conv1 = DenseGAT(n_rois, hidden, n_heads, message)
        self.block1 = nn.Sequential(*_dense(n_heads * hidden, hidden), _NodeNorm(hidden))
        self.conv2 = DenseGAT(hidden, hidden, n_heads, message)
        concat = readout == "concat"
        widths = [64, 8] if concat else [hidden]
        options: dict[str, Any] = {"reduce": None} if concat else {}
        self.block2 = nn.Sequential(*_dense(n_heads * hidden, *widths), _NodeNorm(widths[-1]))
        self.readout = create_readout(readout, n_rois, widths[-1], **{**options, **(readout_options or {})})
        self.head = Head(self.readout.out_features, n_classes, SLOPE)

    def forward(
        self, x: Tensor, series: Tensor | None = None, target: Tensor | None = None, explain: bool = False
    ) -> Output:
        """Answer for connectomes (B, V, V); see :meth:`bnt.nn.Network.forward`."""
        check_connectomes(x, self.n_rois)
        edges = x.abs()
        z, first = self.conv1(x, edges)
        z, second = self.conv2(self.block1(z), edges)
        z = self.block2(z)  # (B, V, 8) or (B, V, h)
        attention = (first, second) if explain else ()
        pooled = self.readout(z, adjacency=x)
        return Output(self.head(pooled.embedding), pooled.loss, attention, pooled.assignments if explain else None)
