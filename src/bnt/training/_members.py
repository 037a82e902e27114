"""The members of an ensemble of networks: each trained from its own seed, selected on validation, perhaps refitted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bnt.cohort import Cohort
from bnt.cohort._files import readable
from bnt.cohort._inspect import people_of
from bnt.models import create_model
from bnt.training._batches import Batches, CentredInputs, Whole, prepare, window_of
from bnt.training._checkpoint import Checkpoint, load_kept, save_tensors
from bnt.training._config import RunConfig
from bnt.training._loop import fit
from bnt.training._recipe import Recipe

Lines = list[dict[str, Any]]
State = dict[str, Tensor]
EpochWatcher = Callable[[str, dict[str, Any]], None]


@dataclass
class MemberTraining:
    """One fit of an ensemble; every finished stage is kept, so that a kill loses one epoch at most.

    The attributes are the arguments of its ``fit``; ``recipe`` is the one to train by.
    """

    config: RunConfig
    recipe: Recipe
    cohort: Cohort
    y: np.ndarray
    weights: np.ndarray | None
    folder: Path | None
    watch: EpochWatcher | None

    def member(self, member: int, train: np.ndarray, val: np.ndarray) -> tuple[State, Lines]:
        """Train one member: select on validation, then refit on both parts where the recipe asks for it."""
        recipe = self.recipe
        done = self._kept(f"member{member}")
        if done is not None:
            return done
        weights: State = {}
        lines: Lines = []
        epochs = None  # as the recipe says
        if not (recipe.refit and recipe.select == "last"):
            stage = f"member{member}-selected"
            weights, lines = self._kept(stage) or self._train(stage, member, train, val)
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
    ) -> tuple[State, Lines]:
        """Train one network from its seed, or from its checkpoint, and keep the result of the stage."""
        torch.manual_seed(self.config.seed * 1000 + member)
        model = build(self.config)
        window = window_of(model)
        batches = self._batches(train, window)
        prepare(model, lambda: (batch.x for batch in batches.in_order()))
        watch = self.watch
        state = fit(
            model,
            self.config.task,
            recipe or self.recipe,
            batches,
            None if val is None else self._batches(val, window),
            None if val is None else self.y[val],
            people_val=None if val is None else people_of(self.cohort.participants)[val],
            checkpoint=None if self.folder is None else Checkpoint(self.folder, stage),
            watch=None if watch is None else lambda line: watch(stage, line),
            stop_after=epochs,
            bf16=self.config.bf16,
        )
        lines = [{"stage": stage, **line} for line in state.history]
        lines[-1]["chosen_epoch"] = state.chosen_epoch
        self._keep(stage, state.chosen, lines)
        return state.chosen, lines

    def _batches(self, rows: np.ndarray, window: int | str | Whole) -> Batches:
        """Return labelled subjects as batches."""
        weights = None if self.weights is None else torch.as_tensor(self.weights[rows], dtype=torch.float32)
        targets = self.config.task.targets(self.y[rows])
        return Batches(self.cohort, rows, targets, weights, window=window, device=self.config.device)

    def _kept(self, name: str) -> tuple[State, Lines] | None:
        """Return a finished stage of an interrupted run."""
        if self.folder is None or not (self.folder / f"{name}.safetensors").is_file():
            return None
        kept = load_kept(self.folder / f"{name}.safetensors")
        if kept is None:
            return None
        with readable(self.folder / f"{name}.safetensors", "remove it, and what it kept is trained again"):
            return kept[0], kept[1]["history"]

    def _keep(self, name: str, weights: State, lines: Lines) -> None:
        if self.folder is not None:
            save_tensors(self.folder / f"{name}.safetensors", weights, {"history": lines}, digest=True)


def build(config: RunConfig) -> nn.Module:
    """Make an untrained network as a run describes it."""
    model = create_model(config.model, config.n_rois, config.task.n_outputs, **config.options)
    return (CentredInputs(model, config.n_rois) if config.recipe.inputs == "centred" else model).to(config.device)
