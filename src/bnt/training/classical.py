"""The classical models in a run: fitted on the training part, tested like the networks."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from bnt.cohort import Cohort
from bnt.models import create_model
from bnt.models.inputs import Inputs
from bnt.training.config import RunConfig


def unfitted(config: RunConfig) -> Any:
    """Return the run's model before it is fitted; one that draws numbers draws them from the run's seed."""
    model = create_model(config.model, config.n_rois, config.task.n_outputs, **config.options)
    if hasattr(model, "seed") and "seed" not in config.options:
        model.seed = config.seed
    return model


def fit_classical(
    config: RunConfig, cohort: Cohort, y: np.ndarray, train: np.ndarray, val: np.ndarray, predict: np.ndarray
) -> tuple[dict[str, Tensor], np.ndarray, int]:
    """Fit on training (and validation, where the recipe refits) and predict.

    Returns
    -------
    state : dict of Tensor
        What the model learned, named as a run's only member.
    predicted : array, (len(predict), C)
        Probabilities, or targets in their own units.
    n_parameters : int
    """
    rows = np.concatenate([train, val]) if config.recipe.refit else train
    model = unfitted(config)
    model.fit(Inputs.of(cohort, rows), config.task.encode(y[rows]))
    state = model.state_dict()
    # Copies, because parts of an ensemble may share an array, which safetensors refuses.
    named = {f"member0.{k}": torch.from_numpy(np.array(v)) for k, v in state.items()}
    return named, classical_predictions(config, model, Inputs.of(cohort, predict)), sum(v.size for v in state.values())


def classical_predictions(config: RunConfig, model: object, inputs: Inputs) -> np.ndarray:
    """Return class probabilities, or targets in their own units as one column."""
    if config.task.kind == "regression":
        scaled = model.predict(inputs)  # type: ignore[attr-defined]
        return np.asarray(scaled, dtype=np.float64).reshape(-1, 1) * config.task.sd + config.task.mean
    return np.asarray(model.predict_proba(inputs), dtype=np.float64)  # type: ignore[attr-defined]
