"""Charts of scores, curves and costs, as functions that return a matplotlib Figure one column of a paper wide."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pandas as pd

from bnt._words import heading, is_share, shown
from bnt.plotting._style import COLOURS, COLUMN_INCHES, REFERENCE_LINE, canvas, legend, line, look, styled, wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

Anything = TypeVar("Anything")
MANY_ROWS = 10  # of models in one figure
LEAST_SPAN = 0.05  # of the axis of AUROCs or correlations in the figure of costs


def in_percent(*axes: Axis) -> None:
    """Let axes of shares of 1 show per cent, with as many decimals as their ticks need."""
    from matplotlib.ticker import Formatter

    class Percent(Formatter):
        def __call__(self, value: float, pos: int | None = None) -> str:
            return self.format_ticks([value])[0]

        def format_ticks(self, values: Sequence[float]) -> list[str]:
            digits = max((len(f"{100 * v:.3f}".rstrip("0").partition(".")[2]) for v in values), default=0)
            return [self.fix_minus(f"{100 * v:z.{digits}f}") for v in values]

    for axis in axes:
        axis.set_major_formatter(Percent())


def ordered(named: Mapping[str, Anything], order: Sequence[str] | None) -> list[tuple[int, str, Anything]]:
    """Return each name and value with the number that its colour has in a study's order."""
    places = list(order if order is not None else named)
    return [(places.index(name), name, value) for name, value in named.items()]


def _loss(axes: Axes, table: pd.DataFrame) -> None:
    for i, (_, stage) in enumerate(table.groupby("stage", sort=False)):
        axes.plot(stage["epoch"], stage["loss"], **line(i), **_dot(stage))
    _by_epoch(axes, "training loss")


def _dot(line: pd.DataFrame) -> dict[str, Any]:
    """Return the marker of a line of one point, which is not seen without."""
    return {"marker": "o", "ms": 3} if len(line) == 1 else {}


def _score(axes: Axes, table: pd.DataFrame, score: str) -> None:
    for i, (_, stage) in enumerate(table.groupby("stage", sort=False)):
        colour = line(i)["color"]
        scored = stage.dropna(subset=["val_score"])
        if scored.empty:
            continue
        axes.plot(scored["epoch"], scored["val_score"].abs(), **line(i), **_dot(scored))
        kept = stage["chosen_epoch"].dropna().tolist() if "chosen_epoch" in stage else []
        for epoch in kept:
            at = scored.loc[scored["epoch"] == epoch, "val_score"].abs()
            axes.plot([epoch] * len(at), at, "o", mfc="none", color=colour, ms=6)
    _by_epoch(axes, score)


def _by_epoch(axes: Axes, score: str) -> None:
    """Name the axes of a loss or score by epoch: whole epochs, shares of 1 in per cent."""
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel("epoch")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
    unit = is_share(score.removeprefix("validation "))
    axes.set_ylabel(f"{score} (%)" if unit else score)
    if unit:
        in_percent(axes.yaxis)


@styled
def learning_curves(lines: Sequence[Mapping[str, Any]], score: str = "validation AUROC") -> Figure:
    """Draw loss and validation score by epoch, one line per stage of training; a ring marks the selected epoch.

    Examples
    --------
    >>> import json
    >>> from pathlib import Path
    >>> from bnt.plotting import learning_curves
    >>> lines = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    >>> figure = learning_curves(lines)
    """
    figure, (left, right) = canvas(columns=2)
    _loss(left, pd.DataFrame(lines))
    _score(right, pd.DataFrame(lines), score)
    return figure


@styled
def loss_curve(lines: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw the left half of :func:`learning_curves`."""
    figure, (axes,) = canvas()
    _loss(axes, pd.DataFrame(lines))
    return figure


@styled
def score_curve(lines: Sequence[Mapping[str, Any]], score: str = "validation AUROC") -> Figure:
    """Draw the right half of :func:`learning_curves`."""
    figure, (axes,) = canvas()
    _score(axes, pd.DataFrame(lines), score)
    return figure


@styled
def validation_curves(
    table: pd.DataFrame, score: str = "validation AUROC", *, order: Sequence[str] | None = None
) -> Figure:
    """Draw the validation score of every member of every run by epoch.

    Parameters
    ----------
    table : DataFrame
        Columns variant, run, stage, epoch, val_score.
    score : str
        The name on the axis.
    order : sequence of str, optional
        All models of a study, so that each has the same colour in every figure.
    """
    figure, (axes,) = canvas(width=legend_width(table["variant"].nunique()), height=2.8)
    for i, variant, runs in ordered({str(name): part for name, part in table.groupby("variant", sort=False)}, order):
        for k, (_, one) in enumerate(runs.groupby(["run", "stage"], sort=False)):
            name = wrapped(variant) if k == 0 else None
            axes.plot(one["epoch"], one["val_score"].abs(), lw=0.8, label=name, **line(i), **_dot(one))
    _by_epoch(axes, score)
    legend(figure, axes)
    return figure


@styled
def paired_plot(scores: pd.DataFrame, metric: str = "AUROC") -> Figure:
    """Draw the score of every model on every split, one row per model, connected by split, with means as bars.

    Parameters
    ----------
    scores : DataFrame
        Splits x models.
    metric : str
        The name on the axis.

    Examples
    --------
    >>> import pandas as pd
    >>> from bnt.plotting import paired_plot
    >>> figure = paired_plot(pd.DataFrame({"bnt": [0.70, 0.74], "svm": [0.72, 0.75]}))  # splits x models
    """
    names = row_names(scores.columns)
    figure, (axes,) = canvas(width=wide(names), height=0.8 + row_inches(names) * len(names))
    places = np.arange(len(names))[::-1]
    for _, row in scores.iterrows():
        axes.plot(row.to_numpy(dtype=float), places, color="#8C8C8C", lw=0.5, alpha=0.7, zorder=1)
    for i, place in enumerate(places):
        values = scores.iloc[:, i].dropna()
        axes.scatter(values, np.full(len(values), place), s=16, zorder=2, lw=0, **look(i))
        axes.vlines(values.mean(), place - 0.3, place + 0.3, color="black", lw=1.8, zorder=3)
    axes.set_yticks(places, names)
    axes.set(xlabel=f"test {heading(metric)}", ylim=(-0.5, len(names) - 0.5))
    if is_share(metric):
        in_percent(axes.xaxis)
    return figure


def row_names(names: Iterable[str]) -> list[str]:
    """Return names in lines; those of many rows in fewer and longer ones."""
    found = [str(name) for name in names]
    return [wrapped(name, 18 if len(found) <= MANY_ROWS else 30) for name in found]


def legend_width(n_models: int) -> float:
    """Return the width of a figure with a legend: two columns of a paper where one would be a long list."""
    return COLUMN_INCHES * (1 if n_models <= MANY_ROWS else 2)


def wide(names: Sequence[str]) -> float:
    """Return a width that leaves the data a column's width beside long names."""
    longest = max((len(line) for name in names for line in name.split("\n")), default=0)
    return COLUMN_INCHES + 0.05 * max(0, longest - 8)


def row_inches(names: Sequence[str]) -> float:
    """Return the height of a row that holds the longest of these names."""
    return 0.18 + 0.14 * max((name.count("\n") + 1 for name in names), default=1)


@styled
def forest_plot(comparisons: pd.DataFrame, metric: str = "AUROC") -> Figure:
    """Draw paired differences from the reference with corrected 95 % intervals.

    Examples
    --------
    >>> from bnt.plotting import forest_plot
    >>> from bnt.studies import comparison_table, run_table
    >>> figure = forest_plot(comparison_table("study", run_table("study"), reference="logistic"))
    """
    names = row_names(comparisons["variant"])
    figure, (axes,) = canvas(width=wide(names), height=0.8 + row_inches(names) * len(names))
    places = np.arange(len(comparisons))[::-1]
    difference = comparisons["difference"].to_numpy(dtype=float)
    error = np.stack([difference - comparisons["low"], comparisons["high"] - difference])
    axes.axvline(0, **REFERENCE_LINE)
    axes.errorbar(difference, places, xerr=np.nan_to_num(error), fmt="o", color=COLOURS[0], ms=4, capsize=2, lw=1)
    axes.set_yticks(places, names)
    points = "\n(percentage points)" if is_share(metric) else ""  # a line of its own: one line is wider than the axes
    axes.set(xlabel=f"difference in test {metric}{points}", ylim=(-0.6, len(places) - 0.4))
    if is_share(metric):
        in_percent(axes.xaxis)
    return figure


@styled
def per_site_plot(tables: pd.DataFrame | Mapping[str, pd.DataFrame], *, order: Sequence[str] | None = None) -> Figure:
    """Draw each site's AUROC with its 95 % interval, for one model or several side by side.

    Parameters
    ----------
    tables : DataFrame or mapping of name to DataFrame
        Columns site, n, auroc, low, high; the first model's table says the order of the sites.
    order : sequence of str, optional
        All models of a study, so that each has the same colour in every figure.
    """
    named = {"": tables} if isinstance(tables, pd.DataFrame) else dict(tables)
    first = next(iter(named.values()))
    height = 0.9 + len(first) * (0.12 + 0.1 * len(named))
    figure, (axes,) = canvas(width=wide([str(s) for s in first["site"]]), height=height)
    rows = {site: len(first) - 1 - k for k, site in enumerate(first["site"])}
    axes.axvline(0.5, **REFERENCE_LINE)
    for k, (i, name, table) in enumerate(ordered(named, order)):
        table = table[table["site"].isin(list(rows))]
        shift = 0.0 if len(named) == 1 else 0.25 - 0.5 * k / (len(named) - 1)
        places = table["site"].map(rows).to_numpy(dtype=float) + shift
        error = np.stack([table["auroc"] - table["low"], table["high"] - table["auroc"]])
        style = {**look(i), "fmt": look(i)["marker"]}
        del style["marker"]
        axes.errorbar(
            table["auroc"], places, xerr=np.nan_to_num(error).clip(0), ms=3.5, lw=0.8, label=wrapped(name), **style
        )
    axes.set_yticks(list(rows.values()), [f"{site} ({n})" for site, n in zip(first["site"], first["n"])])
    in_percent(axes.xaxis)
    axes.set(xlabel="test AUROC (%)", xlim=(-0.02, 1.02), ylim=(-0.7, len(first) - 0.3))
    if len(named) > 1:
        legend(figure, axes)
    return figure


@styled
def cost_plot(summary: pd.DataFrame, metric: str = "auroc") -> Figure:
    """Draw each model's mean score against the CPU time of one run; ``summary`` is a study's."""
    from matplotlib.ticker import MaxNLocator, NullFormatter, ScalarFormatter

    figure, (axes,) = canvas(width=legend_width(len(summary)), height=2.8)
    for i, (_, row) in enumerate(summary.iterrows()):
        seconds = max(float(row["cpu_seconds"]), 0.01)
        axes.scatter([seconds], [row[metric]], s=24, lw=0, label=wrapped(row["variant"]), **look(i))
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.margins(x=0.2, y=0.2)
    low, high = axes.get_ylim()
    spare = max(0.0, LEAST_SPAN - (high - low)) / 2  # so that models that hardly differ do not look far apart
    axes.set_ylim(low - spare, high + spare)
    low, high = axes.get_xlim()
    if high / low < 30:  # powers of ten alone would leave the axis without a number
        ticks = [k * 10.0**e for e in range(-3, 7) for k in (1, 2, 5) if low <= k * 10.0**e <= high]
        if len(ticks) < 3:
            ticks = [t for t in MaxNLocator(4).tick_values(low, high) if low <= t <= high]
        axes.set_xticks(ticks)
    axes.set(xlabel="CPU seconds per run (log scale)", ylabel=f"mean test {heading(metric)}")
    if is_share(metric):
        in_percent(axes.yaxis)
    legend(figure, axes)
    return figure


@styled
def sample_size_curve(
    table: pd.DataFrame, metric: str, curves: Mapping[str, Callable[[np.ndarray], np.ndarray]], target: float | None
) -> Figure:
    """Draw scores (mean and SD over splits) against training people or sites, the fitted curves, and a target.

    Parameters
    ----------
    table : DataFrame
        One row per ``model`` and ``n_train``, or ``sites``, with the columns ``metric`` and ``metric_sd``.
    curves : mapping
        For each model the fitted score as a function of n, drawn to twice the largest n; models may lack one.
    """
    figure, (axes,) = canvas(width=4.6, height=3.0)
    by = "sites" if "sites" in table else "n_train"
    most, n_models = float(table[by].max()), table["model"].nunique()
    for i, (model, part) in enumerate(table.groupby("model", sort=False)):
        style = look(i)
        axes.errorbar(
            part[by] * (1 + 0.02 * (i - (n_models - 1) / 2)),  # beside each other
            part[metric],
            yerr=part[f"{metric}_sd"].fillna(0.0),
            color=style["color"],
            marker=style["marker"],
            ls="none",
            ms=3.5,
            elinewidth=0.7,
            capsize=1.5,
            label=wrapped(str(model)),
        )
        if model in curves:
            n = np.geomspace(part[by].min(), 2 * most, 100)
            axes.plot(n, curves[str(model)](n), color=style["color"], lw=0.9)
    if target is not None:
        axes.axhline(target, **REFERENCE_LINE)
        axes.annotate(f"target {shown(target, metric)}", (2 * most, target), ha="right", va="bottom", fontsize=7)
    axes.set_xscale("log")
    ticks = sorted({int(n) for n in table[by].dropna()} | ({int(2 * most)} if curves else set()))
    ticks = ticks if len(ticks) <= 8 else [*ticks[: -1 : len(ticks) // 5], ticks[-1]]
    axes.set_xticks(ticks, [str(n) for n in ticks])
    axes.minorticks_off()
    axes.set(xlabel="training sites" if by == "sites" else "training people", ylabel=f"test {heading(metric)}")
    if is_share(metric):
        in_percent(axes.yaxis)
    legend(figure, axes)
    return figure
