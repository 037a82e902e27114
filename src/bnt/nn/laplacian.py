"""Spectral positions: eigenpairs of a connectome's Laplacian, and their learned encoding (Kreuzer 2021)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bnt.nn.dropout import dropout
from bnt.nn.encoder import EncoderLayer
from bnt.nn.narrow_feedforward import narrow_feed_forward


@torch.no_grad()
def laplacian_eigenpairs(x: Tensor, m: int) -> tuple[Tensor, Tensor]:
    """Return the m lowest eigenvalues (B, m) of the normalised Laplacian, and their eigenvectors (B, V, m).

    The Laplacian is ``I - D^-1/2 |A| D^-1/2`` with A the connectome without its diagonal and D its row sums of
    absolute values; a node without edges has a row of the identity, and no position: its entries of the eigenvectors,
    zero but for rounding, are set to zero. A sign for each eigenvector is chosen by one rule:
    the entry largest in magnitude is positive. Nothing is differentiated: the pairs are inputs.
    """
    a = x if x.dtype.itemsize >= 4 else x.float()  # half precision has no eigen-decomposition
    a = ((a + a.mT) / 2).abs()
    a.diagonal(dim1=-2, dim2=-1).zero_()
    degree = a.sum(-1)  # (B, V)
    root = torch.where(degree > 0, degree, 1.0).rsqrt()
    # The lowest eigenvalues of I - S are the highest of S, in reverse.
    values, vectors = torch.linalg.eigh(root[:, :, None] * a * root[:, None, :])
    values, vectors = 1 - values[:, -m:].flip(-1), vectors[..., -m:].flip(-1)
    vectors = vectors.masked_fill((degree == 0)[..., None], 0.0)
    largest = vectors.gather(1, vectors.abs().argmax(1, keepdim=True))  # (B, 1, m)
    return values.to(x.dtype), (vectors * largest.sign()).to(x.dtype)


class PairLayer(EncoderLayer):
    """An encoder layer over a node's pairs: few numbers, many tokens, so its hidden units are made in blocks."""

    def forward(
        self, z: Tensor, explain: bool = False, bias: Tensor | None = None, factor: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Return the embeddings (N, m, d) and, if asked to explain, the attention (N, heads, m, m)."""
        mixed, weights = self.self_attn(z, explain, bias, factor)
        z = self.norm1(z + dropout(mixed, self.p, self.training))
        one, two = self.linear1, self.linear2
        fed = narrow_feed_forward(z, one.weight, one.bias, two.weight, two.bias, self.p, self.training)
        return self.norm2(z + dropout(fed, self.p, self.training)), weights


class LaplacianEncoding(nn.Module):
    """A Transformer over a node's m pairs (entry of the eigenvector, eigenvalue), summed to a vector a node.

    Parameters
    ----------
    width : int
        Length of the encoding.
    n_layers, n_heads, ffn, p
        The encoder's depth, heads, hidden units and dropout.
    n_eigen : int
        m, at most the number of nodes.
    flip : bool
        Multiply each eigenvector by a random sign at every training step.
    """

    def __init__(
        self,
        width: int = 8,
        n_layers: int = 1,
        n_heads: int = 4,
        ffn: int = 2048,
        p: float = 0.1,
        n_eigen: int = 10,
        flip: bool = True,
    ) -> None:
        super().__init__()
        self.n_eigen, self.flip = n_eigen, flip
        self.pair = nn.Linear(2, width)
        self.layers = nn.ModuleList(PairLayer(width, n_heads, ffn, p) for _ in range(n_layers))

    def forward(self, x: Tensor) -> Tensor:
        """Return the encoding (B, V, width) of connectomes (B, V, V)."""
        b, v, _ = x.shape
        values, vectors = laplacian_eigenpairs(x, min(self.n_eigen, v))
        vectors = nn.functional.normalize(vectors, dim=2)  # a node's entries over frequencies have unit length
        if self.flip and self.training:
            vectors = vectors * (torch.randint(2, values.shape, device=x.device) * 2 - 1)[:, None]
        pairs = torch.stack([vectors, values[:, None].expand_as(vectors)], -1)  # (B, V, m, 2)
        z = self.pair(pairs).flatten(0, 1)  # (B V, m, width)
        for layer in self.layers:
            z, _ = layer(z)
        return z.sum(1).view(b, v, -1)
