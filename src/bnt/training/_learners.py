"""One run's networks: members from different seeds, selected, perhaps refitted, and averaged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bnt.cohort import Cohort
from bnt.models import create_model, find_entry, model_options
from bnt.models._inputs import Inputs
from bnt.training._batches import Batches, CentredInputs, prepare
from bnt.training._checkpoint import Checkpoint, load_tensors, save_tensors
from bnt.training._config import RunConfig
from bnt.training._loop import fit, logits_of
from bnt.training._recipe import Recipe

Lines = list[dict[str, Any]]
EpochWatcher = Callable[[str, dict[str, Any]], None]


LONG_SCAN = 512  # volumes: what the paper reads of ABCD, as 100 of ABIDE


def window_of(model: nn.Module) -> int | str:
    """Return how many volumes of each series a model reads, 0 if none, or the kind of connectivity that it reads."""
    return getattr(model, "series_kind", "") or int(getattr(model, "n_volumes", 0))


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


def build(config: RunConfig) -> nn.Module:
    """Make an untrained network as a run describes it."""
    model = create_model(config.model, config.n_rois, config.task.n_outputs, **config.options)
    return (CentredInputs(model, config.n_rois) if config.recipe.inputs == "centred" else model).to(config.device)


class NetworkRun:
    """Train the members of one run; every finished stage is kept, so that a kill loses one epoch at most.

    Parameters
    ----------
    config : RunConfig
    cohort : Cohort
    y : array
        Labels of the whole cohort.
    weights : array, optional
        Sample weights of the whole cohort.
    folder : path, optional
        Where checkpoints go; none are kept without it.
    watch : callable, optional
        Told the stage and each epoch's metrics.
    """

    def __init__(
        self,
        config: RunConfig,
        cohort: Cohort,
        y: np.ndarray,
        weights: np.ndarray | None = None,
        *,
        folder: Path | None = None,
        watch: EpochWatcher | None = None,
    ) -> None:
        self.config, self.cohort, self.y, self.folder, self.watch = config, cohort, y, folder, watch
        self.sample_weights = weights

    def build(self) -> nn.Module:
        """Make an untrained network of this run."""
        return build(self.config)

    def batches(self, rows: np.ndarray, window: int | str) -> Batches:
        """Return the subjects of ``rows`` as batches."""
        weights = None
        if self.sample_weights is not None:
            weights = torch.as_tensor(self.sample_weights[rows], dtype=torch.float32)
        targets = self.config.task.targets(self.y[rows])
        return Batches(self.cohort, rows, targets, weights, window=window, device=self.config.device)

    def fit(self, train: np.ndarray, val: np.ndarray) -> tuple[list[dict[str, Tensor]], list[dict[str, Any]]]:
        """Return each member's weights and all lines of metrics."""
        members, history = [], []
        for member in range(self.config.recipe.n_members):
            weights, lines = self._member(member, train, val)
            members.append(weights)
            history += [{"member": member, **line} for line in lines]
        return members, history

    def _member(self, member: int, train: np.ndarray, val: np.ndarray) -> tuple[dict[str, Tensor], Lines]:
        """Train one member: select on validation, then refit on both parts where the recipe asks for it."""
        recipe = self.config.recipe
        done = self._kept(f"member{member}")
        if done is not None:
            return done
        weights: dict[str, Tensor] = {}
        lines: Lines = []
        epochs = None  # as the recipe says
        if not (recipe.refit and recipe.select == "last"):
            selected = self._kept(f"member{member}-selected") or self._train(
                f"member{member}-selected", member, train, val
            )
            weights, lines = selected
            epochs = lines[-1]["chosen_epoch"]
        if recipe.refit:
            fixed = replace(recipe, select="last", patience=0)
            everyone = np.concatenate([train, val])
            weights, again = self._train(f"member{member}-refit", member, everyone, None, recipe=fixed, epochs=epochs)
            lines = lines + again
        self._keep(f"member{member}", weights, lines)
        return weights, lines

    def _train(
        self,
        stage: str,
        member: int,
        train: np.ndarray,
        val: np.ndarray | None,
        *,
        recipe: Recipe | None = None,
        epochs: int | None = None,
    ) -> tuple[dict[str, Tensor], Lines]:
        """Train one network from its seed, or from its checkpoint, and keep the result of the stage."""
        torch.manual_seed(self.config.seed * 1000 + member)
        model = self.build()
        window = window_of(model)
        batches = self.batches(train, window)
        prepare(model, lambda: (batch.x for batch in batches.in_order()))
        watch = self.watch
        state = fit(
            model,
            self.config.task,
            recipe or self.config.recipe,
            batches,
            None if val is None else self.batches(val, window),
            None if val is None else self.y[val],
            checkpoint=None if self.folder is None else Checkpoint(self.folder, stage),
            watch=None if watch is None else lambda line: watch(stage, line),
            stop_after=epochs,
            bf16=self.config.bf16,
        )
        lines = [{"stage": stage, **line} for line in state.history]
        lines[-1]["chosen_epoch"] = state.chosen_epoch
        self._keep(stage, state.chosen, lines)
        return state.chosen, lines

    def _kept(self, name: str) -> tuple[dict[str, Tensor], Lines] | None:
        """Return a finished stage of an interrupted run."""
        if self.folder is None or not (self.folder / f"{name}.safetensors").is_file():
            return None
        weights, facts = load_tensors(self.folder / f"{name}.safetensors")
        return weights, facts["history"]

    def _keep(self, name: str, weights: dict[str, Tensor], lines: Lines) -> None:
        if self.folder is not None:
            save_tensors(self.folder / f"{name}.safetensors", weights, {"history": lines})

    def sweep(self) -> None:
        """Remove checkpoints and kept stages once the run's results are written."""
        if self.folder is not None:
            Checkpoint(self.folder, "").remove()
            for file in self.folder.glob("member*.safetensors"):
                file.unlink()

    def predict(self, members: list[dict[str, Tensor]], rows: np.ndarray) -> np.ndarray:
        """Return the members' mean predictions for some subjects."""
        model = self.build()
        batches = self.batches_to_predict(rows, window_of(model))
        each = []
        for weights in members:
            model.load_state_dict(weights)
            each.append(self.config.task.predictions(logits_of(model, batches)))
        return np.mean(each, axis=0)

    def batches_to_predict(self, rows: np.ndarray, window: int | str) -> Batches:
        """Return subjects without labels as batches."""
        empty = torch.zeros(len(rows), self.config.task.n_outputs)
        return Batches(self.cohort, rows, empty, window=window, device=self.config.device)


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
