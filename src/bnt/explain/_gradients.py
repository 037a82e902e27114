"""Attributions of neural networks: integrated gradients through captum, and gradient times input of our own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor, nn

from bnt.cohort import Cohort
from bnt.cohort._triangle import square_tensor
from bnt.errors import BadInput
from bnt.explain._opening import PATTERNS_INSTEAD, Weights, margin_of, member_networks

GRADIENT_METHODS = ("integrated-gradients", "gradient")
SUBJECTS_AT_ONCE = 16
MATRICES_AT_ONCE = 64

Margin = Callable[..., Tensor]


class NotDifferentiable(BadInput):
    """The model's output has no gradient by the connectome's edges."""


def network_attributions(
    weights: Weights, cohort: Cohort, rows: np.ndarray, baseline: np.ndarray, column: int, method: str, n_steps: int
) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield attributions, (B, E), averaged over members; see :func:`bnt.explain._edges.attributions`."""
    attribute = _integrated_gradients if method == "integrated-gradients" else _gradient
    models = [_copy_of(m) for m in member_networks(weights)]
    there = torch.as_tensor(baseline, dtype=torch.float32, device=weights.config.device)[None]  # (1, E)
    for start in range(0, len(rows), SUBJECTS_AT_ONCE):
        some = np.asarray(rows)[start : start + SUBJECTS_AT_ONCE]
        edges = torch.from_numpy(cohort.edges(some)).to(weights.config.device)  # (B, E)
        series = next(weights.learner.batches(cohort, some).in_order(len(some))).series
        total = np.zeros(edges.shape)
        for model in models:
            margin = _margin(model, cohort.diagonal, column)
            total += attribute(margin, edges, there, series, n_steps).double().cpu().numpy()
        yield slice(start, start + len(some)), total / len(models)


def _copy_of(model: nn.Module) -> nn.Module:
    """Return a copy that needs no gradients of its weights."""
    from copy import deepcopy

    return deepcopy(model).requires_grad_(False)


def _margin(model: nn.Module, diagonal: float, column: int) -> Margin:
    """Return the margin as a function of edges, (B, E) -> (B,)."""

    def margin(edges: Tensor, series: Tensor | None = None) -> Tensor:
        return margin_of(model(square_tensor(edges, diagonal), series=series).logits, column)

    return margin


def _integrated_gradients(margin: Margin, edges: Tensor, baseline: Tensor, series: Tensor | None, steps: int) -> Tensor:
    try:
        from captum.attr import IntegratedGradients
    except ImportError as error:
        raise BadInput(
            "Integrated gradients need captum, which is not installed: "
            "pip install 'brain-network-transformer[explain]', or choose --method gradient."
        ) from error
    more = None if series is None else (series,)
    try:
        return IntegratedGradients(margin).attribute(
            edges,
            baselines=baseline,
            additional_forward_args=more,
            n_steps=steps,
            internal_batch_size=max(MATRICES_AT_ONCE, len(edges)),
        )
    except RuntimeError as error:
        raise _unused(error) from error


def _gradient(margin: Margin, edges: Tensor, baseline: Tensor, series: Tensor | None, steps: int) -> Tensor:
    """Return the gradient at each subject times its deviation from the baseline: one step of the path."""
    at = edges.clone().requires_grad_(True)
    try:
        (slope,) = torch.autograd.grad(margin(at, series).sum(), at)
    except RuntimeError as error:
        raise _unused(error) from error
    return slope * (edges - baseline)


def _unused(error: RuntimeError) -> Exception:
    """Return what to tell of a network whose output does not depend on the connectome."""
    if "not have been used" in str(error) or "does not require grad" in str(error):
        return NotDifferentiable(
            f"This model has no gradient by edges (it reads time series, or edges in bins); {PATTERNS_INSTEAD}."
        )
    return error
