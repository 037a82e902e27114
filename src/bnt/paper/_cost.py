"""Cost of models: parameters (appendix E), running time (appendix D) and growth with V (section 4.2).

``python -m bnt.paper._cost MODEL THREADS V ...`` measures the steps of one model in a process of its own, so that the
memory of models does not add up; V has to rise, because the peak of a process never falls.
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

from bnt._words import counted, duration
from bnt.bench import peak_memory
from bnt.cohort import Cohort
from bnt.errors import BadInput
from bnt.models import count_parameters, find_entry, list_models
from bnt.paper._grid import about, changed_to_fit, listed, not_run, rows
from bnt.paper._plan import NOTHING, PARAMETERS, RUNTIME, Plan, prepare, show
from bnt.plotting._style import COLOURS, DASHES, MARKERS, beside, beside_figure, canvas, styled
from bnt.studies._job import BEYOND_STEPS, Variant, fitted, step_seconds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# -- parameters (appendix E): computed exactly, beside the printed ones ------------------------------------------------


ATLASES = {"ABIDE": (200, 100), "ABCD": (360, 512)}  # ROIs, volumes
# Name, the method printed, our model, options, options on ABCD on top, what the comparison says.
COUNTED: tuple[tuple[str, str, str, dict[str, Any], dict[str, Any], str], ...] = (
    ("BrainNetCNN", "BrainNetCNN", "brainnetcnn", {}, {}, "ABIDE fits; on ABCD the paper repeats the ABIDE number"),
    ("BrainGB (GAT)", "BrainGB", "braingb", {}, {}, "fits"),
    (
        "FBNetGen",
        "FBNetGen",
        "fbnetgen",
        {"n_volumes": 100},
        {"n_volumes": 512, "encoder": "cnn", "window": 8, "hidden": 8},
        "fits with a GRU on ABIDE and a CNN on ABCD",
    ),
    ("SAN", "SAN", "san", {}, {}, "fits; nearly all of it is the MLP on the concatenation"),
    ("Graphormer", "Graphormer", "graphormer", {}, {}, "near; the authors' version is not public"),
    ("VanillaTF", "VanillaTF", "vanilla", {}, {}, "the paper prints ten times too many"),
    ("BNT, K = 100", "BrainNetTF", "bnt-released", {}, {}, "fits: the main table must have used K = 100"),
    ("BNT, K = 10", "", "bnt-released", {"n_clusters": 10}, {}, "would print 3.8M and 11.0M"),
    ("BNT, as the equations read", "", "bnt", {}, {}, "without the hidden MLP"),
    ("BrainGNN", "", "braingnn", {}, {}, "not printed"),
    ("BrainNetGNN", "", "brainnetgnn", {"n_volumes": 100}, {"n_volumes": 512}, "not printed"),
    ("DGM", "", "dgm", {}, {}, "not printed"),
)


def printed_count(text: str) -> float:
    """Return a printed count as a number; ``57.7M6`` is read as 57.7 million."""
    return float(text.partition("M")[0]) * 1e6 if text else float("nan")


def count_all() -> pd.DataFrame:
    """Return one row per model: computed and printed, for 200 and 360 ROIs."""
    found = []
    for name, method, model, options, on_abcd, verdict in COUNTED:
        printed = PARAMETERS.get(method, ("", ""))
        row: dict[str, Any] = {"name": name, "model": model}
        for i, (dataset, (n_rois, _)) in enumerate(ATLASES.items()):
            chosen = {**options, **(on_abcd if dataset == "ABCD" else {})}
            row[f"V{n_rois}"] = count_parameters(model, n_rois, 2, **chosen)
            row[f"printed_V{n_rois}"] = printed[i]
        found.append(row | {"verdict": verdict})
    return pd.DataFrame(found)


def parameters(plan: Plan) -> tuple[pd.DataFrame, str, Figure]:
    """Count, and return table, Markdown and figure."""
    table = count_all()
    body = [
        [
            one["name"],
            f"{one['V200']:,}",
            one["printed_V200"] or "–",
            f"{one['V360']:,}",
            one["printed_V360"] or "–",
            one["verdict"],
        ]
        for one in table.to_dict("records")
    ]
    text = (
        "# Parameters\n\n"
        + rows(["model", "V = 200", "paper, ABIDE", "V = 360", "paper, ABCD", "verdict"], body)
        + "\nFrozen centres are counted, as the authors' counter does. The paper says that BNT is smaller than the "
        "other transformers;\nit has 2.5 and 3.4 times the parameters of VanillaTF and three times or more those of "
        "Graphormer.\n"
    )
    return table, text, draw_parameters(table)


@styled
def draw_parameters(table: pd.DataFrame) -> Figure:
    """Draw one panel for each number of ROIs."""
    figure, panels = canvas(height=0.9 + 0.25 * len(table), columns=2)
    for i, (axes, (dataset, (v, _))) in enumerate(zip(panels, ATLASES.items())):
        ours = np.column_stack([table[f"V{v}"].to_numpy(dtype=float), np.full(len(table), np.nan)])
        printed = np.array([[printed_count(text), np.nan] for text in table[f"printed_V{v}"]])
        beside(axes, table["name"].tolist() if i == 0 else [""] * len(table), ours, printed, legend=False)
        axes.set_xscale("log")
        axes.set(xlabel="parameters", xlim=(5e3, 4e8))
        axes.set_title(f"{dataset}, {v} ROIs", fontsize=8)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


# -- running time (appendix D): measured training steps ----------------------------------------------------------------

TIMED = {
    "san": "SAN",
    "graphormer": "Graphormer",
    "vanilla": "VanillaTF",
    "bnt": "BrainNetTF",
    "bnt-released": "BrainNetTF",
}
EPOCHS = 200
LEAST, MOST, SECONDS = 3, 40, 2.0  # steps of each model, and the time that those beyond the fewest may take
RUNTIME_NOTES = """
{cohort}.
Ours: the median {clock} of {least} to {most} steps, as many as two seconds hold (forward, backward, Adam; batch
{batch}) on {device}, {threads} thread{s}, times the steps of 200 epochs on 70 % of the cohort, plus 15 % for
validation: an extrapolation, not a full training. The paper's are minutes on an NVIDIA Quadro RTX 8000, as printed for
{dataset}; how they were taken is not said. SAN and Graphormer are dense here, so the ratio between the models is what
can be compared.
"""


def runtime(plan: Plan) -> tuple[pd.DataFrame, str, Figure]:
    """Measure steps and return table, Markdown and figure."""
    # One batch size for all: a model's own recipe may have another, and a step would not be the same work.
    variants = plan.asked([Variant(m, m, plan.variant(m, m).options, plan.recipe_name, plan.recipe) for m in TIMED])
    kept, missing, changed = prepare(plan, variants)
    n = len(kept)
    plan.say(f"Training steps of {n} model{'s' * (n != 1)}, a few seconds each: about {duration(4.0 * n)} or more.")
    # Other work on the machine slows a step down; the processor's own time does not count it.
    by_processor = plan.device == "cpu" and plan.threads == 1
    clock = time.process_time if by_processor else time.perf_counter
    how: dict[str, Any] = {"threads": plan.threads, "device": plan.device, "clock": clock}
    how |= {"at_least": LEAST, "at_most": MOST, "seconds": SECONDS}
    seconds = {v.name: step_seconds(plan.cohort, v, **how) for v in kept}
    found = runtime_table(plan, [v.name for v in variants], seconds, missing)
    text = (
        "# Running time\n\n"
        + runtime_text(found)
        + RUNTIME_NOTES.format(
            cohort=about(plan.cohort),
            clock="processor time" if by_processor else "time",
            least=LEAST,
            most=MOST,
            batch=plan.recipe.batch_size,
            device=plan.device,
            threads=plan.threads,
            s="s" * (plan.threads != 1),
            dataset=plan.dataset,
        )
        + changed_to_fit(changed)
        + not_run(missing)
    )
    theirs = found[["printed_minutes", "printed_minutes_sd"]].to_numpy()
    ours = np.column_stack([found["minutes_200_epochs"], np.full(len(found), np.nan)])
    return found, text, beside_figure(found["model"].tolist(), ours, theirs, "minutes for 200 epochs", log=True)


def runtime_table(plan: Plan, models: list[str], seconds: dict[str, float], missing: dict[str, str]) -> pd.DataFrame:
    """Return one row per model from the seconds of its step: ours and printed, NaN where there is none."""
    printed = RUNTIME[plan.dataset]
    n_train = int(0.7 * len(plan.cohort))
    steps = max(1, plan.recipe.steps_per_epoch(n_train))
    found: list[dict[str, Any]] = []
    for model in models:
        step = seconds.get(model, float("nan"))
        reference = printed.get(TIMED[model], NOTHING)
        found.append(
            {
                "model": model,
                "method": TIMED[model],
                "step_seconds": step,
                "epoch_seconds": step * steps * BEYOND_STEPS,
                "minutes_200_epochs": step * steps * EPOCHS * BEYOND_STEPS / 60,
                "times_bnt": step / seconds.get("bnt", float("nan")),
                "printed_minutes": reference[0],
                "printed_minutes_sd": reference[1],
                "printed_times_bnt": reference[0] / printed["BrainNetTF"][0],
                "missing": missing.get(model, ""),
            }
        )
    return pd.DataFrame(found)


def runtime_text(found: pd.DataFrame) -> str:
    """Return the table, the paper's minutes beside ours; a dash where there is none."""

    def number(value: float, digits: int = 1) -> str:
        return show((value, float("nan")), digits)

    body = [
        [
            f"`{one['model']}`",
            show((one["printed_minutes"], one["printed_minutes_sd"]), 2),
            number(one["minutes_200_epochs"]),
            number(one["printed_times_bnt"]),
            number(one["times_bnt"]),
            number(one["epoch_seconds"], 2),
            number(1000 * one["step_seconds"], 0),
        ]
        for one in found.to_dict("records")
    ]
    header = ["model", "paper, min", "ours, min", "paper, times BNT", "ours, times BNT", "per epoch, s", "per step, ms"]
    return rows(header, body)


# -- complexity (section 4.2): time and memory of a step by V ----------------------------------------------------------
#
# The paper says O(V^2) for BNT. With connection profiles a node has V features, so that the projections alone are V^3,
# and a flattened graph meets dense layers: the exponent is fitted, not assumed. Matrices are simulated, because a step
# costs the same whatever they hold.

N_SUBJECTS, N_VOLUMES, STEPS = 16, 100, 3
LAST = 3  # how many of the largest V the exponent is fitted to
COMPLEXITY_NOTES = """
One batch of {n} simulated subjects ({volumes} volumes for models of series), forward, backward and Adam, on the CPU
with {threads} thread{s}; the median processor time of {steps} steps after one to warm up, and the most memory that the
process took beyond what it held before the first model was made. Each model has a process of its own. The
exponent is the slope of a straight line through log time and log V over the {last} largest V; small V are dominated by
what does not depend on V, so it is a lower bound of what large V will show.

The paper gives O(V^2) for BNT: L M V^2 for attention and K V for OCRead. That leaves out the length of a node's
features, which is V as well: the projections of queries, keys and values, and the products of attention, are V^3. The
exponent tells how much of that is seen at these sizes.
"""


def complexity(plan: Plan) -> tuple[pd.DataFrame, str, Figure]:
    """Measure every network at every V and return table, Markdown and figure."""
    names = [v.name for v in plan.asked([Variant(m, m) for m in list_models(family="network")])]
    plan = replace(plan, sizes=tuple(sorted(plan.sizes)))
    sizes = ", ".join(map(str, plan.sizes))
    plan.say(
        f"{counted(len(names), 'model')} at {sizes} ROIs, one process per model, one at a time: seconds to minutes "
        "each. The cohort's own connectomes are not used."
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
    return table, complexity_text(plan, table) + listed("Not measured:", missing), draw_complexity(table)


def measure(model: str, sizes: Sequence[int], threads: int = 1) -> tuple[list[dict[str, Any]], str]:
    """Return seconds and peak memory of a training step at each V, and why it ended before the last V, if it did."""
    command = [sys.executable, "-m", "bnt.paper._cost", model, str(threads), *map(str, sizes)]
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


def complexity_text(plan: Plan, table: pd.DataFrame) -> str:
    """Return time and memory by V, and the fitted exponent, one line per model."""
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
        + COMPLEXITY_NOTES.format(
            n=N_SUBJECTS,
            volumes=N_VOLUMES,
            threads=plan.threads,
            s="s" * (plan.threads != 1),
            steps=STEPS,
            last=min(LAST, len(sizes)),
        )
    )


@styled
def draw_complexity(table: pd.DataFrame) -> Figure:
    """Draw time and memory of a step against V, both logarithmic, with slopes of 2 and, for time, 3 to compare with."""
    from matplotlib.ticker import LogLocator

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
        powers = (2, 3) if column == "step_seconds" else (2,)
        for power in powers if len(sizes) > 1 else ():
            axes.plot(sizes, low * (sizes / sizes[0]) ** power, color="#8C8C8C", lw=0.8, ls=":")
            end = (sizes[-1], low * (sizes[-1] / sizes[0]) ** power)
            axes.annotate(
                "V²" if power == 2 else "V³", end, (5, 0), textcoords="offset points", va="center", fontsize=7
            )
        axes.set(xscale="log", yscale="log", xlabel="number of ROIs V", ylabel=f"{words} of a training step")
        axes.set_xticks(sizes, [f"{v:.0f}" for v in sizes])
        axes.minorticks_off()
        bottom, top = axes.get_ylim()
        if top < 100 * bottom:  # one power of ten or none would be all that is named
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.yaxis.set_major_formatter("{x:g}")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def step_cost(model: str, n_rois: int, threads: int, held: float) -> dict[str, float]:
    """Return the median seconds of a step, and the megabytes at most beyond those ``held`` before."""
    import torch

    from bnt.training._loop import reuse_freed_memory

    reuse_freed_memory()  # as training does
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    series = [rng.normal(size=(N_VOLUMES, n_rois)).astype(np.float32) for _ in range(N_SUBJECTS)]
    matrices = np.stack([np.corrcoef(one.T) for one in series]).astype(np.float32)
    table = pd.DataFrame({"participant_id": [f"sub-{i:02d}" for i in range(N_SUBJECTS)]})
    entry = find_entry(model)
    # The seven networks of Yeo and a part without one, for models that need them.
    rois = pd.DataFrame({"label": [f"roi-{i}" for i in range(n_rois)], "network": np.arange(n_rois) * 8 // n_rois})
    cohort = Cohort(matrices, table, rois.astype(str), timeseries=series if entry.needs_series else None)
    variant, _ = fitted(cohort, Variant(model, model))
    clock = time.process_time if threads == 1 else time.perf_counter
    seconds = step_seconds(cohort, variant, N_SUBJECTS, threads=threads, at_least=STEPS, clock=clock)
    return {"n_rois": n_rois, "step_seconds": seconds, "memory_mb": max(peak_memory() - held, 1.0)}


if __name__ == "__main__":
    try:
        import torch  # noqa: F401  (its memory belongs to no model)

        held = peak_memory()
        for size in sorted(map(int, sys.argv[3:])):
            print(json.dumps(step_cost(sys.argv[1], size, int(sys.argv[2]), held)), flush=True)
    except (BadInput, MemoryError) as error:
        sys.exit(str(error) or "out of memory")
