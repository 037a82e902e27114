"""Groups of options that several commands share, each written once."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro

from bnt.cli._parsing import parse_settings
from bnt.errors import BadInput

Settings = Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE ...")]


@dataclass(frozen=True)
class Target:
    """What is predicted."""

    label: str = "diagnosis"
    """Column of participants.tsv to predict."""
    task: Literal["auto", "classification", "regression"] = "auto"
    """Whether the label is a class or a score."""
    positive: str | None = None
    """The positive class of two (sensitivity is its recall); by default the last in sorted order."""


@dataclass(frozen=True)
class Training:
    """How networks are trained."""

    recipe: str = "default"
    """How to train: default, paper, released, or best (default, then refitted on training and validation)."""
    epochs: int | None = None
    """Epochs, in place of the recipe's."""
    change: Settings = ()
    """Fields of the recipe to change, for example epochs=20 lr=1e-3."""

    def changes(self) -> dict[str, Any]:
        """Return the fields of the recipe that were set."""
        return {"epochs": self.epochs, **parse_settings(self.change, "--change")}


@dataclass(frozen=True)
class Splitting:
    """Who is trained on, selected on and tested on."""

    protocol: str = "site-stratified"
    """Protocol of the splits: site-stratified (also named paper), random, kfold, leave-one-site-out, released, or a
    table of splits."""
    split_seed: int = 0
    """Seed of the splits (not for a table)."""


@dataclass(frozen=True)
class Machine:
    """Where the runs of a study are carried out."""

    engine: Literal["local", "ray"] = "local"
    """Processes of this machine, or a Ray cluster."""
    jobs: int = 0
    """Processes at a time (local); 0 is one per core."""
    threads: int = 1
    """CPU threads per run."""
    device: str = "cpu"
    """cpu or cuda."""
    address: str | None = None
    """Address of the Ray cluster; by default one is started here."""

    def processes(self) -> int:
        """Return how many runs go at a time on this machine: as asked, or as many as its cores hold."""
        if self.jobs < 0 or self.threads < 1:
            raise BadInput(f"--jobs is {self.jobs} and --threads is {self.threads}: give at least 0 and at least 1.")
        return self.jobs or max(1, len(os.sched_getaffinity(0)) // self.threads)
