"""How long a study will take: one training step of each kind of model is measured before it starts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np

from bnt.studies._job import Variant

if TYPE_CHECKING:
    from bnt.cohort import Cohort
    from bnt.paper._plan import Plan
    from bnt.studies._study import Study
    from bnt.training._recipe import Recipe

BEYOND_STEPS = 1.15  # validation and reading beside the steps themselves


def step_seconds(
    plan: Plan,
    variant: Variant,
    *,
    at_least: int = 1,
    at_most: int = 1,
    seconds: float = 0.0,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Return the median time of a training step (forward, backward, Adam) on this cohort, after one to warm up.

    Parameters
    ----------
    plan : Plan
    variant : Variant
    at_least, at_most : int
        How many steps are measured: after ``at_least`` of them no more than ``seconds`` are spent.
    seconds : float
    clock : callable
        ``time.process_time`` does not count what other processes take of the machine.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(plan.threads)
    try:
        n = min(variant.recipe.batch_size, len(plan.cohort))
        taken = training_steps(
            plan.cohort,
            variant,
            n,
            device=plan.device,
            at_least=at_least,
            at_most=at_most,
            seconds=seconds,
            clock=clock,
        )
        return float(np.median(taken))
    finally:
        torch.set_num_threads(before)


def training_steps(
    cohort: Cohort,
    variant: Variant,
    n: int,
    *,
    device: str = "cpu",
    at_least: int = 1,
    at_most: int = 1,
    seconds: float = 0.0,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Return the times of training steps on the first ``n`` subjects, after one to warm up; as :func:`step_seconds`."""
    import torch

    from bnt.models import create_model
    from bnt.training._batches import Batches
    from bnt.training._learner import options_for, window_of

    def now() -> float:
        if device.startswith("cuda"):
            torch.cuda.synchronize(device)  # steps are queued there: only this waits for them
        return clock()

    options = options_for(cohort, variant.model, variant.options)
    model = create_model(variant.model, cohort.n_rois, 2, **options).to(device)
    target = torch.nn.functional.one_hot(torch.arange(n) % 2, 2).float()
    batches = Batches(cohort, np.arange(n), target, window=window_of(model), device=device)
    prepare = getattr(model, "prepare", None)
    if prepare is not None:
        prepare(batch.x for batch in batches.in_order())
    batch = next(batches.in_order(n))
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-4)
    model.train()
    taken: list[float] = []  # the first is to warm up
    while len(taken) <= at_least or (len(taken) <= at_most and sum(taken[1:]) < seconds):
        started = now()
        output = model(batch.x, series=batch.series, target=batch.target)
        loss = -(batch.target * output.logits.log_softmax(1)).sum()
        if output.loss is not None:
            loss = loss + output.loss
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        taken.append(now() - started)
    return taken[1:]


def most_epochs(recipe: Recipe, n_train: int) -> int:
    """Return how many epochs are made at most on ``n_train`` subjects: small cohorts need more for ``min_steps``."""
    return recipe.for_steps(recipe.steps_per_epoch(n_train)).epochs


def most_steps(recipe: Recipe, n_train: int, n_val: int = 0) -> int:
    """Return how many steps a run takes at most: members, and each again with the validation part where refitted."""
    epochs = most_epochs(recipe, n_train)
    selected = 0 if recipe.refit and recipe.select == "last" else epochs * recipe.steps_per_epoch(n_train)
    again = epochs * recipe.steps_per_epoch(n_train + n_val) if recipe.refit else 0
    return recipe.n_members * (selected + again)


def epochs_in_words(numbers: Iterable[int]) -> str:
    """Return ``1 epoch``, ``12 epochs``, or ``12 to 66 epochs`` where numbers differ."""
    found = sorted(set(numbers))
    if found[0] != found[-1]:
        return f"{found[0]} to {found[-1]} epochs"
    return f"{found[0]} epoch{'s' * (found[0] != 1)}"


def announce(plan: Plan, study: Study) -> float:
    """Say how many runs there are and about how long they will take; return the seconds."""
    from bnt.models import find_entry

    todo = study.todo()
    if not todo:
        plan.say(f"All {len(study.jobs())} runs are done; their tables are made again.")
        return 0.0
    measured: dict[tuple[str, str], float] = {}
    total, steps = 0.0, 0
    networks = [job for job in todo if find_entry(job.variant.model).trains_in_epochs]
    for job in networks:
        kind = (job.variant.model, str(job.variant.options.get("readout", "")))
        if kind not in measured:
            measured[kind] = step_seconds(plan, job.variant)
        n = most_steps(job.variant.recipe, len(job.split.train), len(job.split.validation))
        steps += n
        total += n * measured[kind] * BEYOND_STEPS
    at_once = max(1, min(plan.jobs, len(todo)))
    said = f"{len(todo)} of {len(study.jobs())} runs to do"
    if networks:
        epochs = epochs_in_words(most_epochs(job.variant.recipe, len(job.split.train)) for job in networks)
        early = any(job.variant.recipe.patience for job in networks)
        said += f" ({epochs} at most), {at_once} at a time: {steps:,} training steps, about "
        said += f"{duration(total / at_once)} at the speed just measured"
        said += ", less where training stops early" if early else ""
    else:
        said += f", {at_once} at a time"
    classical = len(todo) - len(networks)
    if classical:
        said += f", and {classical}" if networks else ", all"
        said += " of models without epochs (seconds to minutes each)"
    plan.say(said + ".")
    return total / at_once


def duration(seconds: float) -> str:
    """Return a length of time in words."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
