"""ALTER: the released Brain Network Transformer with return probabilities of random walks as additional features."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from bnt.errors import BadInput
from bnt.models._bnt import BNT, Encoder
from bnt.nn._network import Network, check_heads, check_positive
from bnt.nn._readouts import Head, create_readout

# -- long-range features -------------------------------------------------------------------------------


class WalkFeatures(nn.Module):
    """The profile of each node and, beside it, how often a random walk from the node is back after 0 ... k - 1 steps.

    Parameters
    ----------
    n_rois : int
        V.
    walk_length : int
        k.
    """

    def __init__(self, n_rois: int, walk_length: int) -> None:
        super().__init__()
        self.walk_length = walk_length
        self.width = n_rois + walk_length  # D

    def forward(self, x: Tensor) -> Tensor:
        """Return the features (B, V, V + k) of symmetric connectomes (B, V, V)."""
        return torch.cat([x, return_probabilities(x, self.walk_length).to(x.dtype)], -1)


@torch.no_grad()
def return_probabilities(x: Tensor, k: int) -> Tensor:
    """Return diag(P^0), ..., diag(P^(k-1)) (B, V, k) of the walk P = D^-1 A on the positive entries A of ``x``.

    A node without positive entries has P = 0. The features are inputs and not differentiated.

    P is similar to the symmetric S = D^-1/2 A D^-1/2, so that diag(P^n) = diag(S^n), and the diagonal of a product of
    symmetric matrices is the row sums of their product entry by entry: with the powers S, ..., S^m and S^m, S^2m, ...
    every diagonal up to k costs row sums, and about 2 sqrt(k) matrix products are made in place of k - 2.
    """
    a = x.clamp_min(0)
    a = a.float() if a.dtype.itemsize < 4 else a
    degree = a.sum(-1)
    scale = torch.where(degree > 0, degree, 1).rsqrt()  # a row of zeros stays one
    s = scale[..., :, None] * a * scale[..., None, :]
    m = max(round((k - 1) ** 0.5), 1)
    near = [s]  # S^1 ... S^m
    while len(near) < m:
        near.append(near[-1] @ s)
    small = torch.stack(near, 2)  # (B, V, m, V): row i of every small power
    found = [torch.ones_like(degree)[..., None], s.diagonal(dim1=-2, dim2=-1)[..., None]]
    found += [power.diagonal(dim1=-2, dim2=-1)[..., None] for power in near[1:]]
    far = near[-1]  # S^m, S^2m, ...
    while sum(part.shape[-1] for part in found) < k:
        found.append((small @ far[..., None]).squeeze(-1))  # diag(S^(gm + 1)) ... diag(S^(gm + m))
        far = far @ near[-1]
    return torch.cat(found, -1)[..., :k]


# -- the model -----------------------------------------------------------------------------------------


class ALTER(BNT):
    """Random-walk features beside the connection profiles, then the released Brain Network Transformer.

    - Walk: A the positive entries of the connectome, P = D^-1 A; the walker prefers strong edges.
    - Features of node i: its profile x_i and (P^0_ii, P^1_ii, ..., P^(k-1)_ii), D = V + k numbers.
    - L Transformer layers, the hidden MLP over all nodes, OCRead by squared projection, each cluster to 8 numbers, then
      8K - 256 - 32 - C.

    Parameters
    ----------
    walk_length : int
        k, the number of walk features.
    n_layers, n_heads, ffn, dropout, n_clusters
        As in :class:`BNT`; V + k must be a multiple of the heads.

    Notes
    -----
    - Compared with commit ad5c5a9 of github.com/yushuowiki/ALTER (its class BrainNetworkTransformer with
      ``pos_encoding: rrwp``) at its defaults, V = 200: for the same weights no logit differs by more than 1e-6.
    - The features are those of the published code.
    - The published code makes k - 2 matrix products per subject, in a loop over subjects;
      :func:`return_probabilities` makes about 2 sqrt(k) for a whole batch.
    - Walks start from the connectome that the model reads, mixed with another one where the recipe does mixup, as
      published. A diagonal of 1 is a loop of the walk; the authors' ABIDE file has a diagonal of 0.

    References
    ----------
    Yu S, Jin S, Li M, Sarwar T, Xia F (2024). Long-range brain graph transformer. NeurIPS 37.
    """

    small: ClassVar = {"n_clusters": 4, "ffn": 32, "n_heads": 1, "walk_length": 6}

    def __init__(
        self,
        n_rois: int,
        n_classes: int = 2,
        *,
        walk_length: int = 32,
        n_layers: int = 2,
        n_heads: int = 4,
        ffn: int = 1024,
        dropout: float = 0.1,
        n_clusters: int = 100,
    ) -> None:
        Network.__init__(self)  # the forward pass is BNT's, the features are not
        check_positive(walk_length=walk_length)
        if n_clusters > n_rois:
            raise BadInput(f"n_clusters is {n_clusters}, more than the {n_rois} ROIs; use at most {n_rois}.")
        self.n_rois = n_rois
        features = WalkFeatures(n_rois, walk_length)
        self.features = features  # type: ignore[assignment]
        width = features.width  # D = V + k
        check_heads("n_heads", n_heads, width)
        self.encoder = Encoder(width, n_layers, n_heads, ffn, dropout)
        self.readout = create_readout(
            "ocread", n_rois, width, n_clusters=n_clusters, assignment="squared", hidden_mlp=True, normalise_first=False
        )
        self.head = Head(self.readout.out_features, n_classes)
