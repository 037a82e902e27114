"""A job: one run of a study, as plain data that any process on any machine can carry out."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bnt.errors import BadInput
from bnt.training.recipe import Recipe

Split = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Variant:
    """A model with options and a recipe, under the name that tables show."""

    name: str
    model: str
    options: dict[str, Any] = field(default_factory=dict)
    recipe_name: str = "default"
    recipe: Recipe = field(default_factory=Recipe)


@dataclass(frozen=True)
class Job:
    """One run: a variant on one split with one seed.

    Attributes
    ----------
    cohort : str
        The cohort's folder.
    folder : str
        The run's folder.
    variant : Variant
    label, task : str
    split_name : str
    split : (train, validation, test)
        Participant ids, so that a job means the same wherever it runs.
    seed, threads, device
    """

    cohort: str
    folder: str
    variant: Variant
    label: str
    split_name: str
    split: tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]
    task: str = "auto"
    seed: int = 0
    threads: int = 1
    device: str = "cpu"

    @property
    def name(self) -> str:
        """The run's folder name: variant, split and seed."""
        return Path(self.folder).name

    def to_json(self) -> str:
        """Return the job as text."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Job:
        """Undo :meth:`to_json`."""
        data = json.loads(text)
        variant = data.pop("variant")
        variant["recipe"] = Recipe(**variant["recipe"])
        data["split"] = tuple(tuple(part) for part in data["split"])
        return Job(variant=Variant(**variant), **data)


def run_job(job: Job) -> dict[str, Any]:
    """Carry a job out, or go on with it; return the run's report."""
    from bnt.cohort import load_cohort
    from bnt.training.run import describe, train_run

    cohort = load_cohort(job.cohort)
    position = {name: i for i, name in enumerate(cohort.ids.tolist())}
    missing = [name for part in job.split for name in part if name not in position]
    if missing:
        raise BadInput(f"{job.cohort} has no participant {missing[0]!r}, whom split {job.split_name} names.")
    split = tuple(np.array([position[name] for name in part], dtype=np.int64) for part in job.split)
    config = describe(
        cohort,
        job.label,
        split,  # type: ignore[arg-type]
        model=job.variant.model,
        options=job.variant.options,
        recipe=job.variant.recipe,
        recipe_name=job.variant.recipe_name,
        seed=job.seed,
        split_name=job.split_name,
        threads=job.threads,
        device=job.device,
        task=job.task,
    )
    return train_run(cohort, split, config, job.folder, resume=True).report  # type: ignore[arg-type]
