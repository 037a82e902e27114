"""Table 1: ten methods and four metrics, with the linear models that the paper lacks, and ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bnt.experiments.paper.drawing import beside_figure
from bnt.experiments.paper.plan import Outcome, Plan, run_grid
from bnt.experiments.paper.printed import METRICS, NOTHING, TABLE1, show
from bnt.experiments.paper.texts import circumstances, p_words, rows, skipped
from bnt.models import list_models

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Our model -> the method whose printed numbers stand beside it.
METHODS = {
    "san": "SAN",
    "graphormer": "Graphormer",
    "vanilla": "VanillaTF",
    "braingnn": "BrainGNN",
    "braingb": "BrainGB",
    "brainnetcnn": "BrainNetCNN",
    "fbnetgen": "FBNETGNN",
    "brainnetgnn": "BrainNetGNN",
    "dgm": "DGM",
    "bnt": "BrainNetTF",
    "bnt-released": "BrainNetTF",
}
NOTES = """
- `bnt` is the model as the paper's equations read, `bnt-released` as the authors' code behaves.
- The paper's sensitivity on ABIDE is the recall of controls: its labels are inverted (its "516 ASD" are the controls).
  Ours is the recall of the positive class, {positive}.
- Accuracy is the class-share-weighted mean of sensitivity and specificity in every run of ours; the printed triples of
  SAN, VanillaTF, BrainGNN, FBNETGNN and DGM (ABIDE) and Graphormer (ABCD) do not fit together.
"""


def make(plan: Plan) -> tuple[pd.DataFrame, str, Figure]:
    """Run every method and return table, Markdown and figure."""
    models = [*METHODS, *list_models("classical"), *list_models("hybrid")]
    outcome = run_grid(plan, [plan.variant(m, m) for m in models], reference="bnt")
    asked = [m for m in models if not plan.only or m in plan.only]
    table = collect(plan, outcome, asked)
    names = [m for m in asked if m not in outcome.missing or m in METHODS]
    ours = np.array([outcome.value(m) for m in names])
    printed = np.array([_printed(plan, m)[0] for m in names])
    labels = [f"{METHODS[m]} ({m})" if METHODS.get(m) == "BrainNetTF" else METHODS.get(m, m) for m in names]
    figure = beside_figure(labels, ours, printed, "test AUROC (%), mean and SD over splits")
    return table, markdown(plan, outcome, asked), figure


def _printed(plan: Plan, model: str) -> tuple[tuple[float, float], ...]:
    return TABLE1[plan.dataset].get(METHODS.get(model, ""), (NOTHING,) * 4)


def collect(plan: Plan, outcome: Outcome, models: list[str]) -> pd.DataFrame:
    """Return one row a model: ours and printed, mean and SD, of each metric."""
    found = []
    for model in models:
        row: dict[str, object] = {"model": model, "method": METHODS.get(model, "")}
        for metric, printed in zip(METRICS, _printed(plan, model)):
            mean, sd = outcome.value(model, metric)
            row |= {
                metric: mean,
                f"{metric}_sd": sd,
                f"printed_{metric}": printed[0],
                f"printed_{metric}_sd": printed[1],
            }
        found.append(row | {"n_splits": outcome.n_splits(model), "missing": outcome.missing.get(model, "")})
    return pd.DataFrame(found)


def markdown(plan: Plan, outcome: Outcome, models: list[str]) -> str:
    """Return the table, the paper's value beside ours in every cell."""
    compared = {str(one["variant"]): one for one in outcome.comparisons.to_dict("records")}
    reference = str(outcome.comparisons["reference"].iloc[0]) if len(outcome.comparisons) else ""
    lines = []
    for model in models:
        cells = [f"`{model}`", METHODS.get(model, "(not in the paper)")]
        for metric, printed in zip(METRICS, _printed(plan, model)):
            cells += [show(printed), outcome.shown(model, metric)]
        p = "reference" if model == reference else ""
        if model in compared:
            one = compared[model]
            p = f"{100 * one['difference']:+.1f}"
            holm = one["p_corrected_holm"]
            p += f" ({p_words(holm)})" if np.isfinite(holm) else ""
        lines.append([*cells, p])
    header = (
        ["model", "method"]
        + [f"{words} {who}" for words in ("AUROC", *METRICS[1:]) for who in ("paper", "ours")]
        + ["AUROC difference"]
    )
    positive = max(np.unique(plan.cohort.labels(plan.label)).tolist())
    return (
        "# Table 1: ten methods, and linear models\n\n"
        + rows(header, lines)
        + circumstances(plan, outcome)
        + "The difference is ours, paired over splits, with the Nadeau-Bengio correction; p after Holm's correction.\n"
        + NOTES.format(positive=plan.class_name(positive))
        + skipped(outcome)
    )
