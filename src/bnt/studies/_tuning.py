"""Tuning of hyperparameters: settings are selected on validation subjects, and the test set is scored once.

For a split (train, validation, test) every trial is a run of its own: a part of ``train`` is held back to select the
epoch, the rest is trained on, and the trial is scored on ``validation``. No trial sees ``test``. The setting with the
best score is then trained on ``train``, selected on ``validation`` and tested, once.

In nested cross-validation (protocol ``nested``) the splits are folds, and a trial is one run per inner fold of
``train`` and ``validation`` together, each scored once; the mean over inner folds chooses.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bnt.cohort import Cohort
from bnt.cohort._files import held, readable, writable, write_atomic
from bnt.errors import BadInput
from bnt.splits import Split
from bnt.splits._splitters import inner_folds as folds_inside
from bnt.splits._strata import classes_of, strata_of, thinned, units_of
from bnt.studies._engine import Failures, Watcher, is_done, run_jobs
from bnt.studies._grids import PREFIX, Search, Setting, make_search, setting_name
from bnt.studies._job import REPEAT, Job, Variant, configure
from bnt.studies._results import merged, read_old, read_report, run_table
from bnt.studies._study import Study
from bnt.studies._summary import write_tables


def inner_split(cohort: Cohort, label: str, split: Split, seed: int = 0) -> Split:
    """Return the split of a trial: a part of the training set to select on, scored on the validation set.

    Sites and classes are shared out as in the outer split; groups and repeated scans stay together.
    """
    train, val, _ = split.rows(cohort)
    classes = classes_of(cohort, label)
    n_select = min(len(val), max(1, len(train) // 4))
    rng = np.random.default_rng([seed, len(train)])
    strata = strata_of(cohort.sites, classes)
    fitted = thinned(train, len(train) - n_select, units_of(cohort), strata, classes, rng)
    return Split.of(cohort, (fitted, np.setdiff1d(train, fitted), val), split.name, split.protocol)


def with_setting(base: Variant, setting: Setting, name: str) -> Variant:
    """Return a variant with some options and fields of the recipe changed."""
    recipe = {k.removeprefix(PREFIX): v for k, v in setting.items() if k.startswith(PREFIX)}
    if "epochs" in recipe:
        recipe.setdefault("min_steps", 0)  # a number of epochs that was asked for is the number of epochs
    options = {k: v for k, v in setting.items() if not k.startswith(PREFIX)}
    return replace(base, name=name, options={**base.options, **options}, recipe=replace(base.recipe, **recipe))


@dataclass
class Trial:
    """One setting on one split: how it went, and its score on the validation set, or its mean over inner folds."""

    split: str
    number: int
    setting: Setting
    jobs: list[Job]
    status: str = "waiting"
    score: float = float("nan")
    reason: str = ""


def score_of(report: dict[str, Any]) -> float:
    """Return what trials are compared by, higher is better: AUROC, or minus the squared error."""
    found = report["test"]
    return float(found["auroc"]) if "auroc" in found else -float(found["mse"])


def status_of(reason: str) -> str:
    """Return what a trial's end means: it is done, its setting fails, or the trial was lost to an accident."""
    return "done" if not reason else "lost" if reason.endswith(REPEAT) else "failed"


class Tuning:
    """A search in one folder: ``trials/``, ``trials.csv``, ``chosen.csv``, and the study of the chosen settings.

    Parameters
    ----------
    folder, cohort, label, splits, settings
        As for :class:`~bnt.studies._study.Study`; ``settings`` are its further keywords.
    base : Variant
        The model, its recipe and the options that are not searched.
    search : {"grid", "free"}
        The paper's grid, or Optuna.
    grid : dict, optional
        A grid that replaces the paper's: options, or recipe fields with the prefix ``recipe.``, and their values.
    n_trials : int
        Trials per split of a free search.
    inner_folds : int
        Number of inner folds that select the settings, with the protocol ``nested``; other protocols use the validation
        set.
    baseline : bool
        Whether the model with its default settings is also tested.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.load_cohort("cohort")
    >>> from bnt.splits import named_splits
    >>> from bnt.studies import Tuning, Variant
    >>> splits = named_splits(cohort, "diagnosis", "site-stratified", n_splits=1)
    >>> tuning = Tuning("tuned", cohort, "diagnosis", Variant("ridge", "ridge"), splits, grid={"penalty": [1.0, 10.0]})
    """

    def __init__(
        self,
        folder: str | Path,
        cohort: Cohort,
        label: str,
        base: Variant,
        splits: Sequence[Split],
        *,
        search: str = "grid",
        grid: dict[str, list[Any]] | None = None,
        n_trials: int = 20,
        inner_folds: int = 5,
        baseline: bool = True,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        self.folder, self.base, self.seed = Path(folder), base, seed
        tuned = replace(base, name=f"{base.name}-tuned")
        variants = [tuned, replace(base, name=f"{base.name}-default")][: 2 if baseline else 1]
        self.study = Study(folder, cohort, label, variants, splits, seeds=(seed,), **settings)
        self.inside = {
            split.name: folds_inside(cohort, label, split, inner_folds)
            if split.protocol == "nested"
            else [inner_split(cohort, label, split)]
            for split in splits
        }
        inner = [one for found in self.inside.values() for one in found]
        try:
            self.inner = Study(self.folder / "trials", cohort, label, [base], inner, seeds=(seed,), **settings)
        except BadInput as error:
            raise BadInput(f"In the split of a trial, made inside the training set: {error}") from error
        if self.inner.cautions:
            which = self.inner.cautions[0].replace("no test subject", "no validation subject")
            raise BadInput(f"Trials cannot be compared on validation: {which}")
        self.searches: dict[str, Search] = {
            split.name: make_search(search, base.model, n_trials, [seed, k], grid) for k, split in enumerate(splits)
        }
        self.trials: list[Trial] = []

    @property
    def source(self) -> str:
        """Where the settings come from."""
        return next(iter(self.searches.values())).source

    @property
    def n_folds(self) -> int:
        """How many runs a trial has: one, or one per inner fold."""
        return max(len(found) for found in self.inside.values())

    def n_trials(self) -> int:
        """Return how many trials there will be, impossible ones included."""
        return sum(search.n_trials for search in self.searches.values())

    def run(self, *, watch: Watcher | None = None, **engine: Any) -> Failures:
        """Run the trials, choose, test the chosen settings once, write the tables; return the failures.

        After any interruption it ends at the same numbers: each finished trial is read, not run again.
        """
        self._description()  # refuses what does not fit, before anything is made
        self.check()
        with writable(self.folder):
            (self.folder / "runs").mkdir(parents=True, exist_ok=True)
            (self.folder / "trials" / "runs").mkdir(parents=True, exist_ok=True)
        with held(self.folder / ".lock"):
            description = self._description()  # again: another command may have added to it since
            write_atomic(self.folder / "study.json", json.dumps(description, indent=2) + "\n")
        failures = self._search(watch, engine)
        chosen = self._choose()
        self._write_trials()
        finals = [j for j in self._finals(chosen) if not self.study.is_finished(j)]
        failures |= self._run_jobs(finals, watch, engine)
        self._write_chosen(chosen)
        self.study.note(failures)
        return failures

    def check(self) -> None:
        """Refuse a device that is not here, and a model that cannot be made as it is where it is to be tested."""
        from bnt.training._config import check_device

        check_device(self.study.device)
        for variant in self.study.variants[1:]:
            configure(self.study.job(variant, self.study.splits[0], self.seed), self.study.cohort)

    def _description(self) -> dict[str, Any]:
        """Describe the tested runs as a study, with what its folder had before; refuse another search there."""
        old = read_old(self.folder)
        if old is not None:
            self.study.check_data()
            if "search" not in old:
                raise BadInput(f"{self.folder} holds a study of bnt compare: choose another folder.", "out")
            models = [v["name"] for v in old.get("variants", [])]
            for what, before, now in (
                ("model", next((m for m in models if m.endswith("-tuned")), ""), self.study.variants[0].name),
                ("search", old["search"], self.source),
                ("seed", *(", ".join(map(str, s)) for s in (old.get("seeds", []), self.study.seeds))),
            ):
                if before != now:
                    before, now = before.removesuffix("-tuned"), now.removesuffix("-tuned")
                    raise BadInput(
                        f"{self.folder} holds a tuning with another {what} ({before}, not {now}): choose another "
                        "folder.",
                        "out",
                    )
        more: dict[str, Any] = {"search": self.source}
        return merged(
            self.folder, self.study.description() | more | ({"inner_folds": self.n_folds} if self.n_folds > 1 else {})
        )

    def _run_jobs(self, jobs: list[Job], watch: Watcher | None, engine: dict[str, Any]) -> Failures:
        """Run some of the search's runs; the watcher is told of all of them."""
        total = self.n_trials() * self.n_folds + len(self.study.jobs())
        earlier = sum(len(trial.jobs) for trial in self.trials if trial.status != "waiting")

        def watch_all(running: Sequence[Job], done: int, _: int, failures: Failures) -> None:
            if watch is not None:
                watch(running, earlier + done, total, failures)

        return run_jobs(jobs, watch=watch_all, **engine)

    def _search(self, watch: Watcher | None, engine: dict[str, Any]) -> Failures:
        """Ask every split's search for settings, run them, tell the scores, until no one asks for more.

        A training that failed, because its loss diverged, is a finding about its setting. A trial that was lost, to a
        kill or a full disk, is none: its split waits for the same command, or the choice would depend on the accident.
        """
        failures: Failures = {}
        while True:
            lost = self.lost()
            asked = [
                self._trial(split, number, setting)
                for split in self.study.splits
                if split.name not in lost
                for number, setting in self.searches[split.name].ask()
            ]
            if not asked:
                return failures
            wanted = [job for t in asked if t.status == "waiting" for job in t.jobs]
            jobs = {job.folder: job for job in wanted if not self.inner.is_finished(job)}
            found = self._run_jobs(list(jobs.values()), watch, engine)
            failures |= found
            for trial in asked:
                if trial.status == "waiting":
                    reasons = [found.get(job.name, "") for job in trial.jobs]
                    trial.reason = max(reasons, key=lambda why: (status_of(why) == "lost", bool(why)))
                    trial.status = status_of(trial.reason)
                    if trial.status == "done":
                        trial.score = float(np.mean([score_of(read_report(Path(job.folder))) for job in trial.jobs]))
                self.searches[trial.split].tell(trial.number, trial.score)
            self.trials += asked
            self._write_trials()

    def lost(self) -> list[str]:
        """Return the splits that wait for a trial which was lost."""
        return list(dict.fromkeys(t.split for t in self.trials if t.status == "lost"))

    def _trial(self, split: Split, number: int, setting: Setting) -> Trial:
        """Return one trial, waiting; or impossible, where the model cannot be made with its setting."""
        variant = with_setting(self.base, setting, setting_name(setting))
        jobs = [self.inner.job(variant, one, self.seed) for one in self.inside[split.name]]
        trial = Trial(split.name, number, setting, jobs)
        try:
            configure(jobs[0], self.inner.cohort)
        except BadInput as error:
            trial.status, trial.reason = "impossible", str(error)
        return trial

    def _choose(self) -> dict[str, Trial]:
        """Return the best trial of each split on validation; the earliest on ties.

        A split that was tested before keeps the setting it was tested with, even if a better one was found since: the
        test set is scored once. One that waits for a lost trial has none yet.
        """
        chosen = self._tested()
        waiting = self.lost()
        for trial in [t for t in self.trials if t.split not in chosen and t.split not in waiting]:
            best = chosen.get(trial.split)
            if np.isfinite(trial.score) and (best is None or trial.score > best.score):
                chosen[trial.split] = trial
        if not chosen:
            self._write_trials()
            why = next((f" ({t.reason.rstrip('.')})" for t in self.trials if t.reason), "")
            if waiting:
                raise BadInput(f"Trials were lost{why}: {REPEAT}")
            raise BadInput(f"No trial of {self.base.name} could be scored{why}.")
        return chosen

    def _tested(self) -> dict[str, Trial]:
        """Return the trial whose setting a split was tested with already."""
        from bnt.training._config import difference, read_config

        found: dict[str, Trial] = {}
        for split in self.study.splits:
            tuned = self.study.job(self.study.variants[0], split, self.seed)
            if not is_done(tuned):
                continue
            tested = read_config(Path(tuned.folder))
            for trial in self.trials:
                if trial.split == split.name and np.isfinite(trial.score):
                    job = replace(tuned, variant=with_setting(tuned.variant, trial.setting, tuned.variant.name))
                    if difference(tested, configure(job, self.study.cohort)) is None:
                        found.setdefault(split.name, trial)
        return found

    def _finals(self, chosen: dict[str, Trial]) -> list[Job]:
        """Return the runs that are tested: the chosen setting of each split and, beside it, the model as it is."""
        jobs = []
        for split in [one for one in self.study.splits if one.name in chosen]:
            for variant in self.study.variants:
                if variant.name.endswith("-tuned"):
                    variant = with_setting(variant, chosen[split.name].setting, variant.name)
                jobs.append(self.study.job(variant, split, self.seed))
        return jobs

    def _write_trials(self) -> None:
        rows = [
            {
                "split": t.split,
                "trial": t.number,
                "setting": setting_name(t.setting),
                "status": t.status,
                "validation_score": t.score,
                "run": " ".join(job.name for job in t.jobs) if t.status != "impossible" else "",
                "reason": t.reason,
            }
            for t in self.trials
        ]
        self._write("trials.csv", rows)

    def _write(self, name: str, rows: list[dict[str, Any]]) -> None:
        """Write rows of a table after those that it has of splits that are not asked for now."""
        file, table = self.folder / name, pd.DataFrame(rows)
        with held(self.folder / ".lock"):
            if file.is_file():
                with readable(file, "remove it; the runs beside it are kept"):
                    old = pd.read_csv(file)
                    kept = old[~old["split"].isin([split.name for split in self.study.splits])]
                table = pd.concat([kept, table], ignore_index=True) if len(kept) else table
            write_atomic(file, table.to_csv(index=False))

    def _write_chosen(self, chosen: dict[str, Trial]) -> None:
        runs = run_table(self.folder)
        if len(runs):
            names = runs["variant"].unique().tolist()
            write_tables(self.folder, next((n for n in names if n.endswith("-default")), names[0]))
        rows = []
        for name, trial in chosen.items():
            row: dict[str, Any] = {
                "split": name,
                "setting": setting_name(trial.setting),
                "validation_score": trial.score,
                "n_trials": sum(t.split == name and t.status == "done" for t in self.trials),
            }
            for variant in self.study.variants:
                found = runs[(runs["split"] == name) & (runs["variant"] == variant.name)] if len(runs) else runs
                kind = variant.name.rpartition("-")[2]
                for metric in ("auroc", "accuracy", "r", "mse"):
                    if metric in found and len(found):
                        row[f"test_{metric}_{kind}"] = found[metric].iloc[0]
            rows.append(row)
        self._write("chosen.csv", rows)


def read_search(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Read the trials of a search and what it chose."""
    advice = "repeat the bnt tune command, which writes it anew from the runs"
    tables = []
    for name, needed in (
        ("trials.csv", ("split", "setting", "status", "reason")),
        ("chosen.csv", ("split", "setting")),
    ):
        with readable(folder / name, advice):
            table = pd.read_csv(folder / name)
            table[["validation_score", *needed]], table["validation_score"].astype(float)
        tables.append(table)
    return tables[0], tables[1]
