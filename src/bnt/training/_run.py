"""One run: one model, one recipe, one split, one seed, in a folder that describes itself."""

from __future__ import annotations

import json
import platform
import resource
import shutil
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bnt.cohort import Cohort
from bnt.cohort._files import write_atomic
from bnt.errors import BadInput
from bnt.models import create_model, find_entry
from bnt.splits import Split, check_split, save_splits
from bnt.splits._split import PARTS
from bnt.training._card import model_card
from bnt.training._checkpoint import save_tensors
from bnt.training._config import RunConfig, difference, read_config, write_toml
from bnt.training._learner import EpochWatcher, make_learner, options_for
from bnt.training._metrics import binary_metrics, multiclass_metrics, regression_metrics
from bnt.training._recipe import Recipe
from bnt.training._task import Task, task_for


@dataclass
class RunResult:
    """What a run found: its folder, configuration, report and predictions."""

    folder: Path
    config: RunConfig
    report: dict[str, Any]
    predictions: pd.DataFrame


def metrics_of(task: Task, y: np.ndarray, predictions: np.ndarray) -> dict[str, Any]:
    """Return the metrics that fit the task."""
    if task.kind == "regression":
        return regression_metrics(y, predictions[:, 0])
    codes = task.encode(y)
    if task.n_outputs == 2:
        return binary_metrics(codes == 1, predictions[:, 1])
    return multiclass_metrics(codes, predictions)


def describe(
    cohort: Cohort,
    label: str,
    split: Split,
    *,
    model: str,
    options: dict[str, Any] | None = None,
    recipe: Recipe,
    recipe_name: str = "default",
    seed: int = 0,
    threads: int = 1,
    device: str = "cpu",
    bf16: bool = False,
    task: str = "auto",
    positive: str | None = None,
) -> RunConfig:
    """Check what a run would need and return its configuration; nothing is written.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.load_cohort("cohort")
    >>> from bnt.splits import named_splits
    >>> from bnt.training import describe, find_recipe
    >>> (split,) = named_splits(cohort, "diagnosis", "site-stratified", n_splits=1)
    >>> config = describe(cohort, "diagnosis", split, model="logistic", recipe=find_recipe("default"))
    >>> config.n_rois
    20
    """
    entry = find_entry(model)
    if entry.needs_series and cohort.timeseries is None:
        raise BadInput(f"Model {model!r} reads time series and {cohort.path or 'the cohort'} has none.")
    rows = split.rows(cohort)
    check_split(cohort, *rows)
    y = cohort.labels(label)
    check_device(device)
    if seed < 0 or threads < 1:
        raise BadInput(f"The seed is {seed} and there are {threads} threads: give at least 0 and at least 1.")
    confounds = [name for name in str((options or {}).get("confounds") or "").split("+") if name]
    for name in confounds:
        if name not in cohort.participants:
            there = ", ".join(cohort.participants.columns)
            raise BadInput(f"The confound {name!r} is no column of participants.tsv of {cohort.path}; it has {there}.")
    config = RunConfig(
        model=entry.name,
        label=label,
        seed=seed,
        recipe=recipe,
        task=task_for(y, task, rows[0], positive),
        recipe_name=recipe_name,
        options=options_for(cohort, model, options or {}),
        revision=entry.revision,
        source_sha256=entry.source_sha256,
        threads=threads,
        device=device,
        bf16=bf16,
        cohort=str(cohort.path.resolve()) if cohort.path else "",
        data_sha256=data_digest(cohort, label, *confounds),
        n_rois=cohort.n_rois,
        kind=cohort.kind,
        diagonal=cohort.diagonal,
        rois=roi_names(cohort),
        split=split.name,
        split_sha256=split.digest(),
    )
    check_options(config)
    return config


def check_device(name: str) -> None:
    """Refuse a device that is not here."""
    import torch

    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise BadInput(f"There is no device {name!r}: choose cpu or cuda (cuda:1 for the second).") from error
    if device.type not in ("cpu", "cuda"):
        raise BadInput(f"There is no device {name!r}: choose cpu or cuda (cuda:1 for the second).")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise BadInput(f"The device is {name!r} and torch finds {torch.cuda.device_count()} GPUs here: choose cpu.")


def check_options(config: RunConfig) -> None:
    """Refuse options that the model cannot be made with and inputs that it cannot read; costs no memory."""
    import torch

    entry = find_entry(config.model)
    with torch.device("meta") if entry.trains_in_epochs and entry.source_sha256 is None else nullcontext():
        model = create_model(config.model, config.n_rois, config.task.n_outputs, **config.options)
    check_inputs = getattr(model, "check_inputs", None)
    if check_inputs is not None:
        check_inputs(config.kind, config.recipe.inputs)


def data_digest(cohort: Cohort, *names: str) -> str:
    """Return a digest of what is learned from: scans, series, sites and the columns named, wherever they lie."""
    columns = [cohort.scans, cohort.sites, *(cohort.participants[name].to_numpy() for name in names)]
    found = sha256(json.dumps([np.asarray(c).astype(str).tolist() for c in columns]).encode())
    if cohort.timeseries is not None:
        found.update(cohort.timeseries.digest().encode())
    return found.hexdigest()


def roi_names(cohort: Cohort) -> tuple[str, ...]:
    """Return the names of the ROIs in their order; none where a ROI has no name."""
    names = tuple(cohort.rois["label"].astype(str))
    return names if all(names) else ()


def open_folder(folder: Path, config: RunConfig, *, resume: bool, overwrite: bool) -> bool:
    """Prepare the run's folder; return True if a finished run of this configuration is there already."""
    if (folder / "config.toml").is_file():
        other = None if overwrite else difference(read_config(folder), config)
        if resume and other is not None:
            raise BadInput(
                f"{folder} holds a run of another configuration ({other.words}): give the settings that it was started "
                "with, or another folder, or --overwrite.",
                other.parameter,
            )
        if resume and not overwrite and (folder / "DONE").is_file():
            return True
        if not resume and not overwrite:
            if (folder / "DONE").is_file():
                raise BadInput(f"{folder} holds a finished run: choose another folder, or pass --overwrite.")
            raise BadInput(f"{folder} holds an interrupted run: pass --resume to go on with it, or --overwrite.")
        if overwrite:
            shutil.rmtree(folder)
    elif folder.exists() and (not folder.is_dir() or any(f.suffix != ".tmp" for f in folder.iterdir())):
        raise BadInput(f"{folder} exists and is not a run: choose another folder.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / "config.toml", write_toml(config.to_dict()))
    except OSError as error:
        raise BadInput(f"{folder} cannot be written: {error.strerror}.") from error
    return False


def train_run(
    cohort: Cohort,
    split: Split,
    config: RunConfig,
    folder: str | Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    watch: EpochWatcher | None = None,
) -> RunResult:
    """Train, select on validation, test once, and write the run's folder.

    Parameters
    ----------
    cohort : Cohort
    split : Split
    config : RunConfig
        From :func:`describe`.
    folder : path
        Where the run goes. ``DONE`` appears last.
    resume : bool
        Go on with an interrupted run; a finished one of the same configuration is returned as it is.
    overwrite : bool
        Replace a run that is there.
    watch : callable, optional
        Told the stage and each epoch's metrics.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.load_cohort("cohort")
    >>> from bnt.splits import named_splits
    >>> from bnt.training import describe, find_recipe, train_run
    >>> (split,) = named_splits(cohort, "diagnosis", "site-stratified", n_splits=1)
    >>> config = describe(cohort, "diagnosis", split, model="logistic", recipe=find_recipe("default"))
    >>> result = train_run(cohort, split, config, "logistic", overwrite=True)
    >>> result.report["n_test"]
    8
    """
    from threadpoolctl import threadpool_limits

    folder = Path(folder)
    if not (folder / "DONE").is_file():
        cohort.check_finite(np.concatenate(split.rows(cohort)))
    if open_folder(folder, config, resume=resume, overwrite=overwrite):
        return load_result(folder)
    with threadpool_limits(config.threads):  # of linear algebra; the results depend on their number
        return _train_and_test(cohort, split, config, folder, watch)


def _train_and_test(
    cohort: Cohort, split: Split, config: RunConfig, folder: Path, watch: EpochWatcher | None
) -> RunResult:
    """Do what :func:`train_run` promises, in a folder that is open."""
    import torch

    if config.device == "cpu":
        torch.set_num_threads(config.threads)
    wall, cpu = time.perf_counter(), time.process_time()
    wall_before, cpu_before = spent_before(folder)
    y = cohort.labels(config.label)
    train, val, test = split.rows(cohort)
    save_splits(folder / "splits.csv", cohort, [split])

    learner = make_learner(config)
    lines = learner.fit(cohort, y, train, val, folder=folder, watch=recorder(folder, watch))
    predicted = learner.predict(cohort, np.concatenate([val, test]))

    save_tensors(folder / "weights.safetensors", learner.state(), {"members": config.recipe.n_members})
    write_lines(folder, lines)
    table = prediction_table(config.task, cohort, y, val, test, predicted)
    write_atomic(folder / "predictions.csv", table.to_csv(index=False))
    report: dict[str, Any] = {
        "config_sha256": config.digest(),
        "model": config.model,
        "label": config.label,
        "positive_class": config.task.classes[-1] if config.task.n_outputs == 2 else None,
        "split": config.split,
        "seed": config.seed,
        "n": dict(zip(PARTS, split.sizes)),
        "test": metrics_of(config.task, y[test], predicted[len(val) :]),
        "validation": metrics_of(config.task, y[val], predicted[: len(val)]),
        "refit_on_validation": config.recipe.refit,
        "epochs": chosen_epochs(lines),
        "n_parameters": learner.n_parameters,
        "seconds": round(time.perf_counter() - wall + wall_before, 2),
        "cpu_seconds": round(time.process_time() - cpu + cpu_before, 2),
        "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "weights_sha256": sha256((folder / "weights.safetensors").read_bytes()).hexdigest(),
        "versions": versions(),
    }
    write_atomic(folder / "report.json", json.dumps(report, indent=2, default=float) + "\n")
    write_atomic(folder / "model_card.md", model_card(config, report))
    write_atomic(folder / "DONE", report["config_sha256"] + "\n")
    learner.clean_up(folder)
    return RunResult(folder, config, report, table)


def spent_before(folder: Path) -> tuple[float, float]:
    """Return the seconds and CPU seconds of the epochs that an interrupted run has made already."""
    file = folder / "metrics.jsonl"
    wall = cpu = 0.0
    for text in file.read_text().splitlines() if file.is_file() else []:
        try:
            line = json.loads(text)
        except ValueError:  # the last line of a run that was killed while it wrote
            continue
        wall, cpu = wall + line.get("seconds", 0.0), cpu + line.get("cpu_seconds", 0.0)
    return wall, cpu


def chosen_epochs(lines: Sequence[dict[str, Any]]) -> list[int]:
    """Return the epoch whose weights each stage kept."""
    return [line["chosen_epoch"] for line in lines if "chosen_epoch" in line]


def versions() -> dict[str, str]:
    """Return the versions that decide the bits."""
    import torch

    from bnt import __version__

    return {
        "bnt": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }


def write_lines(folder: Path, lines: Sequence[dict[str, Any]]) -> None:
    """Write ``metrics.jsonl``: one line an epoch."""
    write_atomic(folder / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in lines))


def recorder(folder: Path, watch: EpochWatcher | None) -> EpochWatcher:
    """Return a watcher that appends each epoch to ``metrics.jsonl`` as it ends and passes it on."""
    file = folder / "metrics.jsonl"

    def record(stage: str, line: dict[str, Any]) -> None:
        with open(file, "a") as handle:
            handle.write(json.dumps({"stage": stage, **line}) + "\n")
        if watch is not None:
            watch(stage, line)

    return record


def prediction_table(
    task: Task, cohort: Cohort, y: np.ndarray, val: np.ndarray, test: np.ndarray, predicted: np.ndarray
) -> pd.DataFrame:
    """Return one row a subject of the validation and the test part."""
    rows = np.concatenate([val, test])
    table = pd.DataFrame(
        {
            "participant_id": cohort.ids[rows],
            "part": ["validation"] * len(val) + ["test"] * len(test),
            "site": cohort.sites[rows],
            "label": y[rows],
        }
    )
    if task.kind == "regression":
        return table.assign(predicted=predicted[:, 0])
    for i, name in enumerate(task.classes):
        table[f"p_{name}"] = predicted[:, i]
    return table


def load_result(folder: str | Path) -> RunResult:
    """Read a finished run."""
    folder = Path(folder)
    config = read_config(folder)
    if not (folder / "DONE").is_file():
        raise BadInput(f"{folder} is not finished: go on with bnt train ... --out {folder} --resume.")
    try:
        report = json.loads((folder / "report.json").read_text())
        predictions = pd.read_csv(folder / "predictions.csv", dtype={"participant_id": str, "site": str})
    except (OSError, ValueError) as error:
        raise BadInput(f"{folder} is damaged ({error}): train again.") from error
    return RunResult(folder, config, report, predictions)
