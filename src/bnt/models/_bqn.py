"""Brain Quadratic Network: element-wise products of a connectome with itself, instead of message passing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bnt.errors import BadInput
from bnt.nn._kernels import dropout as drop
from bnt.nn._network import Network, Output, check_choice, check_connectomes, check_positive, check_probability
from bnt.nn._ocread import RELEASED_OCREAD
from bnt.nn._readouts import Head, create_readout

# Of a tensor that nothing else reads: two of them change it in place.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "leaky_relu": partial(F.leaky_relu, inplace=True),
    "gelu": F.gelu,
    "elu": partial(F.elu, inplace=True),
}


class QuadraticLayer(nn.Module):
    """H' = dropout(sigma(H o (A R + r) + (H o H) G + g)), with o the product entry by entry.

    Parameters
    ----------
    width : int
        V, the length of a node's row.
    activation : {"leaky_relu", "gelu", "elu"}
        sigma.
    p : float
        Dropout of the result.
    """

    def __init__(self, width: int, activation: str, p: float) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)  # R, r
        self.squared = nn.Linear(width, width)  # G, g
        self.activation, self.p = ACTIVATIONS[activation], p

    def forward(self, h: Tensor, a: Tensor) -> Tensor:
        """Map H (B, V, V) to the next one, with A (B, V, V) the connectomes."""
        mixed = torch.addcmul(self.squared(h.square()), h, self.linear(a))
        return drop(self.activation(mixed), self.p, self.training)


class BQN(Network):
    """L quadratic layers on the connectome, the released OCRead with its hidden MLP, and a small classifier.

    - H^0 = A, the connectome.
    - H^l = sigma(H^(l-1) o (A R_l + r_l) + (H^(l-1) o H^(l-1)) G_l + g_l): each entry is multiplied by a linear map of
      its row of A, and a linear map of the squared entries is added. No node reads the embedding of another.
    - Readout: the hidden MLP V*V - 32 - 32 - V*V, K clusters by squared projection, each to 8 numbers.
    - Head: 8K - 256 - 32 - C, LeakyReLU.

    Parameters
    ----------
    n_layers : int
        L; the published search tried 1, 2 and 3.
    n_clusters : int
        K; the published search tried 4, 16 and 32.
    dropout : float
        After each quadratic layer; the published search tried 0 to 0.5.
    activation : {"leaky_relu", "gelu", "elu"}
        sigma.

    Notes
    -----
    - Compared with commit 5dc31b7 of github.com/LYWJUN/BQN-demo at its defaults, V = 200: for the same weights no logit
      differs by more than 1e-6.
    - Each published layer registers a third linear map that it never uses (120,600 of its 2,982,034 parameters at
      V = 200). It is left out here.
    - The published training (Adam at a constant 1e-4, batches of 16, mixup, summed loss) is this model's in every
      recipe; its 200 epochs and the choice of the epoch with the lowest validation loss are ``--change epochs=200``
      and, here, the best validation score.

    References
    ----------
    Yang L, Liu Y, Zhuo J, Jin D, Wang C, Wang Z, Cao X (2025). Do we really need message passing in brain network
    modeling? ICML, PMLR 267.
    """

    small: ClassVar = {"n_clusters": 4}
    per_roi: ClassVar = {
        r"layers.*\.weight": {0: "v", 1: "v"},
        r"layers.*\.bias": {0: "v"},
        r"readout\.(centres|reduce\.0\.weight)": {1: "v"},
        r"readout\.hidden\.0\.weight": {1: "vv"},
        r"readout\.hidden\.4\.(weight|bias)": {0: "vv"},
    }

    def __init__(
        self,
        n_rois: int,
        n_classes: int = 2,
        *,
        n_layers: int = 3,
        n_clusters: int = 4,
        dropout: float = 0.1,
        activation: str = "leaky_relu",
    ) -> None:
        super().__init__()
        check_positive(n_layers=n_layers)
        check_probability("dropout", dropout)
        check_choice("activation", activation, tuple(ACTIVATIONS))
        if n_clusters > n_rois:
            raise BadInput(f"n_clusters is {n_clusters}, more than the {n_rois} ROIs; use at most {n_rois}.")
        self.n_rois = n_rois
        self.layers = nn.ModuleList(QuadraticLayer(n_rois, activation, dropout) for _ in range(n_layers))
        self.readout = create_readout("ocread", n_rois, n_rois, n_clusters=n_clusters, **RELEASED_OCREAD)
        self.head = Head(self.readout.out_features, n_classes)

    def forward(
        self, x: Tensor, series: Tensor | None = None, target: Tensor | None = None, explain: bool = False
    ) -> Output:
        """Answer for connectomes (B, V, V); see :meth:`bnt.nn.Network.forward`."""
        check_connectomes(x, self.n_rois)
        h = x  # H^0, (B, V, V)
        for layer in self.layers:
            h = layer(h, x)
        pooled = self.readout(h)  # (B, 8K)
        return Output(self.head(pooled.embedding), assignments=pooled.assignments if explain else None)
