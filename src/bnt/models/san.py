"""Spectral Attention Network (Kreuzer et al., NeurIPS 2021), as the Brain Network Transformer's paper adapted it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from bnt.errors import BadInput
from bnt.nn.checks import check_heads, check_positive, check_probability
from bnt.nn.edge_attention import EdgeTransformerLayer
from bnt.nn.inputs import check_connectomes
from bnt.nn.laplacian import LaplacianEncoding
from bnt.nn.output import Output
from bnt.nn.readouts import create_readout


class MLPReadout(nn.Sequential):
    """SAN's classifier: D - D/2 - D/4 - C with ReLU."""

    def __init__(self, in_features: int, n_classes: int) -> None:
        half, quarter = max(in_features // 2, 1), max(in_features // 4, 1)
        super().__init__(
            nn.Linear(in_features, half), nn.ReLU(), nn.Linear(half, quarter), nn.ReLU(), nn.Linear(quarter, n_classes)
        )


class SAN(nn.Module):
    """Learned spectral positions, a Transformer whose scores depend on edges, a readout and an MLP.

    - Positions (LPE): for each node the m pairs (phi_i, lambda) of the m lowest eigenpairs of the normalised
      Laplacian, through a linear layer and a Transformer over the m pairs, summed.
    - Nodes: a linear map of the connection profile to d - lpe_dim numbers, and the LPE beside them.
    - Layer: ``w_ij ~ exp(clamp(sum_c Q_ic K_jc E_ijc / sqrt(d_k)))``, E from the edge's weight; output projection,
      residual, BatchNorm; d - 2d - d with ReLU, residual, BatchNorm.
    - Readout, then D - D/2 - D/4 - C. For CONCAT, D = d V.

    Parameters
    ----------
    n_rois : int
        V.
    n_classes : int
        C; 1 for regression.
    n_layers, n_heads : int
        Layers (the paper searched 1, 2) and heads (2, 4) of the main Transformer.
    width : int
        d.
    lpe_dim, lpe_layers, lpe_heads : int
        Width (4, 8, 16), layers (1, 2) and heads (2, 4) of the position's Transformer.
    n_eigen : int
        m; at most V are taken.
    flip_signs : bool
        Random signs of the eigenvectors while training; at evaluation they follow a fixed rule.
    dropout, lpe_dropout : float
        In the main Transformer and in the position's.
    readout, readout_options
        See :func:`bnt.nn.create_readout`; ``concat`` flattens all nodes as they are.

    Notes
    -----
    What is inferred: 57.7 and 186.7 million parameters fit d = 48 and CONCAT only, 57,612,002 and 186,645,602 of
    them in the MLP. What is unknown, and chosen here: one layer and an LPE of 8 (the paper's sum allows 1-2 and 4-8);
    4 heads; m = 10; the Laplacian is that of absolute weights without the diagonal; an edge's feature is its signed
    weight; the diagonal is an edge like the others.

    Departures from the public code: a complete graph has no missing edges, so the second set of queries, keys and
    edge maps for them, and gamma, are left out (they would never get a gradient). Signs are flipped while training
    as in the SAN paper; the public code does so for one of its datasets only. Eigenpairs are a function of the input as
    it is given, mixed up or not, computed at every step and not differentiated.
    """

    def __init__(
        self,
        n_rois: int,
        n_classes: int = 2,
        *,
        n_layers: int = 1,
        n_heads: int = 4,
        width: int = 48,
        lpe_dim: int = 8,
        lpe_layers: int = 1,
        lpe_heads: int = 4,
        lpe_ffn: int = 2048,
        n_eigen: int = 10,
        flip_signs: bool = True,
        dropout: float = 0.0,
        lpe_dropout: float = 0.1,
        readout: str = "concat",
        readout_options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        check_probability("dropout", dropout)
        check_probability("lpe_dropout", lpe_dropout)
        check_positive(n_layers=n_layers, lpe_layers=lpe_layers, lpe_ffn=lpe_ffn, n_eigen=n_eigen, lpe_dim=lpe_dim)
        check_heads("lpe_heads", lpe_heads, lpe_dim)
        if lpe_dim >= width:
            raise BadInput(f"lpe_dim is {lpe_dim}, but has to be below the width {width} to leave room for features.")
        self.n_rois = n_rois
        self.embed = nn.Linear(n_rois, width - lpe_dim)
        self.edge_embed = nn.Linear(1, width)
        self.positions = LaplacianEncoding(lpe_dim, lpe_layers, lpe_heads, lpe_ffn, lpe_dropout, n_eigen, flip_signs)
        self.layers = nn.ModuleList(EdgeTransformerLayer(width, n_heads, dropout) for _ in range(n_layers))
        options = {"reduce": None} if readout == "concat" else {}
        self.readout = create_readout(readout, n_rois, width, **{**options, **(readout_options or {})})
        self.head = MLPReadout(self.readout.out_features, n_classes)

    def forward(
        self, x: Tensor, series: Tensor | None = None, target: Tensor | None = None, explain: bool = False
    ) -> Output:
        """Return the answer for connectomes (B, V, V).

        Parameters
        ----------
        x : Tensor, (B, V, V)
            Connectomes; rows are node features, entries edge weights.
        series, target : optional
            Not used; part of every model's interface.
        explain : bool
            Whether to return attention and assignments too.
        """
        check_connectomes(x, self.n_rois)
        z = torch.cat([self.embed(x), self.positions(x)], -1)  # (B, V, d)
        attention = []
        for layer in self.layers:
            z, weights = layer(z, x, self.edge_embed)
            attention.append(weights)
        shown = tuple(attention) if explain else ()
        pooled = self.readout(z, adjacency=x)
        return Output(self.head(pooled.embedding), pooled.loss, shown, pooled.assignments if explain else None)
