"""Table 1: the paper's ten methods with four metrics, and additional linear models.

A method whose published code departs from its publication has two rows: as published, where the printed number belongs,
and as we corrected it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bnt._words import duration, p_words
from bnt.errors import BadInput
from bnt.models import list_models
from bnt.paper._grid import GridResult, circumstances, cpu_time, rows, run_grid, skipped, training
from bnt.paper._plan import METRICS, N_RUNS, NOTHING, TABLE1, Plan, Value, show
from bnt.plotting._style import beside_figure
from bnt.studies._job import Variant
from bnt.studies._results import comparison_table, summary_table
from bnt.training._recipe import Recipe

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Our model -> the method whose printed numbers stand beside it.
METHODS = {
    "san": "SAN",
    "graphormer": "Graphormer",
    "vanilla": "VanillaTF",
    "braingnn-released": "BrainGNN",
    "braingb": "BrainGB",
    "brainnetcnn-released": "BrainNetCNN",
    "fbnetgen-released": "FBNETGNN",
    "brainnetgnn-released": "BrainNetGNN",
    "dgm-released": "DGM",
    "bnt-released": "BrainNetTF",
}
# Model -> the published one that it stands beside, and in which words. The paper prints no number for them.
OURS = {
    "braingnn": ("braingnn-released", "our correction"),
    "brainnetcnn": ("brainnetcnn-released", "our correction"),
    "fbnetgen": ("fbnetgen-released", "our correction"),
    "brainnetgnn": ("brainnetgnn-released", "our correction"),
    "dgm": ("dgm-released", "our correction"),
    "bnt": ("bnt-released", "as the equations read"),
}
REFERENCE = "bnt-released"
MOST_COMMANDS = 8  # that a table lists below itself
PAIRED = """
- A printed number stands beside the model as its authors' code behaves (`-released` where we also have another); the
  row below it is our correction, or `bnt`, the paper's model as its equations read, and has no printed number.
"""
INVERTED = """- The paper's labels of ABIDE are inverted (its "516 ASD" are the controls), so its sensitivity is the
  recall of controls: its sensitivity and specificity are shown swapped. Our sensitivity is the recall of {positive}.
"""
TRIPLES = """- Accuracy is the class-share-weighted mean of sensitivity and specificity in every run of ours; the
  printed triples of SAN, VanillaTF, BrainGNN, FBNETGNN and DGM (ABIDE) and Graphormer (ABCD) do not fit together.
"""


def order() -> list[str]:
    """Return every model of the table, our correction below the published one."""
    pairs = [[model, *(ours for ours, (beside, _) in OURS.items() if beside == model)] for model in METHODS]
    return [model for pair in pairs for model in pair] + list_models(family="classical") + list_models(family="hybrid")


def method(model: str) -> str:
    """Return the paper's name of a model, with what we did to it."""
    if model in OURS:
        beside, words = OURS[model]
        return f"{METHODS[beside]}, {words}"
    return METHODS.get(model, "(not in the paper)")


def printed(dataset: str, model: str) -> tuple[Value, ...]:
    """Return the paper's four metrics of a model; sensitivity and specificity of ABIDE of the right class."""
    auroc, accuracy, first, second = TABLE1[dataset].get(METHODS.get(model, ""), (NOTHING,) * 4)
    return (auroc, accuracy, second, first) if dataset == "ABIDE" else (auroc, accuracy, first, second)


def table1(plan: Plan) -> tuple[pd.DataFrame, str, Figure]:
    """Run every method and return table, Markdown and figure."""
    models = order()
    result = run_grid(plan, [plan.variant(m, m) for m in models], reference=REFERENCE)
    asked = [m for m in models if not plan.only or m in plan.only]
    positive = plan.class_name(max(np.unique(plan.cohort.labels(plan.label)).tolist()))
    text = markdown(plan.dataset, result, asked, circumstances(plan, result), positive)
    return collect(plan.dataset, result, asked), text, draw(plan.dataset, result, asked)


def collect(dataset: str, result: GridResult, models: Sequence[str]) -> pd.DataFrame:
    """Return one row per model: ours and printed, mean and SD, of each metric."""
    found = []
    for model in models:
        row: dict[str, object] = {"model": model, "method": method(model)}
        for metric, theirs in zip(METRICS, printed(dataset, model)):
            mean, sd = result.value(model, metric)
            row |= {
                metric: mean,
                f"{metric}_sd": sd,
                f"printed_{metric}": theirs[0],
                f"printed_{metric}_sd": theirs[1],
            }
        found.append(row | {"n_splits": result.n_splits(model), "missing": result.missing.get(model, "")})
    return pd.DataFrame(found)


def markdown(dataset: str, result: GridResult, models: Sequence[str], where: str, positive: str) -> str:
    """Return the table, the paper's value beside ours in every cell.

    Parameters
    ----------
    dataset : str
        Whose printed numbers.
    result : GridResult
    models : sequence of str
    where : str
        Which data, splits and recipe the numbers are from.
    positive : str
        The class whose recall is our sensitivity.
    """
    compared = {str(one["variant"]): one for one in result.comparisons.to_dict("records")}
    reference = str(result.comparisons["reference"].iloc[0]) if len(result.comparisons) else ""
    lines = []
    for model in models:
        cells = [f"`{model}`", method(model)]
        for metric, theirs in zip(METRICS, printed(dataset, model)):
            cells += [show(theirs), show(result.value(model, metric))]
        p = "reference" if model == reference else ""
        if model in compared and np.isfinite(compared[model]["difference"]):
            one = compared[model]
            p = f"{100 * one['difference']:+.1f}"
            holm = one["p_corrected_holm"]
            p += f" ({p_words(holm)})" if np.isfinite(holm) else ""
        lines.append([*cells, str(result.n_splits(model) or "–"), p])
    header = (
        ["model", "method"]
        + [f"{words} {who}" for words in ("AUROC", *METRICS[1:]) for who in ("paper", "ours")]
        + ["splits", "AUROC difference"]
    )
    against = f" to `{reference}`" if reference else ""
    return (
        "# Table 1: ten methods, and linear models\n\n"
        + rows(header, lines)
        + where
        + f"The difference{against} is ours, paired over the splits that both have, with the Nadeau-Bengio correction; "
        + "p after Holm's correction.\n"
        + PAIRED
        + (INVERTED.format(positive=positive) if dataset == "ABIDE" else "")
        + TRIPLES
        + skipped(result)
    )


def draw(dataset: str, result: GridResult, models: Sequence[str]) -> Figure:
    """Draw our AUROC over the paper's, one line per model that has either."""
    shown = [m for m in models if m not in result.missing or m in METHODS]
    ours = np.array([result.value(m) for m in shown])
    theirs = np.array([printed(dataset, m)[0] for m in shown])
    return beside_figure(shown, ours, theirs, "test AUROC (%), mean and SD over splits")


# -- from tables of runs -------------------------------------------------------------------------------


def read_runs(files: Sequence[Path]) -> pd.DataFrame:
    """Read ``runs.csv`` of several studies as one table; two results of one run are refused."""
    parts = []
    for file in files:
        try:
            parts.append(pd.read_csv(file, dtype={"split": str}))
        except (OSError, ValueError) as error:
            raise BadInput(f"{file} cannot be read as a table of runs: {error}.") from error
        absent = [c for c in ("variant", "split", "seed", *METRICS) if c not in parts[-1]]
        if absent:
            raise BadInput(f"{file} has no column {absent[0]!r}: give runs.csv of a study.")
    table = pd.concat(parts, ignore_index=True)
    twice = table[table.duplicated(["variant", "split", "seed"])]
    if len(twice):
        one = twice.iloc[0]
        raise BadInput(f"{one['variant']} on {one['split']} with seed {one['seed']} is in these tables twice.")
    return table


@dataclass(frozen=True)
class Made:
    """Table 1 as a table, as Markdown (whole, and AUROC and accuracy alone), its tests, and its figure."""

    table: pd.DataFrame
    text: str
    short: str
    comparisons: pd.DataFrame
    figure: Figure


def from_runs(runs: pd.DataFrame, dataset: str = "ABIDE") -> Made:
    """Make Table 1 from runs of one or more studies of the same splits."""
    found = set(runs["variant"])
    models = [m for m in order() if m in found or m in METHODS]
    runs = runs[runs["variant"].isin(models)]
    reference = REFERENCE if REFERENCE in found else str(runs["variant"].iloc[0])
    result = GridResult(
        runs,
        summary_table(runs),
        {},
        0.0,
        Path(),
        comparison_table(None, runs, reference),
        trained_by(runs),
    )
    recipe = training(result.variants, runs)
    commands = sorted({c for line in runs["command"] for c in str(line).split("; ")})
    if len(commands) > MOST_COMMANDS:
        commands = [f"{len(commands)} of them, in the column `command` of the table of runs"]
    else:
        commands = [f"`{one}`" for one in commands]
    where = (
        f"\nOurs: {words_of_sizes(runs)}; mean ± SD over splits"
        + (f"; {recipe}." if recipe else ".")
        + f" CPU time of all runs: {duration(cpu_time(runs))}.\n"
        + "Commands: "
        + "; ".join(commands)
        + f".\nPaper: as printed for {dataset}, {N_RUNS} runs.\n"
    )
    positive = str(runs["positive_class"].iloc[0]) if "positive_class" in runs else "the positive class"
    text = markdown(dataset, result, models, where, positive)
    return Made(
        collect(dataset, result, models),
        text,
        short(dataset, result, models),
        result.comparisons,
        draw(dataset, result, models),
    )


def words_of_sizes(runs: pd.DataFrame) -> str:
    """Return how many splits there are, of which protocol, and how large their parts."""
    n = runs["split"].nunique()
    parts = {"n_train": "training", "n_val": "validation", "n_test": "test"}
    sizes = [f"{runs[c].median():.0f} {part}" for c, part in parts.items() if c in runs and runs[c].notna().any()]
    protocol = runs["split"].iloc[0].partition(":")[0]
    each = runs.groupby("variant")["split"].nunique()
    fewer = f" (fewer for some rows, the first {each.min()} at least)" if each.min() < n else ""
    return f"protocol `{protocol}`, {n} split{'s' * (n != 1)}{fewer} of {', '.join(sizes)} people"


def trained_by(runs: pd.DataFrame) -> list[Variant]:
    """Return variants with what their runs say of their recipe; none for tables of earlier versions."""
    columns = ("recipe", "epochs", "patience", "select", "batch_size")
    if any(c not in runs for c in columns):
        return []
    found = []
    known = runs.dropna(subset=list(columns))
    for (name, model), group in known.groupby(["variant", "model"], sort=False):
        ways = group[list(columns)].drop_duplicates()
        if len(ways) > 1:
            raise BadInput(f"Runs of {name} were trained in {len(ways)} ways: one row of a table needs one recipe.")
        recipe, epochs, patience, select, batch = ways.iloc[0]
        made = Recipe(epochs=int(epochs), patience=int(patience), select=select, batch_size=int(batch))
        found.append(Variant(str(name), str(model), {}, str(recipe), made))
    return found


def short(dataset: str, result: GridResult, models: Sequence[str]) -> str:
    """Return the table of AUROC and accuracy, the paper's beside ours."""
    lines = []
    for model in models:
        theirs = printed(dataset, model)
        cells = [f"`{model}`" + (f" ({OURS[model][1]})" if model in OURS else "")]
        for i, metric in enumerate(METRICS[:2]):
            cells += [show(theirs[i]), show(result.value(model, metric))]
        lines.append([*cells, str(result.n_splits(model) or "–")])
    return rows(["model", "AUROC, paper", "AUROC, ours", "accuracy, paper", "accuracy, ours", "splits"], lines)
