"""Reproduce a table or figure of the paper: a CSV, a Markdown table with the printed numbers beside ours, and a figure.

It says how long it will take before it starts. Given again after an interruption it runs only what is not done.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

What = Literal[
    "table1",
    "table2",
    "figure3a",
    "figure3b",
    "figure4",
    "curves",
    "features",
    "learning-curve",
    "runtime",
    "complexity",
    "parameters",
    "difference",
    "theory",
    "all",
]


@dataclass(frozen=True)
class Options:
    """Options of ``bnt reproduce``."""

    what: Annotated[What, tyro.conf.Positional, tyro.conf.arg(metavar="WHAT")]
    """table1 table2 figure3a figure3b figure4 curves features learning-curve runtime complexity parameters difference
    theory, or all, each in a folder of its own."""
    cohort: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="COHORT")]
    """The cohort's folder."""
    out: Path
    """The study's folder."""
    protocol: str = "paper"
    """Who is trained, selected and tested on: paper (site-stratified, repaired), released (the authors' splitter),
    leave-one-site-out, kfold, random, or a table of splits."""
    preset: Literal["quick", "standard", "full"] = "standard"
    """quick: 2 splits, 8 epochs. standard: 5 splits, our recipe, for every network up to 40 epochs, stopped after 10
    without a better smoothed validation AUROC. full: 20 splits, the paper's recipe, 200 epochs."""
    splits: int | None = None
    """How many splits, in place of the preset's."""
    epochs: int | None = None
    """Epochs at most, in place of the preset's."""
    label: str = "diagnosis"
    """Column of participants.tsv to predict."""
    only: tuple[str, ...] = ()
    """Only these rows of a table, by model or variant, for example fbnetgen fbnetgen-released svm."""
    model: Literal["bnt", "bnt-released"] = "bnt"
    """The model of figure3a, figure3b, figure4 and difference: as the equations read, or as the authors' code."""
    change: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE ...")] = ()
    """Fields of the recipe to change, for example batch_size=64."""
    sizes: tuple[int, ...] = (50, 100, 200, 400)
    """Numbers of ROIs that complexity is measured at."""
    split_seed: int = 0
    """Seed of the splits (not for a table)."""
    seeds: tuple[int, ...] = (0,)
    """Seeds of training; scores are averaged over them within a split."""
    jobs: int = 0
    """Processes at a time; 0 is one a core."""
    threads: int = 1
    """CPU threads of each run."""
    device: str = "cpu"
    """cpu or cuda."""
    engine: Literal["local", "ray"] = "local"
    """Processes of this machine, or a Ray cluster."""
    address: str | None = None
    """Address of the Ray cluster; none starts one here."""


def run(options: Options) -> int:
    """Reproduce and print the table."""
    from bnt._progress import say
    from bnt.cli._board import Board
    from bnt.cli._compare_command import process_count
    from bnt.cli._parsing import parse_settings, typed
    from bnt.cohort import load_cohort
    from bnt.errors import BadInput
    from bnt.paper._plan import Plan
    from bnt.paper._reproduce import reproduce

    for name in ("splits", "epochs"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise BadInput(f"--{name} is {value}: ask for at least 1.")
    if min(options.sizes, default=0) < 10 or len(set(options.sizes)) < len(options.sizes):
        raise BadInput(
            f"--sizes is {' '.join(map(str, options.sizes))}: give different numbers of ROIs, each 10 or more."
        )
    plan = Plan(
        cohort=load_cohort(options.cohort),
        out=options.out,
        label=options.label,
        protocol=options.protocol,
        preset=options.preset,
        splits=options.splits,
        epochs=options.epochs,
        changes=parse_settings(options.change, "--change"),
        model=options.model,
        only=options.only,
        sizes=options.sizes,
        jobs=process_count(options.jobs, options.threads),
        threads=options.threads,
        device=options.device,
        engine=options.engine,
        address=options.address,
        split_seed=options.split_seed,
        seeds=options.seeds,
        command=typed(),
        watch=Board,
        say=say,
    )
    files = reproduce(options.what, plan)
    for file in files:
        if file.suffix == ".md":
            print(file.read_text())
    print("Written: " + ", ".join(str(file) for file in files))
    failed = [file.parent / "failures.csv" for file in files if file.suffix == ".csv"]
    return 1 if any(file.is_file() for file in failed) else 0
