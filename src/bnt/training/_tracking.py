"""Optional logging of metrics to TensorBoard, MLflow or Weights & Biases, as local files.

Each tracker is a watcher of the training loop (:data:`~bnt.training._learner.EpochWatcher`) that also takes the run's
settings at the start and the test metrics at the end. The libraries are imported when a tracker is made, so that
training needs none of them.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from bnt.errors import BadInput
from bnt.training._config import RunConfig
from bnt.training._loop import EpochWatcher

TRACKERS = ("tensorboard", "mlflow", "wandb")
PACKAGES = {
    "tensorboard": "tensorboard, in the extra [track]",
    "mlflow": "mlflow-skinny, in the extra [track]",
    "wandb": "wandb: pip install wandb",
}


class Tracker(ABC):
    """What every tracker does: settings first, one line per epoch, the test at the end.

    Parameters
    ----------
    name : str
        The run's name.
    folder : path
        Where the tracker writes.
    settings : mapping
        The run's configuration, flat.
    """

    def __init__(self, name: str, folder: Path, settings: Mapping[str, Any]) -> None:
        self.name, self.folder, self.settings = name, folder, dict(settings)
        self._step = 0

    @abstractmethod
    def log(self, values: Mapping[str, float], step: int) -> None:
        """Write numbers at a step."""

    @abstractmethod
    def close(self, values: Mapping[str, float] | None) -> None:
        """Write the test metrics, where the run came so far, and end."""

    def __call__(self, stage: str, line: Mapping[str, Any]) -> None:
        """Write one epoch; steps are counted on from one stage of training to the next."""
        self._step += 1
        wanted = {k: line.get(k) for k in ("loss", "val_score", "lr", "seconds")}
        self.log({f"{stage}/{k}": float(v) for k, v in wanted.items() if v is not None}, self._step)


class TensorBoard(Tracker):
    """Event files for ``tensorboard --logdir FOLDER``."""

    def __init__(self, name: str, folder: Path, settings: Mapping[str, Any]) -> None:
        super().__init__(name, folder, settings)
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder / name))
        self._writer.add_text("settings", "\n".join(f"    {k} = {v}" for k, v in self.settings.items()))

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Write numbers at a step."""
        for key, value in values.items():
            self._writer.add_scalar(key, value, step)

    def close(self, values: Mapping[str, float] | None) -> None:
        """Write the test metrics and end."""
        self.log({f"test/{k}": v for k, v in (values or {}).items()}, self._step)
        self._writer.close()


class MLflow(Tracker):
    """A store of files for ``mlflow ui --backend-store-uri FOLDER``; a server only if MLFLOW_TRACKING_URI names one."""

    def __init__(self, name: str, folder: Path, settings: Mapping[str, Any]) -> None:
        super().__init__(name, folder, settings)
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("DO_NOT_TRACK", "true")
        # Newer versions ask for this word before they write plain files, which need no database and no server.
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        from mlflow.tracking import MlflowClient

        folder.mkdir(parents=True, exist_ok=True)
        self._client = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI") or folder.resolve().as_uri())
        found = self._client.get_experiment_by_name("bnt")
        experiment = found.experiment_id if found else self._client.create_experiment("bnt")
        self._run = self._client.create_run(experiment, run_name=name).info.run_id
        for key, value in self.settings.items():
            self._client.log_param(self._run, key, str(value)[:500])

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Write numbers at a step."""
        for key, value in values.items():
            self._client.log_metric(self._run, key, value, step=step)

    def close(self, values: Mapping[str, float] | None) -> None:
        """Write the test metrics and end."""
        self.log({f"test/{k}": v for k, v in (values or {}).items()}, self._step)
        self._client.set_terminated(self._run, "FINISHED" if values is not None else "FAILED")


class Wandb(Tracker):
    """Weights & Biases, offline unless WANDB_MODE says otherwise; ``wandb sync`` sends it later, if you want."""

    def __init__(self, name: str, folder: Path, settings: Mapping[str, Any]) -> None:
        super().__init__(name, folder, settings)
        import wandb  # type: ignore[import-not-found,unused-ignore]

        folder.mkdir(parents=True, exist_ok=True)
        mode = os.environ.get("WANDB_MODE", "offline")
        self._run = wandb.init(project="bnt", name=name, dir=str(folder), config=self.settings, mode=mode)

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Write numbers at a step."""
        self._run.log(dict(values), step=step)

    def close(self, values: Mapping[str, float] | None) -> None:
        """Write the test metrics and end."""
        for key, value in (values or {}).items():
            self._run.summary[f"test/{key}"] = value
        self._run.finish(exit_code=0 if values is not None else 1)


MADE: dict[str, type[Tracker]] = {"tensorboard": TensorBoard, "mlflow": MLflow, "wandb": Wandb}


def flat(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield nested settings as ``recipe.lr``, value."""
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


class Tracking:
    """The trackers of one run together, as a watcher; an exception inside the block ends them as failed.

    Parameters
    ----------
    names : sequence of {"tensorboard", "mlflow", "wandb"}
    run : path
        The run's folder: its name is the run's name.
    folder : path, optional
        Where the trackers write; a folder of the tracker's name beside the run without it.
    watch : callable, optional
        Another watcher to pass each epoch on to.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        config: RunConfig,
        run: str | Path,
        *,
        folder: str | Path | None = None,
        watch: EpochWatcher | None = None,
    ) -> None:
        run = Path(run).resolve()
        settings = dict(flat(config.to_dict()))
        self._watch = watch
        self._values: dict[str, float] | None = None
        self.trackers: list[Tracker] = []
        for name in names:
            if name not in TRACKERS:
                raise BadInput(f"Unknown tracker {name!r}: choose from {', '.join(TRACKERS)}.")
            place = Path(folder) if folder is not None else run.parent / f"{name}-log"
            try:
                self.trackers.append(MADE[name](run.name, place, settings))
            except ImportError as error:
                needed = f"The tracker {name} needs the package {PACKAGES[name]} ({error})."
                raise BadInput(needed, parameter="track") from error

    def __call__(self, stage: str, line: dict[str, Any]) -> None:
        """Pass an epoch on to every tracker and to the other watcher."""
        for tracker in self.trackers:
            tracker(stage, line)
        if self._watch is not None:
            self._watch(stage, line)

    def tested(self, report: Mapping[str, Any]) -> None:
        """Take the test metrics of a finished run's report."""
        self._values = {k: float(v) for k, v in report["test"].items() if isinstance(v, int | float)}

    def __enter__(self) -> Tracking:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for tracker in self.trackers:
            tracker.close(self._values if kind is None else None)
