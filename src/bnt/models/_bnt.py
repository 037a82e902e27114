"""Brain Network Transformer (Kan et al., NeurIPS 2022)."""

from __future__ import annotations

from typing import Any

from bnt.errors import BadInput
from bnt.nn._readouts import readout_options
from bnt.nn._transformer import GraphTransformer


class BNT(GraphTransformer):
    """Connection profiles, L Transformer layers, OCRead, and a small classifier.

    Section 3 of the paper:

    - Z^0 = X: the features of node i are row i of the connectome.
    - Equation 1: Z^l, multi-head self-attention. Printed are the attention's products alone; as in the released code
      the layer here is a Transformer's, with biases, a feed-forward network, residuals and post-norm.
    - Equation 2: P = softmax(Z^L E^T) over K clusters, and Z_G = P^T Z^L.
    - Equation 3: E, the Gram-Schmidt process on a Xavier-uniform draw, frozen.
    - Each cluster to 8 numbers, then 8K - 256 - 32 - C (the released code; the paper does not say).

    Parameters
    ----------
    n_rois : int
        V.
    n_classes : int
        C; 1 for regression.
    n_layers, n_heads, ffn, dropout
        The encoder's depth, heads, hidden units and dropout.
    attention_only : bool
        Equation 1 to the letter: no biases, feed-forward network (``ffn`` is unused), residual or norm.
    n_clusters : int
        K. 10 is the best of the paper's ablation; its main table must have used 100, the released value.
    assignment, hidden_mlp, centres, frozen, normalise_first, dec_weight
        Options of :class:`bnt.nn.OCRead`.
    node_features, extra_width
        Options of :class:`bnt.nn.NodeFeatures`.
    readout : str
        Another readout in OCRead's place, for ablations; the options of OCRead that it does not have are unused then.

    Notes
    -----
    ``bnt-released`` sets what the authors' code does and the paper does not tell: K = 100, squared projection,
    a hidden MLP before clustering (65 % of the parameters at V = 200) and a first centre of other than unit length.
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
        attention_only: bool = False,
        n_clusters: int = 10,
        assignment: str = "softmax",
        hidden_mlp: bool = False,
        centres: str = "orthonormal",
        frozen: bool | None = None,
        normalise_first: bool = True,
        dec_weight: float = 0.0,
        node_features: str = "profile",
        extra_width: int | None = None,
        readout: str = "ocread",
    ) -> None:
        if n_clusters > n_rois:
            raise BadInput(f"n_clusters is {n_clusters}, more than the {n_rois} ROIs there are; use at most {n_rois}.")
        options: dict[str, Any] = {
            "n_clusters": n_clusters,
            "assignment": assignment,
            "hidden_mlp": hidden_mlp,
            "centres": centres,
            "frozen": frozen,
            "normalise_first": normalise_first,
            "dec_weight": dec_weight,
        }
        if readout != "ocread":
            if hidden_mlp and "hidden_mlp" not in readout_options(readout):
                raise BadInput(f"hidden_mlp=True goes with the readouts ocread and concat, not with {readout!r}.")
            options = {name: value for name, value in options.items() if name in readout_options(readout)}
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
            readout_options=options,
            attention_only=attention_only,
        )
