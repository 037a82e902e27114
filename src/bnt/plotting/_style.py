"""One style for every figure: sizes for one column of a paper, colours, legends, and figures as files or page text.

Colours are those of Okabe and Ito, which people with any colour vision can tell apart; markers differ as well. Two
kinds of panel that several figures have are at the end.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

import numpy as np

from bnt.cohort._files import write_atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure

Arguments = ParamSpec("Arguments")
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#8C8C8C")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES = ("-", "--", "-.", ":")
NEGATIVE, POSITIVE = COLOURS[0], COLOURS[1]  # blue and orange
REFERENCE_LINE: dict[str, Any] = {"color": "#6E6E6E", "lw": 1, "ls": ":"}  # chance, no difference, a perfect fit
SEQUENTIAL = "cividis"
COLUMN_INCHES = 3.4
STYLE: dict[Any, Any] = {
    "font.size": 8,
    "text.parse_math": False,  # a site may be called $\\frac$
    "axes.titlesize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "lines.linewidth": 1.3,
    "legend.frameon": False,
    "legend.fontsize": 7,
    "svg.fonttype": "path",
    "svg.hashsalt": "bnt",
    "pdf.fonttype": 42,  # letters stay letters
    "figure.dpi": 150,
}
SCREEN = 1.75  # pixels of a page per point of a figure: 8 point letters become 14 pixels
PHONE = 1.15  # the same on a phone, where wide figures scroll instead of shrinking below 9 pixels


def styled(draw: Callable[Arguments, Figure]) -> Callable[Arguments, Figure]:
    """Draw in our style, without touching the caller's matplotlib settings."""

    @wraps(draw)
    def drawn(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Figure:
        import matplotlib as mpl

        with mpl.rc_context(STYLE):
            return _names_as_text(draw(*args, **kwargs))

    return drawn


def _names_as_text(figure: Figure) -> Figure:
    """Let a dollar in a name be a dollar, not the start of a formula; numbers of logarithmic axes stay formulas."""
    from matplotlib.text import Text

    axes = [axis for panel in figure.axes for axis in (panel.xaxis, panel.yaxis)]
    powers = {text for axis in axes if axis.get_scale() == "log" for text in axis.findobj(Text)}
    for text in figure.findobj(Text):
        text.set_parse_math(text in powers)
    return figure


def canvas(width: float = COLUMN_INCHES, height: float = 2.5, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """Return a new figure and its axes, without pyplot's state."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height), layout="constrained")
    return figure, [figure.add_subplot(1, columns, i + 1) for i in range(columns)]


def look(i: int) -> dict[str, Any]:
    """Return colour and marker of the i-th model: the two together tell any sixteen apart without colour vision."""
    return {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[(i + i // len(COLOURS)) % len(MARKERS)]}


def line(i: int) -> dict[str, Any]:
    """Return colour and dashes of the i-th model's line: no two of 32 are alike."""
    return {"color": COLOURS[i % len(COLOURS)], "ls": DASHES[(i + i // len(COLOURS)) % len(DASHES)]}


def signed_colours(middle: str = "#FFFFFF") -> LinearSegmentedColormap:
    """Return the map from blue (negative) over ``middle`` to orange (positive)."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("signed", [NEGATIVE, middle, POSITIVE])


def wrapped(name: str, width: int = 18) -> str:
    """Return a long name in lines, broken after its colon and commas, then at spaces and hyphens, at last anywhere."""
    lines = [""]
    for part in re.split(r"(?<=[:,])", str(name)):
        pieces = [part] if len(part) <= 1.5 * width else re.split(r"(?<=[ _/=-])", part)
        for piece in pieces:
            for text in [piece[i : i + 2 * width] for i in range(0, len(piece), 2 * width)]:
                if lines[-1] and len(lines[-1]) + len(text) > width:
                    lines.append("")
                lines[-1] += text
    return "\n".join(line.rstrip() for line in lines)


def legend(figure: Figure, axes: Axes, title: str | None = None) -> None:
    """Put the legend under the axes, where it hides nothing."""
    handles, labels = axes.get_legend_handles_labels()
    longest = max((len(line) for label in labels for line in label.split("\n")), default=1)
    columns = int(min(3, max(1, figure.get_figwidth() // (0.45 + 0.065 * longest))))
    per_column = -(-len(labels) // columns)
    lines = max(
        (sum(label.count("\n") + 1 for label in labels[i : i + per_column]) for i in range(0, len(labels), per_column)),
        default=0,
    )
    figure.set_figheight(
        figure.get_figheight() + 0.14 * max(0, lines - 1)
    )  # so that a long one takes nothing from the axes
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, title=title, title_fontsize=7)


def figure_bytes(figure: Figure, kind: str, dpi: int = 200) -> bytes:
    """Return a figure as ``png``, ``pdf`` or ``svg``; equal figures give equal bytes."""
    import matplotlib as mpl

    unset = {"png": ("Software",), "pdf": ("CreationDate", "Producer"), "svg": ("Date", "Creator")}
    buffer = io.BytesIO()
    # Ticks of logarithmic axes are made when they are drawn; every name was made text before.
    with mpl.rc_context({**STYLE, "text.parse_math": True}):
        metadata = dict.fromkeys(unset[kind])
        figure.savefig(buffer, format=kind, dpi=dpi, metadata=metadata, transparent=kind == "svg")
    return buffer.getvalue()


def save_figure(figure: Figure, path: str | Path, dpi: int = 200) -> None:
    """Write a figure for a paper: PNG, PDF or SVG by the ending of the name; ``dpi`` is of a PNG.

    Examples
    --------
    >>> import numpy as np
    >>> positive = np.arange(40) % 2 == 1
    >>> probability = np.linspace(0, 1, 40)
    >>> from bnt.plotting import roc_curves, save_figure
    >>> save_figure(roc_curves({"bnt": (positive, probability)}), "roc.pdf")
    """
    path = Path(path)
    write_atomic(path, figure_bytes(figure, path.suffix[1:].lower(), dpi))


def page_width(points: float) -> str:
    """Return the width of a figure on a page: readable on a screen and a phone, in print as large as it was drawn.

    On a phone wide figures scroll in place of shrinking until no one can read them.
    """
    return f"--printed:{points:.0f}pt;width:min(100%,{points * SCREEN:.0f}px);min-width:{points * PHONE:.0f}px"


def inline_svg(figure: Figure, name: str, description: str) -> str:
    """Return a figure for a page: ids of its own, black drawn in the page's ink, as wide as can be read.

    Parameters
    ----------
    name : str
        Unique in the page.
    description : str
        For readers who do not see the figure; HTML-safe.
    """
    svg = re.sub(r"^.*?(?=<svg)", "", figure_bytes(figure, "svg").decode(), flags=re.DOTALL)
    points = float(figure.get_figwidth()) * 72
    size = f'style="{page_width(points)}"'
    svg = re.sub(r'(<svg [^>]*?)\s*width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg [^>]*?)\s*height="[^"]*"', r"\1", svg, count=1)
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{description}" {size} ', 1)
    # Ids of clip paths and glyphs are unique within one figure only.
    for mark in ('id="', 'xlink:href="#', "url(#"):
        svg = svg.replace(mark, f"{mark}{name}-")
    svg = re.sub(r"#000000\b", "currentColor", svg)
    for i, colour in enumerate(COLOURS):  # the style sheet has lighter ones for a dark page
        svg = svg.replace(f": {colour.lower()}", f": var(--c{i},{colour.lower()})")
    return svg


# -- panels: our mean and SD beside the paper's, and lines over a setting --------------------------------


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
    """Draw our mean and SD, filled, over the paper's, open, one line per name; ``ours`` and ``printed`` are (n, 2)."""
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


def _apart(x: Sequence[float]) -> list[str]:
    """Return the names of rising places on a logarithmic axis; those that would touch the next one are empty."""
    names = [f"{v:g}" for v in x]
    share = np.log(x) / max(np.log(x[-1] / x[0]), 1e-9)
    following = len(x) - 1
    for i in range(len(x) - 2, -1, -1):
        if share[following] - share[i] < 0.01 + 0.017 * (len(names[i]) + len(names[following])) / 2:
            names[i] = ""
        else:
            following = i
    return names


def lines(
    axes: Axes, x: Sequence[float], groups: dict[str, tuple[np.ndarray, np.ndarray]], spread: float = 1.025
) -> None:
    """Draw mean and SD over a setting on a logarithmic axis, one line per group, moved apart so that bars are seen."""
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
    axes.set_xticks(list(x), _apart(x))
    axes.minorticks_off()
    if len(x) == 1:  # or the groups' small shifts would be the whole width
        axes.set_xlim(x[0] / 1.1, x[0] * 1.1)
