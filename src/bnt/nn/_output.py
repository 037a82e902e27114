"""What every model returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor, nn

from bnt.errors import BadInput


@dataclass
class Output:
    """A model's answer for a batch.

    Attributes
    ----------
    logits : Tensor, (B, C)
        One column a class; a single column for regression.
    loss : Tensor, scalar, or None
        Auxiliary loss, already weighted, for the training loop to add to the task's.
    attention : tuple of Tensor, (B, heads, V, V) each
        One a layer; empty unless ``explain=True`` was asked for.
    assignments : Tensor, (B, V, K), or None
        Soft clusters of a pooling readout; None unless ``explain=True`` was asked for.
    """

    logits: Tensor
    loss: Tensor | None = None
    attention: tuple[Tensor, ...] = ()
    assignments: Tensor | None = None


def check_connectomes(x: Tensor, n_rois: int) -> None:
    """Refuse anything but connectomes (B, V, V) of the model's V."""
    if x.ndim != 3 or x.shape[1:] != (n_rois, n_rois):
        raise BadInput(
            f"The model was made for connectomes of {n_rois} ROIs, shape (B, {n_rois}, {n_rois}), "
            f"but was given {tuple(x.shape)}."
        )


def check_series(series: Tensor | None, n_subjects: int, n_volumes: int, n_rois: int) -> Tensor:
    """Return the series (B, T, V), or refuse what is missing or of another shape."""
    wanted = (n_subjects, n_volumes, n_rois)
    if series is None:
        raise BadInput(f"The model reads time series and was given none: pass series of shape {wanted} beside x.")
    if series.shape != wanted:
        raise BadInput(f"The model reads series of shape {wanted}, time first, but was given {tuple(series.shape)}.")
    return series


def check_probability(name: str, p: float) -> None:
    """Refuse a dropout that is not a probability below one."""
    if not 0 <= p < 1:
        raise BadInput(f"{name} is {p}; give a probability from 0 to below 1.")


def check_positive(**sizes: int) -> None:
    """Refuse sizes below one."""
    for name, size in sizes.items():
        if size < 1:
            raise BadInput(f"{name} is {size}; it has to be at least 1.")


def check_heads(name: str, n_heads: int, width: int) -> None:
    """Refuse a number of heads that does not divide the width they share."""
    if n_heads < 1 or width % n_heads:
        fitting = ", ".join(str(m) for m in range(1, min(width, 32) + 1) if width % m == 0)
        raise BadInput(f"{name} is {n_heads}, which does not divide the width {width}; use {fitting}.")


class Pooled(NamedTuple):
    """A batch of graphs after a readout.

    Attributes
    ----------
    embedding : Tensor, (B, F)
        One vector a graph; F is the readout's ``out_features``.
    loss : Tensor, scalar, or None
        Auxiliary loss, already weighted.
    assignments : Tensor, (B, V, K), or None
        Soft clusters where the readout has any.
    """

    embedding: Tensor
    loss: Tensor | None = None
    assignments: Tensor | None = None


def drop_padding(z: Tensor, mask: Tensor | None, value: float = 0.0) -> Tensor:
    """Return (B, V, D) with the rows of padding nodes set to a value, whatever they held."""
    return z if mask is None else z.masked_fill(~mask[..., None], value)


WIDTH = 32


class HiddenMLP(nn.Sequential):
    """V*D - 32 - 32 - V*D over all nodes at once, without a residual: 65 % of the released model's parameters.

    Parameters
    ----------
    n_nodes, width : int
        V and D of every graph.
    """

    def __init__(self, n_nodes: int, width: int) -> None:
        size = n_nodes * width
        super().__init__(
            nn.Linear(size, WIDTH), nn.LeakyReLU(), nn.Linear(WIDTH, WIDTH), nn.LeakyReLU(), nn.Linear(WIDTH, size)
        )
        self.n_nodes = n_nodes

    def forward(self, z: Tensor) -> Tensor:
        """Mix all nodes: (B, V, D) -> (B, V, D)."""
        if z.shape[1] != self.n_nodes:
            raise BadInput(f"hidden_mlp=True was made for graphs of {self.n_nodes} nodes, but {z.shape[1]} were given.")
        return super().forward(z.flatten(1)).view_as(z)
