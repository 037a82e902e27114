"""Curves: AUROC by epoch with and without stratification (appendix A), and by the size of the training set.

This is the only place where the test set is scored after every epoch: the figure is about it. Nothing is selected
by these scores, and ordinary runs never see them. Each curve is trained in a process of its own, which resumes where it
was interrupted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from threadpoolctl import threadpool_limits

from bnt._words import counted, duration, percent
from bnt.cohort import Cohort, load_cohort
from bnt.cohort._files import held, write_atomic
from bnt.errors import BadInput
from bnt.paper._grid import (
    GREY,
    GridResult,
    about,
    changed_to_fit,
    circumstances,
    listed,
    not_run,
    open_output,
    rows,
    run_grid,
    skipped,
    training,
)
from bnt.paper._plan import Plan, prepare, show
from bnt.plotting._charts import in_percent
from bnt.plotting._style import COLOURS, canvas, lines, styled
from bnt.splits import Split, named_splits
from bnt.splits._split import absent_classes
from bnt.studies._engine import run_jobs
from bnt.studies._job import BEYOND_STEPS, Job, Variant, configure, locked, most_epochs, most_steps, step_seconds
from bnt.studies._sample_size import curve_table, thinned_splits, trainable_fractions
from bnt.studies._statistics import summarise
from bnt.training._batches import Batches, window_of
from bnt.training._batches import prepare as prepare_model
from bnt.training._checkpoint import Checkpoint
from bnt.training._config import RunConfig, difference, read_config, write_toml
from bnt.training._loop import build, fit, logits_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MODELS = ("san", "vanilla", "bnt")  # the paper left Graphormer out of this figure
NOTES = """
The paper shows one run as a picture and says that stratification makes the gap smaller and training stabler. The gap
is the mean over epochs of |validation - test|. The test set is scored every epoch for this figure only: nothing is
selected by it, no weights are averaged, and every epoch is trained.
"""
SAMPLINGS = {"site-stratified": "stratified by site", "random": "random"}
ONE_SITE = "\nThe cohort has one site, so there is nothing to stratify by: only random splits were drawn.\n"


def check_options(plan: Plan) -> None:
    """Refuse options that have no meaning here; as a part of ``all`` they are meant for other parts, and it is said."""
    wrong = []
    if plan.protocol != "site-stratified":
        wrong.append(f"protocol {plan.protocol} (they compare two samplings of their own)")
    if len(plan.seeds) > 1:
        wrong.append("more than one seed")
    if plan.engine != "local" or plan.address is not None:
        wrong.append(f"engine {plan.engine} and an address (they are trained on this machine)")
    if not wrong:
        return
    said = f"The training curves cannot take {', '.join(wrong)}"
    if not plan.together:
        raise BadInput(f"{said}: leave it out.")
    plan.say(f"{said}: they are made without, from the first seed.")


def samplings_of(plan: Plan) -> list[str]:
    """Return the samplings that differ on this cohort."""
    return list(SAMPLINGS) if len(np.unique(plan.cohort.sites)) > 1 else ["random"]


def sampled(plan: Plan, sampling: str) -> list[Split]:
    """Return the splits of one sampling."""
    return named_splits(plan.cohort, plan.label, sampling, n_splits=plan.n_splits, seed=plan.split_seed)


def undefined_in(plan: Plan, splits: Sequence[Split]) -> str:
    """Return in how many splits a validation or test set lacks a class, in a sentence; nothing where none does."""
    lacking = {one.split for one in absent_classes(plan.cohort, plan.label, splits) if one.part != "training"}
    if not lacking:
        return ""
    where = f"In {len(lacking)} of {counted(len(splits), 'split')}"
    return f"{where} a validation or test set lacks a class: its AUROC is undefined, and so is the gap."


def curves(plan: Plan) -> tuple[pd.DataFrame, str, Figure]:
    """Train, score every epoch, and return table, Markdown and figure."""
    plan.check_binary()
    check_options(plan)
    splits = [split for sampling in samplings_of(plan) for split in sampled(plan, sampling)]
    kept, missing, changed = prepare(plan, [plan.variant(m, m) for m in MODELS], splits)
    jobs = jobs_of(plan, kept, samplings_of(plan))
    undefined = undefined_in(plan, splits)
    if undefined:
        plan.say(undefined)
    if all(most_epochs(job.variant.recipe, len(job.split.train)) == 1 for job in jobs):
        plan.say("One epoch has no change from epoch to epoch: that column is left empty, and curves are points.")
    table, failures = run_curves(plan, jobs)
    failed = {name: reason.rstrip(".") for name, reason in failures.items()}
    text = curves_text(plan, jobs, table) + (f"\n{undefined}\n" if undefined else "")
    text += changed_to_fit(changed) + not_run(missing)
    text += listed("Failed curves; the others are shown:", failed)
    return table, text, draw_curves(table)


def curves_text(plan: Plan, jobs: Sequence[Job], table: pd.DataFrame) -> str:
    """Return the gap and the change between epochs of each model and sampling, and how they came about."""
    body = []
    for model, sampling in product(table["model"].unique(), samplings_of(plan)):
        part = table[(table["model"] == model) & (table["sampling"] == sampling)]
        if len(part):
            body.append([f"`{model}`", SAMPLINGS[sampling], *(_score(v) for v in gap_and_change(part))])
    header = ["model", "sampling", "gap between validation and test", "change from epoch to epoch (test)"]
    variants = list({job.variant.name: job.variant for job in jobs}.values())
    runs = pd.DataFrame([{"variant": job.variant.name, "n_train": len(job.split.train)} for job in jobs])
    recipe = training(variants, runs).replace(" at most", "")  # none ends early here
    n = f"{plan.n_splits} split{'s' * (plan.n_splits != 1)}"
    return (
        "# Training curves, AUROC (points of 100)\n\n"
        + rows(header, body)
        + f"\nOurs: {about(plan.cohort)}, label `{plan.label}`; {n} of each kind; mean ± SD over splits; {recipe}.\n"
        + (ONE_SITE if samplings_of(plan) == ["random"] else "")
        + NOTES
    )


def _score(value: tuple[float, float]) -> str:
    if not np.isfinite(value[0]):
        return "–"  # one epoch, or a set with one class
    return f"{value[0]:.1f}" + (f" ± {value[1]:.1f}" if np.isfinite(value[1]) else "")


def gap_and_change(part: pd.DataFrame) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the gap and the change between epochs, mean and SD over splits, in points."""
    gaps, changes = [], []
    for _, curve in part.groupby("split"):
        gaps.append(100 * float((curve["validation"] - curve["test"]).abs().mean()))
        changes.append(100 * float(curve["test"].diff().abs().mean()))
    gap, change = summarise(gaps), summarise(changes)
    return (gap.mean, gap.sd), (change.mean, change.sd)


@styled
def draw_curves(table: pd.DataFrame) -> Figure:
    """Draw one panel per model and sampling: validation and test AUROC by epoch, the first split strong."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    models = table["model"].unique().tolist()
    samplings = [s for s in SAMPLINGS if s in set(table["sampling"])]
    # Models with recipes of their own may have other numbers of epochs: each has an axis of its own.
    figure = Figure(figsize=(2.4 * len(models) + 0.4, 0.6 + 1.6 * len(samplings)), layout="constrained")
    panels = figure.subplots(len(samplings), len(models), squeeze=False, sharex="col", sharey=True)
    for (i, sampling), (j, model) in product(enumerate(samplings), enumerate(models)):
        axes = panels[i][j]
        part = table[(table["model"] == model) & (table["sampling"] == sampling)]
        for k, (_, curve) in enumerate(part.groupby("split", sort=False)):
            strong: dict[str, Any] = {"lw": 1.3, "alpha": 1.0} if k == 0 else {"lw": 0.5, "alpha": 0.45}
            strong |= {"marker": "o", "ms": 3} if len(curve) == 1 else {}  # a line of one point is not seen
            for which, colour, dash in (("validation", COLOURS[0], "-"), ("test", COLOURS[1], "--")):
                named = which if k == 0 else None
                axes.plot(curve["epoch"], curve[which], color=colour, ls=dash, label=named, **strong)
        axes.axhline(0.5, color=GREY, lw=0.7, ls=":")
        if i == 0:
            axes.set_title(model, fontsize=8)
        if i == len(samplings) - 1:
            axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        if part["epoch"].max() == 1:
            axes.set_xticks([1])
        if j == 0:
            axes.set_ylabel(f"{SAMPLINGS[sampling]}\nAUROC (%)")
            in_percent(axes.yaxis)
    entries = [axes.get_legend_handles_labels() for axes in panels.flat]  # a panel whose curves failed has none
    handles, labels = max(entries, key=lambda entry: len(entry[1]))
    figure.legend(handles, labels, loc="outside lower center", ncols=2)
    return figure


# -- the runs behind the curves ----------------------------------------------------------------------------------------

Lines = list[dict[str, Any]]
CURVE = "curve.jsonl"  # appears last, whole: one line per epoch
TESTING = 1.3  # the test set is scored as well


def jobs_of(plan: Plan, variants: Sequence[Variant], samplings: Sequence[str]) -> list[Job]:
    """Return every curve to draw: a variant, a sampling and a split each."""
    found = []
    for sampling, variant in product(samplings, variants):
        # Weights that are scored are those being trained: no averaging, and no end before the last epoch.
        recipe = replace(variant.recipe, ema=0.0, patience=0, select="last", n_members=1, refit=False)
        for i, split in enumerate(sampled(plan, sampling)):
            found.append(
                Job(
                    cohort=str(Path(plan.cohort.path or ".").resolve()),
                    folder=str(plan.out.resolve() / "curves" / f"{variant.name}--{sampling}--split{i}"),
                    variant=replace(variant, recipe=recipe),
                    label=plan.label,
                    split=split,
                    seed=plan.seeds[0],
                    threads=plan.threads,
                    device=plan.device,
                )
            )
    return found


def trace(
    cohort: Cohort, split: Split, config: RunConfig, folder: Path, tell: Callable[[dict[str, Any]], None]
) -> Lines:
    """Train one network, from its checkpoint in ``folder`` if there is one, and return each epoch's scores.

    A line has the epoch, its loss, and its validation and test AUROC; ``tell`` has the loop's lines as they come.
    """
    if config.device == "cpu":
        torch.set_num_threads(config.threads)
    torch.manual_seed(config.seed * 1000)  # as the first network of a run
    task, y = config.task, cohort.labels(config.label)
    model = build(config)
    window = window_of(model)
    train, val, test = split.rows(cohort)

    def batches(part: np.ndarray) -> Batches:
        return Batches(cohort, part, task.targets(y[part]), window=window, device=config.device)

    training, tested = batches(train), batches(test)
    prepare_model(model, lambda: (batch.x for batch in training.in_order()))

    class Scored(Checkpoint):
        """The epoch's test score is part of what is kept: no epoch is ever without one."""

        def save(self, state: Any) -> None:
            score = task.score(y[test], task.predictions(logits_of(state.model, tested)))
            state.history[-1]["test"] = score if np.isfinite(score) else None
            super().save(state)

    checkpoint = Scored(folder, "curve")
    state = fit(model, task, config.recipe, training, batches(val), y[val], checkpoint=checkpoint, watch=tell)
    return [
        {"epoch": line["epoch"], "validation": line["val_score"], "test": line["test"], "loss": line["loss"]}
        for line in state.history
    ]


def is_finished(job: Job, cohort: Cohort) -> bool:
    """Whether this very curve is kept; one that was made from something else is refused, never overwritten."""
    folder = Path(job.folder)
    if not (folder / "config.toml").is_file():
        return False
    other = difference(read_config(folder), configure(job, cohort))
    if other is not None:
        raise BadInput(f"{folder} holds another curve ({other.words}): choose another folder.", "out")
    return (folder / CURVE).is_file()


def carry_out(job: Job) -> None:
    """Train one curve, or resume it, and keep it."""
    folder = Path(job.folder)
    with locked(job), threadpool_limits(job.threads):
        cohort = load_cohort(job.cohort)
        if is_finished(job, cohort):
            return  # by another command
        config = configure(job, cohort)
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / "config.toml", write_toml(config.to_dict()))
        with open(folder / "metrics.jsonl", "w", buffering=1) as log:  # for the one who watches
            lines = trace(cohort, job.split, config, folder, lambda line: print(json.dumps(line), file=log))
        write_atomic(folder / CURVE, "".join(json.dumps(line) + "\n" for line in lines))
        Checkpoint(folder, "curve").remove()
        (folder / "metrics.jsonl").unlink()


def announce_curves(plan: Plan, jobs: Sequence[Job], todo: Sequence[Job]) -> None:
    """Say how many curves there are to train and about how long that will take."""
    steps = {
        job.variant.name: step_seconds(plan.cohort, job.variant, threads=plan.threads, device=plan.device)
        for job in {j.variant.name: j for j in todo}.values()
    }
    seconds = sum(
        TESTING * BEYOND_STEPS * most_steps(job.variant.recipe, len(job.split.train)) * steps[job.variant.name]
        for job in todo
    )
    at_once = max(1, min(plan.jobs, len(todo)))
    plan.say(f"{len(todo)} of {len(jobs)} curves to train, {at_once} at a time: about {duration(seconds / at_once)}.")


def run_curves(plan: Plan, jobs: Sequence[Job]) -> tuple[pd.DataFrame, dict[str, str]]:
    """Train what is not done yet; return all lines of the finished curves, and why others failed."""
    todo = [job for job in jobs if not is_finished(job, plan.cohort)]
    failures: dict[str, str] = {}
    if todo:
        announce_curves(plan, jobs, todo)
        open_output(plan.out, plan.what)
        with plan.watch() if plan.watch is not None else nullcontext(None) as board:
            failures = run_jobs(todo, n_processes=plan.jobs, watch=board, work=carry_out)
    for name, reason in failures.items():
        plan.say(f"failed: {name}: {reason}")
    note = plan.out / "failures.csv"
    with held(plan.out / ".lock"):
        note.unlink(missing_ok=True)
        if failures:
            write_atomic(note, pd.DataFrame(list(failures.items()), columns=["run", "reason"]).to_csv(index=False))
    collected = []
    for job in jobs:
        if job.name not in failures:
            model, sampling, split = job.name.split("--")
            collected += [{"model": model, "sampling": sampling, "split": split, **line} for line in lines_of(job)]
    if not collected:
        raise BadInput(f"No curve of {plan.out} finished: {next(iter(failures.values()))}")
    return pd.DataFrame(collected).astype({"validation": float, "test": float}), failures


def lines_of(job: Job) -> Lines:
    """Read a finished curve."""
    file = Path(job.folder) / CURVE
    try:
        return [json.loads(line) for line in file.read_text().splitlines()]
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"{file} is damaged ({error}): remove it and repeat the command.") from error


LEARNERS = ("bnt", "bnt-released", "vanilla", "svm")


def plan_splits(plan: Plan) -> list[Split]:
    """Return the plan's splits with each share of their training set."""
    return thinned_splits(
        plan.cohort, plan.label, plan.protocol, plan.fractions, n_splits=plan.n_splits, seed=plan.split_seed
    )


def learning_curve(plan: Plan) -> tuple[pd.DataFrame, str, Figure]:
    """Run every share of the training set and return table, Markdown and figure."""
    variants = [plan.variant(m, m) for m in LEARNERS]
    kept, left_out = trainable_fractions(
        plan.cohort,
        plan.label,
        plan.protocol,
        plan.fractions,
        plan.asked(variants),
        n_splits=plan.n_splits,
        seed=plan.split_seed,
    )
    plan = replace(plan, fractions=kept)
    if left_out:
        plan.say(left_out)
    # A share of the training set is no repeat of another: nothing is averaged or tested over them.
    result = run_grid(plan, variants, plan_splits(plan), comparable=False)
    table = collect(plan, result)
    return table, markdown(plan, result, table, left_out), draw(plan, table)


def collect(plan: Plan, result: GridResult) -> pd.DataFrame:
    """Return one row per model and share: mean and SD of AUROC over splits."""
    table = curve_table(result.runs, plan.fractions, "auroc")
    return table.assign(auroc=100 * table["auroc"], auroc_sd=100 * table["auroc_sd"])


def markdown(plan: Plan, result: GridResult, table: pd.DataFrame, left_out: str = "") -> str:
    """Return AUROC by share of the training set."""
    models = table["model"].unique().tolist()
    body = []
    for fraction in plan.fractions:
        part = table[table["fraction"] == fraction].set_index("model")
        sizes = part["n_train"].dropna()
        cells = [show((part.loc[m, "auroc"], part.loc[m, "auroc_sd"])) for m in models]
        body.append([percent(fraction), f"{sizes.iloc[0]:.0f}" if len(sizes) else "–", *cells])
    return (
        "# Learning curve, AUROC (%)\n\n"
        + rows(["share of the training set", "subjects", *(f"`{m}`" for m in models)], body)
        + circumstances(plan, result, printed=False)
        + "\nThe paper prints no learning curve; the authors' release has the setting for it.\n"
        + (f"{left_out}\n" if left_out else "")
        + skipped(result)
    )


@styled
def draw(plan: Plan, table: pd.DataFrame) -> Figure:
    """Draw AUROC against the number of training subjects."""
    figure, (axes,) = canvas(width=4.6, height=2.8)
    groups: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for model, part in table.groupby("model", sort=False):
        groups[str(model)] = (part["auroc"].to_numpy(), part["auroc_sd"].to_numpy())
    lines(axes, [100 * f for f in plan.fractions], groups)
    axes.set(xlabel="share of the training set (%)", ylabel="test AUROC (%)")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure
