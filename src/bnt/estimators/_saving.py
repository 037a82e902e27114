"""A fitted estimator as a folder of plain files, and back. No pickle is written or read."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from bnt.cohort._files import new_folder, write_atomic
from bnt.cohort._triangle import n_edges
from bnt.errors import BadInput
from bnt.estimators._base import BrainNetworkEstimator, plain
from bnt.estimators._fitting import checked_device
from bnt.estimators._layout import Layout
from bnt.training._checkpoint import save_tensors
from bnt.training._config import write_toml
from bnt.training._recipe import Recipe
from bnt.training._trained import TrainedRun

NOTE = "estimator.json"


def save_estimator(estimator: BrainNetworkEstimator, path: Path, *, overwrite: bool) -> Path:
    """Write the estimator to a new folder, whole or not at all."""
    config = estimator.config_
    parameters = plain(estimator.get_params())
    if isinstance(estimator.recipe, Recipe):
        parameters["recipe"] = asdict(estimator.recipe)
    parameters["random_state"] = config.seed
    note = {
        "estimator": type(estimator).__name__,
        "parameters": parameters,
        "options": config.options,
        "layout": asdict(estimator._layout),
        "history": estimator.history_,
        "n_iter": estimator.n_iter_,
    }
    if hasattr(estimator, "classes_"):
        note["classes_dtype"] = estimator.classes_.dtype.str
    if hasattr(estimator, "feature_names_in_"):
        note["feature_names_in"] = estimator.feature_names_in_.tolist()
    with new_folder(path, overwrite=overwrite, marker=NOTE) as work:
        write_atomic(work / "config.toml", write_toml(config.to_dict()))
        save_tensors(
            work / "weights.safetensors", estimator._learner.state(), {"members": estimator._learner.n_members}
        )
        write_atomic(work / NOTE, json.dumps(note, indent=2) + "\n")
        write_atomic(work / "DONE", config.digest() + "\n")
    return path


def load_estimator(cls: type, path: Path, device: str, model_file: str | Path | None = None) -> Any:
    """Make an estimator of this class from a folder of :func:`save_estimator`, or from a finished run."""
    note = _note(path)
    checked_device(device)
    # TOML has no None and no nested tables among our options, JSON has both.
    run = TrainedRun(path, device=device, options=note.get("options"), model_file=model_file)
    config = run.config
    wanted = "classification" if hasattr(cls, "predict_proba") else "regression"
    if config.task.kind != wanted:
        other = "BrainNetworkRegressor" if wanted == "classification" else "BrainNetworkClassifier"
        raise BadInput(f"{path} holds a model for {config.task.kind}: open it with {other}.load.")
    parameters = note.get("parameters") or {
        "model": config.model,
        "options": dict(config.options),
        "recipe": asdict(config.recipe),
        "random_state": config.seed,
    }
    if isinstance(parameters.get("recipe"), dict):
        parameters["recipe"] = Recipe(**parameters["recipe"])
    # The model is the one that was checked: the note may name another file, which fit would run.
    estimator = cls(**parameters | {"device": device, "model": config.model})
    layout = note.get("layout") or Layout(n_edges(config.n_rois), config.n_rois, config.diagonal, config.kind)
    estimator._keep(config, layout, run.learner, note.get("history", []))
    estimator.n_features_in_ = layout.n_features
    estimator.n_iter_ = note.get("n_iter", estimator.n_iter_)
    if config.task.kind == "classification":
        estimator.classes_ = np.sort(np.array(config.task.classes, dtype=note.get("classes_dtype")))
    if "feature_names_in" in note:
        estimator.feature_names_in_ = np.array(note["feature_names_in"], dtype=object)
    return estimator


def _note(path: Path) -> dict[str, Any]:
    """Return what the estimator wrote beside the weights; a run of ``bnt train`` has no such file."""
    if not (path / NOTE).is_file():
        return {}
    try:
        note = json.loads((path / NOTE).read_text())
        return note | {"layout": Layout(**note["layout"]), "parameters": dict(note["parameters"])}
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise BadInput(
            f"{path / NOTE} is not an estimator's note of this version ({error!r}): save it again."
        ) from error
