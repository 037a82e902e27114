"""OCRead, and any readout here, as an aggregation of PyTorch Geometric.

This module is imported only by those who have PyTorch Geometric; nothing else in the package needs it.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch_geometric.nn.aggr import Aggregation

from bnt.nn._ocread import OCRead


class ReadoutAggregation(Aggregation):
    """Any readout of this package in the place of a PyTorch Geometric aggregation.

    Parameters
    ----------
    readout : torch.nn.Module
        ``readout(z, mask) -> Pooled``, as :func:`bnt.nn.create_readout` makes them.

    Notes
    -----
    Graphs of a batch are padded to the largest of them and masked. The auxiliary loss and the
    assignments (B, V, K) of the last call are kept in ``loss`` and ``assignments``.
    """

    def __init__(self, readout: nn.Module) -> None:
        super().__init__()
        self.readout = readout
        self.loss: Tensor | None = None
        self.assignments: Tensor | None = None

    def forward(
        self,
        x: Tensor,
        index: Tensor | None = None,
        ptr: Tensor | None = None,
        dim_size: int | None = None,
        dim: int = -2,
    ) -> Tensor:
        """Pool nodes (N, D), with the graph of each in ``index`` (N,), to (B, F)."""
        dense, mask = self.to_dense_batch(x, index, ptr, dim_size, dim)
        pooled = self.readout(dense, mask)
        self.loss, self.assignments = pooled.loss, pooled.assignments
        return pooled.embedding


class OCReadAggregation(ReadoutAggregation):
    """OCRead for ``torch_geometric``: takes the arguments of :class:`bnt.nn.OCRead`.

    Examples
    --------
    >>> import torch
    >>> pool = OCReadAggregation(width=16, n_clusters=4)
    >>> pool(torch.zeros(7, 16), torch.tensor([0, 0, 0, 1, 1, 1, 1])).shape
    torch.Size([2, 64])
    """

    def __init__(self, width: int, n_clusters: int = 10, **options: Any) -> None:
        super().__init__(OCRead(width, n_clusters, **options))

    def __repr__(self) -> str:
        return f"OCReadAggregation(width={self.readout.width}, n_clusters={self.readout.n_clusters})"
