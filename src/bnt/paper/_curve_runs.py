"""The runs behind the training curves: one process a curve, which goes on where it was interrupted."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bnt.cohort import Cohort, load_cohort
from bnt.cohort._files import held, write_atomic
from bnt.errors import BadInput
from bnt.paper._estimate_time import BEYOND_STEPS, duration, most_steps, step_seconds
from bnt.paper._outputs import open_output
from bnt.paper._plan import Plan
from bnt.splits import Split, named_splits
from bnt.studies._engine import run_local
from bnt.studies._job import Job, Variant, configure
from bnt.training._config import RunConfig, read_config, write_toml

Lines = list[dict[str, Any]]
CURVE = "curve.jsonl"  # appears last, whole: a line an epoch
TESTING = 1.3  # the test part is scored as well


def jobs_of(plan: Plan, variants: Sequence[Variant], samplings: Sequence[str]) -> list[Job]:
    """Return every curve to draw: a variant, a sampling and a split each."""
    found = []
    for sampling, variant in product(samplings, variants):
        # Weights that are scored are those being trained: no averaging, and no end before the last epoch.
        recipe = replace(variant.recipe, ema=0.0, patience=0, select="last", n_members=1, refit=False)
        splits = named_splits(plan.cohort, plan.label, sampling, n_splits=plan.n_splits, seed=plan.split_seed)
        for i, split in enumerate(splits):
            found.append(
                Job(
                    cohort=str(Path(plan.cohort.path or ".").resolve()),
                    folder=str(plan.out.resolve() / "curves" / f"{variant.name}--{sampling}--split{i}"),
                    variant=replace(variant, recipe=recipe),
                    label=plan.label,
                    split=split,
                    seed=plan.seeds[0],
                    threads=plan.threads,
                    device=plan.device,
                )
            )
    return found


def trace(
    cohort: Cohort, split: Split, config: RunConfig, folder: Path, tell: Callable[[dict[str, Any]], None]
) -> Lines:
    """Train one network, from its checkpoint in ``folder`` if there is one, and return each epoch's scores.

    A line has the epoch, its loss, and its validation and test AUROC; ``tell`` has the loop's lines as they come.
    """
    import torch

    from bnt.training._batches import Batches, prepare
    from bnt.training._checkpoint import Checkpoint
    from bnt.training._learner import build, window_of
    from bnt.training._loop import fit, logits_of

    if config.device == "cpu":
        torch.set_num_threads(config.threads)
    torch.manual_seed(config.seed * 1000)  # as the first network of a run
    task, y = config.task, cohort.labels(config.label)
    model = build(config)
    window = window_of(model)
    train, val, test = split.rows(cohort)

    def batches(part: np.ndarray) -> Batches:
        return Batches(cohort, part, task.targets(y[part]), window=window, device=config.device)

    training, tested = batches(train), batches(test)
    prepare(model, lambda: (batch.x for batch in training.in_order()))

    class Scored(Checkpoint):
        """The epoch's test score is part of what is kept: no epoch is ever without one."""

        def save(self, state: Any) -> None:
            score = task.score(y[test], task.predictions(logits_of(state.model, tested)))
            state.history[-1]["test"] = score if np.isfinite(score) else None
            super().save(state)

    checkpoint = Scored(folder, "curve")
    state = fit(model, task, config.recipe, training, batches(val), y[val], checkpoint=checkpoint, watch=tell)
    return [
        {"epoch": line["epoch"], "validation": line["val_score"], "test": line["test"], "loss": line["loss"]}
        for line in state.history
    ]


def is_finished(job: Job, cohort: Cohort) -> bool:
    """Whether this very curve is kept; one that was made from something else is refused, never overwritten."""
    from bnt.training._run import difference

    folder = Path(job.folder)
    if not (folder / "config.toml").is_file():
        return False
    found, wanted = read_config(folder), configure(job, cohort)
    if found.digest() != wanted.digest():
        raise BadInput(
            f"{folder} holds a curve of another configuration ({difference(found, wanted)}): choose another --out."
        )
    return (folder / CURVE).is_file()


def carry_out(job: Job) -> None:
    """Train one curve, or go on with it, and keep it."""
    from threadpoolctl import threadpool_limits

    from bnt.training._checkpoint import Checkpoint

    folder = Path(job.folder)
    with threadpool_limits(job.threads):
        cohort = load_cohort(job.cohort)
        config = configure(job, cohort)
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / "config.toml", write_toml(config.to_dict()))
        with open(folder / "metrics.jsonl", "w", buffering=1) as log:  # for the one who watches
            lines = trace(cohort, job.split, config, folder, lambda line: print(json.dumps(line), file=log))
    write_atomic(folder / CURVE, "".join(json.dumps(line) + "\n" for line in lines))
    Checkpoint(folder, "curve").remove()
    (folder / "metrics.jsonl").unlink()


def announce(plan: Plan, jobs: Sequence[Job], todo: Sequence[Job]) -> None:
    """Say how many curves there are to train and about how long that will take."""
    steps = {job.variant.name: step_seconds(plan, job.variant) for job in {j.variant.name: j for j in todo}.values()}
    seconds = sum(
        TESTING * BEYOND_STEPS * most_steps(job.variant.recipe, len(job.split.train)) * steps[job.variant.name]
        for job in todo
    )
    at_once = max(1, min(plan.jobs, len(todo)))
    plan.say(f"{len(todo)} of {len(jobs)} curves to train, {at_once} at a time: about {duration(seconds / at_once)}.")


def run_curves(plan: Plan, jobs: Sequence[Job]) -> tuple[pd.DataFrame, dict[str, str]]:
    """Train what is not done yet; return all lines of the finished curves, and why others failed."""
    todo = [job for job in jobs if not is_finished(job, plan.cohort)]
    failures: dict[str, str] = {}
    if todo:
        announce(plan, jobs, todo)
        open_output(plan.out, plan.what)
        with held(plan.out / ".lock", wait=5.0), plan.watch() if plan.watch is not None else nullcontext(None) as board:
            failures = run_local(todo, plan.jobs, board, carry_out)
    for name, reason in failures.items():
        plan.say(f"failed: {name}: {reason}")
    note = plan.out / "failures.csv"
    note.unlink(missing_ok=True)
    if failures:
        write_atomic(note, pd.DataFrame(list(failures.items()), columns=["run", "reason"]).to_csv(index=False))
    collected = []
    for job in jobs:
        if job.name not in failures:
            model, sampling, split = job.name.split("--")
            collected += [{"model": model, "sampling": sampling, "split": split, **line} for line in lines_of(job)]
    if not collected:
        raise BadInput(f"No curve of {plan.out} finished: {next(iter(failures.values()))}")
    return pd.DataFrame(collected).astype({"validation": float, "test": float}), failures


def lines_of(job: Job) -> Lines:
    """Read a finished curve."""
    file = Path(job.folder) / CURVE
    try:
        return [json.loads(line) for line in file.read_text().splitlines()]
    except (OSError, ValueError) as error:
        raise BadInput(f"{file} is damaged ({error}): remove it and give the command again.") from error
