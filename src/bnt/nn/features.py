"""Node features: what a node knows of itself before the first layer."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bnt.errors import BadInput

NODE_FEATURES = ("profile", "no-diagonal", "identity", "learned-identity", "eigen")
RELEASED_IDENTITY_WIDTH = 360  # the released code's learned identity, whatever the atlas
DEFAULT_EIGENVECTORS = 32  # the paper does not give its number


class NodeFeatures(nn.Module):
    """The connection profile of each node, alone or with something about its identity beside it.

    Parameters
    ----------
    kind : {"profile", "no-diagonal", "identity", "learned-identity", "eigen"}
        ``profile``: row i of the connectome; ``no-diagonal``: the same with 0 for its entry i. The others concatenate
        to the profile: a one-hot code of the node; a learned vector a node (Kaiming normal); the node's entries in the
        k leading eigenvectors.
    n_rois : int
        V.
    n_heads : int
        The width is made a multiple of it where there is freedom to.
    extra_width : int, optional
        Length of the learned identity (default about 360) or number of eigenvectors (default about 32).

    Notes
    -----
    Eigenvectors belong to the eigenvalues largest in magnitude, in that order. Their sign is fixed by one rule:
    the entry largest in magnitude is positive (the first of them on ties). They are inputs, not differentiated.
    """

    def __init__(self, kind: str, n_rois: int, n_heads: int = 1, extra_width: int | None = None) -> None:
        super().__init__()
        if kind not in NODE_FEATURES:
            raise BadInput(f"node_features is {kind!r}; it can be {', '.join(NODE_FEATURES)}.")
        if extra_width is not None and kind in ("profile", "no-diagonal", "identity"):
            raise BadInput(f"extra_width is {extra_width}, but node_features={kind!r} leaves no width to choose.")
        self.kind, self.n_rois = kind, n_rois
        self.extra = self._extra_width(kind, n_rois, n_heads, extra_width)
        self.width = n_rois + self.extra
        if kind == "learned-identity":
            self.identity = nn.Parameter(nn.init.kaiming_normal_(torch.empty(n_rois, self.extra)))

    @staticmethod
    def _extra_width(kind: str, n_rois: int, n_heads: int, asked: int | None) -> int:
        if kind in ("profile", "no-diagonal"):
            return 0
        if kind == "identity":
            return n_rois
        if asked is not None:
            if asked < 1 or (kind == "eigen" and asked > n_rois):
                raise BadInput(f"extra_width is {asked}; a connectome of {n_rois} ROIs allows 1 to {n_rois} for eigen.")
            return asked
        if kind == "learned-identity":
            return RELEASED_IDENTITY_WIDTH + -(n_rois + RELEASED_IDENTITY_WIDTH) % n_heads
        most = min(DEFAULT_EIGENVECTORS, n_rois)
        return max(most - (n_rois + most) % n_heads, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the features (B, V, D) of connectomes (B, V, V)."""
        if self.kind == "profile":
            return x
        if self.kind == "no-diagonal":
            return x - torch.diag_embed(x.diagonal(dim1=-2, dim2=-1))
        if self.kind == "eigen":
            return torch.cat([x, leading_eigenvectors(x, self.extra)], -1)
        own = torch.eye(self.n_rois, dtype=x.dtype, device=x.device) if self.kind == "identity" else self.identity
        return torch.cat([x, own.to(x.dtype).expand(x.shape[0], -1, -1)], -1)


@torch.no_grad()
def leading_eigenvectors(x: Tensor, k: int) -> Tensor:
    """Return the k eigenvectors (B, V, k) of symmetric matrices whose eigenvalues are largest in magnitude."""
    values, vectors = torch.linalg.eigh(((x + x.mT) / 2).float() if x.dtype.itemsize < 4 else (x + x.mT) / 2)
    order = values.abs().argsort(dim=-1, descending=True, stable=True)[..., None, :k]
    leading = vectors.gather(-1, order.expand(-1, x.shape[-1], -1))  # (B, V, k)
    largest = leading.gather(1, leading.abs().argmax(1, keepdim=True))  # (B, 1, k)
    return (leading * largest.sign()).to(x.dtype)
