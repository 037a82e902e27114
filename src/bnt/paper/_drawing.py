"""Figures that several parts of the paper share: printed values beside ours, and lines over a setting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bnt.plotting._style import COLOURS, DASHES, MARKERS, canvas, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GREY = "#8C8C8C"


def _dots(axes: Axes, values: np.ndarray, sds: np.ndarray, places: np.ndarray, ours: bool, label: str) -> None:
    known = np.isfinite(values)
    axes.errorbar(
        values[known],
        places[known],
        xerr=np.nan_to_num(sds[known]),
        fmt=MARKERS[0] if ours else MARKERS[1],
        color=COLOURS[0] if ours else COLOURS[1],
        mfc=COLOURS[0] if ours else "white",
        ms=4,
        lw=1,
        capsize=1.5,
        label=label,
    )


def beside(axes: Axes, names: Sequence[str], ours: np.ndarray, printed: np.ndarray, legend: bool = True) -> None:
    """Draw our mean and SD, filled, over the paper's, open, one line a name; ``ours`` and ``printed`` are (n, 2)."""
    places = np.arange(len(names))[::-1].astype(float)
    _dots(axes, printed[:, 0], printed[:, 1], places - 0.15, False, "paper")
    _dots(axes, ours[:, 0], ours[:, 1], places + 0.15, True, "ours")
    axes.set_yticks(places, names)
    axes.set_ylim(-0.7, len(names) - 0.3)
    axes.grid(axis="x", lw=0.3, color="#D9D9D9")
    axes.set_axisbelow(True)
    if legend:
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, borderaxespad=0.1)


def same_limits(panels: Sequence[Axes]) -> None:
    """Give all panels the limits that hold what any of them shows; one that shows nothing has no say."""
    spans = [axes.get_xlim() for axes in panels if np.isfinite(axes.dataLim.intervalx).all()]
    if spans:
        low, high = min(low for low, _ in spans), max(high for _, high in spans)
        for axes in panels:
            axes.set_xlim(low, high)


@styled
def beside_figure(
    names: Sequence[str], ours: np.ndarray, printed: np.ndarray, xlabel: str, log: bool = False
) -> Figure:
    """Draw one panel of :func:`beside`."""
    figure, (axes,) = canvas(width=4.6, height=0.9 + 0.27 * len(names))
    beside(axes, names, ours, printed)
    if log:
        axes.set_xscale("log")
    axes.set_xlabel(xlabel)
    return figure


def lines(
    axes: Axes, x: Sequence[float], groups: dict[str, tuple[np.ndarray, np.ndarray]], spread: float = 1.025
) -> None:
    """Draw mean and SD over a setting on a logarithmic axis, one line a group, moved apart so that bars can be read."""
    for i, (name, (mean, sd)) in enumerate(groups.items()):
        at = np.asarray(x, dtype=float) * spread ** (i - (len(groups) - 1) / 2)
        known = np.isfinite(mean)
        axes.errorbar(
            at[known],
            mean[known],
            yerr=np.nan_to_num(sd[known]),
            color=COLOURS[i % len(COLOURS)],
            marker=MARKERS[i % len(MARKERS)],
            ls=DASHES[i % len(DASHES)],
            ms=3.5,
            elinewidth=0.7,
            capsize=1.5,
            label=name,
        )
    axes.set_xscale("log")
    axes.set_xticks(list(x), [f"{v:g}" for v in x])
    axes.minorticks_off()
    if len(x) == 1:  # or the groups' small shifts would be the whole width
        axes.set_xlim(x[0] / 1.1, x[0] * 1.1)
