"""The splits of a study, each with its name."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from bnt.cohort import Cohort
from bnt.errors import BadInput
from bnt.splits.folds import RepeatedKFold
from bnt.splits.protocols import ALIASES, PROTOCOLS, protocol, split_labels
from bnt.splits.shuffle import Split
from bnt.splits.table import read_splits, split_names


def named_splits(
    cohort: Cohort, label: str, name: str, *, n_splits: int = 5, names: Sequence[str] = (), seed: int = 0
) -> list[tuple[str, Split]]:
    """Return splits of a protocol, or columns of a table of splits, with names that say where they come from.

    Parameters
    ----------
    cohort : Cohort
    label : str
    name : str
        A protocol or a table, as for :func:`~bnt.splits.protocol`.
    n_splits : int
        How many (leave-one-site-out gives all its sites, whatever this says).
    names : sequence of str
        Columns of a table; the first ``n_splits`` without it.
    seed : int
        Seed of the protocol.
    """
    key = ALIASES.get(name, name)
    if n_splits < 1:
        raise BadInput(f"{n_splits} splits were asked for: ask for at least 1.")
    if key not in PROTOCOLS:
        protocol(name)  # says what is wrong with a name that is neither a protocol nor a file
        chosen = list(names) or split_names(name)[:n_splits]
        return [(f"{Path(name).name}:{c}", s) for c, s in zip(chosen, read_splits(name, cohort, chosen))]
    settings: dict[str, Any] = {"seed": seed}
    if key in ("site-stratified", "random", "released"):
        settings["n_splits"] = n_splits
    if key == "kfold":
        settings["n_repeats"] = -(-n_splits // RepeatedKFold().n_folds)
    splits = protocol(name, **settings).split(cohort, label)
    found = list(splits) if key == "leave-one-site-out" else list(islice(splits, n_splits))
    return [(f"{key}:{seed}:{shown}", s) for shown, s in zip(split_labels(name, cohort, len(found)), found)]
