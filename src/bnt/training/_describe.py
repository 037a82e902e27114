"""What a run would be: its inputs checked and written down as a :class:`RunConfig`, before anything is trained."""

from __future__ import annotations

import json
from contextlib import nullcontext
from hashlib import sha256
from typing import Any

import numpy as np
import torch

from bnt.cohort import Cohort
from bnt.errors import BadInput
from bnt.models import create_model, find_entry, model_options
from bnt.splits import Split, check_split
from bnt.training._config import RunConfig
from bnt.training._recipe import Recipe
from bnt.training._task import task_for

LONG_SCAN = 512  # volumes: what the paper reads of ABCD, as 100 of ABIDE


def describe(
    cohort: Cohort,
    label: str,
    split: Split,
    *,
    model: str,
    options: dict[str, Any] | None = None,
    recipe: Recipe,
    recipe_name: str = "default",
    seed: int = 0,
    threads: int = 1,
    device: str = "cpu",
    bf16: bool = False,
    task: str = "auto",
    positive: str | None = None,
) -> RunConfig:
    """Check what a run would need and return its configuration; nothing is written.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.load_cohort("cohort")
    >>> from bnt.splits import named_splits
    >>> from bnt.training import describe, find_recipe
    >>> (split,) = named_splits(cohort, "diagnosis", "site-stratified", n_splits=1)
    >>> config = describe(cohort, "diagnosis", split, model="logistic", recipe=find_recipe("default"))
    >>> config.n_rois
    20
    """
    entry = find_entry(model)
    if entry.needs_series and cohort.timeseries is None:
        raise BadInput(f"Model {model!r} reads time series and {cohort.path or 'the cohort'} has none.")
    rows = split.rows(cohort)
    check_split(cohort, *rows)
    y = cohort.labels(label)
    check_device(device)
    if seed < 0 or threads < 1:
        raise BadInput(f"The seed is {seed} and there are {threads} threads: give at least 0 and at least 1.")
    confounds = [name for name in str((options or {}).get("confounds") or "").split("+") if name]
    for name in confounds:
        if name not in cohort.participants:
            there = ", ".join(cohort.participants.columns)
            raise BadInput(f"The confound {name!r} is no column of participants.tsv of {cohort.path}; it has {there}.")
    config = RunConfig(
        model=entry.name,
        label=label,
        seed=seed,
        recipe=recipe,
        task=task_for(y, task, rows[0], positive),
        recipe_name=recipe_name,
        options=options_for(cohort, model, options or {}),
        revision=entry.revision,
        source_sha256=entry.source_sha256,
        threads=threads,
        device=device,
        bf16=bf16,
        cohort=str(cohort.path.resolve()) if cohort.path else "",
        data_sha256=data_digest(cohort, label, *confounds),
        n_rois=cohort.n_rois,
        kind=cohort.kind,
        diagonal=cohort.diagonal,
        rois=roi_names(cohort),
        split=split.name,
        split_sha256=split.digest(),
    )
    check_options(config)
    return config


def check_device(name: str) -> None:
    """Refuse a device that is not here."""
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise BadInput(f"There is no device {name!r}: choose cpu or cuda (cuda:1 for the second).") from error
    if device.type not in ("cpu", "cuda"):
        raise BadInput(f"There is no device {name!r}: choose cpu or cuda (cuda:1 for the second).")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise BadInput(f"The device is {name!r} and torch finds {torch.cuda.device_count()} GPUs here: choose cpu.")


def check_options(config: RunConfig) -> None:
    """Refuse options that the model cannot be made with and inputs that it cannot read; costs no memory."""
    entry = find_entry(config.model)
    with torch.device("meta") if entry.trains_in_epochs and entry.source_sha256 is None else nullcontext():
        model = create_model(config.model, config.n_rois, config.task.n_outputs, **config.options)
    check_inputs = getattr(model, "check_inputs", None)
    if check_inputs is not None:
        check_inputs(config.kind, config.recipe.inputs)


def options_for(cohort: Cohort, name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options, without those left unset, and what a series model reads of each scan.

    It reads 512 volumes where every scan has as many; otherwise what the model says, cut to the shortest scan.
    """
    options = {name: value for name, value in options.items() if value is not None}
    if find_entry(name).needs_series and "n_volumes" not in options and cohort.timeseries is not None:
        default, shortest = model_options(name).get("n_volumes"), int(cohort.timeseries.lengths.min())
        if default is not None:
            options["n_volumes"] = LONG_SCAN if shortest >= LONG_SCAN else min(int(default), shortest)
    return options


def data_digest(cohort: Cohort, *names: str) -> str:
    """Return a digest of what is learned from: scans, series, sites and the columns named, wherever they lie."""
    columns = [cohort.scans, cohort.sites, *(cohort.participants[name].to_numpy() for name in names)]
    found = sha256(json.dumps([np.asarray(c).astype(str).tolist() for c in columns]).encode())
    if cohort.timeseries is not None:
        found.update(cohort.timeseries.digest().encode())
    return found.hexdigest()


def roi_names(cohort: Cohort) -> tuple[str, ...]:
    """Return the names of the ROIs in their order; none where a ROI has no name."""
    names = tuple(cohort.rois["label"].astype(str))
    return names if all(names) else ()
