"""OCRead, the orthonormal clustering readout of the Brain Network Transformer (section 3.3 and 3.4 of its paper)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from bnt.errors import BadInput
from bnt.nn._network import check_choice

CENTRES = ("orthonormal", "random", "learnable", "simplex")
ASSIGNMENTS = ("softmax", "squared", "student-t")
# What the authors' code does and the paper does not say; models built on that code have it too.
RELEASED_OCREAD: dict[str, Any] = {"assignment": "squared", "hidden_mlp": True, "normalise_first": False}


class Pooled(NamedTuple):
    """A batch of graphs after a readout.

    Attributes
    ----------
    embedding : Tensor, (B, F)
        One vector per graph; F is the readout's ``out_features``.
    loss : Tensor, scalar, or None
        Auxiliary loss, already weighted.
    assignments : Tensor, (B, V, K), or None
        Soft clusters, if the readout has any.

    Examples
    --------
    >>> import torch
    >>> from bnt.nn import create_readout
    >>> pooled = create_readout("mean", n_nodes=30, width=16)(torch.zeros(2, 30, 16))
    >>> pooled.embedding.shape
    torch.Size([2, 16])
    """

    embedding: Tensor
    loss: Tensor | None = None
    assignments: Tensor | None = None


def drop_padding(z: Tensor, mask: Tensor | None, value: float = 0.0) -> Tensor:
    """Return (B, V, D) with the rows of padding nodes set to a value, whatever they held."""
    return z if mask is None else z.masked_fill(~mask[..., None], value)


class HiddenMLP(nn.Sequential):
    """V*D - 32 - 32 - V*D over all nodes at once, without a residual: 65 % of the released model's parameters.

    Parameters
    ----------
    n_nodes, width : int
        V and D of every graph.
    """

    def __init__(self, n_nodes: int, width: int) -> None:
        size = n_nodes * width
        super().__init__(nn.Linear(size, 32), nn.LeakyReLU(), nn.Linear(32, 32), nn.LeakyReLU(), nn.Linear(32, size))
        self.n_nodes = n_nodes

    def forward(self, z: Tensor) -> Tensor:
        """Mix all nodes: (B, V, D) -> (B, V, D)."""
        if z.shape[1] != self.n_nodes:
            raise BadInput(f"hidden_mlp=True was made for graphs of {self.n_nodes} nodes, but {z.shape[1]} were given.")
        return super().forward(z.flatten(1)).view_as(z)


# -- equation 3: centres -------------------------------------------------------------------------------


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
    check_choice("centres", kind, CENTRES)
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


# -- equation 2: assignments, and the readout ----------------------------------------------------------


class OCRead(nn.Module):
    """Soft clusters around fixed centres; a graph is the list of its clusters' sums.

    With node embeddings Z (V, D) and centres E (K, D): ``P = softmax(Z E^T)`` over clusters (equation 2) and
    ``Z_G = P^T Z``.

    Parameters
    ----------
    width : int
        D, the length of a node's embedding.
    n_clusters : int
        K, at most the width.
    n_nodes : int, optional
        V; needed by the hidden MLP only.
    assignment : {"softmax", "squared", "student-t"}
        Logits before the softmax: ``z.e`` (paper), ``(z.e)^2 / |e|`` (released code, blind to the sign
        of a centre) or ``-log(1 + |z - e|^2)`` (deep embedded clustering).
    hidden_mlp : bool
        Pass the flattened graph through V*D-32-32-V*D before clustering, as the released code does; what
        is pooled is then the MLP's output, and a node's cluster depends on every node.
    centres : {"orthonormal", "random", "learnable", "simplex"}
        How the centres are initialised.
    frozen : bool, optional
        Whether the centres are fixed; by default all except ``learnable`` ones.
    normalise_first : bool
        False keeps the released code's first orthonormal centre, which is not of unit length.
    dec_weight : float
        Weight of the self-supervised clustering loss (KL to a sharpened target), 0 for none. The loss is a mean over
        the batch: recipes that sum the cross-entropy over a batch weigh it by 1/B.
    reduce : int, optional
        Reduce each cluster's D numbers to this many, with LeakyReLU; by default they are not reduced.

    Notes
    -----
    Deviations of the released code from the paper are the options ``assignment="squared"``,
    ``hidden_mlp=True`` and ``normalise_first=False``.

    References
    ----------
    Kan X, Dai W, Cui H, Zhang Z, Guo Y, Yang C (2022). Brain Network Transformer. NeurIPS 35.

    Examples
    --------
    >>> import torch
    >>> from bnt.nn import OCRead
    >>> pooled = OCRead(width=16, n_clusters=4)(torch.zeros(2, 30, 16))
    >>> pooled.embedding.shape, pooled.assignments.shape
    (torch.Size([2, 64]), torch.Size([2, 30, 4]))
    """

    def __init__(
        self,
        width: int,
        n_clusters: int = 10,
        *,
        n_nodes: int | None = None,
        assignment: str = "softmax",
        hidden_mlp: bool = False,
        centres: str = "orthonormal",
        frozen: bool | None = None,
        normalise_first: bool = True,
        dec_weight: float = 0.0,
        reduce: int | None = None,
    ) -> None:
        super().__init__()
        check_choice("assignment", assignment, ASSIGNMENTS)
        if dec_weight < 0:
            raise BadInput(f"dec_weight is {dec_weight}; give 0 for no clustering loss, or a positive weight.")
        if hidden_mlp and n_nodes is None:
            raise BadInput("hidden_mlp=True flattens the graph and needs n_nodes, the number of nodes of every graph.")
        self.width, self.n_clusters, self.n_nodes = width, n_clusters, n_nodes
        self.assignment, self.dec_weight = assignment, dec_weight
        self.hidden = HiddenMLP(n_nodes, width) if hidden_mlp and n_nodes is not None else None
        start = draw_centres(centres, n_clusters, width, normalise_first)
        self.centres = nn.Parameter(start, requires_grad=centres == "learnable" if frozen is None else not frozen)
        self.reduce = nn.Sequential(nn.Linear(width, reduce), nn.LeakyReLU()) if reduce else None
        self.out_features = n_clusters * (reduce or width)

    def forward(self, z: Tensor, mask: Tensor | None = None, adjacency: Tensor | None = None) -> Pooled:
        """Pool graphs.

        Parameters
        ----------
        z : Tensor, (B, V, D)
            Node embeddings.
        mask : Tensor of bool, (B, V), optional
            True where there is a node, False on padding.
        adjacency : Tensor, optional
            Not used; part of every readout's interface.

        Returns
        -------
        Pooled
            Embedding (B, F), auxiliary loss or None, assignments P (B, V, K), zero on padding.
        """
        z = drop_padding(z, mask)
        if self.hidden is not None:
            z = drop_padding(self.hidden(z), mask)
        logits = self.assignment_logits(z)  # (B, V, K)
        p = drop_padding(logits.softmax(-1), mask)  # equation 2
        clusters = p.mT @ z  # Z_G, (B, K, D)
        loss = self.dec_weight * clustering_loss(logits, mask) if self.dec_weight else None
        return Pooled(self._embed(clusters), loss, p)

    def assignment_logits(self, z: Tensor) -> Tensor:
        """Return what the softmax over clusters is taken of, (..., V, K)."""
        centres = self.centres.to(z.dtype)
        if self.assignment == "softmax":
            return z @ centres.T
        if self.assignment == "squared":
            return (z @ centres.T).square() / centres.norm(dim=1)
        # Squared distances by expansion: (V, K) numbers where differences would take (V, K, D).
        distances = z.square().sum(-1, keepdim=True) - 2 * (z @ centres.T) + centres.square().sum(1)
        return -torch.log1p(distances.clamp_min(0))

    def pool_subgraphs(self, z: Tensor, members: Tensor | Sequence[Sequence[int]]) -> Tensor:
        """Pool the subgraph around each target node or edge (section 3.4 of the paper).

        Parameters
        ----------
        z : Tensor, (V, D)
            Node embeddings of one graph.
        members : Tensor of bool, (S, V), or S lists of node indices
            The nodes of each subgraph; see :func:`bnt.nn.node_subgraphs` and :func:`bnt.nn.edge_subgraphs`.

        Returns
        -------
        Tensor, (S, F)
            One embedding per subgraph. Assignments are computed once per node, however many subgraphs hold it.
        """
        if self.hidden is not None:
            raise BadInput(
                "hidden_mlp=True needs whole graphs of a fixed size; make an OCRead without it for subgraphs."
            )
        inside = membership(members, z.shape[0]).to(device=z.device, dtype=z.dtype)  # (S, V)
        p = self.assignment_logits(z).softmax(-1)  # (V, K)
        clusters = (inside[:, None, :] * p.T) @ z  # (S, K, D)
        return self._embed(clusters)

    def _embed(self, clusters: Tensor) -> Tensor:
        return (clusters if self.reduce is None else self.reduce(clusters)).flatten(1)


def clustering_loss(logits: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the deep embedded clustering loss: KL of a sharpened target from the assignments.

    With assignments q, the target is ``q^2 / sum_i q`` normalised over clusters and not differentiated; the sum over
    i runs over all nodes of the batch. The loss is summed over clusters and averaged over nodes. All is done
    on logarithms, so that a cluster nobody chooses is no division by zero.

    Parameters
    ----------
    logits : Tensor, (B, V, K)
        What the softmax over clusters is taken of.
    mask : Tensor of bool, (B, V), optional
        True where there is a node.
    """
    rows = logits.flatten(0, -2) if mask is None else logits[mask]  # (N, K)
    log_q = rows.log_softmax(-1)
    with torch.no_grad():
        log_target = (2 * log_q - log_q.logsumexp(0)).log_softmax(-1)
    return (log_target.exp() * (log_target - log_q)).sum() / max(rows.shape[0], 1)


# -- section 3.4: subgraphs ----------------------------------------------------------------------------


def membership(members: Tensor | Sequence[Sequence[int]], n_nodes: int) -> Tensor:
    """Return a boolean matrix (S, V) from one, or from S lists of node indices."""
    if isinstance(members, Tensor) and members.dtype == torch.bool:
        if members.ndim != 2 or members.shape[1] != n_nodes:
            raise BadInput(
                f"members has shape {tuple(members.shape)}; give one row per subgraph and {n_nodes} columns."
            )
        return members
    inside = torch.zeros(len(members), n_nodes, dtype=torch.bool)
    for row, nodes in zip(inside, members):
        index = torch.as_tensor(nodes, dtype=torch.long)
        outside = index[(index < 0) | (index >= n_nodes)]
        if outside.numel():
            raise BadInput(f"members names node {int(outside[0])}, but nodes are numbered 0 to {n_nodes - 1}.")
        row[index] = True
    return inside


def node_subgraphs(adjacency: Tensor, hops: int = 1) -> Tensor:
    """Return, for each node, the node itself and all nodes within some hops.

    Parameters
    ----------
    adjacency : Tensor, (V, V)
        An edge wherever it is not zero.
    hops : int
        Largest distance; 0 is the node alone.

    Returns
    -------
    Tensor of bool, (V, V)
        Row i holds the members of the subgraph around node i.

    Examples
    --------
    >>> import torch
    >>> from bnt.nn import node_subgraphs
    >>> node_subgraphs(torch.tensor([[0, 1, 0], [1, 0, 0], [0, 0, 0]])).tolist()
    [[True, True, False], [True, True, False], [False, False, True]]
    """
    edges = (adjacency != 0).to(torch.float32)
    inside = torch.eye(adjacency.shape[0], device=adjacency.device)
    for _ in range(hops):
        inside = ((inside + inside @ edges) > 0).to(torch.float32)
    return inside.bool()


def edge_subgraphs(adjacency: Tensor, edges: Tensor, hops: int = 1) -> Tensor:
    """Return, for each edge (E, 2), the nodes within some hops of either end, as booleans (E, V).

    Examples
    --------
    >>> import torch
    >>> from bnt.nn import edge_subgraphs
    >>> edge_subgraphs(torch.eye(3), torch.tensor([[0, 1]]), hops=0).tolist()
    [[True, True, False]]
    """
    around = node_subgraphs(adjacency, hops)
    return around[edges[:, 0]] | around[edges[:, 1]]
