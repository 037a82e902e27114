"""Fitting any model of the catalogue to a cohort in memory: networks and classical ones alike."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bnt.cohort import Cohort
from bnt.errors import BadInput
from bnt.models import find_entry
from bnt.training.batches import Batches
from bnt.training.classical import classical_predictions, unfitted
from bnt.training.config import RunConfig
from bnt.training.loop import logits_of
from bnt.training.network import EpochWatcher, Lines, NetworkRun, window_of


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
    from bnt.models.inputs import Inputs

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
    if find_entry(config.model).family != "network":
        from bnt.models.inputs import Inputs

        return classical_predictions(config, members[0], Inputs.of(cohort, rows))
    empty = torch.zeros(len(rows), config.task.n_outputs)
    batches = Batches(cohort, rows, empty, window=window_of(members[0]), device=config.device)
    return np.mean([config.task.predictions(logits_of(model, batches)) for model in members], axis=0)


def check_series(model: str, cohort: Cohort) -> None:
    """Refuse a model that reads time series where there are none."""
    if find_entry(model).needs_series and cohort.timeseries is None:
        raise BadInput(f"Model {model!r} reads time series, and X has none: pass a bnt.Cohort that has them.")
