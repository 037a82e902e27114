"""Charts of predictions: ROC, calibration, decision curves, confusion matrix, and predicted against true scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bnt.plotting._charts import in_percent, ordered
from bnt.plotting._style import COLOURS, COLUMN_INCHES, REFERENCE_LINE, canvas, legend, line, look, styled, wrapped

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Binary = Mapping[str, tuple[np.ndarray, np.ndarray]]  # model -> who is positive, and their probabilities
SHORT = 8  # letters of a class that fits below its column; longer ones have numbers
NARROW = 0.4  # calibration is drawn closer where mean probabilities of bins span less
THRESHOLDS = np.arange(1, 100) / 100


@styled
def roc_curves(predictions: Binary, *, order: Sequence[str] | None = None) -> Figure:
    """Draw ROC curves: for each name whether a subject is positive, and its probability.

    ``order`` lists all models of a study, so that each has the same colour in every figure.

    Examples
    --------
    >>> import numpy as np
    >>> positive = np.arange(40) % 2 == 1
    >>> probability = np.linspace(0, 1, 40)
    >>> from bnt.plotting import roc_curves
    >>> figure = roc_curves({"bnt": (positive, probability)})
    """
    from sklearn.metrics import auc, roc_curve

    figure, (axes,) = canvas(height=3.3)
    axes.plot([0, 1], [0, 1], **REFERENCE_LINE)
    for i, name, (positive, probability) in ordered(predictions, order):
        false, true, _ = roc_curve(positive, probability)
        shown = f"{wrapped(name)} ({100 * auc(false, true):.1f})"
        axes.plot(false, true, label=shown, **line(i))
    in_percent(axes.xaxis, axes.yaxis)
    axes.set(xlabel="100 - specificity (%)", ylabel="sensitivity (%)", xlim=(0, 1), ylim=(0, 1.01), aspect="equal")
    legend(figure, axes, "model (AUROC, %)")
    return figure


def calibration_bins(positive: np.ndarray, probability: np.ndarray, n_bins: int = 8) -> pd.DataFrame:
    """Return bins of about equal numbers: mean probability, share that was positive with Wilson's interval, and n.

    Equal probabilities are in one bin, whatever their order.
    """
    from scipy.stats import binomtest

    n_bins = min(n_bins, max(len(probability) // 8, 3))
    edges = np.unique(np.quantile(probability, np.linspace(0, 1, n_bins + 1)[1:-1]))
    bins = np.searchsorted(edges, probability, side="right")
    rows = []
    for b in np.unique(bins):
        inside = bins == b
        hits, n = int(positive[inside].sum()), int(inside.sum())
        span = binomtest(hits, n).proportion_ci(method="wilson")
        rows.append((float(probability[inside].mean()), hits / n, span.low, span.high, n))
    return pd.DataFrame(rows, columns=["probability", "share", "low", "high", "n"])


@styled
def calibration_curves(predictions: Binary, n_bins: int = 8, *, order: Sequence[str] | None = None) -> Figure:
    """Draw observed frequencies against predicted probabilities, in bins with equal numbers of subjects, with 95 %
    intervals.

    Marks at the bottom show the probabilities themselves. If the bins are close together, the axis is zoomed in on
    them.

    Examples
    --------
    >>> import numpy as np
    >>> positive = np.arange(40) % 2 == 1
    >>> probability = np.linspace(0, 1, 40)
    >>> from bnt.plotting import calibration_curves
    >>> figure = calibration_curves({"bnt": (positive, probability)})
    """
    figure, (axes,) = canvas(height=3.3)
    axes.plot([0, 1], [0, 1], **REFERENCE_LINE)
    places: list[float] = []
    for k, (i, name, (positive, probability)) in enumerate(ordered(predictions, order)):
        found = calibration_bins(np.asarray(positive), np.asarray(probability), n_bins)
        error = np.stack([found["share"] - found["low"], found["high"] - found["share"]]).clip(0)
        shown: dict[str, Any] = {"ms": 3.5, "lw": 1, "elinewidth": 0.6, "label": wrapped(name)}
        axes.errorbar(found["probability"], found["share"], yerr=error, **shown, **look(i))
        marks = np.full(len(probability), -0.03 - 0.035 * k)
        axes.plot(probability, marks, "|", color=look(i)["color"], ms=3, mew=0.5, alpha=0.6)
        places += found["probability"].tolist()
    in_percent(axes.xaxis, axes.yaxis)
    low, high = min(places), max(places)
    close = high - low < NARROW
    middle, half = (low + high) / 2, max(0.6 * (high - low), 0.02)
    span = (max(0.0, middle - half), min(1.0, middle + half)) if close else (0.0, 1.0)
    axes.set(xlabel="predicted probability (%)", ylabel="observed share positive (%)", xlim=span)
    axes.set(ylim=(-0.03 - 0.035 * len(predictions), 1.02), yticks=np.linspace(0, 1, 6))
    legend(figure, axes)
    return figure


def net_benefit(positive: np.ndarray, probability: np.ndarray, thresholds: np.ndarray = THRESHOLDS) -> np.ndarray:
    """Return the net benefit of treating those above each threshold t: TP / n - FP / n * t / (1 - t).

    Vickers and Elkin (2006). Treating no one has 0; treating everyone is ``net_benefit(positive, ones)``.
    """
    positive, probability = np.asarray(positive, dtype=bool), np.asarray(probability, dtype=float)
    t = np.asarray(thresholds, dtype=float)
    treated = probability[:, None] > t
    true, false = (treated & positive[:, None]).mean(axis=0), (treated & ~positive[:, None]).mean(axis=0)
    return true - false * t / (1 - t)


def decision_table(predictions: Binary) -> pd.DataFrame:
    """Return the net benefit of each model, of treating everyone and of treating no one, by threshold."""
    table = pd.DataFrame({"threshold": THRESHOLDS})
    for name, (positive, probability) in predictions.items():
        table[name] = net_benefit(positive, probability)
    if predictions:
        positive = next(iter(predictions.values()))[0]
        table["treat all"] = net_benefit(positive, np.ones(len(positive)))
        table["treat none"] = 0.0
    return table


@styled
def decision_curves(predictions: Binary, *, order: Sequence[str] | None = None) -> Figure:
    """Draw the net benefit of acting on each model's probabilities, with that of treating everyone and no one.

    Examples
    --------
    >>> import numpy as np
    >>> positive = np.arange(40) % 2 == 1
    >>> probability = np.linspace(0, 1, 40)
    >>> from bnt.plotting import decision_curves
    >>> figure = decision_curves({"bnt": (positive, probability)})
    """
    figure, (axes,) = canvas(height=2.9)
    table = decision_table(predictions)
    axes.plot(table["threshold"], table["treat none"], color="#6E6E6E", lw=1, label="treat none")
    axes.plot(table["threshold"], table["treat all"], **REFERENCE_LINE, label="treat all")
    for i, name, _ in ordered(predictions, order):
        axes.plot(table["threshold"], table[name], label=wrapped(name), **line(i))
    share = float(np.mean(next(iter(predictions.values()))[0]))
    in_percent(axes.xaxis)
    axes.set(xlabel="threshold probability (%)", ylabel="net benefit", xlim=(0, 1))
    axes.set_ylim(-0.25 * max(share, 0.05), 1.08 * max(share, 0.05))
    legend(figure, axes)
    return figure


def fit_below(classes: Sequence[str]) -> bool:
    """Whether names of classes fit below the columns of a confusion matrix; otherwise their numbers are there."""
    return all(len(name) <= SHORT for name in classes)


@styled
def confusion_matrices(counts: Mapping[str, np.ndarray], classes: Sequence[str]) -> Figure:
    """Draw who was predicted to be what: rows are true classes, in per cent of their people, with counts.

    Parameters
    ----------
    counts : mapping of name to array, (C, C)
        People by true and predicted class, for each model.
    """
    from matplotlib.figure import Figure

    short = fit_below(classes)
    below = list(classes) if short else [str(k + 1) for k in range(len(classes))]
    names = [name if short else wrapped(f"{k + 1}. {name}", 24) for k, name in enumerate(classes)]
    side = 0.42 + 0.46 * len(classes)
    label = 0.065 * max(len(line) for name in names for line in name.split("\n"))
    width, height = 0.35 + label + (side + 0.25) * len(counts), side + 0.5 + (0.5 * label if short else 0.0)
    figure = Figure(figsize=(max(width, COLUMN_INCHES), height), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.1)  # type: ignore[union-attr, call-arg]  # names stay inside
    for k, (model, table) in enumerate(counts.items()):
        axes = figure.add_subplot(1, len(counts), k + 1)
        axes.spines[:].set_visible(True)
        share = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
        axes.imshow(share, cmap="Blues", vmin=0, vmax=1)
        for i, j in np.ndindex(table.shape):
            text, colour = f"{100 * share[i, j]:.0f} %\n{int(table[i, j])}", "white" if share[i, j] > 0.55 else "black"
            axes.text(j, i, text, ha="center", va="center", fontsize=6, color=colour)
        axes.set_xticks(range(len(names)), below)
        if short and len(classes) > 1:
            axes.tick_params(axis="x", rotation=45)
        axes.set_yticks(range(len(names)), names if k == 0 else [""] * len(names))
        axes.set(xlabel="predicted", ylabel="true" if k == 0 else "")
        axes.tick_params(length=0)
        if len(counts) > 1:
            axes.set_title(wrapped(model))
    return figure


def fitted_line(
    y: np.ndarray, predicted: np.ndarray, x: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Return the least-squares line of predictions on true scores and its 95 % interval; None where there is none."""
    from scipy.stats import t

    n, spread = len(y), float(((y - y.mean()) ** 2).sum())
    if n < 3 or spread == 0:
        return None
    slope = float(((y - y.mean()) * (predicted - predicted.mean())).sum()) / spread
    line = predicted.mean() + slope * (x - y.mean())
    rest = predicted - (predicted.mean() + slope * (y - y.mean()))
    error = np.sqrt((rest**2).sum() / (n - 2) * (1 / n + (x - y.mean()) ** 2 / spread))
    half = float(t.ppf(0.975, n - 2)) * error
    return line, line - half, line + half


@styled
def predicted_scores(
    predictions: Mapping[str, tuple[np.ndarray, np.ndarray]], label: str, *, order: Sequence[str] | None = None
) -> Figure:
    """Draw predicted against true scores, with the line fitted to them and its 95 % interval, one panel per model."""
    width = COLUMN_INCHES if len(predictions) == 1 else 2.6
    figure, panels = canvas(width, 3.3 if len(predictions) == 1 else 2.9, columns=len(predictions))
    every = np.concatenate([value for pair in predictions.values() for value in pair])
    span = np.array([every.min(), every.max()])
    for axes, (i, name, (y, predicted)) in zip(panels, ordered(predictions, order)):
        colour = COLOURS[i % len(COLOURS)]
        axes.plot(span, span, **REFERENCE_LINE)
        axes.scatter(y, predicted, s=10, color=colour, lw=0, alpha=0.6)
        x = np.linspace(y.min(), y.max(), 60)
        found = fitted_line(np.asarray(y), np.asarray(predicted), x)
        if found is not None:
            axes.plot(x, found[0], color=colour)
            axes.fill_between(x, found[1], found[2], color=colour, alpha=0.2, lw=0)
        axes.set(xlabel=f"true {label}", ylabel=f"predicted {label}" if axes is panels[0] else "")
        if len(predictions) > 1:
            axes.set_title(wrapped(name))
    return figure
