"""The training loop over epochs, and the members of an ensemble: each has its own seed, epoch selection and refit."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from math import cos, pi
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bnt.cohort import Cohort
from bnt.cohort._files import readable
from bnt.cohort._inspect import people_of
from bnt.errors import BadInput
from bnt.models import create_model
from bnt.models._own import reported
from bnt.models._registry import in_catalog, short_name
from bnt.nn._kernels import wide_products
from bnt.nn._network import take_steps
from bnt.training._batches import Batch, Batches, CentredInputs, Whole, mixup, prepare, window_of
from bnt.training._checkpoint import Checkpoint, TrainState, load_kept, save_tensors
from bnt.training._config import RunConfig
from bnt.training._processes import ALONE, Group, current
from bnt.training._recipe import Recipe
from bnt.training._task import Task, averaged


def learning_rate(step: int, n_steps: int, lr: float, lr_end: float, warmup: float = 0.0) -> float:
    """Return the rate of ``step`` = 1 ... ``n_steps``: linear warm-up, then half a cosine down to ``lr_end``.

    Step ``n_steps`` has exactly ``lr_end``.
    """
    rising = int(warmup * n_steps)
    if step <= rising:
        return lr * step / rising
    share = (step - rising) / max(n_steps - rising, 1)
    return lr_end + (lr - lr_end) * (1 + cos(pi * share)) / 2


def halved_rate(epoch: int, lr: float, every: int) -> float:
    """Return the rate of ``epoch`` = 1, 2, ...: ``lr``, halved in each epoch that ``every`` divides."""
    return lr * 0.5 ** (epoch // every)


def reuse_freed_memory() -> None:
    """Let the C library keep freed memory for the next step, for the rest of the process.

    By default glibc maps every large tensor anew, and the kernel clears its pages: 1 to 25 % of the CPU time of a step.
    """
    trim_threshold, most_mapped = -1, -4  # M_TRIM_THRESHOLD and M_MMAP_MAX of malloc.h
    with suppress(OSError, AttributeError):  # another C library
        mallopt = ctypes.CDLL("libc.so.6").mallopt
        mallopt(most_mapped, 0)
        mallopt(trim_threshold, 2**31 - 1)


Watcher = Callable[[dict[str, Any]], None]


def fit(
    model: nn.Module,
    task: Task,
    recipe: Recipe,
    train: Batches,
    val: Batches | None = None,
    y_val: np.ndarray | None = None,
    *,
    people_val: np.ndarray | None = None,
    checkpoint: Checkpoint | None = None,
    watch: Watcher | None = None,
    stop_after: int | None = None,
    bf16: bool = False,
) -> TrainState:
    """Train a network and return its state; ``state.chosen`` are the weights to test.

    Parameters
    ----------
    model : Module
        Maps ``(x, series=, target=)`` to an Output with ``logits`` and, perhaps, an auxiliary ``loss``.
    task, recipe
        What is predicted and how it is trained.
    train, val : Batches
        The sets to learn from and to select on.
    y_val : array
        Labels of the validation set.
    people_val : array, optional
        Whose scan each of the validation set is: the scans of a person count as one.
    checkpoint : Checkpoint, optional
        Saved after every epoch; training resumes from it when it is there.
    watch : callable, optional
        Told each epoch's line of metrics.
    stop_after : int, optional
        End after this many epochs of the recipe's schedule.
    bf16 : bool
        Autocast to bfloat16 (for GPUs that have it).
    """
    steps_per_epoch = recipe.steps_per_epoch(len(train))
    recipe = recipe.for_steps(steps_per_epoch)
    state = TrainState(model, recipe)
    if checkpoint is not None:
        checkpoint.restore(state)
    judge = deepcopy(model)
    group = current()  # of processes, each of which takes its part of every batch
    group.check_epoch(state.epoch)
    network = group.wrap(model)
    if steps_per_epoch == 0:
        raise BadInput(
            f"{len(train)} training subjects do not fill one batch of {recipe.batch_size}: lower batch_size."
        )
    n_steps = recipe.planned_steps(len(train), stop_after or 0)

    def rate_of(step: int) -> float:
        if recipe.halve_every:
            return halved_rate(state.epoch + 1, recipe.lr, recipe.halve_every)
        return learning_rate(step, n_steps, recipe.lr, recipe.lr_end, recipe.warmup)

    def loss_of(batch: Batch) -> Tensor:
        if recipe.mixup:
            batch = mixup(batch, recipe.mixup)
        batch, share = group.part(batch)
        target = smoothed(batch.target, recipe.label_smoothing, task)
        with torch.autocast(batch.x.device.type, torch.bfloat16) if bf16 else nullcontext():
            output = network(batch.x, **batch.of_series, target=batch.target)
        loss = task.loss(output.logits.float(), target, batch.weight, recipe.reduction)
        if share < 1:  # the whole batch's loss is the sum of the parts'
            loss = loss * (share if recipe.reduction == "mean" else float(share > 0))
        return loss if output.loss is None else loss + share * output.loss

    while state.epoch < (stop_after or recipe.epochs) and not state.stopped:
        wall, cpu, total = time.perf_counter(), time.process_time(), 0.0
        model.train()
        for batch, loss in take_steps(
            model,
            state.optimiser,
            train.shuffled(recipe.batch_size, recipe.drop_last),
            loss_of,
            rate_of,
            steps_before=state.step,
            averaged=state.averaged,
            clip=recipe.clip,
        ):
            total += float(loss) / (len(batch.x) if recipe.reduction == "sum" else 1)
        state.step += steps_per_epoch
        rate, total = rate_of(state.step), group.total(total)
        if not np.isfinite(total):
            advice = "lower the learning rate or set clip"
            if not state.epoch:
                advice += "; in the first epoch it may also be the model itself that divides by zero"
            raise BadInput(f"The loss became {total} in epoch {state.epoch + 1}: {advice}.")

        state.epoch += 1
        line: dict[str, Any] = {
            "epoch": state.epoch,
            "of": stop_after or recipe.epochs,
            "loss": total / steps_per_epoch,
            "lr": rate,
            "val_score": None,
        }
        if val is not None and y_val is not None:
            judge.load_state_dict(state.weights())
            found = task.predictions(logits_of(judge, val, group=group))
            if people_val is None:
                score = task.score(y_val, found)
            else:
                score = task.score(*averaged(y_val, found, people_val, task.kind == "classification"))
            line["val_score"] = score if np.isfinite(score) else None
        line["seconds"] = round(time.perf_counter() - wall, 3)
        line["cpu_seconds"] = round(time.process_time() - cpu, 3)
        state.history.append(line)
        state.consider()
        if checkpoint is not None:
            checkpoint.save(state)
        if watch is not None:
            watch(state.history[-1])
    if not state.chosen:
        state.choose()
    model.load_state_dict(state.chosen)
    return state


def smoothed(target: Tensor, amount: float, task: Task) -> Tensor:
    """Return targets with label smoothing."""
    if not amount or task.kind == "regression":
        return target
    return target * (1 - amount) + amount / task.n_outputs


@wide_products()
@torch.no_grad()
def logits_of(model: nn.Module, batches: Batches, batch_size: int = 64, group: Group = ALONE) -> Tensor:
    """Return the logits of every subject, in evaluation mode; of several processes each evaluates some batches."""
    model.eval()
    mine = batches.in_order(batch_size, group.rank, group.size)
    return group.joined([model(b.x, **b.of_series).logits.float() for b in mine], len(batches), batch_size)


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
        """Train one member: select on validation, then refit on both sets where the recipe asks for it."""
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
        own = (
            nullcontext()
            if in_catalog(self.config.model)
            else reported(f"{short_name(self.config.model)} cannot be trained")
        )
        with own:
            state = fit(
                model,
                self.config.task,
                recipe or self.recipe,
                batches,
                None if val is None else self._batches(val, window),
                None if val is None else self.y[val],
                people_val=None if val is None else people_of(self.cohort.participants)[val],
                checkpoint=None if self.folder is None else Checkpoint(self.folder, stage, writes=current().first),
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
        if self.folder is not None and current().first:
            save_tensors(self.folder / f"{name}.safetensors", weights, {"history": lines}, digest=True)


def build(config: RunConfig) -> nn.Module:
    """Make an untrained network as a run describes it."""
    model = create_model(config.model, config.n_rois, config.task.n_outputs, **config.options)
    return (CentredInputs(model, config.n_rois) if config.recipe.inputs == "centred" else model).to(config.device)
