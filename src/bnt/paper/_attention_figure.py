"""Figure 3b: attention of the first layer, averaged over test subjects, with ROIs ordered by functional network."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bnt.cohort._triangle import UNASSIGNED, Networks
from bnt.errors import BadInput
from bnt.explain._attention import mean_attention
from bnt.explain._opening import part_rows
from bnt.paper._grid import run_grid
from bnt.paper._output import circumstances, rows, skipped
from bnt.paper._plan import Plan
from bnt.plotting._style import canvas, styled
from bnt.training._trained import TrainedRun

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOTES = """
Attention is that of the first layer in evaluation mode, averaged over heads, test subjects and splits; each row sums
to 1, so {uniform:.5f} is no preference. The paper shows this figure for ABCD only and prints no number; it had no
network labels for ABIDE.{more}
"""
RATIO = "The ratio is above 1 where a network's ROIs attend to their own network more than to the rest."
NO_LABELS = "The atlas of this cohort has none either (rois.tsv): ROIs are in its order, and no networks are compared."


def networks_of(plan: Plan) -> Networks:
    """Return each ROI's network; all are unassigned where the atlas has no labels."""
    found = Networks.of(plan.cohort)
    return found or Networks((UNASSIGNED,), np.zeros(plan.cohort.n_rois, dtype=np.int64))


def figure3b(plan: Plan) -> tuple[pd.DataFrame, str, Figure]:
    """Train, average attention over the test subjects of every split, and return table, Markdown and figure."""
    result = run_grid(plan, [plan.variant(plan.model, plan.model)])
    each = []
    for name in result.runs.loc[result.runs["variant"] == plan.model, "run"]:
        folder = result.folder / "runs" / name
        tested = part_rows(folder, plan.cohort, "test")
        each.append(mean_attention(TrainedRun(folder), plan.cohort, tested).matrix(layer=0))
    if not each:  # the folder has runs of another --model only
        raise BadInput(f"No run of {plan.model} in {result.folder} finished: {result.missing[plan.model]}.")
    attention = np.mean(each, axis=0)  # (V, V)
    networks = networks_of(plan)
    table = block_table(attention, networks)
    text = markdown(plan, attention, networks) + circumstances(plan, result, printed=False) + skipped(result)
    return table, text, draw(attention, networks)


def block_table(attention: np.ndarray, networks: Networks) -> pd.DataFrame:
    """Return the mean attention from each network to each network; an ROI's attention to itself is left out."""
    means = networks.block_means(attention)
    return pd.DataFrame(
        [
            {"from": source, "to": target, "attention": means[i, j]}
            for i, source in enumerate(networks.names)
            for j, target in enumerate(networks.names)
        ]
    )


def own_and_other(attention: np.ndarray, networks: Networks) -> pd.DataFrame:
    """Return for each network the mean attention to its own ROIs (themselves left out), to others, and the ratio."""
    labels = networks.labels
    same = labels[:, None] == labels[None, :]
    away = ~np.eye(len(labels), dtype=bool)
    found = []
    for name in [*networks.names, "all"]:
        source = (labels == name)[:, None] | np.full((len(labels), 1), name == "all")
        own, other = attention[source & same & away], attention[source & ~same]
        a = float(own.mean()) if own.size else float("nan")
        b = float(other.mean()) if other.size else float("nan")
        n = int(source.sum())
        found.append({"network": name, "n_rois": n, "own": a, "other": b, "ratio": a / b if b else float("nan")})
    return pd.DataFrame(found)


def markdown(plan: Plan, attention: np.ndarray, networks: Networks) -> str:
    """Return attention within and between networks; where ROIs have no networks, only what the figure shows."""
    title = f"# Figure 3b: attention of `{plan.model}` by functional network\n"
    uniform = 1 / len(attention)
    if networks.names == (UNASSIGNED,):
        return title + NOTES.format(uniform=uniform, more="\n" + NO_LABELS)
    body = [
        [one["network"], str(one["n_rois"]), f"{one['own']:.5f}", f"{one['other']:.5f}", f"{one['ratio']:.3f}"]
        for one in own_and_other(attention, networks).to_dict("records")
    ]
    return (
        title
        + "\n"
        + rows(["from network", "ROIs", "to its own", "to others", "ratio"], body)
        + NOTES.format(uniform=uniform, more=" " + RATIO)
    )


@styled
def draw(attention: np.ndarray, networks: Networks) -> Figure:
    """Draw the matrix, ROIs sorted by network, each network framed."""
    from matplotlib.patches import Rectangle

    order = networks.order
    codes, starts, counts = np.unique(networks.codes[order], return_index=True, return_counts=True)
    names = [networks.names[code] for code in codes]
    figure, (axes,) = canvas(width=5.4, height=4.6)
    shown = attention[np.ix_(order, order)]
    low, high = np.quantile(shown, [0.01, 0.99])  # a few ROIs that all attend to must not darken the rest
    image = axes.imshow(shown, cmap="viridis", vmin=low, vmax=high, interpolation="nearest")
    for name, start, count in zip(names, starts, counts):
        colour = networks.colours[name]
        frame = Rectangle((start - 0.5, start - 0.5), count, count, fill=False, ec="white", lw=1.2)
        axes.add_patch(frame)
        side = Rectangle((-0.5 - 0.02 * len(order), start - 0.5), 0.014 * len(order), count, fc=colour, clip_on=False)
        axes.add_patch(side)
    axes.set_yticks(starts + counts / 2 - 0.5, names)
    axes.tick_params(axis="y", length=0, pad=9)
    axes.set_xticks([])
    axes.set(xlabel="attended ROI (same order)")
    figure.colorbar(image, ax=axes, label="attention, mean over test subjects", shrink=0.8, extend="both")
    return figure
