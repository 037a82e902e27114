"""Markdown around the tables: headings, rows, and how the numbers came about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bnt.experiments.paper.estimate import duration
from bnt.experiments.paper.plan import Outcome, Plan
from bnt.experiments.paper.printed import N_RUNS


def rows(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    text = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(text + ["| " + " | ".join(line) + " |" for line in lines]) + "\n"


def skipped(missing: Mapping[str, str]) -> str:
    """Return what was skipped or failed, and why."""
    if not missing:
        return ""
    return "\nNot run, or failed:\n\n" + "".join(f"- `{name}`: {why}.\n" for name, why in missing.items())


def circumstances(plan: Plan, outcome: Outcome | None = None) -> str:
    """Return the sentence that says which data, splits and recipe the numbers are from."""
    cohort, recipe = plan.cohort, plan.recipe
    said = f"\nOurs: {len(cohort):,} subjects, {cohort.n_rois} ROIs ({cohort.kind} connectomes), label `{plan.label}`"
    if outcome is not None:
        n = outcome.runs["split"].str.partition("+")[0].nunique()  # shares of a training part are one split
        said += f"; protocol `{plan.protocol}`, {n} split{'s' * (n != 1)}; mean ± SD over splits"
    said += f"; recipe `{plan.recipe_name}`, {recipe.epochs} epochs at most, batch {recipe.batch_size}."
    if outcome is not None:
        said += f" CPU time of all runs: {duration(float(outcome.runs['cpu_seconds'].sum()))}."
    return said + f"\nPaper: as printed for {plan.dataset}, {N_RUNS} runs.\n"
