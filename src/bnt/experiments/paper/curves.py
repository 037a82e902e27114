"""Appendix A: validation and test AUROC by epoch, with and without stratification by site, for three models.

This is the only place where the test part is scored after every epoch: the figure is about it. Nothing is selected
by these scores, and ordinary runs never see them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bnt.errors import BadInput
from bnt.experiments.job import Job
from bnt.experiments.paper.curve_runs import jobs_of, run_curves
from bnt.experiments.paper.drawing import GREY
from bnt.experiments.paper.estimate import most_epochs
from bnt.experiments.paper.plan import Plan, prepare
from bnt.experiments.paper.texts import about, changed_to_fit, listed, not_run, rows, training
from bnt.experiments.statistics import summarise
from bnt.report.figures import COLOURS, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MODELS = ("san", "vanilla", "bnt")  # the paper left Graphormer out of this figure
NOTES = """
The paper shows one run as a picture and says that stratification makes the gap smaller and training stabler. The gap
is the mean over epochs of |validation - test|. The test part is scored every epoch for this figure only: nothing is
selected by it, no weights are averaged, and every epoch is trained.
"""
SAMPLINGS = {"site-stratified": "stratified by site", "random": "random"}
ONE_SITE = "\nThe cohort has one site, so there is nothing to stratify by: only random splits were drawn.\n"


def check(plan: Plan) -> None:
    """Refuse options that have no meaning here; as a part of ``all`` they are meant for other parts, and it is said."""
    wrong = []
    if plan.protocol != "paper":
        wrong.append(f"--protocol {plan.protocol} (they compare two samplings of their own)")
    if len(plan.seeds) > 1:
        wrong.append("more than one seed")
    if plan.engine != "local" or plan.address is not None:
        wrong.append("--engine ray and --address (they are trained on this machine)")
    if not wrong:
        return
    said = f"The training curves cannot take {', '.join(wrong)}"
    if not plan.together:
        raise BadInput(f"{said}: leave it out.")
    plan.say(f"{said}: they are made without, from the first seed.")


def samplings_of(plan: Plan) -> list[str]:
    """Return the samplings that differ on this cohort."""
    return list(SAMPLINGS) if len(np.unique(plan.cohort.sites)) > 1 else ["random"]


def make(plan: Plan) -> tuple[pd.DataFrame, str, Figure]:
    """Train, score every epoch, and return table, Markdown and figure."""
    plan.check_binary()
    check(plan)
    kept, missing, changed = prepare(plan, [plan.variant(m, m) for m in MODELS])
    jobs = jobs_of(plan, kept, samplings_of(plan))
    if all(most_epochs(job.variant.recipe, len(job.split[0])) == 1 for job in jobs):
        plan.say("One epoch has no change from epoch to epoch: that column is left empty, and curves are points.")
    table, failures = run_curves(plan, jobs)
    failed = {name: reason.rstrip(".") for name, reason in failures.items()}
    text = markdown(plan, jobs, table) + changed_to_fit(changed) + not_run(missing)
    text += listed("Failed curves; the others are shown:", failed)
    return table, text, draw(table)


def markdown(plan: Plan, jobs: Sequence[Job], table: pd.DataFrame) -> str:
    """Return the gap and the change between epochs of each model and sampling, and how they came about."""
    body = []
    for model, sampling in product(table["model"].unique(), samplings_of(plan)):
        part = table[(table["model"] == model) & (table["sampling"] == sampling)]
        if len(part):
            body.append([f"`{model}`", SAMPLINGS[sampling], *(_score(v) for v in facts(part))])
    header = ["model", "sampling", "gap between validation and test", "change from epoch to epoch (test)"]
    variants = list({job.variant.name: job.variant for job in jobs}.values())
    runs = pd.DataFrame([{"variant": job.variant.name, "n_train": len(job.split[0])} for job in jobs])
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
        return "–"  # one epoch, or a part with one class
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
    samplings = [s for s in SAMPLINGS if s in set(table["sampling"])]
    # Models with recipes of their own may make other numbers of epochs: each has an axis of its own.
    figure = Figure(figsize=(2.4 * len(models) + 0.4, 0.6 + 1.6 * len(samplings)), layout="constrained")
    panels = figure.subplots(len(samplings), len(models), squeeze=False, sharex="col", sharey=True)
    for (i, sampling), (j, model) in product(enumerate(samplings), enumerate(models)):
        axes = panels[i][j]
        part = table[(table["model"] == model) & (table["sampling"] == sampling)]
        for k, (_, curve) in enumerate(part.groupby("split", sort=False)):
            strong: dict[str, Any] = {"lw": 1.3, "alpha": 1.0} if k == 0 else {"lw": 0.5, "alpha": 0.45}
            strong |= {"marker": "o", "ms": 3} if len(curve) == 1 else {}  # a line of one point is not seen
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
        if i == len(samplings) - 1:
            axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        if part["epoch"].max() == 1:
            axes.set_xticks([1])
        if j == 0:
            axes.set_ylabel(f"{SAMPLINGS[sampling]}\nAUROC")
    entries = [axes.get_legend_handles_labels() for axes in panels.flat]  # a panel whose curves failed has none
    handles, labels = max(entries, key=lambda entry: len(entry[1]))
    figure.legend(handles, labels, loc="outside lower center", ncols=2)
    return figure
