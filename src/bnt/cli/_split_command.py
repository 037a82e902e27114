"""Make splits of a cohort and save them as a table of subjects, or check a table against the cohort.

The table has one row per subject and one column per split: train, validation, test, or empty for left out. Every
command that splits takes such a file in place of a protocol. A split in which a subject, a group or an
identical scan is on two sides is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

if TYPE_CHECKING:
    from bnt.cohort import Cohort
    from bnt.splits import Split


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
    from bnt.splits import named_splits, read_splits, save_splits

    if options.out is not None and options.out.exists() and not options.overwrite:
        raise BadInput(f"{options.out} exists already: choose another name, or pass --overwrite to replace it.")
    if options.out is not None and options.out.suffix not in (".csv", ".tsv"):
        raise BadInput(f"--out {options.out} must end in .csv or .tsv, so that --protocol can read it.")
    if options.check is not None and not options.check.is_file():
        raise BadInput(f"There is no file {options.check}: give a table of splits that exists.")
    cohort = load_cohort(options.cohort)
    if options.check is not None:
        splits = read_splits(options.check, cohort)
    else:
        splits = named_splits(cohort, options.label, options.protocol, **_settings(options))
    if options.out is not None:
        save_splits(options.out, cohort, splits)
    _print_sizes(cohort, splits)
    if options.check is not None:
        print(f"{options.check}: {len(splits)} splits, no subject, group or scan on two sides.")
    elif options.out is not None:
        print(f"{options.out}: {len(splits)} splits written.")


def _settings(options: Options) -> dict[str, Any]:
    """Return the settings that the protocol has."""
    from bnt.splits._protocols import canonical
    from bnt.splits._table import is_table

    name = canonical(options.protocol)
    if is_table(name):
        return {"n_splits": None}
    settings: dict[str, Any] = {"n_splits": None, "seed": options.seed, "train_fraction": options.train_fraction}
    if name == "kfold":
        settings |= {"n_folds": options.folds, "n_repeats": options.repeats}
    elif name != "leave-one-site-out":
        settings["n_splits"] = options.n_splits
    return settings


def _print_sizes(cohort: Cohort, splits: list[Split]) -> None:
    width = max(len("split"), *(len(split.short) for split in splits))
    print(f"{'split':<{width}}  training  validation  test  left out")
    for split in splits:
        train, val, test = split.sizes
        print(f"{split.short:<{width}}  {train:8d}  {val:10d}  {test:4d}  {len(cohort) - train - val - test:8d}")
