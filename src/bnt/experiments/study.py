"""A study: variants x splits x seeds, run once each, and the tables over them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from bnt.cohort import Cohort
from bnt.cohort.atomic import write_atomic
from bnt.errors import BadInput
from bnt.experiments.engine import Outcome, Watcher, is_done, run_local, run_ray
from bnt.experiments.job import Job, Split, Variant
from bnt.splits import check_split


def folder_name(variant: str, split: str, seed: int) -> str:
    """Return a run's folder name: readable, and safe on any file system."""
    words = "--".join([variant, split.rpartition(":")[2], f"seed{seed}"])
    return re.sub(r"[^A-Za-z0-9._=+-]+", "_", words)


class Study:
    """A grid of runs in one folder: ``study.json``, ``runs/``, and the tables made from them.

    Parameters
    ----------
    folder : path
    cohort : Cohort
        Opened from disk: workers open it again by its path.
    label : str
    variants : sequence of Variant
        Names must differ.
    splits : list of (name, (train, validation, test))
        Shared by all variants.
    seeds : sequence of int
    """

    def __init__(
        self,
        folder: str | Path,
        cohort: Cohort,
        label: str,
        variants: Sequence[Variant],
        splits: Sequence[tuple[str, Split]],
        *,
        seeds: Sequence[int] = (0,),
        task: str = "auto",
        protocol: str = "",
        threads: int = 1,
        device: str = "cpu",
    ) -> None:
        if cohort.path is None:
            raise BadInput("A study needs a cohort on disk: save it first with cohort.save(folder).")
        names = [v.name for v in variants]
        if len(set(names)) != len(names):
            raise BadInput(f"Two variants of the study have the same name: {names}.")
        for _, split in splits:
            check_split(cohort, *split)
        self.folder, self.cohort, self.label = Path(folder), cohort, label
        self.variants, self.splits, self.seeds = list(variants), list(splits), list(seeds)
        self.task, self.protocol, self.threads, self.device = task, protocol, threads, device

    def jobs(self) -> list[Job]:
        """Return every run of the grid: all variants of one split before the next split."""
        found = []
        for split_name, split in self.splits:
            ids = tuple(tuple(self.cohort.ids[np.asarray(part)].tolist()) for part in split)
            for seed in self.seeds:
                found += [
                    Job(
                        cohort=str(Path(self.cohort.path or ".").resolve()),
                        folder=str(self.folder.resolve() / "runs" / folder_name(v.name, split_name, seed)),
                        variant=v,
                        label=self.label,
                        split_name=split_name,
                        split=ids,  # type: ignore[arg-type]
                        task=self.task,
                        seed=seed,
                        threads=self.threads,
                        device=self.device,
                    )
                    for v in self.variants
                ]
        return found

    def description(self) -> dict[str, Any]:
        """Return what the study is, as plain data."""
        sizes = [[len(part) for part in split] for _, split in self.splits]
        return {
            "cohort": str(self.cohort.path),
            "n_subjects": len(self.cohort),
            "n_rois": self.cohort.n_rois,
            "kind": self.cohort.kind,
            "label": self.label,
            "protocol": self.protocol,
            "splits": [name for name, _ in self.splits],
            "split_sizes": sizes,
            "seeds": self.seeds,
            "variants": [asdict(v) for v in self.variants],
        }

    def run(
        self,
        *,
        engine: str = "local",
        n_processes: int = 1,
        address: str | None = None,
        watch: Watcher | None = None,
    ) -> Outcome:
        """Run what is not done yet; return the failures, if any, with their reasons.

        Given again after any interruption it completes the study to the same numbers.
        """
        try:
            (self.folder / "runs").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(f"{self.folder} cannot be written: {error.strerror}.") from error
        write_atomic(self.folder / "study.json", json.dumps(self.description(), indent=2) + "\n")
        todo = [job for job in self.jobs() if not is_done(job) or not self._same(job)]
        if not todo:
            return {}
        if engine == "ray":
            return run_ray(todo, address, watch)
        if engine != "local":
            raise BadInput(f"There is no engine {engine!r}; there are local and ray.")
        return run_local(todo, n_processes, watch)

    def _same(self, job: Job) -> bool:
        """Whether a finished run has this job's configuration; another one is refused, never overwritten."""
        from bnt.training.config import read_config

        found = read_config(Path(job.folder))
        wanted = (job.variant.model, job.variant.recipe, job.seed, job.label)
        if (found.model, found.recipe, found.seed, found.label) != wanted:
            raise BadInput(f"{job.folder} holds a run of another configuration: choose another --out for this study.")
        return True
