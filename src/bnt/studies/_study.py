"""A study: variants x splits x seeds, run once each, and the tables over them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bnt.cohort import Cohort
from bnt.cohort._files import InUse, held, readable, writable, write_atomic
from bnt.errors import BadInput
from bnt.models import find_entry
from bnt.models.classical._subject_matrices import DISK_GB
from bnt.splits import Split, check_split
from bnt.splits._protocols import canonical
from bnt.splits._split import check_classes
from bnt.studies._engine import Failures, Watcher, is_done, run_jobs
from bnt.studies._job import Job, Variant, configure, locked
from bnt.studies._results import check_same, folder_name, merged, read_old, read_report
from bnt.studies._slurm import Slurm
from bnt.training._config import check_data, data_digest, difference, read_config
from bnt.training._trained import clear, damage


class Study:
    """A grid of runs in one folder: ``study.json``, ``runs/``, and the tables made from them.

    A study of the same folder is resumed, also with more or fewer variants, splits or seeds: earlier ones stay in the
    study and in its tables. If the name of a variant or split now means something else, it is refused.

    Parameters
    ----------
    folder : path
    cohort : Cohort
        Opened from disk: workers open it again by its path.
    label : str
    variants : sequence of Variant
        Names must differ.
    splits : list of Split
        Shared by all variants.
    seeds : sequence of int
    command : str
        The command as typed, stored in ``study.json``.
    cache_gb : float
        Size limit of ``COHORT/cache``, which stores shared intermediate results; 0 stores nothing.
    memory_gb : float, optional
        Approximate memory limit of a run of a classical model; by default half of the machine's memory. Beyond it,
        features stay on disk.

    Attributes
    ----------
    cautions : list of str
        Warnings about undefined or misleading results: the AUROC of a split whose test set lacks a class, or classes
        whose share differs strongly between sites.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.load_cohort("cohort")
    >>> from bnt.splits import named_splits
    >>> from bnt.studies import Study, Variant
    >>> splits = named_splits(cohort, "diagnosis", "site-stratified", n_splits=2)
    >>> study = Study("two-splits", cohort, "diagnosis", [Variant("ridge", "ridge")], splits)
    >>> study.run(n_processes=1)  # the runs that failed
    {}
    """

    def __init__(
        self,
        folder: str | Path,
        cohort: Cohort,
        label: str,
        variants: Sequence[Variant],
        splits: Sequence[Split],
        *,
        seeds: Sequence[int] = (0,),
        task: str = "auto",
        positive: str | None = None,
        protocol: str = "",
        threads: int = 1,
        device: str = "cpu",
        command: str = "",
        cache_gb: float = DISK_GB,
        memory_gb: float | None = None,
    ) -> None:
        if cohort.path is None:
            raise BadInput("A study needs a cohort on disk: save it first with cohort.save(folder).")
        for what, given in (("variants", variants), ("splits", splits), ("seeds", seeds)):
            if not given:
                raise BadInput(f"The study has no {what}: give at least one.")
        self._refuse_repeated([v.name for v in variants], [split.name for split in splits], seeds)
        for split in splits:
            check_split(cohort, *split.rows(cohort))
        self.folder, self.cohort, self.label = Path(folder), cohort, label
        self.variants, self.splits, self.seeds = list(variants), list(splits), list(seeds)
        self.task, self.protocol, self.threads, self.device = task, canonical(protocol), threads, device
        if not cache_gb >= 0:
            raise BadInput(f"The cache cannot have {cache_gb} GB: give 0 for none, or a number above.", "cache_gb")
        if memory_gb is not None and not memory_gb > 0:
            raise BadInput(f"{memory_gb} GB of memory are too little: give more than 0.", "memory_gb")
        self.positive, self.command, self.cache_gb, self.memory_gb = positive, command, cache_gb, memory_gb
        self._atlases: dict[str, Cohort] = {}
        self._digests: dict[str, str] = {}
        self.site_caution = self._site_caution()
        self.cautions = self._check_classes() + ([self.site_caution] if self.site_caution else [])

    @staticmethod
    def _refuse_repeated(variants: list[str], splits: list[str], seeds: Sequence[int]) -> None:
        """Refuse what is given twice: its runs would share a folder."""
        for given, sentence in (
            (variants, "Two variants of the study have the same name, {}: give each once, or with other options."),
            (splits, "Split {} is given twice: give each split once."),
            (seeds, "Seed {} is given twice: give each seed once."),
        ):
            twice = [one for one, n in Counter(given).items() if n > 1]
            if twice:
                raise BadInput(sentence.format(twice[0]))

    def _check_classes(self) -> list[str]:
        """Refuse splits that lack a class where it is learned from; return what is undefined elsewhere."""
        from bnt.training._task import task_for

        y = self.cohort.labels(self.label)
        if task_for(y, self.task, positive=self.positive).kind != "classification":
            return []
        selecting = [
            v.name for v in self.variants if find_entry(v.model).trains_in_epochs and v.recipe.select != "last"
        ]
        return check_classes(self.cohort, self.label, self.splits, selecting)

    def _site_caution(self) -> str:
        from bnt.training._run import site_caution
        from bnt.training._task import task_for

        task = task_for(self.cohort.labels(self.label), self.task, positive=self.positive)
        return site_caution(self.cohort, self.label, task)

    def cohort_of(self, variant: Variant) -> Cohort:
        """Return the cohort in the atlas that a variant is of."""
        if not variant.atlas:
            return self.cohort
        if variant.atlas not in self._atlases:
            self._atlases[variant.atlas] = self.cohort.with_atlas(variant.atlas)
        return self._atlases[variant.atlas]

    def data_sha256(self, variant: Variant) -> str:
        """Return the digest of the scans, series, sites and labels, in the atlas that a variant is of."""
        if variant.atlas not in self._digests:
            self._digests[variant.atlas] = data_digest(self.cohort_of(variant), self.label)
        return self._digests[variant.atlas]

    def job(self, variant: Variant, split: Split, seed: int) -> Job:
        """Return one run of the study."""
        return Job(
            cohort=str(Path(self.cohort_of(variant).path or ".").resolve()),
            folder=str(self.folder.resolve() / "runs" / folder_name(variant.name, split.name, seed)),
            variant=variant,
            label=self.label,
            split=split,
            task=self.task,
            positive=self.positive,
            seed=seed,
            threads=self.threads,
            device=self.device,
            data_sha256=self.data_sha256(variant),
            cache_gb=self.cache_gb,
            memory_gb=self.memory_gb,
        )

    def jobs(self) -> list[Job]:
        """Return every run of the grid: all variants of one split before the next split."""
        return [
            self.job(variant, split, seed) for split in self.splits for seed in self.seeds for variant in self.variants
        ]

    def description(self) -> dict[str, Any]:
        """Return what the study is, as plain data."""
        from bnt.training._config import data_digest_of_0_2
        from bnt.training._task import task_for

        return {
            "cohort": str(self.cohort.path),
            "n_subjects": len(self.cohort),
            "n_rois": self.cohort.n_rois,
            "kind": self.cohort.kind,
            "data_sha256": data_digest(self.cohort, self.label),
            "data_sha256_of_0_2": data_digest_of_0_2(self.cohort, self.label),  # to resume studies of those versions
            "label": self.label,
            "task": task_for(self.cohort.labels(self.label), self.task).kind,
            "positive": self.positive,
            "protocol": self.protocol,
            "splits": [split.name for split in self.splits],
            "split_sizes": [list(split.sizes) for split in self.splits],
            "split_sha256": [split.digest() for split in self.splits],
            "seeds": self.seeds,
            "variants": [asdict(v) for v in self.variants],
            "site_caution": self.site_caution,
            "commands": [self.command] if self.command else [],
        }

    def todo(self) -> list[Job]:
        """Return the runs that are not done yet; nothing is written.

        A model that cannot be made with its options, and a folder that holds a run of another
        configuration (model, options, recipe, seed, data, index lists), are refused; a study of another
        cohort, label, task or protocol before that.
        """
        old = read_old(self.folder)
        if old is not None:
            self.check_data()
            with readable(self.folder / "study.json", "remove it; the runs beside it are kept"):
                check_same(self.folder, old, self.description())
        jobs = self.jobs()
        taken: dict[str, str] = {}
        for job in jobs:
            other = taken.setdefault(job.folder, f"{job.variant.name} on {job.split.name}")
            if other != f"{job.variant.name} on {job.split.name}":
                raise BadInput(f"{job.variant.name} on {job.split.name} and {other} would share the folder {job.name}.")
        for variant in self.variants:
            configure(self.job(variant, self.splits[0], self.seeds[0]), self.cohort_of(variant))
        return [job for job in jobs if not self.is_finished(job)]

    def check_data(self) -> None:
        """Refuse arrays that are not those of the store, all of them read: before anything is added to earlier runs."""
        for atlas in self.cohort.atlases:
            check_data(self.cohort.with_atlas(atlas), read=True)
        self._digests.clear()

    def is_finished(self, job: Job) -> bool:
        """Whether this run is finished; a run of another configuration is refused, never overwritten."""
        folder = Path(job.folder)
        broken = damage(folder) if (folder / "DONE").is_file() else None
        if not (folder / "config.toml").is_file() or (broken is not None and broken[0] == "config.toml"):
            return False
        other = difference(read_config(folder), configure(job, self.cohort_of(job.variant)))
        if other is not None:
            way = "give the same to resume it, or choose" if other.parameter else "choose"
            raise BadInput(
                f"{folder} holds a run of another configuration ({other.words}): {way} another folder for this study.",
                other.parameter,
            )
        return (folder / "DONE").is_file() and broken is None

    def run(
        self,
        *,
        engine: str = "local",
        n_processes: int = 1,
        address: str | None = None,
        slurm: Slurm | None = None,
        watch: Watcher | None = None,
    ) -> Failures:
        """Run what is not done yet; return the failures, if any, with their reasons.

        After any interruption it completes the study to the same numbers. Several processes, on several machines,
        may do so at once: they share the runs between them, and each returns when all of its own are done.
        """
        jobs, description = self.todo(), self.description()
        with writable(self.folder):
            (self.folder / "runs").mkdir(parents=True, exist_ok=True)
        with held(self.folder / ".lock"):
            # Only now: another command may have added to the study since it was looked at.
            description = merged(self.folder, description)
            write_atomic(self.folder / "study.json", json.dumps(description, indent=2) + "\n")
        jobs = [job for job in jobs if not is_done(job)]
        for job in jobs:
            if (Path(job.folder) / "DONE").is_file():
                with suppress(InUse), locked(job):
                    if not is_done(job):
                        clear(Path(job.folder))
        failures = self._run(jobs, watch, engine=engine, n_processes=n_processes, address=address, slurm=slurm)
        self.note(failures)
        return failures

    def _run(self, jobs: list[Job], watch: Watcher | None, **engine: Any) -> Failures:
        total = len(self.variants) * len(self.splits) * len(self.seeds)
        earlier = total - len(jobs)

        def watch_all(running: Sequence[Job], done: int, _: int, failures: Failures) -> None:
            if watch is not None:
                watch(running, earlier + done, total, failures)

        watch_all([], 0, total, {})
        return run_jobs(jobs, watch=watch_all, **engine)

    def note(self, failures: Failures) -> None:
        """Keep the failures beside the tables, or remove those of an earlier time."""
        file = self.folder / "failures.csv"
        with held(self.folder / ".lock"):
            file.unlink(missing_ok=True)
            if failures:
                table = pd.DataFrame(list(failures.items()), columns=["run", "reason"])
                write_atomic(file, table.to_csv(index=False))

    def estimate(self, n_processes: int = 1) -> float | None:
        """Return about how many seconds the rest will take, from runs done earlier; None where there are none."""
        spent: dict[str, list[float]] = {v.name: [] for v in self.variants}
        waiting: list[str] = []
        for job in self.jobs():
            if not is_done(job):
                waiting.append(job.variant.name)
                continue
            report = read_report(Path(job.folder))
            spent[job.variant.name].append(float(report["seconds"]))
        if any(not spent[name] for name in waiting):
            return None
        return sum(float(np.mean(spent[name])) for name in waiting) / max(1, n_processes)
