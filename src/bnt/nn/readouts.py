"""Readouts by name. Each maps ``(z, mask=None, adjacency=None)`` to a :class:`~bnt.nn.Pooled`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import nn

from bnt.errors import BadInput
from bnt.nn.diffpool import DiffPoolReadout
from bnt.nn.ocread import OCRead
from bnt.nn.plain_readouts import ConcatReadout, MaxReadout, MeanReadout, SortReadout, SumReadout


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
    """Return the names of all readouts."""
    return list(READOUTS)


def readout_options(name: str) -> list[str]:
    """Return the names of a readout's options."""
    if name not in READOUTS:
        raise BadInput(f"There is no readout {name!r}; there are {', '.join(READOUTS)}.")
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
