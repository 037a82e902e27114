"""The part of the training subjects that weights are selected on."""

from __future__ import annotations

import numpy as np

from bnt.cohort import Cohort
from bnt.errors import BadInput
from bnt.splits.allocate import allocate
from bnt.splits.strata import classes_of, strata_of, units_of
from bnt.training.task import Task

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
