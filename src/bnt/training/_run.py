"""One run (one model, recipe, split and seed) in a self-describing folder, with its model card."""

from __future__ import annotations

import json
import platform
import resource
import shutil
import time
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from threadpoolctl import threadpool_limits

from bnt import __version__
from bnt._words import heading, shown
from bnt.cohort import Cohort
from bnt.cohort._files import InUse, held, without_folders, writable, write_atomic
from bnt.cohort._findings import site_confound
from bnt.cohort._inspect import people_of
from bnt.errors import BadInput
from bnt.models import find_entry
from bnt.models._own import remember
from bnt.models.classical._subject_matrices import seconds_of_others
from bnt.splits import Split, save_splits
from bnt.splits._split import PARTS
from bnt.training._adjustments import site_accuracy
from bnt.training._checkpoint import save_tensors
from bnt.training._config import RunConfig, check_data, difference, read_config, write_toml
from bnt.training._learner import Learner, make_learner
from bnt.training._loop import EpochWatcher, build, reuse_freed_memory
from bnt.training._processes import check_network, current
from bnt.training._recipe import Recipe
from bnt.training._task import Task, best_threshold
from bnt.training._trained import RunResult, clear, damage, load_result, of_people, seal


def open_folder(folder: Path, config: RunConfig, *, resume: bool, overwrite: bool) -> bool:
    """Prepare the run's folder; return True if a finished run of this configuration is there already."""
    if folder.is_symlink() and overwrite:
        raise BadInput(f"{folder} is a link to {folder.resolve()}: give that folder itself.", "out")
    finished = (folder / "DONE").is_file()
    broken = damage(folder) if finished and resume and not overwrite else None
    if broken is not None and broken[0] == "config.toml":
        clear(folder)
    elif (folder / "config.toml").is_file():
        other = None if overwrite else difference(read_config(folder), config)
        if resume and other is not None:
            raise BadInput(
                f"{folder} holds a run of another configuration ({other.words}): give the settings that it was started "
                "with, choose another folder, or overwrite it.",
                other.parameter or "overwrite",
            )
        if resume and not overwrite and finished:
            if broken is None:
                return True
            clear(folder)
        if not resume and not overwrite:
            if finished:
                raise BadInput(f"{folder} holds a finished run: choose another folder, or overwrite it.", "overwrite")
            raise BadInput(f"{folder} holds an interrupted run: resume it, or overwrite it.", "resume")
        if overwrite:
            shutil.rmtree(folder)
    elif folder.exists() and (not folder.is_dir() or any(f.suffix != ".tmp" for f in folder.iterdir())):
        raise BadInput(f"{folder} exists and is not a run: choose another folder.")
    with writable(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / "config.toml", write_toml(config.to_dict()))
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
        The folder of the run. ``DONE`` is written last.
    resume : bool
        Resume an interrupted run; a finished run of the same configuration is returned unchanged.
    overwrite : bool
        Replace an existing run.
    watch : callable, optional
        Called with the stage and the metrics of each epoch.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.load_cohort("cohort")
    >>> from bnt.splits import named_splits
    >>> from bnt.training import describe, find_recipe, train_run
    >>> (split,) = named_splits(cohort, "diagnosis", "site-stratified", n_splits=1)
    >>> config = describe(cohort, "diagnosis", split, model="logistic", recipe=find_recipe("default"))
    >>> result = train_run(cohort, split, config, "logistic", overwrite=True)
    >>> result.report["n"]["test"]
    8
    """
    folder = Path(folder)
    check_group(config)
    if resume and (folder / "config.toml").is_file():
        check_data(cohort, read=True)
    if not (folder / "DONE").is_file():
        cohort.check_finite(np.concatenate(split.rows(cohort)))
    # The lock lies beside the folder, which holds results only.
    with held(folder.absolute().parent / f".{folder.name}.lock", wait=0, of=folder):
        if current().any(open_folder(folder, config, resume=resume, overwrite=overwrite)):
            return load_result(folder)
        remember(config.model, config.source_sha256)
        if find_entry(config.model).trains_in_epochs:
            reuse_freed_memory()
        with threadpool_limits(config.threads):  # of linear algebra; the results depend on their number
            return _train_and_test(cohort, split, config, folder, watch)


def remove_unstarted(folder: Path) -> None:
    """Remove the folder of a run that was refused before the end of its first epoch: there is nothing to resume."""
    with suppress(InUse), held(folder.absolute().parent / f".{folder.name}.lock", wait=0, of=folder):
        if (folder / "config.toml").is_file() and not any(
            (folder / name).exists() for name in ("metrics.jsonl", "weights.safetensors")
        ):
            shutil.rmtree(folder)


def check_group(config: RunConfig) -> None:
    """Refuse several processes for a model that cannot be trained by them."""
    size = current().size
    if size == 1:
        return
    if not find_entry(config.model).trains_in_epochs:
        raise BadInput(f"Model {config.model!r} is fitted by one process: only networks use several.", "processes")
    check_network(build(config), config.model, config.recipe.batch_size, size)


def follow_run(cohort: Cohort, split: Split, config: RunConfig, folder: str | Path) -> None:
    """Do the work of another process in a training that the first carries out by :func:`train_run`; write nothing."""
    check_group(config)
    if current().any(False):
        return  # there is a finished run
    reuse_freed_memory()
    with threadpool_limits(config.threads):
        if config.device == "cpu":
            torch.set_num_threads(config.threads)
        train, val, _ = split.rows(cohort)
        make_learner(config).fit(cohort, cohort.labels(config.label), train, val, folder=Path(folder))


def _train_and_test(
    cohort: Cohort, split: Split, config: RunConfig, folder: Path, watch: EpochWatcher | None
) -> RunResult:
    """Do what :func:`train_run` promises, in a folder that is open."""
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
    write_atomic(folder / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    people = people_of(cohort.participants)
    table = prediction_table(config.task, cohort, y, val, test, predicted, people)
    write_atomic(folder / "predictions.csv", table.to_csv(index=False))
    around = adjusted_facts(learner, cohort, (train, val, test), table)
    threshold = around.get("threshold", 0.5)
    report: dict[str, Any] = {
        "config_sha256": config.digest(),
        "model": config.model,
        "label": config.label,
        "positive_class": config.task.classes[-1] if config.task.n_outputs == 2 else None,
        "split": config.split,
        "seed": config.seed,
        "n": {part: len(set(people[rows])) for part, rows in zip(PARTS, (train, val, test))},
        **({"n_scans": dict(zip(PARTS, split.sizes))} if "person" in table else {}),
        "test": metrics_of(config.task, table, "test", threshold),
        "validation": metrics_of(config.task, table, "validation", threshold),
        "site_caution": site_caution(cohort, config.label, config.task),
        **around,
        **({"solver": learner.solver} if learner.solver else {}),
        "refit_on_validation": config.recipe.refit,
        "epochs": [line["chosen_epoch"] for line in lines if "chosen_epoch" in line],  # whose weights each stage kept
        "n_parameters": learner.n_parameters,
        **({"processes": current().size} if current().size > 1 else {}),
        "seconds": round(time.perf_counter() - wall + wall_before, 2),
        "cpu_seconds": round(time.process_time() - cpu + cpu_before, 2),
        "cpu_seconds_shared": round(seconds_of_others(), 2),
        "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "weights_sha256": sha256((folder / "weights.safetensors").read_bytes()).hexdigest(),
        "versions": versions(),
        # Digests of the scans of training and validation: bnt validate refuses them, wherever the cohort is.
        "seen_scans": " ".join(sorted(cohort.digests[np.concatenate([train, val])].astype(str).tolist())),
        **({"seen_people": sorted(set(people[np.concatenate([train, val])]))} if "person" in table else {}),
    }
    write_atomic(folder / "report.json", json.dumps(report, indent=2, default=float) + "\n")
    write_atomic(folder / "model_card.md", model_card(config, report))
    seal(folder)
    learner.clean_up(folder)
    return RunResult(folder, config, report, table)


def adjusted_facts(
    learner: Learner, cohort: Cohort, parts: tuple[np.ndarray, ...], table: pd.DataFrame
) -> dict[str, Any]:
    """Return what the adjustments did, for the report; nothing where there are none.

    ``threshold``; ``new_sites``, sentences; ``site_accuracy`` before and after; and ``never_predicted``, classes that
    nobody of the test set is predicted to have. All but the sites are of people, as the metrics are.
    """
    config, (train, val, test) = learner.config, parts
    found: dict[str, Any] = {}
    if config.adjustments.threshold:
        people = of_people(table[table["part"] == "validation"])
        codes = config.task.encode(people["label"].to_numpy())
        found["threshold"] = best_threshold(codes == 1, people[outputs_of(config.task)[1]].to_numpy())
    notes = learner.notes(cohort, np.concatenate([val, test]))
    if notes:
        found["new_sites"] = list(notes.values())
    if config.adjustments.harmonise:
        after = learner.prepared(cohort, np.concatenate([train, val, test]))
        both = [site_accuracy(one, train, test) for one in (cohort, after)]
        found["site_accuracy"] = None if None in both else {"before": both[0], "after": both[1]}
    if config.task.kind == "classification":
        people = of_people(table[table["part"] == "test"])
        called = config.task.called(people[outputs_of(config.task)].to_numpy(), found.get("threshold", 0.5))
        never = [str(c) for c in config.task.classes if c not in called]
        found |= {"never_predicted": never} if never else {}
    return found


def spent_before(folder: Path) -> tuple[float, float]:
    """Return the seconds and CPU seconds of the epochs that an interrupted run has made already."""
    file = folder / "metrics.jsonl"
    wall = cpu = 0.0
    for text in file.read_text(errors="replace").splitlines() if file.is_file() else []:
        try:
            line = json.loads(text)
            spent = float(line.get("seconds", 0.0)), float(line.get("cpu_seconds", 0.0))
        except (ArithmeticError, ValueError, TypeError, AttributeError, RecursionError):
            continue  # the last line of a run that was killed while it wrote
        wall, cpu = wall + spent[0], cpu + spent[1]
    return wall, cpu


def versions() -> dict[str, str]:
    """Return the versions that decide the bits."""
    return {
        "bnt": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }


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
    task: Task,
    cohort: Cohort,
    y: np.ndarray,
    val: np.ndarray,
    test: np.ndarray,
    predicted: np.ndarray,
    people: np.ndarray,
) -> pd.DataFrame:
    """Return one row per scan of the validation and the test set; ``person`` where people have several."""
    rows = np.concatenate([val, test])
    table = pd.DataFrame(
        {
            "participant_id": cohort.ids[rows],
            "part": ["validation"] * len(val) + ["test"] * len(test),
            "site": cohort.sites[rows],
            "label": y[rows],
        }
    )
    if (people != cohort.ids).any():
        table["person"] = people[rows]
    if task.kind == "regression":
        return table.assign(predicted=predicted[:, 0])
    for i, name in enumerate(task.classes):
        table[f"p_{name}"] = predicted[:, i]
    return table


def outputs_of(task: Task) -> list[str]:
    """Return the columns of a table of predictions that hold what the model says."""
    return ["predicted"] if task.kind == "regression" else [f"p_{name}" for name in task.classes]


def metrics_of(task: Task, table: pd.DataFrame, part: str, threshold: float = 0.5) -> dict[str, Any]:
    """Return the metrics of a set, of people and not of scans: counts and intervals are of independent units."""
    people = of_people(table[table["part"] == part])
    given = people["label"].to_numpy(), people[outputs_of(task)].to_numpy(), people["site"].to_numpy()
    return task.metrics(*given, threshold=threshold)


# -- the model card ------------------------------------------------------------------------------------

RATES = ("accuracy", "sensitivity", "specificity", "balanced_accuracy")
SHOWN = ("auroc", "auroc_within_site", *RATES, "brier", "calibration_error")
SHOWN_SCORE = ("r", "r2", "mae", "medae", "mse")


def _row(name: str, metrics: dict[str, Any]) -> str:
    interval = metrics.get(f"{name}_ci")
    span = f"{shown(interval[0], name)} to {shown(interval[1], name)}" if interval else ""
    return f"| {heading(name)} | {shown(metrics[name], name, nothing='–')} | {span} |"


def _in_words(recipe: Recipe, in_epochs: bool) -> str:
    """Return what the recipe did to this model; all its fields are in ``config.toml``."""
    if not in_epochs:
        return "the model fits itself; only whether validation joins training is the recipe's"
    chosen = {
        "best": "the best epoch on validation",
        "smoothed": f"the best mean of {recipe.smooth} epochs on validation",
        "last": "the last epoch",
    }
    parts = [
        f"at most {recipe.epochs} epochs in batches of {recipe.batch_size}",
        f"{'AdamW' if recipe.decoupled else 'Adam'}, rate {recipe.lr:g} to {recipe.lr_end:g}",
        f"weight decay {recipe.weight_decay:g}",
        *([f"mixup {recipe.mixup:g}"] if recipe.mixup else []),
        *([f"weights averaged with decay {recipe.ema:g}"] if recipe.ema else []),
        f"tested: {chosen[recipe.select]}",
    ]
    return ", ".join(parts)


def site_caution(cohort: Cohort, label: str, task: Task) -> str:
    """Return a caution where the share of a class differs strongly between sites; empty where it does not."""
    if task.kind != "classification":
        return ""
    y, sites = task.encode(cohort.labels(label)), cohort.sites.astype(str)
    counts = {site: np.bincount(y[sites == site], minlength=task.n_outputs).tolist() for site in np.unique(sites)}
    return site_confound(counts, [f"{label} = {name}" for name in task.classes])


def model_card(config: RunConfig, report: dict[str, Any], in_epochs: bool | None = None) -> str:
    """Return the model card as Markdown: what the model is, was tested on, and is not. No subject, no folder.

    ``in_epochs`` says whether the model trains in epochs, where its name alone does not lead to its file.
    """
    epochs = find_entry(config.model).trains_in_epochs if in_epochs is None else in_epochs
    test, n = report["test"], report["n"]
    scans = f" ({report['n_scans']['test']} scans, averaged within a person)" if "n_scans" in report else ""
    listed = SHOWN_SCORE if config.task.kind == "regression" else SHOWN
    positive = report["positive_class"]
    called = f" The positive class is {positive!r}." if positive is not None else ""
    options = ", ".join(f"{k}={v}" for k, v in config.options.items()) or "defaults"
    members = f", mean of {config.recipe.n_members} networks" if config.recipe.n_members > 1 else ""
    refit = " The tested weights were trained again on training + validation." if config.recipe.refit else ""
    versions = ", ".join(f"{k} {v}" for k, v in report["versions"].items())
    text = "\n".join(
        [
            f"# {config.model}: {config.label} from {config.kind} connectomes of {config.n_rois} ROIs",
            "",
            "**Not a diagnostic device.** A research model: its predictions describe groups of people like those it",
            "was trained on and must not be used to decide about the care of any person.",
            "",
            "## Tested once",
            "",
            f"{n['test']} people of the test set{scans}.{called}",
            "",
            "| metric | value | 95 % interval |",
            "|---|---|---|",
            *[_row(name, test) for name in listed if name in test],
            "",
            *([report["site_caution"], ""] if report.get("site_caution") else []),
            "## How it was made",
            "",
            f"- Model `{config.model}` ({options}), {report['n_parameters']:,} parameters{members}.",
            f"- Recipe `{config.recipe_name}`: {_in_words(config.recipe, epochs)}.{refit}",
            *[f"- Adjusted: {what}." for what in config.adjustments.described()],
            *[f"- {sentence}" for sentence in report.get("new_sites", [])],
            *([f"- {report['solver']}"] if "solver" in report else []),
            *([f"- The positive class is predicted above {report['threshold']:.3g}."] if "threshold" in report else []),
            f"- Split `{config.split or 'given'}`: {n['train']} training, {n['validation']} validation, "
            f"{n['test']} test (sha256 {config.split_sha256[:16]}).",
            f"- Data sha256 {config.data_sha256[:16]}; weights sha256 {report['weights_sha256'][:16]}.",
            f"- Seed {config.seed}, {config.threads} thread{'s' * (config.threads != 1)}, {config.device}; {versions}.",
            f"- {report['seconds']:.0f} s, {report['cpu_seconds']:.0f} CPU-seconds, "
            f"{report['peak_memory_mb']} MB of memory at most.",
            "",
        ]
    )
    return without_folders(text, config.cohort)
