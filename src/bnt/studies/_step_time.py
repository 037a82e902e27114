"""How long training will take: steps of a model are measured, and the steps of a recipe are counted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np

from bnt.models import create_model
from bnt.studies._job import Variant
from bnt.training._recipe import Recipe

if TYPE_CHECKING:
    from bnt.cohort import Cohort

BEYOND_STEPS = 1.15  # validation and reading beside the steps themselves


def step_seconds(
    cohort: Cohort,
    variant: Variant,
    n: int | None = None,
    *,
    threads: int = 1,
    device: str = "cpu",
    at_least: int = 1,
    at_most: int = 1,
    seconds: float = 0.0,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Return the median time of a training step (forward, backward, Adam) on a cohort, after one to warm up.

    Parameters
    ----------
    cohort : Cohort
    variant : Variant
    n : int, optional
        Subjects per batch, the first of the cohort; by default as many as the recipe's.
    threads : int
        CPU threads.
    device : str
    at_least, at_most : int
        How many steps are measured: after ``at_least`` of them no more than ``seconds`` are spent.
    seconds : float
    clock : callable
        ``time.process_time`` does not count what other processes take of the machine.
    """
    import torch

    from bnt.training._batches import Batches
    from bnt.training._describe import options_for
    from bnt.training._learner import window_of

    def now() -> float:
        if device.startswith("cuda"):
            torch.cuda.synchronize(device)  # steps are queued there: only this waits for them
        return clock()

    n = n or min(variant.recipe.batch_size, len(cohort))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
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
        return float(np.median(taken[1:]))
    finally:
        torch.set_num_threads(before)


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
