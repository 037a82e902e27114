"""One interface for all models: fit, predict and state.

===========================================  =========================================================================
``learner = make_learner(config)``           chosen by the model's row in the catalogue
``learner.fit(cohort, y, train, val)``       learn from positions ``train``, select on ``val``; returns lines of metrics
``learner.predict(cohort, rows)``            (n, C) probabilities, or (n, 1) targets in their own units
``learner.predict_each(cohort, rows)``       the same of each member, (members, n, C)
``learner.state()``, ``learner.load(...)``   what ``weights.safetensors`` holds: ``member0.<name>``
``learner.models``                           the fitted objects: one network per member, or the one model
``learner.networks()``                       torch modules in evaluation mode; BadInput where there are none
``learner.prepared(cohort)``                 the cohort as the models read it: harmonised, without confounds
===========================================  =========================================================================

:class:`NetworkLearner` trains torch modules epoch by epoch: members from different seeds, selected, perhaps refitted,
averaged. :class:`DirectLearner` fits models that have no epochs: classical, hybrid, and users' own of scikit-learn.
Every prediction of the package is made by :meth:`Learner.predict_each`. What is done around any model
(:mod:`bnt.training._adjustments`) is done here, in :meth:`Learner.fit` and :meth:`Learner.prepared`, and kept in the
state.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.utils.class_weight import compute_sample_weight
from torch import nn

from bnt._words import say
from bnt.cohort import Cohort
from bnt.errors import BadInput
from bnt.models import create_model, find_entry
from bnt.models.classical._inputs import Inputs
from bnt.training._adjustments import check_decisions, decision_adjustment, edge_adjustment
from bnt.training._batches import RESIDENT_BYTES, Batches, window_of
from bnt.training._checkpoint import Checkpoint
from bnt.training._config import RunConfig
from bnt.training._loop import EpochWatcher, Lines, MemberTraining, State, build, logits_of

ADJUSTMENT = "adjustment."  # before the names of what the adjustments learned


class Given(NamedTuple):
    """What a learner is given to :meth:`Learner.fit`, its cohort prepared."""

    cohort: Cohort
    y: np.ndarray
    train: np.ndarray
    val: np.ndarray
    weights: np.ndarray | None
    folder: Path | None
    watch: EpochWatcher | None


class Learner(ABC):
    """The model of a run, before or after it is fitted.

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
        self.adjustment, self.decisions = edge_adjustment(config), decision_adjustment(config)
        self.solver = ""  # how a classical model was solved, in one sentence, where that was not in memory

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
            Called with the stage and the metrics of each epoch.

        Returns
        -------
        list of dict
            One line per epoch; none for models without epochs.
        """
        if self.decisions is not None:
            check_decisions(len(val))  # before training, which takes long
        if self.adjustment is not None:
            self.adjustment.fit(cohort, train)
        if self.config.adjustments.class_weight == "balanced":
            weights = compute_sample_weight("balanced", y, indices=train) * (1.0 if weights is None else weights)
        ready = self.prepared(cohort, np.concatenate([train, val]))
        lines = self._fit(Given(ready, y, train, val, weights, folder, watch))
        if self.decisions is not None:
            said = self._predict_each(ready.with_diagonal(self.config.diagonal), val).mean(axis=0)
            self.decisions.fit(said, cohort.select(val).participants)
        return lines

    @abstractmethod
    def _fit(self, given: Given) -> Lines:
        """Do what :meth:`fit` promises, with a cohort that is prepared."""

    def prepared(self, cohort: Cohort, rows: np.ndarray | None = None) -> Cohort:
        """Return the cohort as the models read it; the cohort itself where nothing is adjusted, or all is already.

        Parameters
        ----------
        cohort : Cohort
        rows : array of int, optional
            The subjects that will be read: sites that training has not seen are estimated from these.
        """
        return cohort if self.adjustment is None else self.adjustment.apply(cohort, rows)

    def notes(self, cohort: Cohort, rows: np.ndarray | None = None) -> dict[str, str]:
        """Return what is done with the subjects of each site that training has not seen, in a sentence."""
        return {} if self.adjustment is None else self.adjustment.notes(cohort, rows)

    def predict_each(self, cohort: Cohort, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the predictions of each member, (members, n, C) or (members, n, 1)."""
        rows = np.arange(len(cohort)) if rows is None else np.asarray(rows)
        found = self._predict_each(self.prepared(cohort.with_diagonal(self.config.diagonal), rows), rows)
        return found if self.decisions is None else self.decisions.apply(found, cohort.select(rows).participants)

    @abstractmethod
    def _predict_each(self, cohort: Cohort, rows: np.ndarray) -> np.ndarray:
        """Do what :meth:`predict_each` promises, with a cohort that is prepared."""

    def predict(self, cohort: Cohort, rows: np.ndarray | None = None) -> np.ndarray:
        """Return class probabilities (n, C), or targets (n, 1) in their own units: the members' mean."""
        return self.predict_each(cohort, rows).mean(axis=0)

    def state(self) -> State:
        """Return what was learned, by name."""
        learned = {k: v for one in (self.adjustment, self.decisions) if one is not None for k, v in one.state().items()}
        return self._state() | {f"{ADJUSTMENT}{k}": torch.from_numpy(np.array(v)) for k, v in learned.items()}

    def load(self, state: State) -> None:
        """Take what :meth:`state` returned."""
        kept = {k.removeprefix(ADJUSTMENT): v.numpy() for k, v in state.items() if k.startswith(ADJUSTMENT)}
        for one in (self.adjustment, self.decisions):
            if one is not None:
                one.load(kept)
        self._load({k: v for k, v in state.items() if not k.startswith(ADJUSTMENT)})

    @abstractmethod
    def _state(self) -> State:
        """Return what the members learned."""

    @abstractmethod
    def _load(self, state: State) -> None:
        """Take what the members learned."""

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
        return BadInput(f"Model {self.config.model!r} is not a neural network: it has no attention and no clusters.")

    def clean_up(self, folder: Path) -> None:  # noqa: B027 - most learners keep nothing
        """Remove what :meth:`fit` kept in ``folder`` to resume from."""


def make_learner(config: RunConfig) -> Learner:
    """Return the learner of a run's model, by its entry in the catalogue.

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

    def _fit(self, given: Given) -> Lines:
        """Train the members; without ``val`` on everyone, and the last weights are taken.

        Weights are scaled to a mean of 1, which keeps the size of the steps.
        """
        cohort, y, train, val, weights, folder, watch = given
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
        cohort = self.prepared(cohort, rows)
        return Batches(cohort, rows, empty, window=window, device=self.config.device, resident_bytes=resident_bytes)

    def _predict_each(self, cohort: Cohort, rows: np.ndarray) -> np.ndarray:
        """Return the predictions of each member."""
        batches = self.batches(cohort, rows)
        return np.stack([self.config.task.predictions(logits_of(network, batches)) for network in self.networks()])

    def _state(self) -> State:
        """Return the members' weights."""
        return {f"member{i}.{k}": v for i, m in enumerate(self.members) for k, v in m.state_dict().items()}

    def _load(self, state: State) -> None:
        """Take the members' weights; torch's random numbers stay as they are."""
        with torch.random.fork_rng(devices=[]):
            self._set_members(_by_member(state))

    def clean_up(self, folder: Path) -> None:
        """Remove the checkpoint and the finished stages."""
        Checkpoint(folder, "").remove()
        for file in folder.glob("member*.safetensors"):
            file.unlink()


# -- models without epochs -------------------------------------------------------------------------


class DirectLearner(Learner):
    """An object with ``fit`` and ``predict_proba`` (or ``predict``): classical, hybrid, or a user's own."""

    def __init__(self, config: RunConfig) -> None:
        super().__init__(config)
        self.model = create_model(config.model, config.n_rois, config.task.n_outputs, **config.options)
        if hasattr(self.model, "seed") and "seed" not in config.options:
            self.model.seed = config.seed  # a model that draws numbers draws them from the run's seed
        entry = find_entry(config.model)
        self._every_atlas, self._bounded = entry.every_atlas, entry.family == "classical"

    def _inputs(self, cohort: Cohort, rows: np.ndarray) -> Inputs:
        return Inputs.of(cohort, rows, self._every_atlas, self._bounded)

    @property
    def models(self) -> list[Any]:
        """The one model."""
        return [self.model]

    def _fit(self, given: Given) -> Lines:
        """Fit on training subjects, and on validation too where the recipe refits."""
        cohort, y, train, val, weights, *_ = given
        rows = np.concatenate([train, val]) if self.config.recipe.refit else train
        weighted = {}
        if weights is not None:
            if "sample_weight" not in inspect.signature(self.model.fit).parameters:
                what = "class_weight" if self.config.adjustments.class_weight else "sample_weight"
                raise BadInput(f"Model {self.config.model!r} takes no weights: leave {what} out.", what)
            weighted["sample_weight"] = weights[rows]
        inputs = self._inputs(cohort, rows)
        self.solver = inputs.solver()
        if self.solver:
            say(self.solver)
        self.model.fit(inputs, self.config.task.encode(y[rows]), **weighted)
        return []

    def _predict_each(self, cohort: Cohort, rows: np.ndarray) -> np.ndarray:
        """Return the predictions of the only member."""
        inputs = self._inputs(cohort, rows)
        task = self.config.task
        if task.kind == "regression":
            scaled = np.asarray(self.model.predict(inputs), dtype=np.float64).reshape(-1, 1)
            return (scaled * task.sd + task.mean)[None]
        return np.asarray(self.model.predict_proba(inputs), dtype=np.float64)[None]

    @property
    def n_parameters(self) -> int:
        """Number of learned values."""
        return sum(np.size(value) for value in self.model.state_dict().values())

    def _state(self) -> State:
        """Return the learned arrays, as the run's only member."""
        # Copies, because parts of an ensemble may share an array, which safetensors refuses.
        return {f"member0.{k}": torch.from_numpy(np.array(v)) for k, v in self.model.state_dict().items()}

    def _load(self, state: State) -> None:
        """Take the learned arrays."""
        self.model.load_state_dict({k: v.numpy() for k, v in _by_member(state)[0].items()})


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
