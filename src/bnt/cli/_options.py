"""Groups of options that several commands share, and printing of tables and progress."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import tyro

from bnt._words import SECONDS_BETWEEN_LINES, duration, say, stage_name
from bnt.cli._parsing import parse_settings, typed
from bnt.errors import BadInput

if TYPE_CHECKING:
    from pathlib import Path

    from bnt.cohort import Cohort
    from bnt.splits import Split
    from bnt.studies import Slurm, Study, Tuning, Variant
    from bnt.training import Adjustments

Settings = Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE ...")]


@dataclass(frozen=True)
class Target:
    """What is predicted."""

    label: str = "diagnosis"
    """Column of participants.tsv to predict."""
    task: Literal["auto", "classification", "regression"] = "auto"
    """Whether the label is a class or a score. auto: text and up to five different whole numbers are classes, other
    numbers scores."""
    positive: str | None = None
    """The positive class of two (sensitivity is its recall); by default the last in sorted order."""


@dataclass(frozen=True)
class Training:
    """How networks are trained."""

    recipe: str = "default"
    """How to train: default, paper, released, or best (default, then refitted on training + validation; any model)."""
    epochs: int | None = None
    """Epochs, in place of the recipe's."""
    change: Settings = ()
    """Fields of the recipe to change, for example epochs=20 lr=1e-3."""

    def changes(self) -> dict[str, Any]:
        """Return the fields of the recipe that were set."""
        return {"epochs": self.epochs, **parse_settings(self.change, "--change")}


@dataclass(frozen=True)
class Around:
    """What is done around any model, within the training set of each split."""

    harmonise: Literal["none", "combat"] = "none"
    """combat: bring the edges of sites to one mean and spread by ComBat (empirical Bayes)."""
    harmonise_keep: Annotated[str, tyro.conf.arg(metavar="AGE+SEX")] = ""
    """Columns of participants.tsv whose effects ComBat keeps, for example age+sex; never the label."""
    confounds: Annotated[str, tyro.conf.arg(metavar="AGE+SEX")] = ""
    """Columns to regress out, for example age+sex+mean_fd: of the features of linear models, of the edges of networks,
    of the decisions of networks that read series."""
    class_weight: Literal["none", "balanced"] = "none"
    """balanced: classes count alike in training, however many subjects they have."""
    threshold: Literal["0.5", "validation"] = "0.5"
    """Where the positive class begins: at 0.5, or where balanced accuracy on the validation set is highest."""

    def adjustments(self) -> Adjustments:
        """Return them as a run keeps them."""
        from bnt.training import Adjustments

        return Adjustments(
            harmonise=None if self.harmonise == "none" else self.harmonise,
            keep=self.harmonise_keep,
            confounds=self.confounds,
            class_weight=None if self.class_weight == "none" else self.class_weight,
            threshold=None if self.threshold == "0.5" else self.threshold,
        )


@dataclass(frozen=True)
class Splitting:
    """Who is trained on, selected on and tested on."""

    protocol: str = "site-stratified"
    """Protocol of the splits: site-stratified, random, kfold, leave-one-site-out, released, or a table of splits;
    nested (bnt tune): the folds of kfold, with inner folds that choose."""
    split_seed: int = 0
    """Seed of the splits (not for a table)."""


@dataclass(frozen=True)
class Splits(Splitting):
    """Who is trained on, selected on and tested on, several times."""

    splits: int = 5
    """Number of splits of the protocol; of a table, its first columns. Leave-one-site-out always has one per site."""
    split_names: tuple[str, ...] = ()
    """Splits to use in place of the first ones: columns of a table (seed100 seed101), split7 of a protocol, sites to
    leave out."""


SHARE_OF_MODELS = 0.75  # of SLURM's memory: libraries and their buffers take the rest


@dataclass(frozen=True)
class Machine:
    """Where the runs of a study are carried out."""

    engine: Literal["local", "ray", "slurm"] = "local"
    """Processes of this machine, a Ray cluster, or job arrays of SLURM."""
    jobs: int = 0
    """Runs at a time (local, slurm); 0 is one per core, and on SLURM as many as it places."""
    threads: int = 1
    """CPU threads per run."""
    device: str = "cpu"
    """cpu or cuda."""
    cache_gb: float = 8.0
    """Largest size, in GB, of what is computed once for all runs and kept in COHORT/cache, which may be deleted at any
    time; 0 keeps nothing there."""
    address: str | None = None
    """Address of the Ray cluster; by default one is started here."""
    partition: str | None = None
    """SLURM's partition; by default the cluster's."""
    minutes: int | None = None
    """Minutes after which SLURM ends a run (60)."""
    memory_gb: float | None = None
    """Memory of a run, in GB: what SLURM gives it (by default the cluster's), and beyond which classical models leave
    the features on disk and are solved by passes over them (by default half of the machine's, shared by the runs at a
    time)."""
    slurm: Settings = ()
    """Other options of sbatch, for example account=lab qos=long."""

    def processes(self) -> int:
        """Return how many runs go at a time on this machine: as asked, or as many as its cores hold."""
        if self.jobs < 0 or self.threads < 1:
            raise BadInput(f"--jobs is {self.jobs} and --threads is {self.threads}: give at least 0 and at least 1.")
        return self.jobs or max(1, len(os.sched_getaffinity(0)) // self.threads)

    def slurm_settings(self) -> Slurm | None:
        """Return what each run asks SLURM for; refuse its options with another engine."""
        given = {"partition": self.partition, "minutes": self.minutes}
        asked: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        extra = parse_settings(self.slurm, "--slurm")
        if self.engine == "slurm":
            from bnt.studies import Slurm

            return Slurm(**asked, memory_gb=self.memory_gb, at_once=self.jobs, extra=extra)
        if asked or extra:
            name = next(iter(asked), "slurm").replace("_", "-")
            raise BadInput(f"--{name} is for SLURM only: add --engine slurm, or leave it out.", name)
        return None

    def bound_gb(self) -> float | None:
        """Return about how much memory a classical model may take; None is half of the machine that runs it."""
        if self.memory_gb is not None:
            return SHARE_OF_MODELS * self.memory_gb if self.engine == "slurm" else self.memory_gb
        if self.engine != "local" or self.processes() == 1:
            return None
        from bnt.models.classical._inputs import bound_gb

        return bound_gb() / self.processes()

    def in_words(self, waiting: int) -> str:
        """Return where, or how many at a time, runs are carried out."""
        if self.engine == "ray":
            return "on Ray"
        slurm = self.slurm_settings()
        if slurm is None:
            return f"{min(self.processes(), waiting)} at a time"
        memory = "the cluster's default memory" if slurm.memory_gb is None else f"{slurm.memory_gb:g} GB"
        return f"on SLURM, each with --threads {self.threads}, --minutes {slurm.minutes} and {memory} (--memory-gb)"


def start_early(machine: Machine, cohort: Path, out: Path, models: Sequence[str]) -> None:
    """Let the libraries load beside this process, unless nothing new will be run, or another engine runs it."""
    if machine.engine == "local" and machine.processes() and (cohort / "cohort.json").is_file() and not out.exists():
        from bnt.studies._server import start_server

        start_server(machine.threads, models)


def say_task(cohort: Cohort, target: Target) -> None:
    """Say what is predicted, why, and which option changes it."""
    from bnt._words import say
    from bnt.cohort._inspect import task_sentence

    say(task_sentence(cohort.labels(target.label), target.label, target.task))


def refuse_nested(options: Splitting) -> None:
    """Refuse nested cross-validation, in a command that chooses nothing."""
    if options.protocol == "nested":
        raise BadInput(
            "--protocol nested chooses settings in inner folds, which bnt tune does; here nothing is chosen: give "
            "--protocol kfold, whose folds are those of nested.",
            "protocol",
        )


def make_splits(options: Splits, cohort: Cohort, label: str, *, inner: bool = False) -> list[Split]:
    """Return the splits that the options ask for; say where they are fewer, or leave subjects out.

    Nested cross-validation is refused where there are no ``inner`` folds.
    """
    from bnt._words import say
    from bnt.splits import named_splits
    from bnt.splits._protocols import split_notices

    asked: dict[str, Any] = {"n_splits": options.splits, "names": options.split_names}
    if not inner:
        refuse_nested(options)
    found = named_splits(cohort, label, options.protocol, seed=options.split_seed, **asked)
    for sentence in split_notices(cohort, options.protocol, found, **asked):
        say(sentence)
    return found


def of_groups_that_fit(
    variants: list[Variant], typed: tuple[str, ...], cohort: Cohort, n_train: int | None = None
) -> list[Variant]:
    """Return the variants without those of a group or pattern that the cohort does not allow; each change is said.

    What was typed by name stays as it is: where it does not fit, the study refuses it.
    """
    from bnt.studies._job import fit_variants, say_fitted

    of_groups = [variant for variant in variants if not variant.atlas and variant.name not in typed]
    kept, skipped, changed = fit_variants(cohort, of_groups, n_train)
    say_fitted(skipped, changed, say)
    fitting = {variant.name: variant for variant in kept}
    found = [fitting.get(variant.name, variant) for variant in variants if variant.name not in skipped]
    if not found:
        raise BadInput(f"No model of {', '.join(typed)} can be trained on {cohort.path}: name others.")
    return found


def study_settings(target: Target, splitting: Splitting, machine: Machine) -> dict[str, Any]:
    """Return the settings of a :class:`~bnt.studies.Study` that the shared options give."""
    return {
        "task": target.task,
        "positive": target.positive,
        "protocol": splitting.protocol,
        "threads": machine.threads,
        "device": machine.device,
        "cache_gb": machine.cache_gb,
        "memory_gb": machine.bound_gb(),
        "command": typed(),
    }


def carry_out(study: Study | Tuning, machine: Machine, refitted: Sequence[str] = (), draws: int = 0) -> dict[str, str]:
    """Run what is not done yet, with a board that shows it; return why runs failed.

    With ``refitted``, in place of its runs a study's models are fitted anew with permuted labels, ``draws`` times.
    """
    from bnt.studies._chance import run_permuted

    with Board() as board:
        where: dict[str, Any] = {"engine": machine.engine, "address": machine.address, "watch": board}
        where |= {"n_processes": machine.processes(), "slurm": machine.slurm_settings()}
        return run_permuted(cast("Study", study), refitted, draws, **where) if refitted else study.run(**where)


def print_failures(failures: dict[str, str]) -> int:
    """Print why runs failed; return the exit code."""
    for name, reason in failures.items():
        print(f"failed: {name}: {reason}")
    return 1 if failures else 0


def print_table(rows: list[dict[str, Any]]) -> None:
    """Print rows as a table, numbers to the right; columns are the keys in order of appearance."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[_shown(row.get(column)) for column in columns] for row in rows]
    widths = [max(len(c), *(len(line[i]) for line in cells)) for i, c in enumerate(columns)]
    right = [all(isinstance(row.get(c), int | float | None) for row in rows) for c in columns]
    for line in [columns, *cells]:
        parts = [v.rjust(w) if r else v.ljust(w) for v, w, r in zip(line, widths, right)]
        print("  ".join(parts).rstrip())


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    return "" if value is None else str(value)


class EpochLine:
    """A watcher for the training loop: epoch, loss, validation score, time left."""

    def __init__(self) -> None:
        self._stage = ""
        self._bar: Any = None
        self._task: Any = None
        self._started = time.monotonic()

    def __enter__(self) -> EpochLine:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"))
            self._bar = Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, stage: str, line: dict[str, Any]) -> None:
        """Show one epoch."""
        if stage != self._stage:
            self._stage, self._started = stage, time.monotonic() - line["seconds"]
            if self._bar is not None:
                self._task = self._bar.add_task(stage_name(stage), total=line["of"], note="")
        score = line["val_score"]
        note = f"loss {line['loss']:.4f}" + (f", validation score {score:.4f}" if score is not None else "")
        if self._bar is not None:
            self._bar.update(self._task, completed=line["epoch"], note=note)
            return
        left = (time.monotonic() - self._started) / line["epoch"] * (line["of"] - line["epoch"])
        say(f"{stage_name(stage)}: epoch {line['epoch']} of {line['of']}, {note}, {duration(left)} left")


class Board:
    """A watcher for a study's engine: running jobs with their newest epoch, totals, time left."""

    def __init__(self) -> None:
        self._started = self._last = time.monotonic()
        self._earlier: int | None = None
        self._done = 0
        self._live: Any = None

    def __enter__(self) -> Board:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), transient=True, refresh_per_second=2)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, running: Sequence[Any], done: int, total: int, failures: dict[str, str]) -> None:
        """Show how the study stands."""
        from bnt.studies._engine import last_line

        now = time.monotonic()
        if self._earlier is None or done < self._done:  # a new list of runs; what was done before it has no speed
            self._earlier, self._started = done, now
        self._done = done
        here = done - self._earlier
        head = f"{done} of {total} runs done"
        head += f" ({self._earlier} earlier)" if self._earlier else ""
        head += f", {len(failures)} failed" if failures else ""
        if here and done < total:
            head += f", about {duration((now - self._started) / here * (total - done))} left"
        lines = [head]
        for job in running:
            line = last_line(job)
            note = f"draw {line['draw']} of {job.draws}" if "draw" in line else ""
            if line and not note:
                score = line.get("val_score")
                note = f"epoch {line['epoch']}, loss {line['loss']:.4f}"
                note += f", validation score {score:.4f}" if score is not None else ""
            lines.append(f"  {job.name}: {note or 'starting'}")
        if self._live is not None:
            from rich.text import Text

            self._live.update(Text("\n".join(lines)))
        elif (done == total and here) or now - self._last >= 4 * SECONDS_BETWEEN_LINES:
            self._last = now
            say("; ".join(line.strip() for line in lines))
