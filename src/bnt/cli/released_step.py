"""The released code's model, re-created from torch's own layers: a yardstick for speed and an oracle for tests.

Written by us from the description of its mathematics; nothing is copied. It computes what ``bnt-released`` computes,
with :class:`torch.nn.TransformerEncoderLayer`, :class:`torch.nn.Dropout` and masks drawn one Bernoulli
number an entry, as the released code does. ``bnt bench train`` measures a step of both.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

N_HEADS, FFN, DROPOUT, N_LAYERS, N_CLUSTERS = 4, 1024, 0.1, 2, 100


class ReleasedStep(nn.Module):
    """Two stock encoder layers, the hidden MLP, the squared projection and the head.

    Parameters
    ----------
    n_rois, n_classes : int
        V and C.
    n_clusters : int
        K.
    dropout : float
        Of every dropout in the encoder.
    """

    def __init__(self, n_rois: int, n_classes: int = 2, n_clusters: int = N_CLUSTERS, dropout: float = DROPOUT) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(n_rois, N_HEADS, FFN, dropout, batch_first=True) for _ in range(N_LAYERS)
        )
        size = n_rois * n_rois
        self.hidden = nn.Sequential(
            nn.Linear(size, 32), nn.LeakyReLU(), nn.Linear(32, 32), nn.LeakyReLU(), nn.Linear(32, size)
        )
        self.centres = nn.Parameter(torch.empty(n_clusters, n_rois), requires_grad=False)
        nn.init.orthogonal_(self.centres)
        self.reduce = nn.Sequential(nn.Linear(n_rois, 8), nn.LeakyReLU())
        self.head = nn.Sequential(
            nn.Linear(8 * n_clusters, 256), nn.LeakyReLU(), nn.Linear(256, 32), nn.LeakyReLU(), nn.Linear(32, n_classes)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (B, C) of connectomes (B, V, V)."""
        z = x
        for layer in self.layers:
            z = layer(z)
        z = self.hidden(z.flatten(1)).reshape(z.shape)
        cosines = z @ self.centres.T  # (B, V, K)
        p = torch.softmax(cosines**2 / self.centres.norm(dim=1), dim=-1)
        clusters = torch.bmm(p.transpose(1, 2), z)  # (B, K, V)
        return self.head(self.reduce(clusters).flatten(1))


def copy_weights(source: nn.Module, target: ReleasedStep) -> None:
    """Copy the weights of a ``bnt-released`` model, whose names differ only in the prefix of each part."""
    prefixes = {"encoder.layers.": "layers.", "readout.": "", "head.": "head."}
    renamed = {}
    for name, value in source.state_dict().items():
        old = next(prefix for prefix in prefixes if name.startswith(prefix))
        renamed[prefixes[old] + name.removeprefix(old)] = value
    target.load_state_dict(renamed)
