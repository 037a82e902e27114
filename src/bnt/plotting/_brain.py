"""Connections and clusters of ROIs: matrices framed by network, glass brain, cortical surface, interactive view.

A network has one colour in all figures.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bnt.cohort._triangle import Networks, square
from bnt.errors import BadInput
from bnt.plotting._style import COLOURS, REFERENCE_LINE, SEQUENTIAL, canvas, signed_colours, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABEL_INCHES = 0.125  # from one name of a network to the next
STRIP = 0.035  # width of the strip of network colours, as a share of the matrix
N_EDGES = 60
LEGEND_COLUMNS = 5
RAISED = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
GREY = "#B0B0B0"  # between blue and orange: no edge is white on white


def _spans(networks: Networks) -> list[tuple[str, int, int]]:
    """Return the name of each network, and where its ROIs begin and end in their order."""
    counts = np.bincount(networks.codes, minlength=len(networks.names))
    ends = np.cumsum(counts)
    return list(zip(networks.names, ends - counts, ends))


def _frame(axes: Axes, networks: Networks) -> None:
    """Mark networks along a matrix whose ROIs are in their order: names and colours at the sides, lines between."""
    from matplotlib.patches import Rectangle

    v = len(networks.codes)
    strip = STRIP * v
    edge = -0.5 - 1.3 * strip
    for name, start, end in _spans(networks):
        n = end - start
        for corner, width, height in (((edge, start - 0.5), strip, n), ((start - 0.5, edge), n, strip)):
            axes.add_patch(
                Rectangle(corner, width, height, fc=networks.colours[name], ec="white", lw=0.4, clip_on=False)
            )
        for colour, width in (("white", 1.6), ("black", 0.7)):
            axes.add_patch(Rectangle((start - 0.5, start - 0.5), n, n, fc="none", ec=colour, lw=width))
    _name_networks(axes, networks, (edge - 0.2 * strip, edge - 1.6 * strip), matrix_height(networks) - 0.8)
    axes.set(xlim=(-0.5, v - 0.5))
    axes.tick_params(axis="x", bottom=False, labelbottom=False)


def spread(places: np.ndarray, gap: float, low: float, high: float) -> np.ndarray:
    """Return rising places moved as little as possible, so that neighbours are ``gap`` apart between two limits."""
    gap = min(gap, (high - low) / max(len(places) - 1, 1))
    blocks: list[tuple[float, int]] = []  # mean of the wanted first places of a block, and its length
    for i, place in enumerate(places):
        start, size = float(place) - i * gap, 1
        while blocks and blocks[-1][0] > start:
            before, n = blocks.pop()
            start, size = (before * n + start * size) / (n + size), n + size
        blocks.append((start, size))
    firsts = np.concatenate([np.full(size, start) for start, size in blocks]) if blocks else np.array([])
    return firsts.clip(low, high - gap * (len(places) - 1)) + gap * np.arange(len(places))


def matrix_height(networks: Networks | None) -> float:
    """Return the height of a figure of a matrix that has room for the names of all networks."""
    return 3.6 if networks is None else max(3.6, 1.0 + LABEL_INCHES * len(networks.names))


def names_width(networks: Networks | None) -> float:
    """Return the inches that the names of networks and the lines to them take beside a matrix."""
    longest = 0 if networks is None else max((len(name) for name in networks.names), default=0)
    return 0.5 + 0.056 * longest


def matrix_width(networks: Networks | None) -> float:
    """Return the width of a figure of a matrix: long names take nothing from the matrix."""
    return max(4.6, matrix_height(networks) - 0.8 + names_width(networks) + 1.0)


def _name_networks(axes: Axes, networks: Networks, across: tuple[float, float], inches: float, **place: Any) -> None:
    """Write the networks' names beside a matrix ``inches`` high; names of small ones move apart, and a line says whose.

    The lines go from left to right ``across`` the room between them.
    """
    v = len(networks.codes)
    middles = np.array([(start + end) / 2 - 0.5 for _, start, end in _spans(networks)])
    places = spread(middles, LABEL_INCHES * v / inches, 0.0, v - 1.0)
    for middle, name_place in zip(middles, places):
        axes.plot(across, [middle, name_place], color="#8C8C8C", lw=0.4, clip_on=False, **place)
    axes.set(ylim=(v - 0.5, -0.5))
    axes.set_yticks(places, networks.names, fontsize=7)
    axes.tick_params(axis="y", length=0, pad=26)  # left of the lines, however wide the panel is


def _matrix_axes(
    figure: Figure, axes: Axes, matrix: np.ndarray, networks: Networks | None, label: str, **look: Any
) -> None:
    """Draw a matrix with its ROIs sorted and framed by network, and a colour bar."""
    order = np.arange(len(matrix)) if networks is None else networks.order
    axes.spines[:].set_visible(True)
    image = axes.imshow(matrix[np.ix_(order, order)], interpolation="nearest", **look)
    if networks is None:
        axes.set(xlabel="ROI, in the atlas's order", ylabel="ROI")
    else:
        _frame(axes, networks)
        figure.get_layout_engine().set(w_pad=0.08)  # type: ignore[union-attr, call-arg]  # names stay inside
        axes.set_xlabel("ROIs in the same order")
    bar = figure.colorbar(image, ax=axes, shrink=0.8, pad=0.02, extend="both")  # a few values are beyond it
    bar.set_label(label)


def in_powers(label: str, power: int) -> str:
    """Return the label of numbers that were divided by a power of ten."""
    return f"{label},\n× 10{str(power).translate(RAISED)}"


@styled
def attention_matrix(matrix: np.ndarray, networks: Networks | None, title: str = "") -> Figure:
    """Draw attention as multiples of uniform attention; rows attend to columns. An ROI's own is left blank."""
    figure, (axes,) = canvas(matrix_width(networks), matrix_height(networks))
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
    """Draw an edge map (E,) as a matrix, orange positive, blue negative."""
    span = float(np.percentile(np.abs(score), 99.5)) or 1.0
    power = int(np.floor(np.log10(span)))
    scaled = not -3 < power < 4  # long numbers beside the colour bar would push the networks' names off the figure
    if scaled:
        score, span, label = score / 10.0**power, span / 10.0**power, in_powers(label, power)
    figure, (axes,) = canvas(matrix_width(networks) + 0.2 * scaled, matrix_height(networks))
    look: dict[str, Any] = {"cmap": signed_colours(), "vmin": -span, "vmax": span}
    _matrix_axes(figure, axes, square(score, 0.0), networks, label, **look)
    axes.set_title(title, pad=14)
    return figure


@styled
def network_matrix(
    values: np.ndarray, names: Sequence[str], label: str, title: str = "", signed: bool = False
) -> Figure:
    """Draw means over pairs of networks (N, N), with the numbers in the cells."""
    size = 1.5 + 0.36 * len(names)
    figure, (axes,) = canvas(size + 1.0, size)
    axes.spines[:].set_visible(True)
    span = float(np.nanmax(np.abs(values))) or 1.0
    look: dict[str, Any] = {"cmap": signed_colours(), "vmin": -span, "vmax": span} if signed else {"cmap": SEQUENTIAL}
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
    """Draw soft assignments, one panel per class and one for the difference: ROIs by network, clusters across."""
    from matplotlib.figure import Figure

    panels = len(classes) + (len(classes) == 2)
    figure = Figure(
        figsize=(max(1.5, names_width(networks) + 0.2) + 1.5 * panels, matrix_height(networks)), layout="constrained"
    )
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
        image = axes.imshow(change[order], cmap=signed_colours(), vmin=-span, vmax=span, **shared)
        axes.set_title("difference")
        figure.colorbar(
            image, ax=axes, shrink=0.9, pad=0.02, location="bottom", label=f"{classes[1]} less {classes[0]}"
        )
        all_axes.append(axes)
    for i, axes in enumerate(all_axes):
        _cluster_sides(axes, networks, means.shape[2], labels=i == 0)
    figure.get_layout_engine().set(w_pad=0.08)  # type: ignore[union-attr, call-arg]  # names stay inside
    figure.suptitle(title, fontsize=8)
    return figure


def _cluster_sides(axes: Axes, networks: Networks | None, n_clusters: int, labels: bool) -> None:
    """Label clusters below and networks beside a panel of assignments."""
    axes.spines[:].set_visible(True)
    step = max(1, n_clusters // 5)
    axes.set_xticks(range(0, n_clusters, step), [str(k + 1) for k in range(0, n_clusters, step)])
    axes.set_xlabel("cluster")
    if networks is None:
        axes.set_ylabel("ROI" if labels else "")
        return
    from matplotlib.patches import Rectangle

    beside = axes.get_yaxis_transform()
    for name, start, end in _spans(networks):
        box: dict[str, Any] = {"fc": networks.colours[name], "ec": "none", "clip_on": False, "transform": beside}
        axes.add_patch(Rectangle((-0.1, start - 0.5), 0.08, end - start, **box))
        axes.axhline(end - 0.5, color="white", lw=0.8)
    if not labels:
        axes.set_yticks([])
        return
    _name_networks(axes, networks, (-0.11, -0.17), matrix_height(networks) - 1.3, transform=beside)
    axes.set(xlim=(-0.5, n_clusters - 0.5))


@styled
def enrichment_plot(table: pd.DataFrame) -> Figure:
    """Draw within-network over between-network attention of each layer and head; filled where q < 0.05."""
    rows = table[table["network"] == "all"].reset_index(drop=True)
    figure, (axes,) = canvas(height=0.9 + 0.19 * len(rows))
    places = np.arange(len(rows))[::-1]
    sure = (rows["q"] < 0.05).to_numpy()
    axes.axvline(1, **REFERENCE_LINE)
    for chosen, fill, text in ((sure, COLOURS[0], "q < 0.05"), (~sure, "white", "q ≥ 0.05")):
        if chosen.any():
            ratio = rows.loc[chosen, "ratio"]
            axes.plot(ratio, places[chosen], "o", color=COLOURS[0], mfc=fill, ms=4, label=text)
    axes.set_yticks(places, [_map_name(row) for row in rows.to_dict("records")])
    axes.set(xlabel="within / between networks", ylim=(-0.7, len(rows) - 0.3))
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, borderaxespad=0.1)
    return figure


def _map_name(row: dict) -> str:
    if row["layer"] == 0:
        return "input: mean connectome"
    head = "mean of heads" if row["head"] == "mean" else f"head {row['head']}"
    return f"layer {row['layer']}, {head}"


def coordinates(rois: pd.DataFrame | None) -> np.ndarray | None:
    """Return the ROIs' MNI coordinates (V, 3), NaN where one is unknown, or None where fewer than two are known."""
    if rois is None or not {"x", "y", "z"} <= set(rois.columns):
        return None
    found = rois[["x", "y", "z"]].to_numpy(dtype=float)
    return found if np.isfinite(found).all(axis=1).sum() > 1 else None


def strongest(matrix: np.ndarray, n_edges: int = N_EDGES) -> np.ndarray:
    """Return the matrix with only its ``n_edges`` largest entries by size, (V, V)."""
    rows, columns = np.triu_indices(len(matrix), 1)
    sizes = np.abs(matrix[rows, columns])
    kept = np.argsort(-sizes, kind="stable")[:n_edges]
    kept = kept[sizes[kept] > 0]
    out = np.zeros_like(matrix, dtype=float)
    out[rows[kept], columns[kept]] = out[columns[kept], rows[kept]] = matrix[rows[kept], columns[kept]]
    return out


@styled
def glass_brain(
    matrix: np.ndarray, places: np.ndarray, networks: Networks | None = None, n_edges: int = N_EDGES
) -> Figure:
    """Draw the strongest edges in a glass brain, seen from three sides.

    Parameters
    ----------
    matrix : array, (V, V)
        One signed number per edge; orange is positive, blue negative.
    places : array, (V, 3)
        MNI coordinates; ROIs without them are left out.
    networks : Networks, optional
        Colours the nodes by functional network.
    n_edges : int
        How many edges are drawn.

    Examples
    --------
    >>> import numpy as np
    >>> from bnt.plotting import glass_brain
    >>> rng = np.random.default_rng(0)
    >>> matrix, places = rng.normal(size=(6, 6)), rng.uniform(-40, 40, size=(6, 3))
    >>> figure = glass_brain(matrix + matrix.T, places, n_edges=3)
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch
    from nilearn.plotting import plot_connectome

    shown = strongest(matrix, n_edges)
    degree = np.count_nonzero(shown, axis=0)
    used = (degree > 0) & np.isfinite(places).all(axis=1)
    if not used.any():
        raise BadInput("No ROI of these edges has coordinates: give x, y and z of the atlas in rois.tsv.", "places")
    shown = shown[np.ix_(used, used)]
    labels = [] if networks is None else networks.labels[used].tolist()
    names = [] if networks is None else [name for name in networks.names if name in labels]
    lines = -(-len(names) // LEGEND_COLUMNS)
    below = 0.2 + 0.13 * max(lines, 1)  # inches for the legend
    figure = Figure(figsize=(7.0, 2.5 + below))
    span = float(np.abs(shown).max(initial=0.0)) or 1.0
    plot_connectome(
        shown,
        places[used],
        node_color="#404040" if networks is None else [networks.colours[name] for name in labels],
        node_size=(8 + 7 * degree[used]).tolist(),
        edge_cmap=signed_colours(GREY),
        edge_vmin=-span,
        edge_vmax=span,
        edge_kwargs={"lw": 1.0},
        node_kwargs={"edgecolors": "black", "linewidths": 0.3},
        figure=figure,
        axes=(0.0, below / (2.5 + below), 1.0, 2.5 / (2.5 + below)),
        annotate=True,
        colorbar=True,
    )
    if networks is not None:
        handles = [Patch(fc=networks.colours[name], ec="black", lw=0.3, label=name) for name in names]
        figure.legend(
            handles=handles, loc="lower center", ncols=-(-len(names) // max(lines, 1)), fontsize=6.5, handlelength=1
        )
    return figure


WITHOUT_WEBGL = """<script>
if (!document.createElement("canvas").getContext("webgl"))
  document.body.innerHTML = "<p style='font: 1rem sans-serif; margin: 2rem'>This browser has no WebGL, which the " +
    "view in three dimensions needs. The glass brain on this page shows the same connections.</p>";
</script>
"""


def connectome_html(matrix: np.ndarray, places: np.ndarray, n_edges: int = N_EDGES) -> str:
    """Return nilearn's interactive view of the strongest edges as a page that asks the network for nothing."""
    from nilearn.plotting import view_connectome

    shown = strongest(matrix, n_edges)
    used = np.flatnonzero(np.abs(shown).sum(axis=0))
    colours = signed_colours(GREY)
    view = view_connectome(
        shown[np.ix_(used, used)],
        places[used],
        edge_cmap=colours,
        linewidth=4,
        node_size=4,
        node_color="#404040",
        colorbar_fontsize=13,
    )
    # The page's icon is the one thing it would fetch.
    page = re.sub(r'<link[^>]*rel="(?:shortcut )?icon"[^>]*>', '<link rel="icon" href="data:,">', view.html)
    return page.replace("</body>", f"{WITHOUT_WEBGL}</body>", 1)


BOX = np.array([[2.0, 0, 0, -98], [0, 2, 0, -134], [0, 0, 2, -90], [0, 0, 0, 1]])  # around the whole surface, 2 mm
BOX_SHAPE = (99, 117, 105)
SIDES = (("left", "lateral"), ("left", "medial"), ("right", "medial"), ("right", "lateral"))


@styled
def surface_map(image: Any, label: str, signed: bool = True) -> Figure:
    """Draw a brain image on both hemispheres, from outside and from inside.

    Parameters
    ----------
    image : 3D image in MNI space
    label : str
        The label of the colour bar.
    signed : bool
        Whether values may be negative: orange is positive, blue negative.

    Examples
    --------
    >>> import nibabel as nib
    >>> import numpy as np
    >>> from bnt.plotting import surface_map
    >>> values = np.random.default_rng(0).normal(size=(10, 12, 10)).astype("float32")
    >>> affine = np.array([[18.0, 0, 0, -81], [0, 18, 0, -115], [0, 0, 18, -72], [0, 0, 0, 1]])
    >>> figure = surface_map(nib.Nifti1Image(values, affine), "score")
    """
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure
    from nilearn.datasets import load_fsaverage, load_fsaverage_data
    from nilearn.image import resample_img
    from nilearn.plotting import plot_surf_stat_map
    from nilearn.surface import SurfaceImage

    meshes = load_fsaverage("fsaverage5")
    relief = load_fsaverage_data(mesh="fsaverage5", data_type="sulcal")
    figure = Figure(figsize=(7.0, 2.2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        image = resample_img(image, BOX, BOX_SHAPE, interpolation="nearest", copy_header=True, force_resample=True)
        # An ROI map is constant within its ROIs: the value of the nearest voxel, never a mean over a border.
        found = SurfaceImage.from_volume(meshes["pial"], image, interpolation="nearest_most_frequent")
        values = np.concatenate([np.ravel(part) for part in found.data.parts.values()])
        span = float(np.nanmax(np.abs(values), initial=0.0)) or 1.0
        colours = signed_colours("#DDDDDD") if signed else "viridis"  # an ROI near 0 is not white on white
        low = -span if signed else 0.0
        for i, (hemisphere, view) in enumerate(SIDES):
            axes = figure.add_axes((0.22 * i, 0.02, 0.22, 0.9), projection="3d")
            plot_surf_stat_map(
                surf_mesh=meshes["inflated"],
                stat_map=found,
                bg_map=relief,
                hemi=hemisphere,
                view=view,
                cmap=colours,
                vmin=low,
                vmax=span,
                threshold=1e-9 * span,
                colorbar=False,
                axes=axes,
                figure=figure,
            )
            for collection in axes.collections:
                collection.set_rasterized(True)  # 20,000 triangles as vectors take minutes and megabytes
            axes.set_title(f"{hemisphere}, {view}", fontsize=7, y=0.95)
    bar = figure.add_axes((0.9, 0.2, 0.012, 0.6))
    figure.colorbar(ScalarMappable(Normalize(low, span), colours), cax=bar, label=label)
    return figure
