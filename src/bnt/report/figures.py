"""Figures as functions that return a matplotlib Figure, sized for one column of a paper.

Colours are those of Okabe and Ito, which people with any colour vision can tell apart; markers differ as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Arguments = ParamSpec("Arguments")
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#8C8C8C")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
COLUMN_INCHES = 3.4
STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "lines.linewidth": 1.3,
    "legend.frameon": False,
    "legend.fontsize": 7,
    "svg.fonttype": "path",
    "svg.hashsalt": "bnt",
    "figure.dpi": 150,
}


def styled(draw: Callable[Arguments, Figure]) -> Callable[Arguments, Figure]:
    """Draw in our style, without touching the caller's matplotlib settings."""

    @wraps(draw)
    def drawn(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Figure:
        import matplotlib as mpl

        with mpl.rc_context(STYLE):
            return draw(*args, **kwargs)

    return drawn


def canvas(width: float = COLUMN_INCHES, height: float = 2.5, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """Return a new figure and its axes, without pyplot's state."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height), layout="constrained")
    return figure, [figure.add_subplot(1, columns, i + 1) for i in range(columns)]


@styled
def learning_curves(lines: Sequence[Mapping[str, Any]], score: str = "validation AUROC") -> Figure:
    """Draw loss and validation score by epoch, one line a stage of training; a ring marks the epoch kept."""
    figure, (left, right) = canvas(columns=2)
    table = pd.DataFrame(lines)
    for i, (_, stage) in enumerate(table.groupby("stage", sort=False)):
        colour = COLOURS[i % len(COLOURS)]
        left.plot(stage["epoch"], stage["loss"], color=colour)
        scored = stage.dropna(subset=["val_score"])
        if scored.empty:
            continue
        right.plot(scored["epoch"], scored["val_score"].abs(), color=colour)
        kept = stage["chosen_epoch"].dropna().tolist() if "chosen_epoch" in stage else []
        for epoch in kept:
            at = scored.loc[scored["epoch"] == epoch, "val_score"].abs()
            right.plot([epoch] * len(at), at, "o", mfc="white", color=colour, ms=5)
    left.set(xlabel="epoch", ylabel="training loss")
    right.set(xlabel="epoch", ylabel=score)
    return figure


@styled
def roc_curves(predictions: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> Figure:
    """Draw ROC curves: for each name whether a subject is positive, and its probability."""
    from sklearn.metrics import roc_curve

    from bnt.training.metrics import auroc

    figure, (axes,) = canvas(height=3.0)
    axes.plot([0, 1], [0, 1], color="#6E6E6E", lw=1, ls=":")
    for i, (name, (positive, probability)) in enumerate(predictions.items()):
        false, true, _ = roc_curve(positive, probability)
        area = auroc(positive, probability)
        axes.plot(false, true, color=COLOURS[i % len(COLOURS)], label=f"{name} ({area:.3f})")
    axes.set(xlabel="1 - specificity", ylabel="sensitivity", xlim=(0, 1), ylim=(0, 1.01), aspect="equal")
    axes.legend(loc="lower right", title="AUROC", title_fontsize=7)
    return figure


@styled
def calibration_curves(predictions: Mapping[str, tuple[np.ndarray, np.ndarray]], n_bins: int = 8) -> Figure:
    """Draw how often each predicted probability came true, in bins of equal numbers, with 95 % intervals."""
    from bnt.training.metrics import proportion_interval

    figure, (axes,) = canvas(height=3.0)
    axes.plot([0, 1], [0, 1], color="#6E6E6E", lw=1, ls=":")
    for i, (name, (positive, probability)) in enumerate(predictions.items()):
        order = np.argsort(probability, kind="stable")
        bins = [b for b in np.array_split(order, min(n_bins, max(len(order) // 10, 1))) if len(b)]
        x = [probability[b].mean() for b in bins]
        y = [positive[b].mean() for b in bins]
        spans = [proportion_interval(int(positive[b].sum()), len(b)) for b in bins]
        error = [[v - low for v, (low, _) in zip(y, spans)], [high - v for v, (_, high) in zip(y, spans)]]
        style: dict[str, Any] = {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)]}
        axes.errorbar(x, y, yerr=np.maximum(error, 0), ms=3.5, lw=1, elinewidth=0.6, label=name, **style)
    axes.set(xlabel="predicted probability", ylabel="share that was positive", xlim=(0, 1), ylim=(0, 1), aspect="equal")
    axes.legend(loc="upper left")
    return figure


@styled
def paired_plot(scores: pd.DataFrame, metric: str = "AUROC") -> Figure:
    """Draw every split's score of every model, joined by split, with means as bars."""
    width = max(COLUMN_INCHES, 0.55 * len(scores.columns) + 1.2)
    figure, (axes,) = canvas(width=width, height=3.0)
    places = np.arange(len(scores.columns))
    for _, row in scores.iterrows():
        axes.plot(places, row.to_numpy(dtype=float), color="#8C8C8C", lw=0.7, zorder=1)
    for i, name in enumerate(scores.columns):
        values = scores[name].dropna()
        style: dict[str, Any] = {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)]}
        axes.scatter(np.full(len(values), i), values, s=14, zorder=2, lw=0, **style)
        axes.hlines(values.mean(), i - 0.28, i + 0.28, color="black", lw=1.6, zorder=3)
    axes.set_xticks(
        places, scores.columns, rotation=30 if len(places) > 3 else 0, ha="right" if len(places) > 3 else "center"
    )
    axes.set(ylabel=f"test {metric}", xlim=(-0.5, len(places) - 0.5))
    return figure


@styled
def forest_plot(comparisons: pd.DataFrame, metric: str = "AUROC") -> Figure:
    """Draw paired differences from the reference with corrected 95 % intervals."""
    figure, (axes,) = canvas(height=0.9 + 0.32 * len(comparisons))
    places = np.arange(len(comparisons))[::-1]
    difference = comparisons["difference"].to_numpy(dtype=float)
    error = np.stack([difference - comparisons["low"], comparisons["high"] - difference])
    axes.axvline(0, color="#6E6E6E", lw=1, ls=":")
    axes.errorbar(difference, places, xerr=np.nan_to_num(error), fmt="o", color=COLOURS[0], ms=4, capsize=2, lw=1)
    axes.set_yticks(places, comparisons["variant"])
    axes.set(xlabel=f"difference in {metric} from {comparisons['reference'].iloc[0]}", ylim=(-0.6, len(places) - 0.4))
    return figure


@styled
def per_site_plot(table: pd.DataFrame) -> Figure:
    """Draw each site's AUROC with its 95 % interval; ``table`` has site, n, auroc, low, high."""
    figure, (axes,) = canvas(height=0.9 + 0.2 * len(table))
    places = np.arange(len(table))[::-1]
    error = np.stack([table["auroc"] - table["low"], table["high"] - table["auroc"]])
    axes.axvline(0.5, color="#6E6E6E", lw=1, ls=":")
    axes.errorbar(table["auroc"], places, xerr=np.nan_to_num(error), fmt="o", color=COLOURS[0], ms=3.5, lw=0.8)
    axes.set_yticks(places, [f"{site} ({n})" for site, n in zip(table["site"], table["n"])])
    axes.set(xlabel="test AUROC", xlim=(0, 1.02), ylim=(-0.7, len(table) - 0.3))
    return figure


@styled
def predicted_scores(y: np.ndarray, predicted: np.ndarray, label: str) -> Figure:
    """Draw predicted against true scores."""
    figure, (axes,) = canvas(height=3.0)
    axes.scatter(y, predicted, s=10, color=COLOURS[0], lw=0, alpha=0.7)
    span = [min(y.min(), predicted.min()), max(y.max(), predicted.max())]
    axes.plot(span, span, color="#6E6E6E", lw=1, ls=":")
    axes.set(xlabel=f"true {label}", ylabel=f"predicted {label}")
    return figure


def to_svg(figure: Figure) -> str:
    """Return a figure as SVG text that can stand inside a page; equal figures give equal text."""
    import io
    import re

    import matplotlib as mpl

    buffer = io.StringIO()
    with mpl.rc_context(STYLE):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    text = buffer.getvalue()
    return re.sub(r"^.*?(?=<svg)", "", text, flags=re.DOTALL)
