"""Make splits of a cohort and save them as a table of subjects, or check a table against the cohort.

In the table 0 is training, 1 validation, 2 test, and an empty cell left out. Every command that splits takes such a
file in place of a protocol. A split in which a subject, a group or an identical scan is on two sides is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

if TYPE_CHECKING:
    from bnt.cohort import Cohort
    from bnt.splits import Split, Splitter


@dataclass(frozen=True)
class Options:
    """Options of ``bnt split``."""

    cohort: tyro.conf.Positional[Path]
    """The cohort's folder."""
    label: str = "diagnosis"
    """Column of participants.tsv whose classes are shared out evenly."""
    protocol: str = "site-stratified"
    """site-stratified (or paper), random, kfold, leave-one-site-out, released, or a table of splits."""
    n_splits: int = 20
    """Number of splits (site-stratified, random, released)."""
    folds: int = 5
    """Number of folds (kfold)."""
    repeats: int = 1
    """How often all folds are drawn (kfold)."""
    seed: int = 0
    """Seed of the splits."""
    train_fraction: float = 1.0
    """Keep this share of the training part, for learning curves."""
    out: Path | None = None
    """Table to write, .csv or .tsv."""
    overwrite: bool = False
    """Replace a table that is there."""
    check: Path | None = None
    """Check this table against the cohort instead of making splits."""


def run(options: Options) -> None:
    """Make or check splits and print the sizes of their parts."""
    from bnt.cohort import load_cohort
    from bnt.errors import BadInput
    from bnt.splits import read_splits, save_splits, split_labels, split_names

    if options.out is not None and options.out.exists() and not options.overwrite:
        raise BadInput(f"{options.out} exists already: choose another name, or pass --overwrite to replace it.")
    if options.out is not None and options.out.suffix not in (".csv", ".tsv"):
        raise BadInput(f"--out {options.out} must end in .csv or .tsv, so that --protocol can read it.")
    if options.check is not None and not options.check.is_file():
        raise BadInput(f"There is no file {options.check}: give a table of splits that exists.")
    cohort = load_cohort(options.cohort)
    if options.check is not None:
        names = split_names(options.check)
        splits = read_splits(options.check, cohort)
    else:
        splits = list(_protocol(options).split(cohort, options.label))
        names = split_labels(options.protocol, cohort, len(splits))
    if options.out is not None:
        save_splits(options.out, cohort, splits, names)
    _print_sizes(cohort, names, splits)
    if options.check is not None:
        print(f"{options.check}: {len(splits)} splits, no subject, group or scan on two sides.")
    elif options.out is not None:
        print(f"{options.out}: {len(splits)} splits written.")


def _protocol(options: Options) -> Splitter:
    from bnt.splits import protocol

    name = options.protocol
    if Path(name).suffix in (".csv", ".tsv"):
        return protocol(name)
    settings: dict[str, Any] = {"seed": options.seed, "train_fraction": options.train_fraction}
    if name == "kfold":
        settings |= {"n_folds": options.folds, "n_repeats": options.repeats}
    elif name not in ("leave-one-site-out", "loso"):
        settings["n_splits"] = options.n_splits
    return protocol(name, **settings)


def _print_sizes(cohort: Cohort, names: list[str], splits: list[Split]) -> None:
    width = max(len("split"), *(len(name) for name in names))
    print(f"{'split':<{width}}  training  validation  test  left out")
    for name, parts in zip(names, splits):
        train, val, test = (len(part) for part in parts)
        print(f"{name:<{width}}  {train:8d}  {val:10d}  {test:4d}  {len(cohort) - train - val - test:8d}")
