"""Training inside a caller's program without touching its random numbers or its threads."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from bnt.cohort import Cohort
from bnt.errors import BadInput
from bnt.models import find_entry
from bnt.splits._shuffle import allocate
from bnt.splits._strata import classes_of, strata_of, units_of
from bnt.training._batches import Batches
from bnt.training._config import RunConfig
from bnt.training._learners import EpochWatcher, Lines, NetworkRun, classical_predictions, unfitted, window_of
from bnt.training._loop import logits_of
from bnt.training._run import check_device
from bnt.training._task import Task


def checked_device(name: str) -> torch.device:
    """Return the device, or say that there is none of this name."""
    check_device(name)
    return torch.device(name)


@contextmanager
def undisturbed(device: str, threads: int | None) -> Iterator[None]:
    """Leave torch's generators and number of threads afterwards as they were."""
    place = checked_device(device)
    if threads is not None and threads < 1:
        raise BadInput(f"threads is {threads}: give at least 1, or None to leave torch's number as it is.")
    forked = []
    if place.type == "cuda":
        forked = [torch.cuda.current_device() if place.index is None else place.index]
    before = torch.get_num_threads()
    with torch.random.fork_rng(devices=forked):
        try:
            if threads is None:
                yield
                return
            torch.set_num_threads(threads)
            with threadpool_limits(threads):  # those of linear algebra, too
                yield
        finally:
            if torch.get_num_threads() != before:
                torch.set_num_threads(before)


Parts = tuple[np.ndarray, np.ndarray]


def hold_out(cohort: Cohort, y: np.ndarray, task: Task, fraction: float, seed: int) -> Parts:
    """Return positions to train on and to select on; the second is empty where nothing can be held out.

    Sites and classes (quintiles of a score) are shared out evenly, and subjects of one group, or with one
    scan, stay together. Nothing is held out where the part would have fewer than two subjects, or would
    lack a class: no score could be computed there.
    """
    if not 0 <= fraction < 1:
        raise BadInput(f"validation_fraction is {fraction}: give a share from 0 (none) to below 1.")
    n = len(cohort)
    nobody = np.arange(n), np.array([], dtype=np.int64)
    n_val = int(n * fraction + 1e-9)
    if n_val < 2 or len(np.unique(y)) < 2:
        return nobody
    classes = task.encode(y) if task.kind == "classification" else classes_of(cohort, y)
    strata = strata_of(cohort.sites, classes)
    sizes = np.array([n - n_val, n_val])
    part = allocate(units_of(cohort), strata, classes, sizes, np.random.default_rng([seed, n]))
    train, val = np.flatnonzero(part == 0), np.flatnonzero(part == 1)
    if len(train) < 2 or len(val) < 2:
        return nobody
    if task.kind == "classification":
        everyone = len(np.unique(classes))
        if len(np.unique(classes[train])) < everyone or len(np.unique(classes[val])) < everyone:
            return nobody
    return train, val


def fit_network(
    config: RunConfig,
    cohort: Cohort,
    y: np.ndarray,
    weights: np.ndarray | None,
    parts: tuple[np.ndarray, np.ndarray],
    watch: EpochWatcher | None,
) -> tuple[list[nn.Module], Lines]:
    """Return the trained members in evaluation mode and the lines of their epochs."""
    train, val = parts
    recipe = config.recipe
    if not len(val):  # nothing to select on: everyone is trained on, and the last weights are taken
        recipe = replace(recipe, select="last", patience=0, refit=True)
    recipe = replace(recipe, batch_size=min(recipe.batch_size, len(train)))
    if weights is not None:  # a mean of 1 keeps the size of the steps
        weights = weights / weights.mean()
    run = NetworkRun(replace(config, recipe=recipe), cohort, y, weights, watch=watch)
    states, lines = run.fit(train, val)
    return [restored(run.build(), state) for state in states], lines


def restored(model: nn.Module, state: dict[str, Tensor]) -> nn.Module:
    """Return the network with these weights, ready to predict."""
    model.load_state_dict(state)
    return model.eval()


def fit_classical(config: RunConfig, cohort: Cohort, y: np.ndarray, weights: np.ndarray | None) -> Any:
    """Return a classical model fitted on everyone."""
    from bnt.models._inputs import Inputs

    model = unfitted(config)
    extra = {}
    if weights is not None:
        if "sample_weight" not in inspect.signature(model.fit).parameters:
            raise BadInput(f"Model {config.model!r} takes no sample_weight: leave it out or choose another model.")
        extra["sample_weight"] = weights
    model.fit(Inputs.of(cohort, np.arange(len(cohort))), config.task.encode(y), **extra)
    return model


def predict(config: RunConfig, members: list[Any], cohort: Cohort) -> np.ndarray:
    """Return the members' mean: class probabilities (n, C), or targets (n, 1) in their own units."""
    rows = np.arange(len(cohort))
    if not find_entry(config.model).trains_in_epochs:
        from bnt.models._inputs import Inputs

        return classical_predictions(config, members[0], Inputs.of(cohort, rows))
    empty = torch.zeros(len(rows), config.task.n_outputs)
    batches = Batches(cohort, rows, empty, window=window_of(members[0]), device=config.device)
    return np.mean([config.task.predictions(logits_of(model, batches)) for model in members], axis=0)


def check_series(model: str, cohort: Cohort) -> None:
    """Refuse a model that reads time series where there are none."""
    if find_entry(model).needs_series and cohort.timeseries is None:
        raise BadInput(f"Model {model!r} reads time series, and X has none: pass a bnt.Cohort that has them.")
