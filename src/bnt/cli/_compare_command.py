"""Compare models fairly: the same splits, the same seeds, the test part scored once, and proper statistics.

Given again after an interruption it runs only what is not done, and ends at the same numbers; given again with
more models or splits it adds them to the study.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd


@dataclass(frozen=True)
class Options:
    """Options of ``bnt compare``."""

    cohort: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="COHORT")]
    """The cohort's folder."""
    out: Path
    """The study's folder."""
    models: tuple[str, ...] = ("bnt", "svm")
    """Models of `bnt models`, each perhaps with options: bnt "bnt:n_clusters=4,recipe.lr=1e-3" svm. The first is the
    reference unless --reference names another."""
    splits: int = 5
    """How many splits of the protocol (of a table: how many columns, from the first on; leave-one-site-out always has
    one a site)."""
    split_names: tuple[str, ...] = ()
    """Columns of a table of splits to use, for example seed100 seed101."""
    protocol: str = "site-stratified"
    """Who is trained, selected and tested on: site-stratified, random, kfold, leave-one-site-out, released,
    or a table of splits."""
    split_seed: int = 0
    """Seed of the splits (not for a table)."""
    seeds: tuple[int, ...] = (0,)
    """Seeds of training; scores are averaged over them within a split."""
    label: str = "diagnosis"
    """Column of participants.tsv to predict."""
    task: Literal["auto", "classification", "regression"] = "auto"
    """Whether the label is a class or a score."""
    positive: str | None = None
    """The positive class of two (sensitivity is its recall); the last in sorted order without it."""
    recipe: str = "default"
    """How networks are trained: default, paper, released, or best (default, refitted on training and validation)."""
    epochs: int | None = None
    """Epochs, in place of the recipe's."""
    change: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE ...")] = ()
    """Fields of the recipe to change, for example epochs=20."""
    reference: str = ""
    """The model that the others are compared with, as --models names it."""
    permutations: int = 0
    """Draws of the permutation tests (of each difference, and of each model against chance); 0 leaves them out."""
    engine: Literal["local", "ray"] = "local"
    """Processes of this machine, or a Ray cluster."""
    jobs: int = 0
    """Processes at a time (local); 0 is one a core."""
    threads: int = 1
    """CPU threads of each run."""
    device: str = "cpu"
    """cpu or cuda."""
    address: str | None = None
    """Address of the Ray cluster; none starts one here."""


def run(options: Options) -> int:
    """Run the study and print its table."""
    from bnt._progress import say
    from bnt.cli._board import Board
    from bnt.cli._parsing import parse_settings, parse_variant, typed
    from bnt.cohort import load_cohort
    from bnt.splits import named_splits
    from bnt.splits._protocols import split_notices
    from bnt.studies._results import run_table, write_tables
    from bnt.studies._study import Study
    from bnt.studies._wording import duration

    cohort = load_cohort(options.cohort)
    changes = {"epochs": options.epochs, **parse_settings(options.change, "--change")}
    variants = [parse_variant(word, options.recipe, changes) for word in options.models]
    names = [v.name for v in variants]
    splits = named_splits(
        cohort,
        options.label,
        options.protocol,
        n_splits=options.splits,
        names=options.split_names,
        seed=options.split_seed,
    )
    for sentence in split_notices(cohort, options.protocol, splits, n_splits=options.splits, names=options.split_names):
        say(sentence)
    study = Study(
        options.out,
        cohort,
        options.label,
        variants,
        splits,
        seeds=options.seeds,
        task=options.task,
        positive=options.positive,
        protocol=options.protocol,
        threads=options.threads,
        device=options.device,
        command=typed(),
    )
    check_permutations(options.permutations, cohort.labels(options.label), options.label, options.task)
    reference = check_reference(options, names)
    for sentence in study.cautions:
        say(sentence)
    processes = process_count(options.jobs, options.threads)
    waiting, seconds = len(study.todo()), study.estimate(processes)
    if waiting:
        cost = "" if seconds is None or options.engine == "ray" else f", about {duration(seconds)}"
        where = "on Ray" if options.engine == "ray" else f"{min(processes, waiting)} at a time"
        say(f"{waiting} of {len(study.jobs())} runs to do, {where}{cost}.")
    else:
        say(f"All {len(study.jobs())} runs were done earlier; nothing was run.")
    with Board() as board:
        failures = study.run(engine=options.engine, n_processes=processes, address=options.address, watch=board)
    finished = run_table(options.out)
    done = [] if finished.empty else finished["variant"].unique().tolist()
    if done:
        chosen = reference if reference in done else next((name for name in names if name in done), done[0])
        _, summary, comparisons = write_tables(options.out, chosen, options.permutations)
        print((options.out / "summary.md").read_text())
        print(explanation(chosen, finished["split"].nunique(), comparisons, options.permutations))
        if "p_chance" in summary:
            chance = summary.dropna(subset="p_chance")
            shown = ", ".join(f"{v} p = {p:.4f}" for v, p in zip(chance["variant"], chance["p_chance"]))
            print(f"Against chance (labels permuted within sites): {shown}")
        print(f"Tables: {options.out}/runs.csv, summary.csv, comparisons.csv.  Page: bnt report {options.out}")
    for name, reason in failures.items():
        print(f"failed: {name}: {reason}")
    return 1 if failures else 0


def check_reference(options: Options, names: list[str]) -> str:
    """Return the variant to compare with: as given, of this command or of the study as it was before."""
    from bnt.errors import BadInput
    from bnt.studies._results import read_study

    known = list(names)
    if (options.out / "study.json").is_file():
        known += [variant["name"] for variant in read_study(options.out)["variants"]]
    if options.reference and options.reference not in known:
        raise BadInput(f"--reference {options.reference!r} is not among the models {', '.join(names)}.")
    return options.reference or names[0]


def process_count(jobs: int, threads: int) -> int:
    """Return how many runs go at a time on this machine: as asked, or as many as its cores hold."""
    import os

    from bnt.errors import BadInput

    if jobs < 0 or threads < 1:
        raise BadInput(f"--jobs is {jobs} and --threads is {threads}: give at least 0 and at least 1.")
    return jobs or max(1, len(os.sched_getaffinity(0)) // threads)


def check_permutations(n: int, y: np.ndarray, label: str, task: str) -> None:
    """Refuse permutation tests that cannot be done: they are of AUROCs of two classes."""
    from bnt.errors import BadInput
    from bnt.training._task import task_for

    if n < 0:
        raise BadInput(f"--permutations is {n}: give 0 for none, or for example 10000.")
    if not n:
        return
    found = task_for(y, task)
    if found.n_outputs != 2:
        what = "is a score" if found.kind == "regression" else f"has {found.n_outputs} classes"
        raise BadInput(f"--permutations is {n} and label {label!r} {what}: the tests are of two classes, leave it out.")


def explanation(reference: str, n_splits: int, comparisons: pd.DataFrame, permutations: int) -> str:
    """Return how to read the table, in a sentence or two: of what is in it and beside it."""
    text = f"Means ± SD over {n_splits} split{'s' if n_splits != 1 else ''}"
    if not len(comparisons):
        return f"{text}."
    text += (
        f"; differences from {reference} are paired, with the Nadeau-Bengio correction for shared subjects and Holm's "
        "for several models. comparisons.csv also has the paper's plain t-test (p_plain)"
    )
    text += " and DeLong's test on pooled predictions." if "p_delong" in comparisons else "."
    return text + (f" Permutation tests: {permutations} draws." if "p_permutation" in comparisons else "")
