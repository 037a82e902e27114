"""Compare models fairly: the same splits, the same seeds, the test part scored once, and proper statistics.

Given again after an interruption it runs only what is not done, and ends at the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro


@dataclass(frozen=True)
class Options:
    """Options of ``bnt compare``."""

    cohort: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="COHORT")]
    """The cohort's folder."""
    out: Path
    """The study's folder."""
    models: tuple[str, ...] = ("bnt", "svm")
    """Models of `bnt models`; the first is the reference unless --reference names another."""
    splits: int = 5
    """How many splits of the protocol (of a table: how many columns, from the first on)."""
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
    recipe: str = "default"
    """How networks are trained: default, paper or released."""
    change: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE ...")] = ()
    """Fields of the recipe to change, for example epochs=20."""
    reference: str = ""
    """The model that the others are compared with."""
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
    import os

    from bnt.cli.board import Board
    from bnt.cli.values import parse_settings
    from bnt.cohort import load_cohort
    from bnt.experiments.job import Variant
    from bnt.experiments.results import write_tables
    from bnt.experiments.study import Study
    from bnt.models import find_entry
    from bnt.splits import named_splits
    from bnt.training import find_recipe

    cohort = load_cohort(options.cohort)
    recipe = find_recipe(options.recipe, **parse_settings(options.change, "--change"))
    variants = [Variant(find_entry(m).name, m, {}, options.recipe, recipe) for m in options.models]
    splits = named_splits(
        cohort,
        options.label,
        options.protocol,
        n_splits=options.splits,
        names=options.split_names,
        seed=options.split_seed,
    )
    study = Study(
        options.out,
        cohort,
        options.label,
        variants,
        splits,
        seeds=options.seeds,
        task=options.task,
        protocol=options.protocol,
        threads=options.threads,
        device=options.device,
    )
    with Board() as board:
        failures = study.run(
            engine=options.engine,
            n_processes=options.jobs or max(1, len(os.sched_getaffinity(0)) // options.threads),
            address=options.address,
            watch=board,
        )
    write_tables(options.out, options.reference or None)
    print((options.out / "summary.md").read_text())
    print(f"Means ± SD over {len(splits)} splits; differences are paired, with the Nadeau-Bengio correction.")
    print(f"Tables: {options.out}/runs.csv, summary.csv, comparisons.csv.  Page: bnt report {options.out}")
    for name, reason in failures.items():
        print(f"failed: {name}: {reason}")
    return 1 if failures else 0
