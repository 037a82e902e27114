"""Which nodes belong to the subgraph around a target node or edge."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bnt.errors import BadInput


def membership(members: Tensor | Sequence[Sequence[int]], n_nodes: int) -> Tensor:
    """Return a boolean matrix (S, V) from one, or from S lists of node indices."""
    if isinstance(members, Tensor) and members.dtype == torch.bool:
        if members.ndim != 2 or members.shape[1] != n_nodes:
            raise BadInput(f"members has shape {tuple(members.shape)}; give one row a subgraph and {n_nodes} columns.")
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
    """Return, for each node, itself and the nodes within some hops.

    Parameters
    ----------
    adjacency : Tensor, (V, V)
        An edge wherever it is not zero.
    hops : int
        How far to go; 0 is the node alone.

    Returns
    -------
    Tensor of bool, (V, V)
        Row i holds the members of the subgraph around node i.
    """
    edges = (adjacency != 0).to(torch.float32)
    inside = torch.eye(adjacency.shape[0], device=adjacency.device)
    for _ in range(hops):
        inside = ((inside + inside @ edges) > 0).to(torch.float32)
    return inside.bool()


def edge_subgraphs(adjacency: Tensor, edges: Tensor, hops: int = 1) -> Tensor:
    """Return, for each edge (E, 2), the nodes within some hops of either end, as booleans (E, V)."""
    around = node_subgraphs(adjacency, hops)
    return around[edges[:, 0]] | around[edges[:, 1]]
