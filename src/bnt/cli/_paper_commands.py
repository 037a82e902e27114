"""The commands about the paper: reproduce and theory; each class is the options of one command."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from bnt.cli._options import Machine, Settings, Splitting

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
class Reproduce:
    """Reproduce a table or figure of the paper: a CSV, a Markdown table of printed numbers beside ours, and a figure.

    It says how long it will take before it starts. After an interruption the same command resumes where it stopped.
    """

    what: Annotated[What, tyro.conf.Positional, tyro.conf.arg(metavar="WHAT")]
    """table1 table2 figure3a figure3b figure4 curves features learning-curve runtime complexity parameters difference
    theory, or all (each in a folder of its own)."""
    cohort: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="COHORT")]
    """The cohort's folder."""
    out: Path
    """Folder of the study."""
    preset: Literal["quick", "standard", "full"] = "standard"
    """quick: 2 splits, 8 epochs. standard: 5 splits, our recipe, at most 40 epochs per network, stopped after 10
    without a better smoothed validation AUROC. full: 20 splits, the paper's recipe, 200 epochs."""
    splits: int | None = None
    """Number of splits, in place of the preset's."""
    epochs: int | None = None
    """Most epochs, in place of the preset's."""
    label: str = "diagnosis"
    """Column of participants.tsv to predict."""
    only: tuple[str, ...] = ()
    """Only these rows of a table, by model or variant, for example fbnetgen fbnetgen-released svm."""
    model: Literal["bnt", "bnt-released"] = "bnt"
    """The model of figure3a, figure3b, figure4 and difference: as in the equations, or as in the authors' code."""
    change: Settings = ()
    """Fields of the recipe to change, for example batch_size=64."""
    sizes: tuple[int, ...] = (50, 100, 200, 400)
    """Numbers of ROIs at which complexity is measured."""
    seeds: tuple[int, ...] = (0,)
    """Seeds of training; scores are averaged over them within a split."""
    splitting: Annotated[Splitting, tyro.conf.arg(name="")] = Splitting()
    machine: Annotated[Machine, tyro.conf.arg(name="")] = Machine()

    def run(self) -> int:
        """Reproduce and print the table."""
        from bnt._progress import say
        from bnt.cli._board import Board
        from bnt.cli._parsing import parse_settings, typed
        from bnt.cohort import load_cohort
        from bnt.paper import reproduce
        from bnt.paper._plan import Plan

        machine = self.machine
        plan = Plan(
            cohort=load_cohort(self.cohort),
            out=self.out,
            label=self.label,
            protocol=self.splitting.protocol,
            preset=self.preset,
            splits=self.splits,
            epochs=self.epochs,
            changes=parse_settings(self.change, "--change"),
            model=self.model,
            only=self.only,
            sizes=self.sizes,
            jobs=machine.processes(),
            threads=machine.threads,
            device=machine.device,
            engine=machine.engine,
            address=machine.address,
            slurm=machine.slurm_settings(),
            split_seed=self.splitting.split_seed,
            seeds=self.seeds,
            command=typed(),
            watch=Board,
            say=say,
        )
        files = reproduce(self.what, plan)
        for file in files:
            if file.suffix == ".md":
                print(file.read_text())
        print("Written: " + ", ".join(str(file) for file in files))
        failed = [file.parent / "failures.csv" for file in files if file.suffix == ".csv"]
        return 1 if any(file.is_file() for file in failed) else 0


@dataclass(frozen=True)
class Theory:
    """Check the paper's two theorems by quadrature and Monte Carlo, and say in plain words what holds.

    It says how long it will take, and needs no data.
    """

    out: Path | None = None
    """Write theory.csv, theory.md, theory.png and theory.pdf to this folder."""

    def run(self) -> None:
        """Compute, print the short version, and write the page if asked to."""
        from bnt._progress import say
        from bnt.paper._theory_report import expected_seconds, find, short, write_theory
        from bnt.studies._wording import duration

        expected = duration(expected_seconds())
        say(f"Quadrature, Monte Carlo and gradient ascent: about {expected} at the speed just measured.")
        found = find() if self.out is None else write_theory(self.out)
        print(short(found))
        if self.out is not None:
            print(f"Page, numbers and figure: {self.out}/theory.md, theory.csv, theory.png, theory.pdf")
