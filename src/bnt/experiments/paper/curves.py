"""Appendix A: validation and test AUROC by epoch, with and without stratification by site, for three models.

This is the only place where the test part is scored after every epoch: the figure is about it. Nothing is selected
by these scores, and ordinary runs never see them.
"""

from __future__ import annotations

import json
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from hashlib import sha256
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bnt.cohort import load_cohort
from bnt.cohort.atomic import write_atomic
from bnt.errors import BadInput
from bnt.experiments.paper.drawing import GREY
from bnt.experiments.paper.estimate import BEYOND_STEPS, duration, step_seconds
from bnt.experiments.paper.plan import Plan, runnable
from bnt.experiments.paper.texts import about, not_run, rows
from bnt.experiments.paper.writing import open_output
from bnt.experiments.statistics import summarise
from bnt.progress import track
from bnt.report.figures import COLOURS, styled
from bnt.splits import named_splits
from bnt.training.recipe import Recipe
from bnt.training.run import data_digest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MODELS = ("san", "vanilla", "bnt")  # the paper left Graphormer out of this figure
NOTES = """
{splits} of each kind. The paper shows one run as a picture and says that stratification makes the gap smaller and
training stabler. The gap is the mean over epochs of |validation - test|. The test part is scored every epoch for this
figure only: nothing is selected by it, no weights are averaged, and every epoch is trained.
"""
SAMPLINGS = {"site-stratified": "stratified by site", "random": "random"}


def trace(text: str) -> list[dict[str, Any]]:
    """Train one network and return validation and test AUROC of every epoch; ``text`` is the job as JSON."""
    import torch

    from bnt.models import create_model
    from bnt.training.batches import Batches
    from bnt.training.loop import fit, logits_of
    from bnt.training.network import options_for, window_of
    from bnt.training.task import task_for

    job = json.loads(text)
    torch.set_num_threads(job["threads"])
    torch.manual_seed(job["seed"])
    cohort = load_cohort(job["cohort"])
    y = cohort.labels(job["label"])
    train, val, test = (np.array(part) for part in job["split"])
    task = task_for(y, "classification", train)
    options = options_for(cohort, job["model"], job["options"])
    model = create_model(job["model"], cohort.n_rois, task.n_outputs, **options).to(job["device"])
    window = window_of(model)

    def batches(part: np.ndarray) -> Batches:
        return Batches(cohort, part, task.targets(y[part]), window=window, device=job["device"])

    training, tested = batches(train), batches(test)
    prepare = getattr(model, "prepare", None)
    if prepare is not None:
        prepare(batch.x for batch in training.in_order())
    lines: list[dict[str, Any]] = []

    def watch(line: dict[str, Any]) -> None:
        score = task.score(y[test], task.predictions(logits_of(model, tested)))
        lines.append({"epoch": line["epoch"], "validation": line["val_score"], "test": score, "loss": line["loss"]})

    fit(model, task, Recipe(**job["recipe"]), training, batches(val), y[val], watch=watch)
    return lines


def jobs_of(plan: Plan) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Return every curve to draw, by name, and the models that the cohort does not allow."""
    # Weights that are scored are those being trained: no averaging, and no end before the last epoch.
    recipe = asdict(plan.recipe) | {"ema": 0.0, "patience": 0, "select": "last", "n_members": 1, "refit": False}
    variants = [plan.variant(m, m) for m in MODELS if not plan.only or m in plan.only]
    kept, missing = runnable(plan.cohort, variants)
    if not kept:
        raise BadInput(f"No model of the training curves can be run: there are {', '.join(MODELS)}.")
    jobs = {}
    for sampling, variant in product(SAMPLINGS, kept):
        splits = named_splits(plan.cohort, plan.label, sampling, n_splits=plan.n_splits, seed=plan.split_seed)
        for i, (_, split) in enumerate(splits):
            jobs[f"{variant.name}--{sampling}--split{i}"] = {
                "cohort": str(Path(plan.cohort.path or ".").resolve()),
                "data_sha256": data_digest(plan.cohort, plan.label),
                "label": plan.label,
                "model": variant.model,
                "options": variant.options,
                "recipe": recipe,
                "split": [part.tolist() for part in split],
                "seed": plan.seeds[0],
                "threads": plan.threads,
                "device": plan.device,
            }
    return jobs, missing


def run_curves(plan: Plan, jobs: dict[str, dict[str, Any]]) -> pd.DataFrame:
    """Train what is not done yet; each finished curve is kept with a digest of its job."""
    folder = plan.out / "curves"
    texts = {name: json.dumps(job, sort_keys=True) for name, job in jobs.items()}
    todo = {name: text for name, text in texts.items() if _kept(folder, name, text) is None}
    if todo:
        _announce(plan, jobs, list(todo))
        if plan.what:
            open_output(plan.out, plan.what)
        folder.mkdir(parents=True, exist_ok=True)
        with ProcessPoolExecutor(max(1, plan.jobs), mp_context=get_context("forkserver")) as pool:
            waiting = {pool.submit(trace, text): name for name, text in todo.items()}
            for finished in track(as_completed(waiting), "training curves", len(waiting)):
                name = waiting[finished]
                found = {"digest": _digest(texts[name]), "lines": finished.result()}
                write_atomic(folder / f"{name}.json", json.dumps(found) + "\n")
    collected = []
    for name, text in texts.items():
        model, sampling, split = name.split("--")
        lines = _kept(folder, name, text) or []
        collected += [{"model": model, "sampling": sampling, "split": split, **line} for line in lines]
    return pd.DataFrame(collected)


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _kept(folder: Path, name: str, text: str) -> list[dict[str, Any]] | None:
    file = folder / f"{name}.json"
    if not file.is_file():
        return None
    found = json.loads(file.read_text())
    return found["lines"] if found["digest"] == _digest(text) else None


def _announce(plan: Plan, jobs: dict[str, dict[str, Any]], todo: list[str]) -> None:
    steps = {name: step_seconds(plan, plan.variant(name, name)) for name in {jobs[n]["model"] for n in todo}}
    seconds = 0.0
    for name in todo:
        n = max(1, len(jobs[name]["split"][0]) // plan.recipe.batch_size) * plan.recipe.epochs
        seconds += 1.3 * BEYOND_STEPS * n * steps[jobs[name]["model"]]  # the test part is scored as well
    at_once = max(1, min(plan.jobs, len(todo)))
    plan.say(f"{len(todo)} of {len(jobs)} curves to train, {at_once} at a time: about {duration(seconds / at_once)}.")


def make(plan: Plan) -> tuple[pd.DataFrame, str, Figure]:
    """Train, score every epoch, and return table, Markdown and figure."""
    plan.check_binary()
    jobs, missing = jobs_of(plan)
    table = run_curves(plan, jobs)
    body = []
    for model in table["model"].unique():
        for sampling, words in SAMPLINGS.items():
            part = table[(table["model"] == model) & (table["sampling"] == sampling)]
            body.append([f"`{model}`", words, *(_score(v) for v in facts(part))])
    header = ["model", "sampling", "gap between validation and test", "change from epoch to epoch (test)"]
    text = (
        "# Training curves, AUROC (points of 100)\n\n"
        + rows(header, body)
        + f"\nOurs: {about(plan.cohort)}, label `{plan.label}`.\n"
        + NOTES.format(splits=f"{plan.n_splits} split{'s' * (plan.n_splits != 1)}")
        + not_run(missing)
    )
    return table, text, draw(table)


def _score(value: tuple[float, float]) -> str:
    return f"{value[0]:.1f}" + (f" ± {value[1]:.1f}" if np.isfinite(value[1]) else "")


def facts(part: pd.DataFrame) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the gap and the change between epochs, mean and SD over splits, in points."""
    gaps, changes = [], []
    for _, curve in part.groupby("split"):
        gaps.append(100 * float((curve["validation"] - curve["test"]).abs().mean()))
        changes.append(100 * float(curve["test"].diff().abs().mean()))
    gap, change = summarise(gaps), summarise(changes)
    return (gap.mean, gap.sd), (change.mean, change.sd)


@styled
def draw(table: pd.DataFrame) -> Figure:
    """Draw one panel a model and sampling: validation and test AUROC by epoch, the first split strong."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    models = table["model"].unique().tolist()
    figure = Figure(figsize=(2.4 * len(models) + 0.4, 3.8), layout="constrained")
    panels = figure.subplots(len(SAMPLINGS), len(models), squeeze=False, sharex=True, sharey=True)
    for (i, sampling), (j, model) in product(enumerate(SAMPLINGS), enumerate(models)):
        axes = panels[i][j]
        part = table[(table["model"] == model) & (table["sampling"] == sampling)]
        for k, (_, curve) in enumerate(part.groupby("split", sort=False)):
            strong: dict[str, Any] = {"lw": 1.3, "alpha": 1.0} if k == 0 else {"lw": 0.5, "alpha": 0.45}
            named = k == 0
            axes.plot(
                curve["epoch"], curve["validation"], color=COLOURS[0], label="validation" if named else None, **strong
            )
            axes.plot(
                curve["epoch"], curve["test"], color=COLOURS[1], ls="--", label="test" if named else None, **strong
            )
        axes.axhline(0.5, color=GREY, lw=0.7, ls=":")
        if i == 0:
            axes.set_title(model, fontsize=8)
        else:
            axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        if j == 0:
            axes.set_ylabel(f"{SAMPLINGS[sampling]}\nAUROC")
    figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure
