"""Appendix D: running time of the four transformers, from measured training steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bnt.experiments.job import Variant
from bnt.experiments.paper.drawing import beside_figure
from bnt.experiments.paper.estimate import BEYOND_STEPS, duration, step_seconds
from bnt.experiments.paper.plan import Plan, runnable
from bnt.experiments.paper.printed import NOTHING, RUNTIME, show
from bnt.experiments.paper.texts import circumstances, rows, skipped

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS = {
    "san": "SAN",
    "graphormer": "Graphormer",
    "vanilla": "VanillaTF",
    "bnt": "BrainNetTF",
    "bnt-released": "BrainNetTF",
}
EPOCHS, REPEATS = 200, 3
NOTES = """
Ours: the median of {repeats} steps (forward, backward, Adam; batch {batch}) on {device}, {threads} thread{s}, times the
steps of 200 epochs on 70 % of the cohort, plus 15 % for validation: an extrapolation, not a full training. The paper's
are minutes on an NVIDIA Quadro RTX 8000; how they were taken is not said. SAN and Graphormer are dense here, so the
ratio between the models is what can be compared.
"""


def make(plan: Plan) -> tuple[pd.DataFrame, str, Figure]:
    """Measure steps and return table, Markdown and figure."""
    plan.say(f"{REPEATS + 1} training steps of each of {len(METHODS)} models: a minute or so.")
    # One batch size for all: a model's own recipe may have another, and a step would not be the same work.
    variants = [
        Variant(m, m, plan.variant(m, m).options, plan.recipe_name, plan.recipe)
        for m in METHODS
        if not plan.only or m in plan.only
    ]
    kept, missing = runnable(plan.cohort, variants)
    printed = RUNTIME[plan.dataset]
    steps = max(1, int(0.7 * len(plan.cohort)) // plan.recipe.batch_size)
    seconds = {v.name: step_seconds(plan, v, REPEATS) for v in kept}
    base = seconds.get("bnt", float("nan"))
    found: list[dict[str, Any]] = []
    for v in variants:
        step = seconds.get(v.name, float("nan"))
        reference = printed.get(METHODS[v.model], NOTHING)
        found.append(
            {
                "model": v.model,
                "method": METHODS[v.model],
                "step_seconds": step,
                "epoch_seconds": step * steps * BEYOND_STEPS,
                "minutes_200_epochs": step * steps * EPOCHS * BEYOND_STEPS / 60,
                "times_bnt": step / base,
                "printed_minutes": reference[0],
                "printed_minutes_sd": reference[1],
                "printed_times_bnt": reference[0] / printed["BrainNetTF"][0],
                "missing": missing.get(v.name, ""),
            }
        )
    table = pd.DataFrame(found)
    body = [
        [
            f"`{one['model']}`",
            show((one["printed_minutes"], one["printed_minutes_sd"]), 2),
            f"{one['minutes_200_epochs']:.1f}",
            f"{one['printed_times_bnt']:.1f}",
            f"{one['times_bnt']:.1f}",
            duration(one["epoch_seconds"]) if np.isfinite(one["epoch_seconds"]) else "–",
            f"{1000 * one['step_seconds']:.0f}",
        ]
        for one in found
    ]
    header = ["model", "paper, min", "ours, min", "paper, times BNT", "ours, times BNT", "an epoch", "a step, ms"]
    text = (
        "# Running time\n\n"
        + rows(header, body)
        + circumstances(plan)
        + NOTES.format(
            repeats=REPEATS,
            batch=plan.recipe.batch_size,
            device=plan.device,
            threads=plan.threads,
            s="s" * (plan.threads != 1),
        )
        + skipped(missing)
    )
    ours = np.array([[one["minutes_200_epochs"], np.nan] for one in found])
    theirs = np.array([[one["printed_minutes"], one["printed_minutes_sd"]] for one in found])
    names = [str(one["model"]) for one in found]
    return table, text, beside_figure(names, ours, theirs, "minutes for 200 epochs", log=True)
