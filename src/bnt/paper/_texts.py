"""Markdown around the tables: headings, rows, and how the numbers came about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from bnt.cohort import Cohort
from bnt.connectivity import KINDS
from bnt.models import find_entry
from bnt.paper._estimate_time import duration, epochs_in_words, most_epochs
from bnt.paper._plan import Outcome, Plan
from bnt.paper._printed import N_RUNS
from bnt.studies._job import Variant
from bnt.training._recipe import Recipe


def rows(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    text = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(text + ["| " + " | ".join(line) + " |" for line in lines]) + "\n"


def skipped(outcome: Outcome) -> str:
    """Return what was changed, skipped or failed, and why."""
    return (
        changed_to_fit(outcome.fitted)
        + not_run(outcome.missing)
        + listed("Failed runs; the numbers are from the others:", outcome.failed)
    )


def changed_to_fit(changed: Mapping[str, str]) -> str:
    """Return which defaults were changed to fit the cohort."""
    return listed("Changed:", changed)


def not_run(missing: Mapping[str, str]) -> str:
    """Return what has no result, and why."""
    return listed("Not run, or failed:", missing)


def listed(heading: str, reasons: Mapping[str, str]) -> str:
    """Return names and their reasons under a heading, names with the same reason in one line; nothing for none."""
    together: dict[str, list[str]] = {}
    for name, why in reasons.items():
        together.setdefault(why, []).append(f"`{name}`")
    lines = "".join(f"- {', '.join(names)}: {why}.\n" for why, names in together.items())
    return f"\n{heading}\n\n{lines}" if lines else ""


def p_words(p: float) -> str:
    """Return ``p = 0.012``, or ``p < 0.001``: no p is 0."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def training(variants: Sequence[Variant], runs: pd.DataFrame) -> str:
    """Return recipe, epochs, batch size and stopping of the networks among the runs; exceptions are named after them.

    Parameters
    ----------
    variants : sequence of Variant
    runs : DataFrame
        One row a run, with ``variant`` and ``n_train``: a small training part is passed over more often.
    """
    found: dict[str, list[str]] = {}
    for variant in variants:
        sizes = runs.loc[runs["variant"] == variant.name, "n_train"]
        if not len(sizes) or not find_entry(variant.model).trains_in_epochs:
            continue
        most = [most_epochs(variant.recipe, int(n)) for n in sizes]
        said = f"recipe `{variant.recipe_name}`, {epochs_in_words(most)} at most, batch {variant.recipe.batch_size}"
        said += stopping_words(variant.recipe, max(most))
        found.setdefault(said, []).append(variant.name)
    if not found:
        return ""
    usual = max(found, key=lambda said: len(found[said]))
    common = usual.partition(",")[0] + ", "  # the recipe's name is not said twice
    others = [
        f"{', '.join(f'`{name}`' for name in names)}: {said.removeprefix(common)}"
        for said, names in found.items()
        if said != usual
    ]
    return usual + (f" ({'; '.join(others)})" if others else "")


def stopping_words(recipe: Recipe, epochs: int) -> str:
    """Return when training ends before its last epoch; nothing where it cannot."""
    if recipe.select == "last" or not 0 < recipe.patience < epochs:
        return ""
    smoothed = f" (mean of {recipe.smooth} epochs)" if recipe.select == "smoothed" else ""
    return f", stopped after {recipe.patience} epochs without a better validation AUROC{smoothed}"


def circumstances(plan: Plan, outcome: Outcome, *, printed: bool = True) -> str:
    """Return the sentence that says which data, splits and recipe the numbers are from.

    Parameters
    ----------
    plan : Plan
    outcome : Outcome
    printed : bool
        Whether numbers of the paper stand beside ours.
    """
    runs = outcome.runs
    n = runs["split"].str.partition("+")[0].nunique()  # shares of a training part are one split
    said = f"\nOurs: {about(plan.cohort)}, label `{plan.label}`; protocol `{plan.protocol}`, "
    said += f"{n} split{'s' * (n != 1)}; mean ± SD over splits"
    recipe = training(outcome.variants, runs)
    said += f"; {recipe}." if recipe else "."
    said += f" CPU time of all runs: {duration(float(runs['cpu_seconds'].sum()))}."
    return said + "\n" + (f"Paper: as printed for {plan.dataset}, {N_RUNS} runs.\n" if printed else "")


def about(cohort: Cohort) -> str:
    """Return the cohort in a few words."""
    kind = KINDS.get(cohort.kind)
    return f"{len(cohort):,} subjects, {cohort.n_rois} ROIs ({kind.description if kind else cohort.kind})"
