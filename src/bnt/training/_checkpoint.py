"""What is written while a network trains: checkpoints to resume from, in safetensors files, and logs of trackers."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from bnt.cohort._files import readable, sync_file, sync_folder, write_atomic
from bnt.errors import BadInput
from bnt.nn._network import Adam, AdamW, AveragedWeights
from bnt.training._recipe import Recipe

if TYPE_CHECKING:
    from bnt.training._config import RunConfig
    from bnt.training._loop import EpochWatcher


class TrainState:
    """Model, optimiser, averaged weights, counters, history and the weights selected so far.

    :meth:`tensors` and :meth:`facts` hold all of it, the state of torch's generators included;
    :meth:`restore` puts it back bit for bit.
    """

    def __init__(self, model: nn.Module, recipe: Recipe) -> None:
        self.model, self.recipe = model, recipe
        trained = [p for p in model.parameters() if p.requires_grad]
        kind = AdamW if recipe.decoupled else Adam
        self.optimiser: torch.optim.Optimizer = kind(
            trained, lr=recipe.lr, weight_decay=recipe.weight_decay, fused=True
        )
        self.averaged = AveragedWeights(model, recipe.ema) if recipe.ema else None
        self.epoch = self.step = 0
        self.history: list[dict[str, Any]] = []
        self.chosen: dict[str, Tensor] = {}
        self.chosen_epoch = 0
        self.chosen_score = float("-inf")
        self.stopped = False

    def weights(self) -> dict[str, Tensor]:
        """Return the weights that would be tested now: the averaged ones where there are any."""
        return self.averaged.state if self.averaged is not None else self.model.state_dict()

    def choose(self) -> None:
        """Keep the weights of this epoch as the selected ones."""
        self.chosen = {k: v.detach().clone() for k, v in self.weights().items()}
        self.chosen_epoch = self.epoch

    def consider(self) -> None:
        """Apply the recipe's selection and early stopping after an epoch that was validated."""
        scores = [line["val_score"] for line in self.history]
        if self.recipe.select == "last" or scores[-1] is None:
            self.choose()
            return
        width = self.recipe.smooth if self.recipe.select == "smoothed" else 1
        if len(scores) < min(width, self.recipe.epochs):
            return
        score = sum(scores[-width:]) / len(scores[-width:])
        if score > self.chosen_score:  # strictly: the earliest epoch wins a tie
            self.chosen_score = score
            self.choose()
        elif self.recipe.patience and self.epoch - self.chosen_epoch >= self.recipe.patience:
            self.stopped = True

    # -- to and from a checkpoint ------------------------------------------------------------------

    def tensors(self) -> dict[str, Tensor]:
        """Return every tensor by name."""
        named = {f"model.{k}": v for k, v in self.model.state_dict().items()}
        for i, slots in self.optimiser.state_dict()["state"].items():
            named |= {f"optimiser.{i}.{k}": v for k, v in slots.items()}
        if self.averaged is not None:
            named |= {f"averaged.{k}": v for k, v in self.averaged.state.items()}
        named |= {f"chosen.{k}": v for k, v in self.chosen.items()}
        named["generator.cpu"] = torch.get_rng_state()
        if torch.cuda.is_available():
            for i, generator in enumerate(torch.cuda.get_rng_state_all()):
                named[f"generator.cuda{i}"] = generator
        return named

    def facts(self) -> dict[str, Any]:
        """Return everything that is not a tensor."""
        names = ("epoch", "step", "history", "chosen_epoch", "chosen_score", "stopped")
        return {n: getattr(self, n) for n in names} | {
            "averaged_steps": self.averaged.steps if self.averaged is not None else 0
        }

    def restore(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        """Put back what :meth:`tensors` and :meth:`facts` gave."""
        parts: dict[str, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            part, _, key = name.partition(".")
            parts.setdefault(part, {})[key] = value
        self.model.load_state_dict(parts["model"])
        slots: dict[int, dict[str, Tensor]] = {}
        for name, value in parts.get("optimiser", {}).items():
            i, _, key = name.partition(".")
            slots.setdefault(int(i), {})[key] = value
        fresh = self.optimiser.state_dict()
        self.optimiser.load_state_dict({"state": slots, "param_groups": fresh["param_groups"]})
        if self.averaged is not None:
            self.averaged.load(parts["averaged"], facts["averaged_steps"])
        self.chosen = parts.get("chosen", {})
        for name in ("epoch", "step", "history", "chosen_epoch", "chosen_score", "stopped"):
            setattr(self, name, facts[name])
        generators = parts["generator"]
        torch.set_rng_state(generators["cpu"])
        if torch.cuda.is_available():
            for device in range(torch.cuda.device_count()):
                if f"cuda{device}" in generators:
                    torch.cuda.set_rng_state(generators[f"cuda{device}"], device)


def _digest(tensors: dict[str, Tensor], facts: str) -> str:
    """Return the sha256 of plain tensors with their names, types and shapes, and of the facts beside them."""
    found = sha256(facts.encode())
    for name, value in sorted(tensors.items()):
        found.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        found.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def save_tensors(
    path: Path, tensors: dict[str, Tensor], facts: dict[str, Any] | None = None, *, digest: bool = False
) -> None:
    """Write tensors, and plain data in the file's header, to ``path``: temporary name, fsync, rename.

    Whatever goes wrong, the file that was there before is intact. ``digest`` adds the sha256 of all of it: of a file
    that has no entry in ``DONE``, as the run is not finished.
    """
    temporary = path.with_name(path.name + ".tmp")
    plain = {k: v.detach().contiguous().cpu() for k, v in tensors.items()}
    header = {"facts": json.dumps(facts or {})}
    if digest:
        header["sha256"] = _digest(plain, header["facts"])
    try:
        for stray in path.parent.glob(".tmp??????"):  # safetensors writes under such a name, which a kill leaves
            stray.unlink()
        temporary.unlink(missing_ok=True)
        with open(temporary, "xb") as handle:  # its permissions are those of any new file here
            mode = os.fstat(handle.fileno()).st_mode & 0o777
        safetensors.torch.save_file(plain, temporary, metadata=header)
        os.chmod(temporary, mode)  # safetensors makes files that only their owner can read
        sync_file(temporary)
        os.replace(temporary, path)
        sync_folder(path.parent)
    except (OSError, SafetensorError) as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise BadInput(
            f"{path} cannot be written ({error}): free some space or choose another folder; what was there is intact."
        ) from error


def load_kept(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Read what an interrupted run kept; None, and a warning, where it is damaged: that part is then trained again."""
    try:
        return load_tensors(path)
    except BadInput as error:
        warnings.warn(f"{str(error).removesuffix(': train again.')}: what it kept is trained again.", stacklevel=2)
        return None


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what :func:`save_tensors` wrote."""
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
            header = file.metadata() or {}
            facts = json.loads(header.get("facts", "{}"))
        if header.get("sha256", "") not in ("", _digest(tensors, header.get("facts", "{}"))):
            raise ValueError("its sha256 is not the one that it was written with")
    except (OSError, SafetensorError, ValueError, RecursionError, RuntimeError, TypeError) as error:
        raise BadInput(f"{path} is not a safetensors file of ours ({error}): train again.") from error
    return tensors, facts


class Checkpoint:
    """The checkpoint of one run: one file that holds everything, and a readable note beside it.

    Parameters
    ----------
    folder : path
        The run's folder.
    stage : str
        What is being trained (which member, selection or refit); a checkpoint of another stage is not used.
    writes : bool
        False only reads it: of several processes one writes.
    """

    def __init__(self, folder: Path, stage: str, *, writes: bool = True) -> None:
        self.path = folder / "checkpoint.safetensors"
        self.note = folder / "checkpoint.json"
        self.stage, self.writes = stage, writes

    def save(self, state: Any) -> None:
        """Write the state (anything with ``tensors()`` and ``facts()``)."""
        if not self.writes:
            return
        facts = {"stage": self.stage, **state.facts()}
        save_tensors(self.path, state.tensors(), facts, digest=True)
        note = {k: facts[k] for k in ("stage", "epoch", "step", "chosen_epoch")}
        write_atomic(self.note, json.dumps(note, indent=2) + "\n")

    def restore(self, state: Any) -> bool:
        """Put the saved state back, if there is one of this stage."""
        if not self.path.is_file():
            return False
        kept = load_kept(self.path)
        if kept is None or kept[1].pop("stage", None) != self.stage:
            return False
        with readable(self.path, "remove it, and what it kept is trained again"):
            state.restore(*kept)
        return True

    def remove(self) -> None:
        """Delete the checkpoint when it is no longer needed."""
        for file in (self.path, self.note):
            file.unlink(missing_ok=True)


# -- optional logs of TensorBoard, MLflow or Weights & Biases, as local files -------------------------------


class _TensorBoard:
    """Event files for ``tensorboard --logdir FOLDER``."""

    needs = "tensorboard, in the extra [track]"

    def __init__(self, name: str, folder: Path, settings: Mapping[str, Any]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder / name))
        self._writer.add_text("settings", "\n".join(f"    {k} = {v}" for k, v in settings.items()))

    def log(self, values: Mapping[str, float], step: int) -> None:
        for key, value in values.items():
            self._writer.add_scalar(key, value, step)

    def close(self, values: Mapping[str, float], step: int, done: bool) -> None:
        self.log(values, step)
        self._writer.close()


class _MLflow:
    """A store of files for ``mlflow ui --backend-store-uri FOLDER``; a server only if MLFLOW_TRACKING_URI names one."""

    needs = "mlflow-skinny, in the extra [track]"

    def __init__(self, name: str, folder: Path, settings: Mapping[str, Any]) -> None:
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
        for key, value in settings.items():
            self._client.log_param(self._run, key, str(value)[:500])

    def log(self, values: Mapping[str, float], step: int) -> None:
        for key, value in values.items():
            self._client.log_metric(self._run, key, value, step=step)

    def close(self, values: Mapping[str, float], step: int, done: bool) -> None:
        self.log(values, step)
        self._client.set_terminated(self._run, "FINISHED" if done else "FAILED")


class _Wandb:
    """Weights & Biases, offline unless WANDB_MODE says otherwise; ``wandb sync`` sends it later, if you want."""

    needs = "wandb: pip install wandb"

    def __init__(self, name: str, folder: Path, settings: Mapping[str, Any]) -> None:
        import wandb  # type: ignore[import-not-found,unused-ignore]

        folder.mkdir(parents=True, exist_ok=True)
        mode = os.environ.get("WANDB_MODE", "offline")
        self._run = wandb.init(project="bnt", name=name, dir=str(folder), config=dict(settings), mode=mode)

    def log(self, values: Mapping[str, float], step: int) -> None:
        self._run.log(dict(values), step=step)

    def close(self, values: Mapping[str, float], step: int, done: bool) -> None:
        for key, value in values.items():
            self._run.summary[key] = value
        self._run.finish(exit_code=0 if done else 1)


TRACKERS: dict[str, Any] = {"tensorboard": _TensorBoard, "mlflow": _MLflow, "wandb": _Wandb}


def _flat(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield nested settings as ``recipe.lr``, value."""
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


class Tracking:
    """The trackers of one run together, as a watcher; an exception inside the block ends them as failed.

    They take the run's settings first, one line per epoch, and the test metrics at the end. Their libraries are
    imported when they are made: training needs none of them.

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
        settings = dict(_flat(config.to_dict()))
        self._watch, self._step = watch, 0
        self._values: dict[str, float] = {}
        self.trackers = []
        for name in names:
            if name not in TRACKERS:
                raise BadInput(f"Unknown tracker {name!r}: choose from {', '.join(TRACKERS)}.")
            place = Path(folder) if folder is not None else run.parent / f"{name}-log"
            try:
                self.trackers.append(TRACKERS[name](run.name, place, settings))
            except ImportError as error:
                needed = f"The tracker {name} needs the package {TRACKERS[name].needs} ({error})."
                raise BadInput(needed, "track") from error

    def __call__(self, stage: str, line: dict[str, Any]) -> None:
        """Pass an epoch on to all; steps are counted on from one stage of training to the next."""
        self._step += 1
        wanted = {k: line.get(k) for k in ("loss", "val_score", "lr", "seconds")}
        for tracker in self.trackers:
            tracker.log({f"{stage}/{k}": float(v) for k, v in wanted.items() if v is not None}, self._step)
        if self._watch is not None:
            self._watch(stage, line)

    def tested(self, report: Mapping[str, Any]) -> None:
        """Take the test metrics of a finished run's report."""
        self._values = {f"test/{k}": float(v) for k, v in report["test"].items() if isinstance(v, int | float)}

    def __enter__(self) -> Tracking:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        done = kind is None and bool(self._values)
        for tracker in self.trackers:
            tracker.close(self._values if done else {}, self._step, done)
