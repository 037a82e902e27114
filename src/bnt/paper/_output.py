"""Shared output functions of the reproduction: files, Markdown around tables, and figures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bnt._words import duration
from bnt.cohort import Cohort
from bnt.cohort._files import held, write_atomic
from bnt.connectivity import KINDS
from bnt.errors import BadInput
from bnt.models import find_entry
from bnt.paper._plan import N_RUNS
from bnt.plotting._style import COLOURS, DASHES, MARKERS, canvas, save_figure, styled
from bnt.studies._job import Variant, epochs_in_words, most_epochs
from bnt.training._recipe import Recipe

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bnt.paper._grid import GridResult
    from bnt.paper._plan import Plan


MARKER = "reproduce.json"
GREY = "#8C8C8C"

# -- files -------------------------------------------------------------------------------------------------------------


def cpu_time(runs: pd.DataFrame) -> float:
    """Return the CPU seconds that all runs took together; what several of them used counts once."""
    shared = runs["cpu_seconds_shared"].sum() if "cpu_seconds_shared" in runs else 0.0
    return float(runs["cpu_seconds"].sum() - shared)


def check_output(folder: Path, what: str) -> None:
    """Refuse a folder that holds another table or figure; nothing is written."""
    marker = folder / MARKER
    if marker.is_file():
        try:
            other = json.loads(marker.read_text()).get("what")
        except ValueError as error:
            raise BadInput(f"{marker} is damaged ({error}): choose another folder.", parameter="out") from error
        if other != what:
            raise BadInput(
                f"{folder} holds {other!r}, not {what!r}: choose one folder per table or figure.", parameter="out"
            )


def open_output(folder: str | Path, what: str) -> Path:
    """Make the folder of one table or figure and mark it as such, or refuse one that holds another."""
    folder = Path(folder)
    check_output(folder, what)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / MARKER).is_file():
            with held(folder / ".lock"):
                if not (folder / MARKER).is_file():  # another command may have made it since
                    write_facts(folder, {"what": what})
    except OSError as error:
        raise BadInput(f"{folder} cannot be written: {error.strerror}.", parameter="out") from error
    return folder


def write_facts(folder: Path, facts: dict[str, Any]) -> None:
    """Write what was asked for and with which versions."""
    write_atomic(folder / MARKER, json.dumps(facts, indent=2) + "\n")


def write_outputs(folder: Path, name: str, table: pd.DataFrame, markdown: str, figure: Figure) -> list[Path]:
    """Write ``name.csv``, ``name.md``, ``name.png`` and ``name.pdf``."""
    files = [folder / f"{name}.{ending}" for ending in ("csv", "md", "png", "pdf")]
    write_atomic(files[0], table.to_csv(index=False))
    write_atomic(files[1], markdown)
    for file in files[2:]:
        save_figure(figure, file)
    return files


# -- Markdown ----------------------------------------------------------------------------------------------------------


def rows(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    text = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(text + ["| " + " | ".join(line) + " |" for line in lines]) + "\n"


def skipped(result: GridResult) -> str:
    """Return what was changed, skipped or failed, and why."""
    return (
        changed_to_fit(result.fitted)
        + not_run(result.missing)
        + listed("Failed runs; the numbers are from the others:", result.failed)
    )


def changed_to_fit(changed: Mapping[str, str]) -> str:
    """Return which defaults were changed to fit the cohort."""
    return listed("Changed:", changed)


def not_run(missing: Mapping[str, str]) -> str:
    """Return what has no result, and why."""
    return listed("Not run, or failed:", missing)


def listed(heading: str, reasons: Mapping[str, str]) -> str:
    """Return names and their reasons under a heading, names with the same reason in one line; nothing for none."""
    together: dict[str, list[str]] = {}
    for name, why in reasons.items():
        together.setdefault(why, []).append(f"`{name}`")
    lines = "".join(f"- {', '.join(names)}: {why}.\n" for why, names in together.items())
    return f"\n{heading}\n\n{lines}" if lines else ""


def training(variants: Sequence[Variant], runs: pd.DataFrame) -> str:
    """Return recipe, epochs, batch size and stopping of the networks among the runs; exceptions are named after them.

    Parameters
    ----------
    variants : sequence of Variant
    runs : DataFrame
        One row per run, with ``variant`` and ``n_train``: a small training part is passed over more often.
    """
    found: dict[str, list[str]] = {}
    for variant in variants:
        sizes = runs.loc[runs["variant"] == variant.name, "n_train"]
        if not len(sizes) or not find_entry(variant.model).trains_in_epochs:
            continue
        most = [most_epochs(variant.recipe, int(n)) for n in sizes]
        said = f"recipe `{variant.recipe_name}`, {epochs_in_words(most)} at most, batch {variant.recipe.batch_size}"
        said += stopping_words(variant.recipe, max(most))
        found.setdefault(said, []).append(variant.name)
    if not found:
        return ""
    usual = max(found, key=lambda said: len(found[said]))
    common = usual.partition(",")[0] + ", "  # the recipe's name is not said twice
    others = [
        f"{', '.join(f'`{name}`' for name in names)}: {said.removeprefix(common)}"
        for said, names in found.items()
        if said != usual
    ]
    return usual + (f" ({'; '.join(others)})" if others else "")


def stopping_words(recipe: Recipe, epochs: int) -> str:
    """Return when training ends before its last epoch; nothing where it cannot."""
    if recipe.select == "last" or not 0 < recipe.patience < epochs:
        return ""
    smoothed = f" (mean of {recipe.smooth} epochs)" if recipe.select == "smoothed" else ""
    return f", stopped after {recipe.patience} epochs without a better validation AUROC{smoothed}"


def circumstances(plan: Plan, result: GridResult, *, printed: bool = True) -> str:
    """Return the sentence that says which data, splits and recipe the numbers are from.

    Parameters
    ----------
    plan : Plan
    result : GridResult
    printed : bool
        Whether numbers of the paper stand beside ours.
    """
    runs = result.runs
    n = runs["split"].str.partition("+")[0].nunique()  # shares of a training part are one split
    said = f"\nOurs: {about(plan.cohort)}, label `{plan.label}`; protocol `{plan.protocol}`, "
    said += f"{n} split{'s' * (n != 1)}; mean ± SD over splits"
    recipe = training(result.variants, runs)
    said += f"; {recipe}." if recipe else "."
    said += f" CPU time of all runs: {duration(cpu_time(runs))}."
    return said + "\n" + (f"Paper: as printed for {plan.dataset}, {N_RUNS} runs.\n" if printed else "")


def about(cohort: Cohort) -> str:
    """Return the cohort in a few words."""
    kind = KINDS.get(cohort.kind)
    return f"{len(cohort):,} subjects, {cohort.n_rois} ROIs ({kind.description if kind else cohort.kind})"


# -- figures -----------------------------------------------------------------------------------------------------------


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
    axes.set_xticks(list(x), [f"{v:g}" for v in x])
    axes.minorticks_off()
    if len(x) == 1:  # or the groups' small shifts would be the whole width
        axes.set_xlim(x[0] / 1.1, x[0] * 1.1)
