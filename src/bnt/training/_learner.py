"""Whatever learns, behind one interface: fit, predict, state.

===========================================  =========================================================================
``learner = make_learner(config)``           chosen by the model's row in the catalogue
``learner.fit(cohort, y, train, val)``       learn from positions ``train``, select on ``val``; returns lines of metrics
``learner.predict(cohort, rows)``            (n, C) probabilities, or (n, 1) targets in their own units
``learner.predict_each(cohort, rows)``       the same of each member, (members, n, C)
``learner.state()``, ``learner.load(...)``   what ``weights.safetensors`` holds: ``member0.<name>``
``learner.models``                           the fitted objects: one network per member, or the one model
``learner.networks()``                       torch modules in evaluation mode; BadInput where there are none
===========================================  =========================================================================

:class:`NetworkLearner` trains torch modules epoch by epoch: members from different seeds, selected, perhaps refitted,
averaged. :class:`DirectLearner` fits models that have no epochs: classical, hybrid, and users' own of scikit-learn.
Every prediction of the package is made by :meth:`Learner.predict_each`.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bnt.cohort import Cohort
from bnt.errors import BadInput
from bnt.models import create_model, find_entry
from bnt.models.classical._inputs import Inputs
from bnt.training._batches import RESIDENT_BYTES, Batches, CentredInputs, Whole, prepare, window_of
from bnt.training._checkpoint import Checkpoint, load_tensors, save_tensors
from bnt.training._config import RunConfig
from bnt.training._loop import fit, logits_of
from bnt.training._recipe import Recipe

Lines = list[dict[str, Any]]
State = dict[str, Tensor]
EpochWatcher = Callable[[str, dict[str, Any]], None]


class Learner(ABC):
    """A model of one run, before or after it is fitted.

    Parameters
    ----------
    config : RunConfig

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.load_cohort("cohort")
    >>> from bnt.training import TrainedRun
    >>> trained = TrainedRun("run")  # a folder made by bnt train
    >>> trained.learner.predict(cohort, rows=[0, 1, 2]).shape
    (3, 2)
    """

    def __init__(self, config: RunConfig) -> None:
        self.config = config

    @abstractmethod
    def fit(
        self,
        cohort: Cohort,
        y: np.ndarray,
        train: np.ndarray,
        val: np.ndarray,
        weights: np.ndarray | None = None,
        folder: Path | None = None,
        watch: EpochWatcher | None = None,
    ) -> Lines:
        """Learn from training subjects.

        Parameters
        ----------
        cohort : Cohort
        y : array
            Labels of the whole cohort.
        train, val : array of int
            Positions to learn from and to select on; ``val`` may be empty.
        weights : array, optional
            Sample weights of the whole cohort.
        folder : path, optional
            Where checkpoints go; none are kept without it.
        watch : callable, optional
            Told the stage and each epoch's metrics.

        Returns
        -------
        list of dict
            One line per epoch; none for models without epochs.
        """

    @abstractmethod
    def predict_each(self, cohort: Cohort, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the predictions of each member, (members, n, C) or (members, n, 1)."""

    def predict(self, cohort: Cohort, rows: np.ndarray | None = None) -> np.ndarray:
        """Return class probabilities (n, C), or targets (n, 1) in their own units: the members' mean."""
        return self.predict_each(cohort, rows).mean(axis=0)

    @abstractmethod
    def state(self) -> State:
        """Return what was learned, by name."""

    @abstractmethod
    def load(self, state: State) -> None:
        """Take what :meth:`state` returned."""

    @property
    @abstractmethod
    def n_parameters(self) -> int:
        """Number of learned values, of all members."""

    @property
    @abstractmethod
    def models(self) -> list[Any]:
        """The fitted objects: one network per member, or the one model without epochs."""

    @property
    def n_members(self) -> int:
        """Number of fitted objects, whose predictions are averaged."""
        return len(self.models)

    def networks(self) -> Iterator[nn.Module]:
        """Yield each member's network in evaluation mode."""
        raise self._no_network()

    def batches(self, cohort: Cohort, rows: np.ndarray, resident_bytes: int = RESIDENT_BYTES) -> Batches:
        """Return subjects as the networks read them, without labels."""
        raise self._no_network()

    def _no_network(self) -> BadInput:
        return BadInput(f"Model {self.config.model!r} is no neural network: it has no attention and no clusters.")

    def clean_up(self, folder: Path) -> None:  # noqa: B027 - most learners keep nothing
        """Remove what :meth:`fit` kept in ``folder`` to resume from."""


def make_learner(config: RunConfig) -> Learner:
    """Return the learner for a run's model, as its row in the catalogue says.

    Examples
    --------
    >>> from bnt.training import TrainedRun, make_learner
    >>> trained = TrainedRun("run")  # a folder made by bnt train
    >>> learner = make_learner(trained.config)  # not fitted
    >>> type(learner).__name__
    'NetworkLearner'
    """
    return NetworkLearner(config) if find_entry(config.model).trains_in_epochs else DirectLearner(config)


# -- networks --------------------------------------------------------------------------------------


class NetworkLearner(Learner):
    """Torch modules, one per member."""

    def __init__(self, config: RunConfig) -> None:
        super().__init__(config)
        self.members: list[nn.Module] = []

    def fit(
        self,
        cohort: Cohort,
        y: np.ndarray,
        train: np.ndarray,
        val: np.ndarray,
        weights: np.ndarray | None = None,
        folder: Path | None = None,
        watch: EpochWatcher | None = None,
    ) -> Lines:
        """Train the members; without ``val`` on everyone, and the last weights are taken.

        Weights are scaled to a mean of 1, which keeps the size of the steps.
        """
        recipe = self.config.recipe
        if not len(val):
            recipe = replace(recipe, select="last", patience=0, refit=True)
        if weights is not None:
            weights = weights / weights.mean()
        training = MemberTraining(self.config, recipe, cohort, y, weights, folder, watch)
        states, history = [], []
        for member in range(recipe.n_members):
            state, lines = training.member(member, train, val)
            states.append(state)
            history += [{"member": member, **line} for line in lines]
        self._set_members(states)
        return history

    def _set_members(self, states: list[State]) -> None:
        first = build(self.config).eval()
        self.members = [first, *(deepcopy(first) for _ in states[1:])]
        for network, state in zip(self.members, states):
            network.load_state_dict(state)

    @property
    def models(self) -> list[nn.Module]:
        """One network per member."""
        return self.members

    @property
    def n_parameters(self) -> int:
        """Parameters of all members, frozen ones included."""
        return sum(p.numel() for network in self.members for p in network.parameters())

    def networks(self) -> Iterator[nn.Module]:
        """Yield each member's network in evaluation mode."""
        yield from self.members

    def batches(self, cohort: Cohort, rows: np.ndarray, resident_bytes: int = RESIDENT_BYTES) -> Batches:
        """Return subjects as the networks read them, without labels."""
        empty = torch.zeros(len(rows), self.config.task.n_outputs)
        window = window_of(self.members[0])
        return Batches(cohort, rows, empty, window=window, device=self.config.device, resident_bytes=resident_bytes)

    def predict_each(self, cohort: Cohort, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the predictions of each member."""
        batches = self.batches(cohort.with_diagonal(self.config.diagonal), _every_row(cohort, rows))
        return np.stack([self.config.task.predictions(logits_of(network, batches)) for network in self.networks()])

    def state(self) -> State:
        """Return the members' weights."""
        return {f"member{i}.{k}": v for i, m in enumerate(self.members) for k, v in m.state_dict().items()}

    def load(self, state: State) -> None:
        """Take the members' weights; torch's random numbers stay as they are."""
        with torch.random.fork_rng(devices=[]):
            self._set_members(_by_member(state))

    def clean_up(self, folder: Path) -> None:
        """Remove the checkpoint and the finished stages."""
        Checkpoint(folder, "").remove()
        for file in folder.glob("member*.safetensors"):
            file.unlink()


@dataclass
class MemberTraining:
    """One fit of a :class:`NetworkLearner`; every finished stage is kept, so that a kill loses one epoch at most.

    The attributes are the arguments of :meth:`Learner.fit`; ``recipe`` is the one to train by.
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
        weights, facts = load_tensors(self.folder / f"{name}.safetensors")
        return weights, facts["history"]

    def _keep(self, name: str, weights: State, lines: Lines) -> None:
        if self.folder is not None:
            save_tensors(self.folder / f"{name}.safetensors", weights, {"history": lines})


def build(config: RunConfig) -> nn.Module:
    """Make an untrained network as a run describes it."""
    model = create_model(config.model, config.n_rois, config.task.n_outputs, **config.options)
    return (CentredInputs(model, config.n_rois) if config.recipe.inputs == "centred" else model).to(config.device)


# -- models without epochs -------------------------------------------------------------------------


class DirectLearner(Learner):
    """An object with ``fit`` and ``predict_proba`` (or ``predict``): classical, hybrid, or a user's own."""

    def __init__(self, config: RunConfig) -> None:
        super().__init__(config)
        self.model = create_model(config.model, config.n_rois, config.task.n_outputs, **config.options)
        if hasattr(self.model, "seed") and "seed" not in config.options:
            self.model.seed = config.seed  # a model that draws numbers draws them from the run's seed
        self._every_atlas = find_entry(config.model).every_atlas

    @property
    def models(self) -> list[Any]:
        """The one model."""
        return [self.model]

    def fit(
        self,
        cohort: Cohort,
        y: np.ndarray,
        train: np.ndarray,
        val: np.ndarray,
        weights: np.ndarray | None = None,
        folder: Path | None = None,
        watch: EpochWatcher | None = None,
    ) -> Lines:
        """Fit on training subjects, and on validation too where the recipe refits."""
        rows = np.concatenate([train, val]) if self.config.recipe.refit else train
        given = {}
        if weights is not None:
            if "sample_weight" not in inspect.signature(self.model.fit).parameters:
                raise BadInput(f"Model {self.config.model!r} takes no sample_weight: leave it out.")
            given["sample_weight"] = weights[rows]
        self.model.fit(Inputs.of(cohort, rows, self._every_atlas), self.config.task.encode(y[rows]), **given)
        return []

    def predict_each(self, cohort: Cohort, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the predictions of the only member."""
        chosen = cohort.with_diagonal(self.config.diagonal)
        inputs = Inputs.of(chosen, _every_row(cohort, rows), self._every_atlas)
        task = self.config.task
        if task.kind == "regression":
            scaled = np.asarray(self.model.predict(inputs), dtype=np.float64).reshape(-1, 1)
            return (scaled * task.sd + task.mean)[None]
        return np.asarray(self.model.predict_proba(inputs), dtype=np.float64)[None]

    @property
    def n_parameters(self) -> int:
        """Number of learned values."""
        return sum(np.size(value) for value in self.model.state_dict().values())

    def state(self) -> State:
        """Return the learned arrays, as the run's only member."""
        # Copies, because parts of an ensemble may share an array, which safetensors refuses.
        return {f"member0.{k}": torch.from_numpy(np.array(v)) for k, v in self.model.state_dict().items()}

    def load(self, state: State) -> None:
        """Take the learned arrays."""
        self.model.load_state_dict({k: v.numpy() for k, v in _by_member(state)[0].items()})


def _every_row(cohort: Cohort, rows: np.ndarray | None) -> np.ndarray:
    return np.arange(len(cohort)) if rows is None else np.asarray(rows)


def _by_member(state: State) -> list[State]:
    """Return each member's part of a state."""
    parts: dict[str, State] = {}
    for name, value in state.items():
        member, _, key = name.partition(".")
        parts.setdefault(member, {})[key] = value
    if set(parts) != {f"member{i}" for i in range(len(parts))}:
        odd = next(name for name in parts if name not in {f"member{i}" for i in range(len(parts))})
        raise BadInput(f"The weights name {odd[:80]!r}, and have {len(parts)} members, from member0 on: train again.")
    return [parts[f"member{i}"] for i in range(len(parts))]
