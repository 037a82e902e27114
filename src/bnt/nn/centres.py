"""Cluster centres of OCRead: where K clusters start in the space of node embeddings."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bnt.errors import BadInput

CENTRES = ("orthonormal", "random", "learnable", "simplex")


def draw_centres(kind: str, n_clusters: int, width: int, normalise_first: bool = True) -> Tensor:
    """Draw K centres with torch's global generator.

    Parameters
    ----------
    kind : {"orthonormal", "random", "learnable", "simplex"}
        ``orthonormal``: the Gram-Schmidt process on a Xavier-uniform draw, the paper's equation 3.
        ``random`` and ``learnable``: the rows of that draw, each of unit length.
        ``simplex``: unit vectors with all pairwise inner products -1/(K-1), as far apart as K can be.
    n_clusters : int
        K, at most the width.
    width : int
        D, the length of a node's embedding.
    normalise_first : bool
        False leaves the first orthonormal centre at the length it was drawn with, about sqrt(2D/(K+D)),
        as the released code does. The other kinds are not affected.

    Returns
    -------
    Tensor, (K, D), float32

    Examples
    --------
    >>> E = draw_centres("orthonormal", 4, 10)
    >>> bool(((E @ E.T) - torch.eye(4)).abs().max() < 1e-6)
    True
    """
    if kind not in CENTRES:
        raise BadInput(f"centres is {kind!r}; it can be {', '.join(CENTRES)}.")
    least = 2 if kind == "simplex" else 1
    if not least <= n_clusters <= width:
        raise BadInput(
            f"n_clusters is {n_clusters}, but {kind} centres of width {width} can number {least} to {width}; "
            "choose a K in that range."
        )
    draw = nn.init.xavier_uniform_(torch.empty(n_clusters, width))
    if draw.is_meta:  # only shapes are asked for
        return draw
    if kind in ("random", "learnable"):
        return nn.functional.normalize(draw, dim=1)
    basis = gram_schmidt(draw)  # float64
    if kind == "simplex":
        # Vertices of a simplex: an orthonormal basis seen from its own mean.
        vertices = basis - basis.mean(0)
        return (vertices * (n_clusters / (n_clusters - 1)) ** 0.5).to(draw.dtype)
    centres = basis.to(draw.dtype)
    if not normalise_first:
        centres[0] = draw[0]
    return centres


def gram_schmidt(rows: Tensor) -> Tensor:
    """Return the Gram-Schmidt orthonormalisation of the rows, in float64.

    A QR decomposition whose R has a positive diagonal is unique, and is what Gram-Schmidt computes;
    by Householder reflections it stays orthonormal to rounding up to K = D, where the textbook
    recursion loses digits.
    """
    q, r = torch.linalg.qr(rows.detach().double().T)  # (D, K), (K, K)
    return (q * r.diagonal().sign()).T.contiguous()
