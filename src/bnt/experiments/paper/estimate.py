"""How long a study will take: one training step of each kind of model is measured before it starts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from bnt.experiments.job import Variant

if TYPE_CHECKING:
    from bnt.experiments.paper.plan import Plan
    from bnt.experiments.study import Study

BEYOND_STEPS = 1.15  # validation and reading beside the steps themselves


def step_seconds(plan: Plan, variant: Variant, repeats: int = 1) -> float:
    """Return the median time of a training step (forward, backward, Adam) on this cohort, after one to warm up."""
    import torch

    from bnt.models import create_model
    from bnt.training.batches import Batches
    from bnt.training.network import options_for, window_of

    before = torch.get_num_threads()
    torch.set_num_threads(plan.threads)
    try:
        model = create_model(
            variant.model, plan.cohort.n_rois, 2, **options_for(plan.cohort, variant.model, variant.options)
        ).to(plan.device)
        n = min(variant.recipe.batch_size, len(plan.cohort))
        rows = np.arange(n)
        target = torch.nn.functional.one_hot(torch.arange(n) % 2, 2).float()
        batches = Batches(plan.cohort, rows, target, window=window_of(model), device=plan.device)
        prepare = getattr(model, "prepare", None)
        if prepare is not None:
            prepare(batch.x for batch in batches.in_order())
        batch = next(batches.in_order(n))
        optimiser = torch.optim.Adam(model.parameters(), lr=1e-4)
        model.train()
        seconds = []
        for _ in range(repeats + 1):
            started = time.perf_counter()
            output = model(batch.x, series=batch.series, target=batch.target)
            loss = -(batch.target * output.logits.log_softmax(1)).sum()
            if output.loss is not None:
                loss = loss + output.loss
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
            seconds.append(time.perf_counter() - started)
        return float(np.median(seconds[1:]))
    finally:
        torch.set_num_threads(before)


def announce(plan: Plan, study: Study) -> float:
    """Say how many runs there are and about how long they will take; return the seconds."""
    from bnt.models import find_entry

    todo = study.todo()
    if not todo:
        plan.say(f"All {len(study.jobs())} runs are done; their tables are made again.")
        return 0.0
    measured: dict[tuple[str, str], float] = {}
    total, steps = 0.0, 0
    classical = 0
    for job in todo:
        if find_entry(job.variant.model).family != "network":
            classical += 1
            continue
        kind = (job.variant.model, str(job.variant.options.get("readout", "")))
        if kind not in measured:
            measured[kind] = step_seconds(plan, job.variant)
        recipe = job.variant.recipe
        n = max(1, len(job.split[0]) // recipe.batch_size) * recipe.epochs * recipe.n_members * (1 + recipe.refit)
        steps += n
        total += n * measured[kind] * BEYOND_STEPS
    at_once = max(1, min(plan.jobs, len(todo)))
    seconds = total / at_once
    early = ", less where training stops early" if plan.recipe.patience else ""
    plain = f", and {classical} of models without epochs (seconds to minutes each)" if classical else ""
    plan.say(
        f"{len(todo)} of {len(study.jobs())} runs to do ({plan.recipe.epochs} epochs at most), {at_once} at a time: "
        f"{steps:,} training steps, about {duration(seconds)} at the speed just measured{early}{plain}."
    )
    return seconds


def duration(seconds: float) -> str:
    """Return a length of time in words."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
