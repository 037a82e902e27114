"""Readouts: from the embeddings of nodes to one vector per graph; the classifier after it; TopK pooling."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bnt.errors import BadInput
from bnt.nn._network import check_choice, check_positive, check_share
from bnt.nn._ocread import HiddenMLP, OCRead, Pooled, drop_padding

# -- readouts ------------------------------------------------------------------------------------------


class MeanReadout(nn.Module):
    """The mean of all nodes."""

    def __init__(self, n_nodes: int, width: int) -> None:
        super().__init__()
        self.out_features = width

    def forward(self, z: Tensor, mask: Tensor | None = None, adjacency: Tensor | None = None) -> Pooled:
        """Pool (B, V, D) to (B, D)."""
        if mask is None:
            return Pooled(z.mean(1))
        return Pooled(drop_padding(z, mask).sum(1) / mask.sum(1, keepdim=True).clamp_min(1))


class MaxReadout(nn.Module):
    """The largest value of each channel; zero for a graph without nodes."""

    def __init__(self, n_nodes: int, width: int) -> None:
        super().__init__()
        self.out_features = width

    def forward(self, z: Tensor, mask: Tensor | None = None, adjacency: Tensor | None = None) -> Pooled:
        """Pool (B, V, D) to (B, D)."""
        if mask is None:
            return Pooled(z.amax(1))
        largest = drop_padding(z, mask, float("-inf")).amax(1)
        return Pooled(largest.masked_fill(~mask.any(1, keepdim=True), 0.0))


class SumReadout(nn.Module):
    """The sum of all nodes, batch-normalised as in the released code."""

    def __init__(self, n_nodes: int, width: int) -> None:
        super().__init__()
        self.out_features = width
        self.norm = nn.BatchNorm1d(width)

    def forward(self, z: Tensor, mask: Tensor | None = None, adjacency: Tensor | None = None) -> Pooled:
        """Pool (B, V, D) to (B, D)."""
        return Pooled(self.norm(drop_padding(z, mask).sum(1)))


class ConcatReadout(nn.Module):
    """Each node reduced to a few numbers (with ``reduce=None`` as it is), then all nodes side by side.

    Graphs may have fewer nodes than ``n_nodes``: the missing ones count as zeros. With ``hidden_mlp`` the nodes go
    through the released OCRead's hidden MLP first: the control that tells OCRead's part from the MLP's.
    """

    def __init__(self, n_nodes: int, width: int, reduce: int | None = 8, hidden_mlp: bool = False) -> None:
        super().__init__()
        self.n_nodes = n_nodes
        self.hidden = HiddenMLP(n_nodes, width) if hidden_mlp else None
        self.reduce = nn.Identity() if reduce is None else nn.Sequential(nn.Linear(width, reduce), nn.LeakyReLU())
        self.out_features = n_nodes * (width if reduce is None else reduce)

    def forward(self, z: Tensor, mask: Tensor | None = None, adjacency: Tensor | None = None) -> Pooled:
        """Pool (B, V, D) to (B, 8 V)."""
        missing = self.n_nodes - z.shape[1]
        if missing < 0:
            raise BadInput(f"concat was made for at most {self.n_nodes} nodes, but graphs of {z.shape[1]} were given.")
        z = drop_padding(z, mask)
        if self.hidden is not None:
            z = drop_padding(self.hidden(z), mask)
        small = drop_padding(self.reduce(z), mask)
        return Pooled(F.pad(small, (0, 0, 0, missing)).flatten(1))


class SortReadout(nn.Module):
    """SortPooling of DGCNN (Zhang 2018): the k nodes largest in the last channel, in order, then 1-D convolutions.

    Parameters
    ----------
    n_nodes, width : int
        V and D.
    keep : int
        k; graphs with fewer nodes are filled up with zeros. The paper does not give its k.
    channels : pair of int
        Channels of the two convolutions, 16 and 32 in DGCNN: the first reads one node at a time, the
        second five neighbours in the order after max-pooling by two.
    """

    def __init__(self, n_nodes: int, width: int, keep: int = 30, channels: tuple[int, int] = (16, 32)) -> None:
        super().__init__()
        self.keep = min(keep, n_nodes)
        if self.keep < 2:
            raise BadInput(f"keep is {keep}; sort pooling needs at least 2 nodes to keep.")
        kernel = min(5, self.keep // 2)
        self.node = nn.Linear(width, channels[0])  # a convolution of kernel D and stride D
        self.along = nn.Conv1d(channels[0], channels[1], kernel)
        self.out_features = channels[1] * (self.keep // 2 - kernel + 1)

    def forward(self, z: Tensor, mask: Tensor | None = None, adjacency: Tensor | None = None) -> Pooled:
        """Pool (B, V, D) to (B, F)."""
        top = self.sort(z, mask)  # (B, k, D)
        channels = F.max_pool1d(F.relu(self.node(top)).mT, 2)  # (B, 16, k // 2)
        return Pooled(F.relu(self.along(channels)).flatten(1))

    def sort(self, z: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the k first nodes (B, k, D), largest last channel first."""
        z = drop_padding(z, mask)
        key = z[..., -1] if mask is None else z[..., -1].masked_fill(~mask, float("-inf"))
        order = key.argsort(dim=1, descending=True, stable=True)[:, : self.keep, None]
        top = z.gather(1, order.expand(-1, -1, z.shape[2]))
        return F.pad(top, (0, 0, 0, self.keep - top.shape[1])) if top.shape[1] < self.keep else top


class DiffPoolReadout(nn.Module):
    """DiffPool (Ying 2018), one level: assignments and embeddings by two graph convolutions, pooled and flattened.

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
        check_positive(n_clusters=n_clusters)
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


# -- by name -------------------------------------------------------------------------------------------


def _ocread(n_nodes: int, width: int, n_clusters: int = 10, reduce: int | None = 8, **options: Any) -> OCRead:
    return OCRead(width, n_clusters, n_nodes=n_nodes, reduce=reduce, **options)


READOUTS: dict[str, Callable[..., nn.Module]] = {
    "mean": MeanReadout,
    "max": MaxReadout,
    "sum": SumReadout,
    "sort": SortReadout,
    "diffpool": DiffPoolReadout,
    "concat": ConcatReadout,
    "ocread": _ocread,
}


def list_readouts() -> list[str]:
    """Return the names of all readouts.

    Examples
    --------
    >>> from bnt.nn import list_readouts
    >>> "ocread" in list_readouts()
    True
    """
    return list(READOUTS)


def readout_options(name: str) -> list[str]:
    """Return the names of a readout's options."""
    if name not in READOUTS:
        raise BadInput(f"Unknown readout {name!r}; there are {', '.join(READOUTS)}.")
    made_from = OCRead if name == "ocread" else READOUTS[name]
    return [option for option in inspect.signature(made_from).parameters if option not in ("n_nodes", "width")]


def create_readout(name: str, n_nodes: int, width: int, **options: Any) -> Any:
    """Make a readout by name.

    Parameters
    ----------
    name : {"mean", "max", "sum", "sort", "diffpool", "concat", "ocread"}
        Which.
    n_nodes : int
        V, the number of nodes of the largest graph.
    width : int
        D, the length of a node's embedding.
    **options
        The readout's own options: see :func:`readout_options`.

    Returns
    -------
    torch.nn.Module
        ``readout(z, mask=None, adjacency=None) -> Pooled``; its ``out_features`` is the length of a graph's embedding.

    Examples
    --------
    >>> import torch
    >>> from bnt.nn import create_readout
    >>> readout = create_readout("ocread", n_nodes=30, width=16, n_clusters=4)
    >>> embedding, loss, assignments = readout(torch.zeros(2, 30, 16))
    >>> embedding.shape == (2, readout.out_features)
    True
    """
    allowed = readout_options(name)
    for option in options:
        if option not in allowed:
            raise BadInput(f"Readout {name!r} has no option {option!r}; it takes {', '.join(allowed) or 'none'}.")
    return READOUTS[name](n_nodes=n_nodes, width=width, **options)


# -- before and after a readout ------------------------------------------------------------------------


def padded_batch(graphs: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Return node embeddings of graphs of different sizes as (B, V, D) and the mask (B, V) of real nodes.

    Examples
    --------
    >>> import torch
    >>> from bnt.nn import padded_batch
    >>> z, mask = padded_batch([torch.ones(2, 4), torch.ones(3, 4)])
    >>> z.shape, mask.sum(dim=1).tolist()
    (torch.Size([2, 3, 4]), [2, 3])
    """
    sizes = torch.tensor([len(graph) for graph in graphs])
    z = nn.utils.rnn.pad_sequence(graphs, batch_first=True)
    return z, (torch.arange(z.shape[1]) < sizes[:, None]).to(z.device)


class Head(nn.Sequential):
    """The classifier of the Brain Network Transformer's code: F - 256 - 32 - C with LeakyReLU and without dropout."""

    def __init__(self, in_features: int, n_classes: int, slope: float = 0.01) -> None:
        super().__init__(
            nn.Linear(in_features, 256),
            nn.LeakyReLU(slope),
            nn.Linear(256, 32),
            nn.LeakyReLU(slope),
            nn.Linear(32, n_classes),
        )


# -- TopK pooling, which BrainGNN and BrainNetGNN share ------------------------------------------------


class Kept(NamedTuple):
    """Graphs after TopK pooling.

    Attributes
    ----------
    z : Tensor, (B, k, D)
        The kept nodes, each multiplied by its score, largest score first.
    adjacency : Tensor, (B, k, k)
        The edges among them.
    nodes : Tensor of int, (B, k)
        Which nodes they were.
    scores : Tensor, (B, N)
        What every node was ranked by, before the squashing function.
    """

    z: Tensor
    adjacency: Tensor
    nodes: Tensor
    scores: Tensor


class TopKPool(nn.Module):
    """Score nodes by a learned direction, keep the first ``ceil(ratio * N)`` and scale them by their score.

    Parameters
    ----------
    width : int
        D, the length of a node's embedding.
    ratio : float
        Share of nodes to keep.
    squash : {"tanh", "sigmoid"}
        What the score goes through before it multiplies the node.
    standardise : bool
        Whether scores are brought to mean 0 and variance 1 within each graph first.

    Notes
    -----
    Ties are broken by the order of the nodes, so the same graph always gives the same answer.
    """

    def __init__(self, width: int, ratio: float, squash: str = "tanh", standardise: bool = False) -> None:
        super().__init__()
        check_share("ratio", ratio)
        check_choice("squash", squash, ("tanh", "sigmoid"))
        self.ratio, self.squash, self.standardise = ratio, squash, standardise
        self.weight = nn.Parameter(torch.empty(width).uniform_(-(width**-0.5), width**-0.5))

    def score(self, z: Tensor) -> Tensor:
        """Return the scores (B, N) of nodes (B, N, D), before squashing."""
        scores = z @ (self.weight / self.weight.norm().clamp_min(1e-12))
        if self.standardise:
            centred = scores - scores.mean(1, keepdim=True)
            scores = centred * (centred.square().mean(1, keepdim=True) + 1e-5).rsqrt()
        return scores

    def forward(self, z: Tensor, adjacency: Tensor) -> Kept:
        """Pool graphs with nodes (B, N, D) and edges (B, N, N)."""
        scores = self.score(z)
        keep = math.ceil(self.ratio * z.shape[1])
        index = scores.argsort(dim=1, descending=True, stable=True)[:, :keep]  # (B, k)
        gate = getattr(torch, self.squash)(scores.gather(1, index))
        kept = z.gather(1, index[..., None].expand(-1, -1, z.shape[2])) * gate[..., None]
        rows = adjacency.gather(1, index[..., None].expand(-1, -1, z.shape[1]))
        return Kept(kept, rows.gather(2, index[:, None, :].expand(-1, keep, -1)), index, scores)
