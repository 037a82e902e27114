"""BrainGB's best design (Cui et al., IEEE Transactions on Medical Imaging 2022)."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from bnt.nn.checks import check_positive
from bnt.nn.concat_gat import DenseGAT
from bnt.nn.inputs import check_connectomes
from bnt.nn.output import Output
from bnt.nn.readouts import create_readout

SLOPE = 0.2


class _NodeNorm(nn.BatchNorm1d):
    """Batch normalisation whose samples are all nodes of all graphs."""

    def forward(self, z: Tensor) -> Tensor:
        """Normalise (B, V, D)."""
        return super().forward(z.flatten(0, 1)).view_as(z)


def _dense(*sizes: int, end: bool = True) -> list[nn.Module]:
    """Return linear layers with LeakyReLU between them and, unless ``end`` is False, after them."""
    layers: list[nn.Module] = []
    for n_in, n_out in zip(sizes, sizes[1:]):
        layers += [nn.Linear(n_in, n_out), nn.LeakyReLU(SLOPE)]
    return layers if end else layers[:-1]


class BrainGB(nn.Module):
    """Two graph attention layers on the complete graph, a readout and a small classifier.

    In the terms of Cui et al.: node features are connection profiles; message passing (their section III-B) is
    attention-enhanced, with concatenated messages; the readout is CONCAT.

    - Block 1: attention layer V - h, linear to h, LeakyReLU 0.2, BatchNorm over nodes.
    - Block 2: attention layer h - h; for CONCAT linear to 64 and to 8, LeakyReLU 0.2 after each, BatchNorm over
      nodes; for the other readouts linear to h, LeakyReLU, BatchNorm.
    - Head: 256 - 32 - C, LeakyReLU 0.2.

    Parameters
    ----------
    n_rois : int
        V.
    n_classes : int
        C; 1 for regression.
    message : {"node_concat", "node_edge_concat", "edge_weighted"}
        What a node sends, see :class:`bnt.nn.concat_gat.DenseGAT`; the paper searched these three.
    readout : {"concat", "mean", "max", ...}
        The paper searched these three; the others of :func:`bnt.nn.create_readout` can be had as well.
    readout_options : dict, optional
        The readout's own options.
    hidden : int
        h.
    n_heads : int
        Heads of each attention layer, concatenated.

    Notes
    -----
    The Brain Network Transformer's paper does not say which design it took. Of all configurations of the public code
    only attention with 2 heads and h = 256 has its 1.08 and 1.49 million parameters, with either of the two
    concatenated messages; ours is node concat. Edge weights are absolute values. A node's edge to itself weighs the
    mean of its other edges, whatever the connectome's diagonal: PyTorch Geometric 2 takes loops out and adds its own.

    Departures: the public code registers an MLP that it never uses (left out); has no ``max`` readout (taken from
    :mod:`bnt.nn`); needs h = 256 for ``mean`` (any h does here); sums without BatchNorm where ``sum`` has one here.
    Its training loop stays in evaluation mode after the first epoch, does not shuffle, and puts unmixed edge
    weights back after mixup: those belong to a loop and not to a model, and none of them is imitated.
    """

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
        self.head = nn.Sequential(*_dense(self.readout.out_features, 256, 32, n_classes, end=False))

    def forward(
        self, x: Tensor, series: Tensor | None = None, target: Tensor | None = None, explain: bool = False
    ) -> Output:
        """Return the answer for connectomes (B, V, V).

        Parameters
        ----------
        x : Tensor, (B, V, V)
            Connectomes; rows are node features, absolute values edge weights.
        series, target : optional
            Not used; part of every model's interface.
        explain : bool
            Whether to return attention and assignments too.
        """
        check_connectomes(x, self.n_rois)
        edges = x.abs()
        z, first = self.conv1(x, edges)
        z, second = self.conv2(self.block1(z), edges)
        z = self.block2(z)  # (B, V, 8) or (B, V, h)
        attention = (first, second) if explain else ()
        pooled = self.readout(z, adjacency=x)
        return Output(self.head(pooled.embedding), pooled.loss, attention, pooled.assignments if explain else None)
