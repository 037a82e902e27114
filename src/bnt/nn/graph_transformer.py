"""Connectome in, logits out: features, encoder, readout and head in a row."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from bnt.errors import BadInput
from bnt.nn.encoder import Encoder
from bnt.nn.features import NodeFeatures
from bnt.nn.output import Output
from bnt.nn.readouts import create_readout

EDGE_WEIGHTS = ("none", "bias", "factor")


class Head(nn.Sequential):
    """The released code's classifier: F - 256 - 32 - classes with LeakyReLU and without dropout."""

    def __init__(self, in_features: int, n_classes: int) -> None:
        super().__init__(
            nn.Linear(in_features, 256), nn.LeakyReLU(), nn.Linear(256, 32), nn.LeakyReLU(), nn.Linear(32, n_classes)
        )


class GraphTransformer(nn.Module):
    """A Transformer over the nodes of a connectome, with any node features and any readout.

    Parameters
    ----------
    n_rois, n_classes : int
        V and C; one class means regression.
    n_layers, n_heads, ffn, dropout, attention_only
        See :class:`bnt.nn.Encoder`.
    node_features, extra_width
        See :class:`bnt.nn.NodeFeatures`.
    readout : str
        See :func:`bnt.nn.create_readout`.
    readout_options : dict, optional
        Options of the readout.
    edge_weights : {"none", "bias", "factor"}
        How attention uses the connectome: not at all, added to the scores of every head and layer before the softmax,
        or multiplied with the weights after it.
    """

    def __init__(
        self,
        n_rois: int,
        n_classes: int,
        *,
        n_layers: int,
        n_heads: int,
        ffn: int,
        dropout: float,
        node_features: str,
        extra_width: int | None,
        readout: str,
        readout_options: dict[str, Any] | None = None,
        attention_only: bool = False,
        edge_weights: str = "none",
    ) -> None:
        super().__init__()
        if edge_weights not in EDGE_WEIGHTS:
            raise BadInput(f"edge_weights is {edge_weights!r}; it can be {', '.join(EDGE_WEIGHTS)}.")
        self.edge_weights = edge_weights
        if not 0 <= dropout < 1:
            raise BadInput(f"dropout is {dropout}; give a probability from 0 to below 1.")
        if n_layers < 1 or ffn < 1:
            raise BadInput(f"n_layers is {n_layers} and ffn is {ffn}; both have to be at least 1.")
        self.n_rois = n_rois
        self.features = NodeFeatures(node_features, n_rois, n_heads, extra_width)
        self.encoder = Encoder(self.features.width, n_layers, n_heads, ffn, dropout, attention_only)
        self.readout = create_readout(readout, n_rois, self.features.width, **(readout_options or {}))
        self.head = Head(self.readout.out_features, n_classes)

    def forward(
        self, x: Tensor, series: Tensor | None = None, target: Tensor | None = None, explain: bool = False
    ) -> Output:
        """Return the answer for connectomes (B, V, V).

        Parameters
        ----------
        x : Tensor, (B, V, V)
            Connectomes; row i is the connection profile of ROI i.
        series, target : optional
            Not used; part of every model's interface.
        explain : bool
            Whether to return attention and assignments too.
        """
        if x.ndim != 3 or x.shape[1:] != (self.n_rois, self.n_rois):
            raise BadInput(
                f"The model was made for connectomes of {self.n_rois} ROIs, shape (B, {self.n_rois}, {self.n_rois}), "
                f"but was given {tuple(x.shape)}."
            )
        edges = {self.edge_weights: x} if self.edge_weights != "none" else {}
        z, attention = self.encoder(self.features(x), explain, **edges)  # (B, V, D)
        pooled = self.readout(z, adjacency=x)
        return Output(self.head(pooled.embedding), pooled.loss, attention, pooled.assignments if explain else None)
