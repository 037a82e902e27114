"""Readouts that do not cluster: mean, max, sum, concat and sort."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bnt.errors import BadInput
from bnt.nn.hidden import HiddenMLP
from bnt.nn.pooled import Pooled, drop_padding


class MeanReadout(nn.Module):
    """The mean of all nodes."""

    def __init__(self, n_nodes: int, width: int) -> None:
        super().__init__()
        self.out_features = width

    def forward(self, z: Tensor, mask: Tensor | None = None, adjacency: Tensor | None = None) -> Pooled:
        """Pool (B, V, D) to (B, D)."""
        if mask is None:
            return Pooled(z.mean(1))
        return Pooled(drop_padding(z, mask).sum(1) / mask.sum(1, keepdim=True).clamp_min(1))


class MaxReadout(nn.Module):
    """The largest value of each channel; zero for a graph without nodes."""

    def __init__(self, n_nodes: int, width: int) -> None:
        super().__init__()
        self.out_features = width

    def forward(self, z: Tensor, mask: Tensor | None = None, adjacency: Tensor | None = None) -> Pooled:
        """Pool (B, V, D) to (B, D)."""
        if mask is None:
            return Pooled(z.amax(1))
        largest = drop_padding(z, mask, float("-inf")).amax(1)
        return Pooled(largest.masked_fill(~mask.any(1, keepdim=True), 0.0))


class SumReadout(nn.Module):
    """The sum of all nodes, batch-normalised as in the released code."""

    def __init__(self, n_nodes: int, width: int) -> None:
        super().__init__()
        self.out_features = width
        self.norm = nn.BatchNorm1d(width)

    def forward(self, z: Tensor, mask: Tensor | None = None, adjacency: Tensor | None = None) -> Pooled:
        """Pool (B, V, D) to (B, D)."""
        return Pooled(self.norm(drop_padding(z, mask).sum(1)))


class ConcatReadout(nn.Module):
    """Each node reduced to a few numbers (with ``reduce=None`` as it is), then all nodes side by side.

    Graphs may have fewer nodes than ``n_nodes``: the missing ones count as zeros. With ``hidden_mlp`` the nodes go
    through the released OCRead's hidden MLP first: the control that tells OCRead's part from the MLP's.
    """

    def __init__(self, n_nodes: int, width: int, reduce: int | None = 8, hidden_mlp: bool = False) -> None:
        super().__init__()
        self.n_nodes = n_nodes
        self.hidden = HiddenMLP(n_nodes, width) if hidden_mlp else None
        self.reduce = nn.Identity() if reduce is None else nn.Sequential(nn.Linear(width, reduce), nn.LeakyReLU())
        self.out_features = n_nodes * (width if reduce is None else reduce)

    def forward(self, z: Tensor, mask: Tensor | None = None, adjacency: Tensor | None = None) -> Pooled:
        """Pool (B, V, D) to (B, 8 V)."""
        missing = self.n_nodes - z.shape[1]
        if missing < 0:
            raise BadInput(f"concat was made for at most {self.n_nodes} nodes, but graphs of {z.shape[1]} were given.")
        z = drop_padding(z, mask)
        if self.hidden is not None:
            z = drop_padding(self.hidden(z), mask)
        small = drop_padding(self.reduce(z), mask)
        return Pooled(F.pad(small, (0, 0, 0, missing)).flatten(1))


class SortReadout(nn.Module):
    """SortPooling of DGCNN (Zhang 2018): the k nodes largest in the last channel, in order, then 1-D convolutions.

    Parameters
    ----------
    n_nodes, width : int
        V and D.
    keep : int
        k; graphs with fewer nodes are filled up with zeros. The paper does not give its k.
    channels : pair of int
        Channels of the two convolutions, 16 and 32 in DGCNN: the first reads one node at a time, the
        second five neighbours in the order after max-pooling by two.
    """

    def __init__(self, n_nodes: int, width: int, keep: int = 30, channels: tuple[int, int] = (16, 32)) -> None:
        super().__init__()
        self.keep = min(keep, n_nodes)
        if self.keep < 2:
            raise BadInput(f"keep is {keep}; sort pooling needs at least 2 nodes to keep.")
        kernel = min(5, self.keep // 2)
        self.node = nn.Linear(width, channels[0])  # a convolution of kernel D and stride D
        self.along = nn.Conv1d(channels[0], channels[1], kernel)
        self.out_features = channels[1] * (self.keep // 2 - kernel + 1)

    def forward(self, z: Tensor, mask: Tensor | None = None, adjacency: Tensor | None = None) -> Pooled:
        """Pool (B, V, D) to (B, F)."""
        top = self.sort(z, mask)  # (B, k, D)
        channels = F.max_pool1d(F.relu(self.node(top)).mT, 2)  # (B, 16, k // 2)
        return Pooled(F.relu(self.along(channels)).flatten(1))

    def sort(self, z: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the k first nodes (B, k, D), largest last channel first."""
        z = drop_padding(z, mask)
        key = z[..., -1] if mask is None else z[..., -1].masked_fill(~mask, float("-inf"))
        order = key.argsort(dim=1, descending=True, stable=True)[:, : self.keep, None]
        top = z.gather(1, order.expand(-1, -1, z.shape[2]))
        return F.pad(top, (0, 0, 0, self.keep - top.shape[1])) if top.shape[1] < self.keep else top


def padded_batch(graphs: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Return node embeddings of graphs of different sizes as (B, V, D) and the mask (B, V) of real nodes."""
    sizes = torch.tensor([len(graph) for graph in graphs])
    z = nn.utils.rnn.pad_sequence(graphs, batch_first=True)
    return z, (torch.arange(z.shape[1]) < sizes[:, None]).to(z.device)
