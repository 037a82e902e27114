"""Training inside a caller's program without touching its random numbers or its threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from bnt.cohort import Cohort
from bnt.errors import BadInput
from bnt.models import find_entry
from bnt.splits._strata import allocate, classes_of, strata_of, units_of
from bnt.training._config import RunConfig, check_device
from bnt.training._learner import Learner, make_learner
from bnt.training._loop import EpochWatcher, Lines
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


def fit_learner(
    config: RunConfig,
    cohort: Cohort,
    y: np.ndarray,
    weights: np.ndarray | None,
    validation_fraction: float,
    watch: EpochWatcher | None,
) -> tuple[Learner, Lines]:
    """Return the fitted learner and the lines of its epochs; models without epochs learn from everyone."""
    if not find_entry(config.model).trains_in_epochs:
        validation_fraction = 0.0
    train, val = hold_out(cohort, y, config.task, validation_fraction, config.seed)
    recipe = replace(config.recipe, batch_size=min(config.recipe.batch_size, len(train)))
    learner = make_learner(replace(config, recipe=recipe))
    return learner, learner.fit(cohort, y, train, val, weights, watch=watch)


def check_series(model: str, cohort: Cohort) -> None:
    """Refuse a model that reads time series where there are none."""
    if find_entry(model).needs_series and cohort.timeseries is None:
        raise BadInput(f"Model {model!r} reads time series, and X has none: pass a bnt.Cohort that has them.")
