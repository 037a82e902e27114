"""Figures of explanations, as functions that return a matplotlib Figure; a network has one colour in all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec

import numpy as np
import pandas as pd

from bnt.cohort._triangle import endpoints, square
from bnt.explain._networks import Networks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Arguments = ParamSpec("Arguments")
STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.linewidth": 0.7,
    "axes.titlesize": 8,
    "legend.frameon": False,
    "legend.fontsize": 7,
    "svg.fonttype": "path",
    "svg.hashsalt": "bnt",
    "pdf.fonttype": 42,
    "figure.dpi": 150,
}
COLUMN_INCHES = 3.4
SEQUENTIAL, DIVERGING = "cividis", "PuOr_r"  # both read without colour vision
STRIP = 0.035  # width of the strip of network colours, as a share of the matrix


def styled(draw: Callable[Arguments, Figure]) -> Callable[Arguments, Figure]:
    """Draw in our style, without touching the caller's matplotlib settings."""

    @wraps(draw)
    def drawn(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Figure:
        import matplotlib as mpl

        with mpl.rc_context(STYLE):
            return names_as_text(draw(*args, **kwargs))

    return drawn


def names_as_text(figure: Figure) -> Figure:
    """Let a dollar in a name be a dollar, not the start of a formula; numbers of logarithmic axes stay formulas."""
    from matplotlib.text import Text

    axes = [axis for panel in figure.axes for axis in (panel.xaxis, panel.yaxis)]
    powers = {text for axis in axes if axis.get_scale() == "log" for text in axis.findobj(Text)}
    for text in set(figure.findobj(Text)) - powers:
        text.set_parse_math(False)
    return figure


def _frame(axes: Axes, networks: Networks, top: bool) -> None:
    """Mark networks along a matrix whose ROIs are in their order: names and colours at the sides, lines between."""
    from matplotlib.patches import Rectangle

    v = len(networks.codes)
    strip = STRIP * v
    counts = np.bincount(networks.codes, minlength=len(networks.names))
    ends = np.cumsum(counts)
    for name, start, end in zip(networks.names, ends - counts, ends):
        colour = networks.colours[name]
        spots = [((-0.5 - 1.3 * strip, start - 0.5), strip, end - start)]
        if top:
            spots.append(((start - 0.5, -0.5 - 1.3 * strip), end - start, strip))
        for corner, width, height in spots:
            axes.add_patch(Rectangle(corner, width, height, fc=colour, ec="white", lw=0.4, clip_on=False))
        if top:
            box = Rectangle((start - 0.5, start - 0.5), end - start, end - start, fc="none", ec="white", lw=1.6)
            axes.add_patch(box)
            axes.add_patch(Rectangle(box.get_xy(), end - start, end - start, fc="none", ec="black", lw=0.7))
    middles = (ends - counts + ends) / 2 - 0.5
    axes.set_yticks(middles, networks.names)
    axes.tick_params(axis="y", length=0, pad=10)
    axes.tick_params(axis="x", bottom=False, labelbottom=False)


def _matrix_axes(
    figure: Figure, axes: Axes, matrix: np.ndarray, networks: Networks | None, label: str, **look: Any
) -> None:
    """Draw a matrix with its ROIs sorted and framed by network, and a colour bar."""
    order = np.arange(len(matrix)) if networks is None else networks.order
    image = axes.imshow(matrix[np.ix_(order, order)], interpolation="nearest", **look)
    if networks is None:
        axes.set(xlabel="ROI, in the atlas's order", ylabel="ROI")
    else:
        _frame(axes, networks, top=True)
        axes.set_xlabel("ROIs in the same order")
    bar = figure.colorbar(image, ax=axes, shrink=0.8, pad=0.02)
    bar.set_label(label)


@styled
def attention_matrix(matrix: np.ndarray, networks: Networks | None, title: str = "") -> Figure:
    """Draw attention as multiples of uniform attention; rows attend to columns. An ROI's own is left blank."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.6, 3.6), layout="constrained")
    axes = figure.add_subplot()
    times = np.array(matrix, dtype=float) * len(matrix)
    np.fill_diagonal(times, np.nan)
    low, high = np.nanpercentile(times, [1, 99])
    _matrix_axes(
        figure, axes, times, networks, "attention, times uniform", cmap=SEQUENTIAL, vmin=low, vmax=max(high, low + 1e-6)
    )
    axes.set_title(title, pad=14)
    return figure


@styled
def edge_matrix(score: np.ndarray, networks: Networks | None, label: str, title: str = "") -> Figure:
    """Draw an edge map (E,) as a matrix, purple and orange for its signs."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.6, 3.6), layout="constrained")
    axes = figure.add_subplot()
    span = float(np.percentile(np.abs(score), 99.5)) or 1.0
    look: dict[str, Any] = {"cmap": DIVERGING, "vmin": -span, "vmax": span}
    _matrix_axes(figure, axes, square(score, 0.0), networks, label, **look)
    axes.set_title(title, pad=14)
    return figure


@styled
def network_matrix(
    values: np.ndarray, names: Sequence[str], label: str, title: str = "", signed: bool = False
) -> Figure:
    """Draw means over pairs of networks (N, N), with the numbers in the cells."""
    from matplotlib.figure import Figure

    size = 1.5 + 0.36 * len(names)
    figure = Figure(figsize=(size + 1.0, size), layout="constrained")
    axes = figure.add_subplot()
    span = float(np.nanmax(np.abs(values))) or 1.0
    look: dict[str, Any] = {"cmap": DIVERGING, "vmin": -span, "vmax": span} if signed else {"cmap": SEQUENTIAL}
    image = axes.imshow(values, **look)
    steps = float(np.nanmax(values) - np.nanmin(values)) or 1.0
    digits = int(np.clip(1 - np.floor(np.log10(steps)), 0, 3))
    for i, j in np.ndindex(values.shape):
        if np.isfinite(values[i, j]):
            red, green, blue, _ = image.cmap(image.norm(values[i, j]))
            dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
            shown = f"{values[i, j]:z.{digits}f}"
            axes.text(j, i, shown, ha="center", va="center", fontsize=6, color="white" if dark else "black")
    axes.set_xticks(range(len(names)), names, rotation=45, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(length=0)
    bar = figure.colorbar(image, ax=axes, shrink=0.8, pad=0.02)
    bar.set_label(label)
    axes.set_title(title)
    return figure


@styled
def assignment_maps(means: np.ndarray, classes: Sequence[str], networks: Networks | None, title: str = "") -> Figure:
    """Draw soft assignments, a panel a class and one for the difference: ROIs by network, clusters across."""
    from matplotlib.figure import Figure

    panels = len(classes) + (len(classes) == 2)
    figure = Figure(figsize=(1.5 + 1.5 * panels, 3.6), layout="constrained")
    order = np.arange(means.shape[1]) if networks is None else networks.order
    shared: dict[str, Any] = {"aspect": "auto", "interpolation": "nearest"}
    all_axes = []
    for i, name in enumerate(classes):
        axes = figure.add_subplot(1, panels, i + 1)
        image = axes.imshow(means[i][order], cmap=SEQUENTIAL, vmin=0, vmax=float(means.max()), **shared)
        axes.set_title(name)
        all_axes.append(axes)
    figure.colorbar(image, ax=all_axes, shrink=0.6, pad=0.02, location="bottom", label="mean assignment")
    if len(classes) == 2:
        axes = figure.add_subplot(1, panels, panels)
        change = means[1] - means[0]
        span = float(np.abs(change).max()) or 1.0
        image = axes.imshow(change[order], cmap=DIVERGING, vmin=-span, vmax=span, **shared)
        axes.set_title("difference")
        figure.colorbar(
            image, ax=axes, shrink=0.9, pad=0.02, location="bottom", label=f"{classes[1]} less {classes[0]}"
        )
        all_axes.append(axes)
    for i, axes in enumerate(all_axes):
        _cluster_sides(axes, networks, means.shape[2], labels=i == 0)
    figure.suptitle(title, fontsize=8)
    return figure


def _cluster_sides(axes: Axes, networks: Networks | None, n_clusters: int, labels: bool) -> None:
    """Label clusters below and networks beside a panel of assignments."""
    step = max(1, n_clusters // 5)
    axes.set_xticks(range(0, n_clusters, step), [str(k + 1) for k in range(0, n_clusters, step)])
    axes.set_xlabel("cluster")
    if networks is None:
        axes.set_ylabel("ROI" if labels else "")
        return
    from matplotlib.patches import Rectangle

    counts = np.bincount(networks.codes, minlength=len(networks.names))
    ends = np.cumsum(counts)
    for name, start, end in zip(networks.names, ends - counts, ends):
        place = axes.get_yaxis_transform()
        axes.add_patch(
            Rectangle(
                (-0.1, start - 0.5),
                0.08,
                end - start,
                transform=place,
                fc=networks.colours[name],
                ec="none",
                clip_on=False,
            )
        )
        axes.axhline(end - 0.5, color="white", lw=0.8)
    axes.set_yticks((2 * ends - counts) / 2 - 0.5, networks.names if labels else [""] * len(counts))
    axes.tick_params(axis="y", length=0, pad=10)


@styled
def enrichment_plot(table: pd.DataFrame) -> Figure:
    """Draw within-network over between-network attention of each layer and head; filled where q < 0.05."""
    from matplotlib.figure import Figure

    rows = table[table["network"] == "all"].reset_index(drop=True)
    figure = Figure(figsize=(COLUMN_INCHES, 0.9 + 0.19 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    places = np.arange(len(rows))[::-1]
    sure = (rows["q"] < 0.05).to_numpy()
    axes.axvline(1, color="#6E6E6E", lw=1, ls=":")
    for chosen, fill, text in ((sure, "#0072B2", "q < 0.05"), (~sure, "white", "q ≥ 0.05")):
        if chosen.any():
            ratio = rows.loc[chosen, "ratio"]
            axes.plot(ratio, places[chosen], "o", color="#0072B2", mfc=fill, ms=4, label=text)
    axes.set_yticks(places, [_map_name(row) for row in rows.to_dict("records")])
    axes.set(xlabel="within / between networks", ylim=(-0.7, len(rows) - 0.3))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, borderaxespad=0.1)
    return figure


def _map_name(row: dict) -> str:
    if row["layer"] == 0:
        return "input: mean connectome"
    head = "mean of heads" if row["head"] == "mean" else f"head {row['head']}"
    return f"layer {row['layer']}, {head}"


@styled
def connectome_picture(score: np.ndarray, rois: pd.DataFrame, networks: Networks | None, n_top: int = 60) -> Figure:
    """Draw the strongest edges on a glass brain, nodes in their networks' colours; ROIs need coordinates."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch
    from nilearn import plotting

    v = len(rois)
    coordinates = rois[["x", "y", "z"]].to_numpy(dtype=float)
    kept = np.zeros_like(score)
    first = np.argsort(-np.abs(score), kind="stable")[:n_top]
    kept[first] = score[first]
    low, high = endpoints(v)
    degree = np.bincount(np.concatenate([low[first], high[first]]), minlength=v)
    used = (degree > 0) & np.isfinite(coordinates).all(axis=1)
    matrix = square(kept, 0.0)[np.ix_(used, used)]
    labels = np.array([""] * v) if networks is None else networks.labels
    colours = ["#4D4D4D"] * v if networks is None else [networks.colours[name] for name in labels]
    figure = Figure(figsize=(7.0, 2.9))
    span = float(np.abs(matrix).max()) or 1.0
    plotting.plot_connectome(
        matrix,
        coordinates[used],
        node_color=[c for c, use in zip(colours, used) if use],
        node_size=(8 + 7 * degree[used]).tolist(),
        edge_cmap=DIVERGING,
        edge_vmin=-span,
        edge_vmax=span,
        edge_kwargs={"lw": 1.0},
        node_kwargs={"edgecolors": "black", "linewidths": 0.3},
        figure=figure,
        axes=(0.0, 0.14, 1.0, 0.86),
        annotate=True,
        colorbar=True,
    )
    if networks is not None:
        shown = [name for name in networks.names if name in set(labels[used].tolist())]
        handles = [Patch(fc=networks.colours[name], ec="black", lw=0.3, label=name) for name in shown]
        figure.legend(handles=handles, loc="lower center", ncols=min(5, len(shown)), fontsize=6.5, handlelength=1)
    return figure
