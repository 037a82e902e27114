"""Base class of all networks: interface, checks of inputs and options, and the training step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import unwrap
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from bnt.errors import BadInput
from bnt.nn._kernels import wide_products


@dataclass
class Output:
    """The output of a network for a batch.

    Attributes
    ----------
    logits : Tensor, (B, C)
        One column per class; a single column for regression.
    loss : Tensor, scalar, or None
        Auxiliary loss, already weighted; the training loop adds it to the task's.
    attention : tuple of Tensor, (B, heads, V, V) each
        One per layer; empty unless ``explain=True``.
    assignments : Tensor, (B, V, K), or None
        Soft clusters of a pooling readout, or scores of ROIs (K = 1); None unless ``explain=True``.

    Examples
    --------
    >>> import torch
    >>> import bnt
    >>> out = bnt.create_model("bnt", n_rois=20, n_clusters=4)(torch.zeros(2, 20, 20), explain=True)
    >>> out.logits.shape, out.assignments.shape
    (torch.Size([2, 2]), torch.Size([2, 20, 4]))
    """

    logits: Tensor
    loss: Tensor | None = None
    attention: tuple[Tensor, ...] = ()
    assignments: Tensor | None = None


class Network(nn.Module):
    """Base class of all networks of the catalogue.

    The constructor takes ``n_rois``, ``n_classes`` (1 for regression) and options with defaults. Two methods are
    optional. ``prepare(batches)`` computes statistics of the training subjects, given as batches (B, V, V).
    ``check_inputs(kind, inputs)`` refuses kinds of connectomes that the network cannot read.

    Attributes
    ----------
    n_rois : int
        V, the number of ROIs.
    needs_series : bool
        Whether it reads time series in addition to the connectome: ``n_volumes`` of each scan, or their connectivity.
    series_kind : str
        The kind of connectivity that it receives as ``series``; empty for the time series themselves.
    whole_series : bool
        Whether it reads scans of any length. ``series`` are then whole scans, standardised and padded with zeros to the
        longest of the batch, and ``forward`` also receives ``lengths``, their numbers of volumes (B,).
    crop : int
        Length in volumes of the random window of each scan that it reads in training; 0 is the whole scan.
    reads_connectomes : bool
        False for models of whole scans alone. ``x`` then holds zeros, and no time is spent on connectomes.
    small : mapping
        Options that make the network small enough to train within seconds, for tests; they fit time series of 32
        volumes.
    per_roi : mapping
        Which axes of which parameters belong to ROIs, by a regular expression of the parameter's name: ``v`` one
        entry per ROI, ``vk`` and ``kv`` several with the ROI as the slow or the fast index, ``vv`` one per ordered
        pair, ``pair`` one per pair i < j (or i <= j), row by row; what follows the V entries of ``v`` and ``vv``
        belongs to no ROI. With the ROIs of the data and these axes permuted alike, no answer changes.

    Examples
    --------
    >>> import bnt, torch
    >>> net = bnt.create_model("bnt", n_rois=20, n_clusters=4)
    >>> out = net(torch.zeros(3, 20, 20), explain=True)
    >>> out.logits.shape, out.attention[0].shape
    (torch.Size([3, 2]), torch.Size([3, 4, 20, 20]))
    """

    n_rois: int
    needs_series: ClassVar[bool] = False
    series_kind: str = ""
    whole_series: bool = False
    crop: int = 0
    reads_connectomes: bool = True
    small: ClassVar[Mapping[str, Any]] = {}
    per_roi: ClassVar[Mapping[str, Mapping[int, str]]] = {}

    def forward(
        self, x: Tensor, series: Tensor | None = None, target: Tensor | None = None, explain: bool = False
    ) -> Output:
        """Answer for a batch of subjects.

        Parameters
        ----------
        x : Tensor, (B, V, V)
            Connectomes; row i is the connection profile of ROI i.
        series : Tensor, (B, T, V), optional
            Time series, standardised; or (B, V, V), their connectivity. Only for networks that need them.
        target : Tensor, (B, C), optional
            Soft labels, or scores (B, 1). Networks with auxiliary losses return them only if it is given.
        explain : bool
            Whether to return attention and assignments too.
        """
        raise NotImplementedError(f"{type(self).__name__} has no forward pass of its own.")


# -- checks of inputs ----------------------------------------------------------------------------------


def check_connectomes(x: Tensor, n_rois: int) -> None:
    """Refuse anything but connectomes (B, V, V) of the model's V."""
    if x.ndim != 3 or x.shape[1:] != (n_rois, n_rois):
        raise BadInput(
            f"The model was made for connectomes of {n_rois} ROIs, shape (B, {n_rois}, {n_rois}), "
            f"but was given {tuple(x.shape)}."
        )


def check_series(series: Tensor | None, n_subjects: int, n_volumes: int, n_rois: int) -> Tensor:
    """Return the series (B, T, V), or refuse what is missing or has another shape."""
    wanted = (n_subjects, n_volumes, n_rois)
    if series is None:
        raise BadInput(f"The model reads time series and was given none: also pass series of shape {wanted}.")
    if series.shape != wanted:
        raise BadInput(f"The model reads series of shape {wanted}, time first, but was given {tuple(series.shape)}.")
    return series


def check_whole_series(
    series: Tensor | None, lengths: Tensor | None, n_subjects: int, n_rois: int
) -> tuple[Tensor, Tensor]:
    """Return series (B, T, V) and the volumes of each scan (B,), all T where none are given; refuse other shapes."""
    wanted = f"({n_subjects}, T, {n_rois})"
    if series is None:
        raise BadInput(f"The model reads time series and was given none: also pass series of shape {wanted}.")
    if series.ndim != 3 or series.shape[::2] != (n_subjects, n_rois):
        raise BadInput(f"The model reads series of shape {wanted}, time first, but was given {tuple(series.shape)}.")
    if lengths is None:
        lengths = torch.full((n_subjects,), series.shape[1], device=series.device)
    return series, lengths


def volume_mask(lengths: Tensor, longest: int) -> Tensor:
    """Return which volumes are a scan's own, (B, longest), from the length of each."""
    return torch.arange(longest, device=lengths.device) < lengths[:, None]


# -- checks of options ---------------------------------------------------------------------------------


def check_choice(name: str, value: str, allowed: Sequence[str]) -> None:
    """Refuse a word that is not one of those allowed."""
    if value not in allowed:
        raise BadInput(f"{name} is {value!r}; it can be {', '.join(allowed)}.")


def check_probability(name: str, p: float) -> None:
    """Refuse a dropout that is not a probability below one."""
    if not 0 <= p < 1:
        raise BadInput(f"{name} is {p}; give a probability from 0 to below 1.")


def check_share(name: str, share: float) -> None:
    """Refuse a share that is not above zero and at most one."""
    if not 0 < share <= 1:
        raise BadInput(f"{name} is {share}; give a share above 0 and at most 1.")


def check_positive(**sizes: int) -> None:
    """Refuse sizes below one."""
    for name, size in sizes.items():
        if size < 1:
            raise BadInput(f"{name} is {size}; it has to be at least 1.")


def check_heads(name: str, n_heads: int, width: int) -> None:
    """Refuse a number of heads that does not divide the width they share."""
    if n_heads < 1 or width % n_heads:
        fitting = [m for m in range(1, min(width, 32) + 1) if width % m == 0]
        near = max(m for m in fitting if m <= max(n_heads, 1))
        raise BadInput(
            f"{name} is {n_heads}, which does not divide the width {width}; use {', '.join(map(str, fitting))}: "
            f"--option {name}={near}, or MODEL:{name}={near} after --models."
        )


# -- the training step ---------------------------------------------------------------------------------


def without_compiler(kind: type[torch.optim.Optimizer]) -> Any:
    """Return an optimiser of torch whose methods do not load the compiler, which takes 1.5 CPU seconds per process."""
    names = ("add_param_group", "load_state_dict", "state_dict", "zero_grad")
    methods = {name: unwrap(getattr(kind, name)) for name in names}
    return type(kind.__name__, (kind,), {**methods, "step": torch.no_grad()(unwrap(kind.step))})


Adam, AdamW = without_compiler(torch.optim.Adam), without_compiler(torch.optim.AdamW)
B = TypeVar("B")  # whatever the loss is computed from


def take_steps(
    network: nn.Module,
    optimiser: torch.optim.Optimizer,
    batches: Iterable[B],
    loss_of: Callable[[B], Tensor],
    rate_of: Callable[[int], float],
    *,
    steps_before: int = 0,
    averaged: AveragedWeights | None = None,
    clip: float = 0.0,
) -> Iterator[tuple[B, Tensor]]:
    """Train on one batch after the other; yield each batch and its loss.

    The training loop calls it once per epoch, the kernel-transformer once per member.

    Parameters
    ----------
    network : Module
        In training mode.
    loss_of : callable
        From a batch to its loss.
    rate_of : callable
        From the number of a step, counted from 1, to its learning rate.
    steps_before : int
        Steps taken already.
    averaged : AveragedWeights, optional
        Updated after each step.
    clip : float
        Largest norm of the gradient; 0 is off.
    """
    for step, batch in enumerate(batches, start=steps_before + 1):
        for group in optimiser.param_groups:
            group["lr"] = rate_of(step)
        optimiser.zero_grad(set_to_none=True)
        with wide_products():
            loss = loss_of(batch)
            loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(network.parameters(), clip)
        optimiser.step()
        if averaged is not None:
            averaged.update(network)
        yield batch, loss.detach()


def draw_mixup(n: int, alpha: float) -> tuple[float, Tensor]:
    """Return the mixing weight l ~ Beta(alpha, alpha) and a permutation of a batch, from torch's global generator."""
    share = torch.distributions.Beta(alpha, alpha).sample().item()
    return share, torch.randperm(n)


class AveragedWeights:
    """Exponential moving average of a model's floating-point state.

    The decay grows as (1 + s) / (10 + s) up to ``decay``, so that the random start is forgotten quickly.
    Running statistics of BatchNorm are averaged as well.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.steps = 0
        self.state = {k: v.detach().clone() for k, v in model.state_dict().items()}

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Move the average towards the model's weights of this step."""
        self.steps += 1
        decay = min(self.decay, (1 + self.steps) / (10 + self.steps))
        current = model.state_dict()
        mine, theirs = [], []
        for key, value in self.state.items():
            if value.is_floating_point():
                mine.append(value)
                theirs.append(current[key])
            else:
                value.copy_(current[key])
        torch._foreach_lerp_(mine, theirs, 1 - decay)

    def load(self, state: Mapping[str, Tensor], steps: int) -> None:
        """Continue from a checkpoint."""
        self.steps = steps
        for key, value in self.state.items():
            value.copy_(state[key])
