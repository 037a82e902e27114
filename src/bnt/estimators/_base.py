"""Base class of the classifier and the regressor: parameters, ``fit``, prediction, ``save`` and ``load``."""

from __future__ import annotations

import json
import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import torch
from sklearn.base import BaseEstimator, is_regressor
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.validation import _check_sample_weight, check_is_fitted
from threadpoolctl import threadpool_limits

from bnt._words import say, stage_name
from bnt.cohort import Cohort
from bnt.cohort._files import new_folder, readable, write_atomic
from bnt.cohort._triangle import n_edges
from bnt.errors import BadInput
from bnt.estimators._layout import Layout, check_series, hold_out, labels_of, read_to_fit, read_to_predict
from bnt.models import find_entry
from bnt.models._own import remember
from bnt.models._registry import short_name
from bnt.training._checkpoint import save_tensors
from bnt.training._config import (
    RunConfig,
    assign_confounds,
    check_adjustments,
    check_device,
    data_digest,
    options_for,
    write_toml,
)
from bnt.training._learner import Learner, make_learner
from bnt.training._recipe import Adjustments, Recipe, find_recipe
from bnt.training._task import Task
from bnt.training._trained import TrainedRun, seal

NOTE = "estimator.json"
OVERRIDES = ("epochs", "batch_size", "lr", "n_members", "refit")


def plain(value: Any) -> Any:
    """Return numpy scalars, as a grid of parameters holds them, as Python's; other values as they are."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value.item() if isinstance(value, np.generic) else value


@contextmanager
def undisturbed(device: str, threads: int | None) -> Iterator[None]:
    """Leave torch's generators and number of threads afterwards as they were."""
    check_device(device)
    place = torch.device(device)
    if threads is not None and threads < 1:
        raise BadInput(f"threads is {threads}: give at least 1, or None to leave torch's number as it is.")
    forked = []
    if place.type == "cuda":
        forked = [torch.cuda.current_device() if place.index is None else place.index]
    before = torch.get_num_threads()
    with torch.random.fork_rng(devices=forked):
        try:
            if threads is None:
                yield
                return
            torch.set_num_threads(threads)
            with threadpool_limits(threads):  # those of linear algebra, too
                yield
        finally:
            if torch.get_num_threads() != before:
                torch.set_num_threads(before)


class BrainNetworkEstimator(BaseEstimator, ABC):
    """Common part of :class:`BrainNetworkClassifier` and :class:`BrainNetworkRegressor`."""

    def __init__(
        self,
        model: str = "bnt",
        options: Mapping[str, Any] | None = None,
        recipe: str | Recipe = "default",
        *,
        epochs: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        n_members: int | None = None,
        refit: bool | None = None,
        validation_fraction: float = 0.1,
        harmonise: str | None = None,
        harmonise_keep: str = "",
        confounds: str = "",
        class_weight: str | Mapping[Any, float] | None = None,
        kind: str = "unknown",
        diagonal: float | None = None,
        n_rois: int | None = None,
        strict: bool = True,
        random_state: int | np.random.RandomState | None = None,
        device: str = "cpu",
        threads: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.model = model
        self.options = options
        self.recipe = recipe
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.n_members = n_members
        self.refit = refit
        self.validation_fraction = validation_fraction
        self.harmonise = harmonise
        self.harmonise_keep = harmonise_keep
        self.confounds = confounds
        self.class_weight = class_weight
        self.kind = kind
        self.diagonal = diagonal
        self.n_rois = n_rois
        self.strict = strict
        self.random_state = random_state
        self.device = device
        self.threads = threads
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        """Say that matrices are read beside vectors."""
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

    # -- fitting -----------------------------------------------------------------------------------

    @abstractmethod
    def _task(self, y: np.ndarray, weights: np.ndarray | None) -> Task:
        """Return what the labels ask for."""

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        sites: Any = None,
        groups: Any = None,
        participants: Any = None,
    ) -> Self:
        """Train on subjects and their labels.

        Parameters
        ----------
        X : array, (n, V, V) or (n, V(V-1)/2), or Cohort
        y : array, (n,), or str
            Classes, or scores; with a cohort also the name of a label.
        sample_weight : array, (n,), optional
        sites : array, (n,), optional
            Used to share out the validation set, and by models that know sites. A cohort has its own.
        groups : array, (n,), optional
            Subjects of one group stay on one side of the internal validation. A cohort has its own.
        participants : DataFrame or mapping of columns, optional
            What ``confounds`` and ``harmonise_keep`` name, one row per subject. A cohort has its own.

        Returns
        -------
        self
        """
        label = y if isinstance(y, str) else "y"
        cohort, y, layout = read_to_fit(
            self,
            X,
            labels_of(X, y),
            y_numeric=is_regressor(self),
            sites=sites,
            groups=groups,
            participants=participants,
        )
        weights = None
        if isinstance(self.class_weight, Mapping):
            own = compute_sample_weight(self.class_weight, y)
            sample_weight = own if sample_weight is None else own * np.asarray(sample_weight, dtype=float)
        if sample_weight is not None:
            rows = np.empty((len(y), 1))
            weights = _check_sample_weight(sample_weight, rows, dtype=np.float64, ensure_non_negative=True)
            cohort, y, weights = _with_weight(cohort, y, weights)
        task = self._task(y, weights)
        self._train(cohort, y, weights, task, layout, label)
        return self

    def _train(
        self, cohort: Cohort, y: np.ndarray, weights: np.ndarray | None, task: Task, layout: Layout, label: str
    ) -> None:
        entry = find_entry(self.model)
        check_series(self.model, cohort)
        adjustments = Adjustments(
            harmonise=cast(Any, self.harmonise),
            keep=self.harmonise_keep,
            confounds=self.confounds,
            class_weight=None if isinstance(self.class_weight, Mapping) else cast(Any, self.class_weight),
        )
        adjustments, options = assign_confounds(self.model, adjustments, plain(self.options or {}))
        config = RunConfig(
            model=self.model,
            label=label,
            seed=self._seed(),
            recipe=self._recipe(),
            task=task,
            recipe_name=self.recipe if isinstance(self.recipe, str) else "own",
            options=options_for(cohort, self.model, options),
            threads=self.threads or torch.get_num_threads(),
            device=self.device,
            data_sha256=data_digest(cohort),
            revision=entry.revision,
            source_sha256=entry.source_sha256,
            n_rois=layout.n_rois,
            kind=layout.kind,
            diagonal=layout.diagonal,
            split="internal" if entry.trains_in_epochs else "",
            adjustments=adjustments,
        )
        check_adjustments(config, cohort)
        remember(config.model, config.source_sha256)
        with undisturbed(self.device, self.threads):
            share = self.validation_fraction if entry.trains_in_epochs else 0.0  # others learn from everyone
            train, val = hold_out(cohort, y, task, share, config.seed)
            recipe = replace(config.recipe, batch_size=min(config.recipe.batch_size, len(train)))
            learner = make_learner(replace(config, recipe=recipe))
            history = learner.fit(cohort, y, train, val, weights, watch=self._watcher(config.recipe))
        self._keep(config, layout, learner, history)

    def _keep(self, config: RunConfig, layout: Layout, learner: Learner, history: list[dict[str, Any]]) -> None:
        """Set the fitted attributes."""
        self.config_ = config
        self.n_rois_ = layout.n_rois
        self._layout = layout
        self._learner = learner
        self.model_ = learner.models[0] if learner.n_members == 1 else learner.models
        self.history_ = history
        self.n_iter_ = max((line["chosen_epoch"] for line in history if "chosen_epoch" in line), default=1)

    def _recipe(self) -> Recipe:
        """Return the recipe with the fields that were set on their own."""
        changes = {name: plain(getattr(self, name)) for name in OVERRIDES if getattr(self, name) is not None}
        if isinstance(self.recipe, Recipe):
            if "epochs" in changes:
                changes.setdefault("min_steps", 0)  # a number of epochs that was asked for is the number of epochs
            return replace(self.recipe, **changes)
        return find_recipe(self.recipe, self.model, **changes)

    def _seed(self) -> int:
        """Return the seed; an integer is the seed of the command line's ``--seed``, too."""
        if isinstance(self.random_state, numbers.Integral):
            if self.random_state < 0:
                raise BadInput(f"random_state is {self.random_state}: give 0 or a positive integer.")
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))

    def _watcher(self, recipe: Recipe) -> Any:
        if not self.verbose:
            return None

        def watch(stage: str, line: dict[str, Any]) -> None:
            score = "" if line["val_score"] is None else f", validation score {line['val_score']:.3f}"
            say(f"{stage_name(stage)}: epoch {line['epoch']} of {recipe.epochs}, loss {line['loss']:.4f}{score}")

        return watch

    # -- predicting --------------------------------------------------------------------------------

    def _predictions(self, X: Any, sites: Any = None, participants: Any = None) -> np.ndarray:
        """Return class probabilities (n, C), or targets (n, 1)."""
        check_is_fitted(self)
        cohort = read_to_predict(self, X, self._layout, sites, participants)
        check_series(self.config_.model, cohort)
        with undisturbed(self.config_.device, self.threads):
            return self._learner.predict(cohort)

    # -- disk --------------------------------------------------------------------------------------

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the fitted estimator as a folder; nothing in it is pickled.

        Parameters
        ----------
        path : path
            A folder that does not exist: ``config.toml``, ``weights.safetensors`` and ``estimator.json`` go there.
            ``bnt predict`` reads it too.
        overwrite : bool
            Replace an estimator that is there.

        Returns
        -------
        Path
        """
        check_is_fitted(self)
        if not self._learner.state():  # a scikit-learn estimator of the user's own
            raise BadInput(
                f"Nothing is written to {path}: what {short_name(self.config_.model)} learned could be saved as a "
                "pickle only, which bnt neither writes nor reads; fit it again where you need it."
            )
        path = Path(path)
        config = self.config_
        parameters = plain(self.get_params())
        if isinstance(self.recipe, Recipe):
            parameters["recipe"] = asdict(self.recipe)
        parameters["random_state"] = config.seed
        note = {
            "estimator": type(self).__name__,
            "parameters": parameters,
            "options": config.options,
            "layout": asdict(self._layout),
            "history": self.history_,
            "n_iter": self.n_iter_,
        }
        if hasattr(self, "classes_"):
            note["classes_dtype"] = self.classes_.dtype.str
        if hasattr(self, "feature_names_in_"):
            note["feature_names_in"] = self.feature_names_in_.tolist()
        with new_folder(path, overwrite=overwrite, marker=NOTE) as work:
            write_atomic(work / "config.toml", write_toml(config.to_dict()))
            save_tensors(work / "weights.safetensors", self._learner.state(), {"members": self._learner.n_members})
            write_atomic(work / NOTE, json.dumps(note, indent=2) + "\n")
            seal(work)
        return path

    @classmethod
    def load(cls, path: str | Path, *, device: str = "cpu", model_file: str | Path | None = None) -> Self:
        """Read what :meth:`save` wrote, or a run that ``bnt train`` finished.

        Parameters
        ----------
        path : path
        device : str
            Where the networks go.
        model_file : path, optional
            The file of a model of one's own. It is run; without it only a file that you trained with here is.
        """
        path = Path(path)
        note = _note(path)
        check_device(device)
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
        with readable(path / NOTE, "save the estimator again"):
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


def _with_weight(cohort: Cohort, y: np.ndarray, weights: np.ndarray) -> tuple[Cohort, np.ndarray, np.ndarray]:
    """Leave out subjects of weight 0."""
    keep = weights > 0
    if not keep.any():
        raise BadInput("sample_weight must contain at least one weight that is not zero.")
    if not keep.all():
        cohort, y, weights = cohort.select(keep), y[keep], weights[keep]
    if len(y) < 2:
        raise BadInput("Only one sample has a weight above zero: give two subjects or more.")
    return cohort, y, weights


def _note(path: Path) -> dict[str, Any]:
    """Return what the estimator wrote beside the weights; a run of ``bnt train`` has no such file."""
    if not (path / NOTE).is_file():
        return {}
    try:
        note = json.loads((path / NOTE).read_text())
        return note | {"layout": Layout(**note["layout"]), "parameters": dict(note["parameters"])}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise BadInput(
            f"{path / NOTE} is not an estimator's note of this version ({error!r}): save it again."
        ) from error
