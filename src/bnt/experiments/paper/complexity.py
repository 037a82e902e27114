"""Section 4.2: how time and memory of a training step grow with V, the number of ROIs, measured for every model.

The paper says O(V^2) for BNT. With connection profiles a node has V features, so that the projections alone are V^3,
and a flattened graph meets dense layers: the exponent is fitted, not assumed. Matrices are simulated, because a step
costs the same whatever they hold.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bnt.errors import BadInput
from bnt.experiments.job import Variant
from bnt.experiments.paper.estimate import duration
from bnt.experiments.paper.texts import listed, rows
from bnt.models import list_models
from bnt.report.figures import COLOURS, DASHES, MARKERS, canvas, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bnt.experiments.paper.plan import Plan

N_SUBJECTS, N_VOLUMES, STEPS = 16, 100, 3
LAST = 3  # how many of the largest V the exponent is fitted to
NOTES = """
One batch of {n} simulated subjects ({volumes} volumes for models of series), forward, backward and Adam, on the CPU
with {threads} thread{s}; the median processor time of {steps} steps after one to warm up, and the most memory that the
process took beyond what it held before the first model was made. Each model has a process of its own. The
exponent is the slope of a straight line through log time and log V over the {last} largest V; small V are dominated by
what does not depend on V, so it is a lower bound of what large V will show.

The paper gives O(V^2) for BNT: L M V^2 for attention and K V for OCRead. That leaves out the length of a node's
features, which is V as well: the projections of queries, keys and values, and the products of attention, are V^3. The
exponent tells how much of that is seen at these sizes.
"""


def make(plan: Plan) -> tuple[pd.DataFrame, str, Figure]:
    """Measure every network at every V and return table, Markdown and figure."""
    names = [v.name for v in plan.asked([Variant(m, m) for m in list_models("network")])]
    plan = replace(plan, sizes=tuple(sorted(plan.sizes)))
    sizes = ", ".join(map(str, plan.sizes))
    plan.say(
        f"{len(names)} models at {len(plan.sizes)} numbers of ROIs ({sizes}), one process a model, one at a time: "
        "seconds to minutes each. The cohort's own connectomes are not used."
    )
    found, missing = [], {}
    for i, name in enumerate(names):
        started = time.monotonic()
        lines, failure = measure(name, plan.sizes, plan.threads)
        found += [{"model": name, **line} for line in lines]
        if failure:
            v = plan.sizes[len(lines)]
            missing[f"{name}, V = {v} and more"] = failure.rstrip(".")
            plan.say(f"Skipped: {name} at {v} ROIs and more: {failure}")
        if i == 0 and len(names) > 1:
            left = duration((time.monotonic() - started) * (len(names) - 1))
            plan.say(f"{name} is measured; {len(names) - 1} more take about {left} if they are alike.")
    if not found:
        raise BadInput(f"Nothing could be measured: {next(iter(missing.values()))}.")
    table = pd.DataFrame(found)
    exponents = {name: exponent(part) for name, part in table.groupby("model", sort=False)}
    table["exponent"] = table["model"].map(exponents)
    return table, markdown(plan, table) + listed("Not measured:", missing), draw(table)


def measure(model: str, sizes: Sequence[int], threads: int = 1) -> tuple[list[dict[str, Any]], str]:
    """Return seconds and peak memory of a training step at each V, and why it ended before the last V, if it did."""
    command = [sys.executable, "-m", "bnt.experiments.paper.one_step", model, str(threads), *map(str, sizes)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    if len(lines) == len(sizes):
        return lines, ""
    return lines, (done.stderr.strip().splitlines()[-1:] or [f"the process ended with code {done.returncode}"])[0]


def exponent(part: pd.DataFrame) -> float:
    """Return the slope of log time over log V at the largest V; NaN for one V."""
    part = part.sort_values("n_rois").tail(LAST)
    if len(part) < 2:
        return float("nan")
    return float(np.polyfit(np.log(part["n_rois"]), np.log(part["step_seconds"]), 1)[0])


def markdown(plan: Plan, table: pd.DataFrame) -> str:
    """Return time and memory by V, and the fitted exponent, one line a model."""
    sizes: Sequence[int] = sorted(table["n_rois"].unique())
    body = []
    for name, part in table.groupby("model", sort=False):
        taken, memory = (dict(zip(part["n_rois"], part[c])) for c in ("step_seconds", "memory_mb"))
        cells = [f"{1000 * taken[v]:.0f}" if v in taken else "–" for v in sizes]
        cells += [f"{memory[sizes[-1]]:.0f}" if sizes[-1] in memory else "–"]
        slope = part["exponent"].iloc[0]
        body.append([f"`{name}`", *cells, f"{slope:.1f}" if np.isfinite(slope) else "–"])
    header = ["model", *(f"V = {v}, ms" for v in sizes), f"V = {sizes[-1]}, MB", "time grows as V to the"]
    return (
        "# Time and memory of a training step by number of ROIs\n\n"
        + rows(header, body)
        + NOTES.format(
            n=N_SUBJECTS,
            volumes=N_VOLUMES,
            threads=plan.threads,
            s="s" * (plan.threads != 1),
            steps=STEPS,
            last=min(LAST, len(sizes)),
        )
    )


@styled
def draw(table: pd.DataFrame) -> Figure:
    """Draw time and memory of a step against V, both logarithmic, with slopes of 2 and, for time, 3 to compare with."""
    figure, panels = canvas(width=3.4, height=3.4, columns=2)
    sizes = np.array(sorted(table["n_rois"].unique()), dtype=float)
    for axes, column, words in zip(panels, ("step_seconds", "memory_mb"), ("seconds", "memory (MB)")):
        for i, (name, part) in enumerate(table.groupby("model", sort=False)):
            axes.plot(
                part["n_rois"],
                part[column],
                color=COLOURS[i % len(COLOURS)],
                marker=MARKERS[i % len(MARKERS)],
                ls=DASHES[i // len(COLOURS) % len(DASHES)],
                ms=3,
                lw=0.9,
                label=name,
            )
        low = table[column].min() / 2
        for power in (2, 3) if column == "step_seconds" else (2,):
            axes.plot(sizes, low * (sizes / sizes[0]) ** power, color="#8C8C8C", lw=0.8, ls=":")
            axes.annotate(f"V$^{power}$", (sizes[-1], low * (sizes[-1] / sizes[0]) ** power), fontsize=7)
        axes.set(xscale="log", yscale="log", xlabel="number of ROIs V", ylabel=f"{words} of a training step")
        axes.set_xticks(sizes, [f"{v:.0f}" for v in sizes])
        axes.minorticks_off()
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure
