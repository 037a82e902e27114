"""The learning curve: 10 to 100 % of the training part, as the authors' release offers; the paper prints none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bnt.errors import BadInput
from bnt.models import find_entry
from bnt.paper._grid import GridResult, run_grid
from bnt.paper._output import circumstances, lines, rows, skipped
from bnt.paper._plan import Plan
from bnt.paper._printed import show
from bnt.plotting._style import canvas, styled
from bnt.splits import Split
from bnt.studies._job import Variant
from bnt.studies._sample_size import curve_table, thinned_splits
from bnt.studies._wording import percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MODELS = ("bnt", "bnt-released", "vanilla", "svm")


def plan_splits(plan: Plan) -> list[Split]:
    """Return the plan's splits with each share of their training part."""
    return thinned_splits(
        plan.cohort, plan.label, plan.protocol, plan.fractions, n_splits=plan.n_splits, seed=plan.split_seed
    )


def fillable(plan: Plan, variants: Sequence[Variant]) -> tuple[Plan, str]:
    """Return the plan without the shares that do not fill one batch of every network, and which these are, in words.

    They are left out for linear models too, so that all curves have the same shares.
    """
    sizes = [v.recipe.batch_size for v in variants if find_entry(v.model).trains_in_epochs]
    if not sizes:
        return plan, ""
    fewest: dict[float, int] = {}
    for fraction in plan.fractions:
        fewest[fraction] = min(len(split.train) for split in plan_splits(replace(plan, fractions=(fraction,))))
    small = [f for f, n in fewest.items() if n < max(sizes)]
    if len(small) == len(fewest):
        raise BadInput(
            f"The whole training part, {max(fewest.values())} subjects, does not fill one batch of {max(sizes)}: lower "
            "the recipe's batch_size.",
            parameter="change",
        )
    if not small:
        return plan, ""
    said = ", ".join(f"{percent(f)} ({fewest[f]} subjects)" for f in small)
    kept = tuple(f for f in plan.fractions if f not in small)
    return replace(plan, fractions=kept), f"Left out: {said}, less than one batch of {max(sizes)}."


def learning_curve(plan: Plan) -> tuple[pd.DataFrame, str, Figure]:
    """Run every share of the training part and return table, Markdown and figure."""
    variants = [plan.variant(m, m) for m in MODELS]
    plan, left_out = fillable(plan, plan.asked(variants))
    if left_out:
        plan.say(left_out)
    # A share of the training part is no repeat of another: nothing is averaged or tested over them.
    result = run_grid(plan, variants, plan_splits(plan), comparable=False)
    table = collect(plan, result)
    return table, markdown(plan, result, table, left_out), draw(plan, table)


def collect(plan: Plan, result: GridResult) -> pd.DataFrame:
    """Return one row per model and share: mean and SD of AUROC over splits."""
    table = curve_table(result.runs, plan.fractions, "auroc")
    return table.assign(auroc=100 * table["auroc"], auroc_sd=100 * table["auroc_sd"])


def markdown(plan: Plan, result: GridResult, table: pd.DataFrame, left_out: str = "") -> str:
    """Return AUROC by share of the training part."""
    models = table["model"].unique().tolist()
    body = []
    for fraction in plan.fractions:
        part = table[table["fraction"] == fraction].set_index("model")
        sizes = part["n_train"].dropna()
        cells = [show((part.loc[m, "auroc"], part.loc[m, "auroc_sd"])) for m in models]
        body.append([percent(fraction), f"{sizes.iloc[0]:.0f}" if len(sizes) else "–", *cells])
    return (
        "# Learning curve, AUROC (%)\n\n"
        + rows(["share of the training part", "subjects", *(f"`{m}`" for m in models)], body)
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
    axes.set(xlabel="share of the training part (%)", ylabel="test AUROC (%)")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure
