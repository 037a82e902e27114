"""Appendix D: running time of the four transformers, from measured training steps."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bnt.paper._drawing import beside_figure
from bnt.paper._estimate_time import BEYOND_STEPS, duration, step_seconds
from bnt.paper._plan import Plan, prepare
from bnt.paper._printed import NOTHING, RUNTIME, show
from bnt.paper._texts import about, changed_to_fit, not_run, rows
from bnt.studies._job import Variant

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS = {
    "san": "SAN",
    "graphormer": "Graphormer",
    "vanilla": "VanillaTF",
    "bnt": "BrainNetTF",
    "bnt-released": "BrainNetTF",
}
EPOCHS = 200
LEAST, MOST, SECONDS = 3, 40, 2.0  # steps of each model, and the time that those beyond the fewest may take
NOTES = """
{cohort}.
Ours: the median {clock} of {least} to {most} steps, as many as two seconds hold (forward, backward, Adam; batch
{batch}) on {device}, {threads} thread{s}, times the steps of 200 epochs on 70 % of the cohort, plus 15 % for
validation: an extrapolation, not a full training. The paper's are minutes on an NVIDIA Quadro RTX 8000, as printed for
{dataset}; how they were taken is not said. SAN and Graphormer are dense here, so the ratio between the models is what
can be compared.
"""


def make(plan: Plan) -> tuple[pd.DataFrame, str, Figure]:
    """Measure steps and return table, Markdown and figure."""
    # One batch size for all: a model's own recipe may have another, and a step would not be the same work.
    variants = plan.asked([Variant(m, m, plan.variant(m, m).options, plan.recipe_name, plan.recipe) for m in METHODS])
    kept, missing, changed = prepare(plan, variants)
    n = len(kept)
    plan.say(f"Training steps of {n} model{'s' * (n != 1)}, a few seconds each: about {duration(4.0 * n)} or more.")
    # Other work on the machine slows a step down; the processor's own time does not count it.
    by_processor = plan.device == "cpu" and plan.threads == 1
    clock = time.process_time if by_processor else time.perf_counter
    seconds = {v.name: step_seconds(plan, v, at_least=LEAST, at_most=MOST, seconds=SECONDS, clock=clock) for v in kept}
    found = collect(plan, [v.name for v in variants], seconds, missing)
    text = (
        "# Running time\n\n"
        + markdown(found)
        + NOTES.format(
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


def collect(plan: Plan, models: list[str], seconds: dict[str, float], missing: dict[str, str]) -> pd.DataFrame:
    """Return one row a model from the seconds of its step: ours and printed, NaN where there is none."""
    printed = RUNTIME[plan.dataset]
    n_train = int(0.7 * len(plan.cohort))
    steps = max(1, plan.recipe.steps_per_epoch(n_train))
    found: list[dict[str, Any]] = []
    for model in models:
        step = seconds.get(model, float("nan"))
        reference = printed.get(METHODS[model], NOTHING)
        found.append(
            {
                "model": model,
                "method": METHODS[model],
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


def markdown(found: pd.DataFrame) -> str:
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
    header = ["model", "paper, min", "ours, min", "paper, times BNT", "ours, times BNT", "an epoch, s", "a step, ms"]
    return rows(header, body)
