"""ROI-aware graph convolution (Li 2021): each ROI has its own weights, mixed from a few communities."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class RoiConv(nn.Module):
    """Ra-GConv: ``x_i' = sum_j a_ij W_j x_j + b``, with ``W_j = sum_c relu(t_jc) K_c + K_0``.

    The weights of a ROI are the same for all subjects. They are made once as (V, in, out), not once a subject;
    where pooling left each subject other ROIs, the mixture is taken of the products instead of the weights.

    Parameters
    ----------
    n_rois : int
        V.
    in_features, out_features : int
        Lengths of a node's embedding.
    n_communities : int
        Number of weight matrices that ROIs mix.
    """

    def __init__(self, n_rois: int, in_features: int, out_features: int, n_communities: int = 8) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.membership = nn.Linear(n_rois, n_communities, bias=False)  # of a one-hot ROI: a column of its weight
        self.kernels = nn.Linear(n_communities, in_features * out_features)
        bound = in_features**-0.5
        self.bias = nn.Parameter(torch.empty(out_features).uniform_(-bound, bound))

    def weights(self) -> Tensor:
        """Return every ROI's weights, (V, in, out)."""
        return self.kernels(self._mixture()).view(-1, self.in_features, self.out_features)

    def _mixture(self) -> Tensor:
        return torch.relu(self.membership.weight.T)  # (V, communities)

    def forward(self, z: Tensor, adjacency: Tensor, rois: Tensor | None = None) -> Tensor:
        """Return new embeddings (B, N, out).

        Parameters
        ----------
        z : Tensor, (B, N, in)
        adjacency : Tensor, (B, N, N)
            Edge weights, row i those of the edges into node i; zero means no edge.
        rois : Tensor of int, (B, N), optional
            Which ROI each node is; without it node i is ROI i.
        """
        if rois is None:
            mapped = torch.bmm(z.transpose(0, 1), self.weights()).transpose(0, 1)  # (B, V, out)
        else:
            b, n, _ = z.shape
            shared = self.kernels.weight.view(self.in_features, -1)  # (in, out * communities)
            products = (z @ shared).view(b, n, self.out_features, -1)
            mapped = (products @ self._mixture()[rois][..., None]).squeeze(-1)
            mapped = mapped + z @ self.kernels.bias.view(self.in_features, self.out_features)
        return edge_softmax(adjacency) @ mapped + self.bias


def edge_softmax(adjacency: Tensor) -> Tensor:
    """Return the softmax (B, N, N) over the edges into each node, a self-loop of weight 1 among them."""
    loops = torch.eye(adjacency.shape[-1], dtype=torch.bool, device=adjacency.device)
    return adjacency.masked_fill(adjacency == 0, float("-inf")).masked_fill(loops, 1.0).softmax(-1)


def two_hops(adjacency: Tensor) -> Tensor:
    """Return (A + I)^2 without its diagonal: the weights of walks of up to two steps."""
    eye = torch.eye(adjacency.shape[-1], dtype=adjacency.dtype, device=adjacency.device)
    walks = adjacency + eye
    return (walks @ walks) * (1 - eye)
