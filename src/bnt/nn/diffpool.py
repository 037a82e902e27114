"""DiffPool (Ying 2018): clusters whose assignments are learned from the graph."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bnt.errors import BadInput
from bnt.nn.pooled import Pooled, drop_padding


class DiffPoolReadout(nn.Module):
    """One DiffPool level: assignments and embeddings by two graph convolutions, pooled and flattened.

    With A the adjacency, clipped to [0, 1] because that is where the entries of S S^T lie, and A^ the row-normalised
    A plus the identity: S = softmax(A^ Z W_s), Z' = relu(A^ Z W_z), clusters S^T Z' (K, D), each reduced to 8 numbers
    as in OCRead. The auxiliary loss is ``link_weight |A - S S^T|_F / V^2 + entropy_weight mean H(S_i)``, a mean over
    the batch: recipes that sum the cross-entropy over a batch weigh it by 1/B. Without an adjacency each node stands
    alone; no link loss then.

    Parameters
    ----------
    n_nodes, width : int
        V and D.
    n_clusters : int
        K.
    reduce : int
        Numbers a cluster is reduced to.
    link_weight, entropy_weight : float
        Weights of the two losses.
    """

    def __init__(
        self,
        n_nodes: int,
        width: int,
        n_clusters: int = 10,
        reduce: int = 8,
        link_weight: float = 1.0,
        entropy_weight: float = 1.0,
    ) -> None:
        super().__init__()
        if n_clusters < 1:
            raise BadInput(f"n_clusters is {n_clusters}; DiffPool needs at least one cluster.")
        self.link_weight, self.entropy_weight = link_weight, entropy_weight
        self.assign = nn.Linear(width, n_clusters)
        self.embed = nn.Linear(width, width)
        self.reduce = nn.Sequential(nn.Linear(width, reduce), nn.LeakyReLU())
        self.out_features = n_clusters * reduce

    def forward(self, z: Tensor, mask: Tensor | None = None, adjacency: Tensor | None = None) -> Pooled:
        """Pool (B, V, D) to (B, 8 K), with adjacency (B, V, V)."""
        z = drop_padding(z, mask)
        links = None
        if adjacency is not None:
            links = adjacency.clamp(0, 1)  # (B, V, V)
            if mask is not None:
                links = links.masked_fill(~(mask[:, :, None] & mask[:, None, :]), 0.0)
            z_near = _neighbour_mean(links, z)
        else:
            z_near = z
        logits = self.assign(z_near)  # (B, V, K)
        s = drop_padding(logits.softmax(-1), mask)
        clusters = s.mT @ torch.relu(self.embed(z_near))  # (B, K, D)
        loss = self.entropy_weight * assignment_entropy(logits, mask)
        if links is not None:
            loss = loss + self.link_weight * link_loss(links, s, mask)
        return Pooled(self.reduce(clusters).flatten(1), loss, s)


def _neighbour_mean(links: Tensor, z: Tensor) -> Tensor:
    return (links @ z + z) / (links.sum(-1, keepdim=True) + 1)


def link_loss(links: Tensor, s: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return |A - S S^T|_F over the number of node pairs, averaged over graphs."""
    off = torch.linalg.matrix_norm(links - s @ s.mT)  # (B,)
    pairs = links.new_full(off.shape, links.shape[-1] ** 2) if mask is None else mask.sum(1).to(off.dtype) ** 2
    return (off / pairs.clamp_min(1)).mean()


def assignment_entropy(logits: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the mean entropy of the nodes' assignments."""
    log_s = logits.log_softmax(-1)
    entropy = -(log_s.exp() * log_s).sum(-1)  # (B, V)
    return entropy.mean() if mask is None else entropy[mask].mean()
