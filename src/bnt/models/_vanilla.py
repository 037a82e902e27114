"""VanillaTF, the paper's own baseline (Kan et al., NeurIPS 2022): the same encoder with a plain readout."""

from __future__ import annotations

from typing import Any

from bnt.nn._transformer import GraphTransformer


class VanillaTF(GraphTransformer):
    """Connection profiles, L Transformer layers, a plain readout, and a small classifier.

    With ``readout="ocread"`` it is BNT; with the others it gives the rows of the paper's Table 2.

    Parameters
    ----------
    n_rois : int
        V.
    n_classes : int
        C; 1 for regression.
    n_layers, n_heads, ffn, dropout
        The encoder's depth, heads, hidden units and dropout.
    readout : {"concat", "mean", "max", "sum", "sort", "diffpool", "ocread"}
        From nodes to a graph.
    readout_options : dict, optional
        See :func:`bnt.nn.readout_options`.
    node_features, extra_width
        Options of :class:`bnt.nn.NodeFeatures`.
    edge_weights : {"none", "bias", "factor"}
        Whether attention uses the connectome, which the paper advises against: added to the scores, or multiplied
        with the weights.

    Notes
    -----
    The paper prints 15.6 and 32.7 million parameters; there are 1.56 and 3.27 million.
    """

    def __init__(
        self,
        n_rois: int,
        n_classes: int = 2,
        *,
        n_layers: int = 2,
        n_heads: int = 4,
        ffn: int = 1024,
        dropout: float = 0.1,
        readout: str = "concat",
        readout_options: dict[str, Any] | None = None,
        node_features: str = "profile",
        extra_width: int | None = None,
        edge_weights: str = "none",
    ) -> None:
        super().__init__(
            n_rois,
            n_classes,
            n_layers=n_layers,
            n_heads=n_heads,
            ffn=ffn,
            dropout=dropout,
            node_features=node_features,
            extra_width=extra_width,
            readout=readout,
            readout_options=readout_options,
            edge_weights=edge_weights,
        )
