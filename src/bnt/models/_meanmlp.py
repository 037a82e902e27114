"""meanMLP: one small network applied to every volume of a scan, with outputs averaged over time."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bnt.nn._kernels import dropout
from bnt.nn._network import Network, Output, check_connectomes, check_positive, check_probability, check_whole_series


class MeanMLP(Network):
    """One hidden layer on each volume, and the mean of its answers over the volumes of a scan.

    With s_t the V standardised signals of volume t, of T:

    - ``h_t = dropout(relu(LayerNorm(W1 s_t + b1)))``, (h,),
    - for each of ``n_layers``: ``h_t <- dropout(relu(h_t + LayerNorm(W h_t + b)))``,
    - ``logits = 1/T sum_t (W2 h_t + b2)``.

    The order of the volumes does not matter, and T may differ between scans: only the volumes of a scan itself enter
    its mean. The last layer is linear, so that it is applied to the mean of h_t, once per scan. Connectomes are not
    read.

    Parameters
    ----------
    hidden : int
        h.
    n_layers : int
        Residual layers between the first and the last; the published model has none.
    dropout : float
        Probability, after every activation.

    Notes
    -----
    - Compared with the published code (neuroneural/meanMLP, commit ec138ec, ``src/models/mlp.py``) with the same
      weights on series of 53 and 200 ROIs, with 0 and 2 residual layers: logits differ by at most 1.5e-7.
    - Each ROI is standardised over its whole scan, as published. The published code has scans of one length only.
    - Recipe as published: Adam 5e-3 without weight decay, batches of 64, summed cross-entropy, no mixup, at most 400
      epochs, patience 30. It stops by the validation loss; ours stop by the score that they select on.

    References
    ----------
    Popov P, Mahmood U, Fu Z, Yang C, Calhoun V, Plis S (2024). A simple but tough-to-beat baseline for fMRI time-series
    classification. NeuroImage 303, 120909.
    """

    needs_series: ClassVar = True
    whole_series: bool = True
    reads_connectomes: bool = False
    small: ClassVar = {"hidden": 32}
    per_roi: ClassVar = {r"^first\.weight": {1: "v"}}

    def __init__(
        self, n_rois: int, n_classes: int = 2, *, hidden: int = 160, n_layers: int = 0, dropout: float = 0.49
    ) -> None:
        super().__init__()
        check_positive(hidden=hidden, n_layers=n_layers + 1)
        check_probability("dropout", dropout)
        self.n_rois, self.dropout = n_rois, dropout
        self.first, self.norm = nn.Linear(n_rois, hidden), nn.LayerNorm(hidden)
        self.layers = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(n_layers))
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(n_layers))
        self.last = nn.Linear(hidden, n_classes)

    def forward(
        self,
        x: Tensor,
        series: Tensor | None = None,
        target: Tensor | None = None,
        explain: bool = False,
        lengths: Tensor | None = None,
    ) -> Output:
        """Answer for series (B, T, V), of each scan its first ``lengths``; see :meth:`bnt.nn.Network.forward`."""
        check_connectomes(x, self.n_rois)
        series, lengths = check_whole_series(series, lengths, x.shape[0], self.n_rois)
        sizes = lengths.tolist()
        volumes = torch.cat([scan[:size] for scan, size in zip(series, sizes)])  # (sum of T, V): no padding
        z = self._activate(self.norm(self.first(volumes)))  # (sum of T, h)
        for layer, norm in zip(self.layers, self.norms):
            z = self._activate(norm(layer(z)) + z)
        return Output(self.last(torch.stack([scan.mean(0) for scan in z.split(sizes)])))

    def _activate(self, z: Tensor) -> Tensor:
        return dropout(F.relu_(z), self.dropout, self.training)  # nobody else needs z: in place
