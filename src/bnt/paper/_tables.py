"""The tables of the paper: Table 1, the readouts of Table 2, and the node features of appendix B.

Table 1: the ten methods with four metrics, and linear models. A method whose published code departs from its
publication has two rows: as published, where the printed number belongs, and as we corrected it.

Table 2: seven readouts on three backbones, and the two controls that the paper lacks.
The released OCRead holds a hidden MLP over the whole flattened graph, so OCRead against CONCAT also compares millions
of parameters. The controls take it apart: CONCAT with that MLP, and OCRead without it.

Appendix B: what a node of VanillaTF knows of itself: its profile, its identity, its place in eigenvectors. Beside the
paper's three rows: the profile without the diagonal, which section 3.1 calls a position (with CONCAT, and with MEAN,
which cannot tell ROIs apart by their place), and attention that uses edge weights, which it says hurts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bnt._words import p_words
from bnt.models import list_models
from bnt.paper._grid import GridResult, circumstances, rows, run_grid, skipped
from bnt.paper._plan import BACKBONES, FEATURES, METRICS, NOTHING, TABLE1, TABLE2, Plan, Value, show
from bnt.plotting._style import beside, beside_figure, canvas, same_limits, styled
from bnt.studies._job import Variant

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
            row |= {metric: mean, f"{metric}_sd": sd, f"printed_{metric}": theirs[0], f"printed_{metric}_sd": theirs[1]}
        found.append(row | {"n_splits": result.n_splits(model), "missing": result.missing.get(model, "")})
    return pd.DataFrame(found)


def markdown(dataset: str, result: GridResult, models: Sequence[str], where: str, positive: str) -> str:
    """Return the table, the paper's value beside ours in every cell.

    Parameters
    ----------
    dataset : str
        Whose printed numbers.
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


@styled
def draw(dataset: str, result: GridResult, models: Sequence[str]) -> Figure:
    """Draw our AUROC over the paper's, one line per model that has either, with our number of splits at the right."""
    shown = [m for m in models if m not in result.missing or m in METHODS]
    ours = np.array([result.value(m) for m in shown])
    theirs = np.array([printed(dataset, m)[0] for m in shown])
    figure = beside_figure(shown, ours, theirs, "test AUROC (%), mean and SD over splits")
    (axes,) = figure.axes
    right = axes.secondary_yaxis("right")
    right.set_yticks(axes.get_yticks(), [str(result.n_splits(m) or "") for m in shown])
    right.tick_params(length=0)
    right.spines["right"].set_visible(False)
    axes.annotate("splits", (1, 1), (4, 3), xycoords="axes fraction", textcoords="offset points", fontsize=7)
    return figure


MODELS = dict(zip(BACKBONES, ("san", "graphormer", "vanilla")))
N_CLUSTERS = 10  # the paper does not say; 100, the released value, is more than SAN's width of 48 allows
_RELEASED = {"n_clusters": N_CLUSTERS, "assignment": "squared", "normalise_first": False}
# Row -> readout and its options. The first seven are the paper's.
READOUTS: dict[str, tuple[str, dict[str, Any]]] = {
    "MEAN": ("mean", {}),
    "MAX": ("max", {}),
    "SUM": ("sum", {}),
    "SortPooling": ("sort", {}),
    "DiffPool": ("diffpool", {}),
    "CONCAT": ("concat", {}),
    "OCRead": ("ocread", {**_RELEASED, "hidden_mlp": True}),
    "CONCAT + hidden MLP": ("concat", {"hidden_mlp": True}),
    "OCRead - hidden MLP": ("ocread", _RELEASED),
}
READOUT_NOTES = f"""
OCRead is the released one with K = {N_CLUSTERS}: squared projection and a hidden MLP (V·D - 32 - 32 - V·D) before
clustering. The last two rows are controls of ours: if CONCAT with the MLP does as well as OCRead, and OCRead without
it does not, the gain is the MLP's.
"""


def name_of(backbone: str, row: str) -> str:
    """Return a variant's name, such as ``vanilla-ocread-hidden``."""
    readout, options = READOUTS[row]
    return f"{MODELS[backbone]}-{readout}" + ("-hidden" if options.get("hidden_mlp") else "")


def variants(plan: Plan) -> list[Variant]:
    """Return all readouts on all backbones, readout by readout."""
    return [
        plan.variant(
            name_of(backbone, row),
            MODELS[backbone],
            readout=readout,
            **({"readout_options": options} if options else {}),
        )
        for row, (readout, options) in READOUTS.items()
        for backbone in BACKBONES
    ]


def table2(plan: Plan) -> tuple[pd.DataFrame, str, Figure]:
    """Run all readouts and return table, Markdown and figure."""
    result = run_grid(plan, variants(plan), reference="vanilla-concat")
    return collect_readouts(plan, result), markdown_readouts(plan, result), draw_readouts(plan, result)


def _printed(plan: Plan, row: str) -> tuple[Value, ...]:
    return TABLE2[plan.dataset].get(row, (NOTHING,) * 3)


def collect_readouts(plan: Plan, result: GridResult) -> pd.DataFrame:
    """Return one row per readout and backbone."""
    found = []
    for row in READOUTS:
        for backbone, printed in zip(BACKBONES, _printed(plan, row)):
            name = name_of(backbone, row)
            mean, sd = result.value(name)
            found.append(
                {
                    "readout": row,
                    "backbone": backbone,
                    "variant": name,
                    "auroc": mean,
                    "auroc_sd": sd,
                    "n_splits": result.n_splits(name),
                    "printed_auroc": printed[0],
                    "printed_auroc_sd": printed[1],
                    "n_parameters": _size(result, name),
                    "missing": result.missing.get(name, ""),
                }
            )
    return pd.DataFrame(found)


def _size(result: GridResult, variant: str) -> float:
    found = result.summary.loc[result.summary["variant"] == variant, "n_parameters"]
    return float(found.iloc[0]) if len(found) else float("nan")


def markdown_readouts(plan: Plan, result: GridResult) -> str:
    """Return the table, the paper's AUROC beside ours."""
    lines = []
    for row in READOUTS:
        cells = [row]
        for backbone, printed in zip(BACKBONES, _printed(plan, row)):
            cells += [show(printed), result.shown(name_of(backbone, row))]
        lines.append(cells)
    header = ["readout"] + [f"{b} {who}" for b in BACKBONES for who in ("paper", "ours")]
    return (
        "# Table 2: readouts, AUROC (%)\n\n"
        + rows(header, lines)
        + circumstances(plan, result)
        + READOUT_NOTES
        + skipped(result)
    )


@styled
def draw_readouts(plan: Plan, result: GridResult) -> Figure:
    """Draw one panel per backbone that was run, all on the same scale."""
    scores = {b: np.array([result.value(name_of(b, row)) for row in READOUTS]) for b in BACKBONES}
    shown = [b for b in BACKBONES if np.isfinite(scores[b]).any()] or list(BACKBONES)
    width = (3.0 + 1.6 * len(shown)) / len(shown)  # the readouts' names take as much room beside one panel as three
    figure, panels = canvas(width=width, height=0.9 + 0.27 * len(READOUTS), columns=len(shown))
    for backbone, axes in zip(shown, panels):
        printed = np.array([_printed(plan, row)[BACKBONES.index(backbone)] for row in READOUTS])
        names = list(READOUTS) if axes is panels[0] else [""] * len(READOUTS)
        beside(axes, names, scores[backbone], printed, legend=False)
        axes.set_title(backbone, fontsize=8)
        axes.set_xlabel("test AUROC (%)")
    same_limits(panels)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2)
    return figure


# Row -> words and options of `vanilla`. The paper prints those of its Appendix B.
NODE_FEATURES: dict[str, tuple[str, dict[str, Any]]] = {
    "profile": ("connection profile", {}),
    "identity": ("profile + identity", {"node_features": "identity"}),
    "eigen": ("profile + eigenvectors", {"node_features": "eigen"}),
    "no-diagonal": ("profile without its diagonal", {"node_features": "no-diagonal"}),
    "profile-mean": ("connection profile, MEAN", {"readout": "mean"}),
    "no-diagonal-mean": ("profile without its diagonal, MEAN", {"node_features": "no-diagonal", "readout": "mean"}),
    "edge-bias": ("edge weights added to attention scores", {"edge_weights": "bias"}),
    "edge-factor": ("edge weights multiplied with attention", {"edge_weights": "factor"}),
}
FEATURE_NOTES = """
The number of eigenvectors is not printed; ours is about 32, or about V where there are fewer ROIs, so that the heads
divide the width. The readout is CONCAT where no other is named. The diagonal is a position if rows without it are
worse: CONCAT knows each ROI by its place and does not need one, MEAN does. The paper cites another study for edge
weights in attention and prints no number; here they are added to the scores of every head before the softmax, or
multiplied with the weights after it.
"""
ZERO_DIAGONAL = "\nThe diagonal of this cohort's connectomes is zero: rows with and without it are the same model.\n"


def features(plan: Plan) -> tuple[pd.DataFrame, str, Figure]:
    """Run all kinds of features and return table, Markdown and figure."""
    variants = [plan.variant(kind, "vanilla", **options) for kind, (_, options) in NODE_FEATURES.items()]
    zero = plan.cohort.diagonal == 0
    if zero:
        plan.say(ZERO_DIAGONAL.strip())
    result = run_grid(plan, variants, reference="profile")
    printed = {kind: FEATURES[plan.dataset].get(kind, NOTHING) for kind in NODE_FEATURES}
    asked = [v.name for v in plan.asked(variants)]
    table = pd.DataFrame(
        [
            {
                "node_features": kind,
                "auroc": result.value(kind)[0],
                "auroc_sd": result.value(kind)[1],
                "n_splits": result.n_splits(kind),
                "printed_auroc": printed[kind][0],
                "printed_auroc_sd": printed[kind][1],
                "missing": result.missing.get(kind, ""),
            }
            for kind in asked
        ]
    )
    text = (
        "# Node features of VanillaTF, AUROC (%)\n\n"
        + rows(
            ["node features", "paper", "ours"],
            [[NODE_FEATURES[kind][0], show(printed[kind]), result.shown(kind)] for kind in asked],
        )
        + circumstances(plan, result)
        + FEATURE_NOTES
        + (ZERO_DIAGONAL if zero else "")
        + skipped(result)
    )
    figure = beside_figure(
        [NODE_FEATURES[kind][0] for kind in asked],
        np.array([result.value(kind) for kind in asked]),
        np.array([printed[kind] for kind in asked]),
        "test AUROC (%)",
    )
    return table, text, figure
