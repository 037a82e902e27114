"""Importance of connections: attributions for neural networks, patterns for linear models.

Attributions explain the margin of one class: its logit less the mean of the others' (the output itself for a score).
They are taken with respect to edges, each of which stands twice in the matrix, and are relative to a baseline: the mean
connectome of the training set, where the training subjects are at hand, and zero edges otherwise. A network with
centred inputs carries that mean with its weights. An attribution says how the model used an edge; a pattern says where
the data vary with the model's decision. Weights of linear models alone say neither (Haufe et al. 2014).

No map here sees the labels of the subjects it explains. The difference of mean attributions between two classes would:
it contains the difference of the classes themselves, and "finds" a planted effect with a model of shuffled labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from bnt._words import track
from bnt.cohort import Cohort
from bnt.cohort._triangle import Networks, endpoints, square_tensor
from bnt.errors import BadInput
from bnt.explain._decisions import (
    PATTERNS_INSTEAD,
    FittedRun,
    centres_sites,
    haufe_pattern,
    is_network,
    linear_attributions,
    margin_of,
    margins,
    standardised_coefficients,
)
from bnt.nn._kernels import wide_products

GRADIENT_METHODS = ("integrated-gradients", "gradient")
METHODS = (*GRADIENT_METHODS, "pattern", "coefficients")
SUBJECTS_AT_ONCE = 16
MATRICES_AT_ONCE = 64
STEPS = 64  # a centred network's margin is steep near its baseline; 32 left errors of a tenth of the margin
Margin = Callable[..., Tensor]


@dataclass(frozen=True)
class EdgeMap:
    """One number per edge, in the order of :mod:`bnt.cohort._triangle`.

    Attributes
    ----------
    method, baseline : str
        The method, and the baseline that it is relative to.
    target : str
        The class (or score) it explains.
    score : array, (E,)
        The signed map: positive if a stronger connection supports the target. For attributions, the change of the
        margin per SD of the edge (the slope of the edge's attribution on the edge, times its SD over subjects). For
        patterns and coefficients, these themselves.
    importance : array, (E,)
        Mean absolute attribution, or the score's absolute value.
    share : array, (E,)
        Share of the margin's variance over subjects that is due to the edge; sums to 1 for integrated gradients. NaN
        for patterns and coefficients.
    n : int
        Number of subjects that it was computed from.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.load_cohort("cohort")
    >>> from bnt.training import TrainedRun
    >>> trained = TrainedRun("run")  # a folder made by bnt train
    >>> from bnt.explain import baseline_edges, edge_map
    >>> baseline = baseline_edges(trained, training=(cohort, range(28)))
    >>> edge_map(trained, cohort, rows=[0, 1, 2], baseline=baseline, method="gradient").n
    3
    """

    method: str
    baseline: str
    target: str
    score: np.ndarray
    importance: np.ndarray
    share: np.ndarray
    n: int

    def table(self, rois: pd.DataFrame, networks: Networks | None) -> pd.DataFrame:
        """Return one row per edge, the strongest first."""
        low, high = endpoints(len(rois))
        labels = rois["label"].to_numpy(dtype=str)
        columns = {"roi_a": rois["roi"].to_numpy()[low], "roi_b": rois["roi"].to_numpy()[high]}
        columns |= {"label_a": labels[low], "label_b": labels[high]}
        if networks is not None:
            columns |= {"network_a": networks.labels[low], "network_b": networks.labels[high]}
        table = pd.DataFrame(columns | {"score": self.score, "importance": self.importance, "share": self.share})
        order = np.argsort(-np.abs(self.score), kind="stable")
        return table.iloc[order].reset_index(drop=True)

    def by_network(self, networks: Networks) -> pd.DataFrame:
        """Return one row per pair of networks, the pair with the strongest edges first."""
        table = networks.by_pair(score=self.score, magnitude=np.abs(self.score), importance=self.importance)
        table["share"] = networks.by_pair(share=self.share)["share"] * table["n_edges"]
        return table.sort_values("magnitude", ascending=False, kind="stable").reset_index(drop=True)


def default_method(run: FittedRun) -> str:
    """Return integrated gradients for networks (plain gradients where captum is missing), patterns otherwise."""
    from importlib.util import find_spec

    if not is_network(run):
        return "pattern"
    return "integrated-gradients" if find_spec("captum") else "gradient"


def target_code(run: FittedRun, target: str | None) -> tuple[int, str]:
    """Return the column of the logits to explain, and its name; the last class without a wish."""
    task = run.config.task
    if task.kind == "regression":
        return 0, run.config.label
    names = [str(c) for c in task.classes]
    if target is None:
        return len(names) - 1, names[-1]
    if target not in names:
        raise BadInput(f"The run has no class {target!r}; choose from {', '.join(names)}.", "target")
    return names.index(target), target


def attributions(
    run: FittedRun,
    cohort: Cohort,
    rows: np.ndarray,
    baseline: np.ndarray,
    method: str | None = None,
    target: str | None = None,
    n_steps: int = STEPS,
    training: tuple[Cohort, np.ndarray] | None = None,
) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield attributions of each subject's edges, batch by batch: positions within ``rows`` and (B, E).

    Parameters
    ----------
    run : TrainedRun
    cohort : Cohort
    rows : array of int
    baseline : array, (E,)
        Edges to compare with; see :func:`bnt.explain._decisions.baseline_edges`.
    method : {"integrated-gradients", "gradient"}, optional
        For networks. For linear models both are the weight times the deviation from the baseline.
    target : str, optional
        Class to explain; the last one without it.
    n_steps : int
        Points on the path of integrated gradients.
    training : (Cohort, array of int), optional
        The training subjects. Contributions in linear models that centre sites are relative to their site means.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.load_cohort("cohort")
    >>> from bnt.training import TrainedRun
    >>> trained = TrainedRun("run")  # a folder made by bnt train
    >>> import numpy as np
    >>> from bnt.explain import attributions
    >>> for rows, values in attributions(trained, cohort, [0, 1], baseline=np.zeros(190), method="gradient"):
    ...     print(values.shape)
    (2, 190)
    """
    column, _ = target_code(run, target)
    if not is_network(run):
        yield from linear_attributions(run, cohort, np.asarray(rows), baseline, column, training)
        return
    chosen = method or default_method(run)
    if chosen not in GRADIENT_METHODS:
        raise BadInput(f"Method {chosen!r} gives no attribution of a subject: use {' or '.join(GRADIENT_METHODS)}.")
    yield from network_attributions(run, cohort, rows, baseline, column, chosen, n_steps)


def edge_map(
    run: FittedRun,
    cohort: Cohort,
    rows: np.ndarray,
    baseline: tuple[np.ndarray, str],
    method: str | None = None,
    target: str | None = None,
    training: tuple[Cohort, np.ndarray] | None = None,
    n_steps: int = STEPS,
) -> EdgeMap:
    """Compute the edge map of a run.

    Parameters
    ----------
    run : TrainedRun
    cohort, rows
        Subjects whose predictions are explained (attributions).
    baseline : (array, str)
        Edges to compare with, and their description.
    method : str, optional
        One of :data:`METHODS`; see :func:`default_method`.
    target : str, optional
        Class to explain; the last one without it.
    training : (Cohort, array of int), optional
        The training subjects. Their covariance gives the patterns (by default that of ``rows``), and contributions in
        linear models that centre sites are relative to their site means.
    n_steps : int
        Points on the path of integrated gradients.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.load_cohort("cohort")
    >>> from bnt.training import TrainedRun
    >>> trained = TrainedRun("run")  # a folder made by bnt train
    >>> from bnt.explain import baseline_edges, edge_map
    >>> baseline = baseline_edges(trained, training=(cohort, range(28)))
    >>> edge_map(trained, cohort, rows=[0, 1, 2], baseline=baseline, method="gradient").score.shape
    (190,)
    """
    chosen = method or default_method(run)
    if chosen not in METHODS:
        raise BadInput(f"Unknown method {chosen!r}; choose from {', '.join(METHODS)}.", "method")
    column, name = target_code(run, target)
    if chosen in ("pattern", "coefficients"):
        where, who = training or (cohort, np.asarray(rows))
        make = haufe_pattern if chosen == "pattern" else standardised_coefficients
        score, n = make(run, where, who, column)
        return EdgeMap(chosen, "none needed", name, score, np.abs(score), np.full_like(score, np.nan), n)
    rows = np.asarray(rows)
    if len(rows) < 3:
        raise BadInput(f"An edge map is made over subjects and {len(rows)} were given: give at least three.")
    cohort = run.learner.prepared(cohort, rows)
    margin = margins(run, cohort, rows, column)
    margin = margin - margin.mean()
    sums = np.zeros((5, len(baseline[0])))
    found = attributions(run, cohort, rows, baseline[0], chosen, name, n_steps, training)
    batches = -(-len(rows) // SUBJECTS_AT_ONCE)
    for part, values in track(found, f"{chosen}, {len(rows)} subjects", total=batches):
        away = cohort.edges(rows[part]) - baseline[0]  # (B, E)
        products = (values * away, away * away, away, np.abs(values), values * margin[part, None])
        sums += np.stack([product.sum(axis=0, dtype=np.float64) for product in products])
    along, squares, shift, absolute, with_margin = sums / len(rows)
    sd = np.sqrt(np.maximum(squares - shift**2, 0))
    slope = np.divide(along, squares, out=np.zeros_like(along), where=squares > 0)
    spread = float(np.mean(margin**2))
    share = with_margin / spread if spread > 0 else np.full_like(with_margin, np.nan)
    relative_to = "training mean of each subject's site" if centres_sites(run) else baseline[1]
    return EdgeMap(chosen, relative_to, name, slope * sd, absolute, share, len(rows))


# -- gradients of networks: integrated gradients through captum, and gradient times input of our own -------------


class NotDifferentiable(BadInput):
    """The model's output has no gradient by the connectome's edges."""


def network_attributions(
    run: FittedRun, cohort: Cohort, rows: np.ndarray, baseline: np.ndarray, column: int, method: str, n_steps: int
) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield attributions, (B, E), averaged over members; see :func:`bnt.explain._edges.attributions`."""
    attribute = _integrated_gradients if method == "integrated-gradients" else _gradient
    models = [deepcopy(m).requires_grad_(False) for m in run.learner.networks()]
    cohort = run.learner.prepared(cohort, np.asarray(rows))
    there = torch.as_tensor(baseline, dtype=torch.float32, device=run.config.device)[None]  # (1, E)
    for start in range(0, len(rows), SUBJECTS_AT_ONCE):
        some = np.asarray(rows)[start : start + SUBJECTS_AT_ONCE]
        edges = torch.from_numpy(cohort.edges(some)).to(run.config.device)  # (B, E)
        series = next(run.learner.batches(cohort, some).in_order(len(some))).series
        total = np.zeros(edges.shape)
        for model in models:
            margin = _margin(model, cohort.diagonal, column)
            with wide_products():
                total += attribute(margin, edges, there, series, n_steps).double().cpu().numpy()
        yield slice(start, start + len(some)), total / len(models)


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
            "pip install 'brain-network-transformer[explain]', or choose the method gradient.",
            "method",
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
