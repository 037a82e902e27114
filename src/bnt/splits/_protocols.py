"""Protocols by name, for the command line and for settings read from a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from bnt._progress import say
from bnt.cohort import Cohort
from bnt.errors import BadInput
from bnt.splits._folds import LeaveOneSiteOut, RepeatedKFold
from bnt.splits._guard import absent_classes
from bnt.splits._released import ReleasedSplit
from bnt.splits._shuffle import RandomSplit, SiteStratifiedSplit, Split
from bnt.splits._strata import is_score
from bnt.splits._table import SavedSplits, left_out, read_splits, split_names

PROTOCOLS: dict[str, type] = {
    "site-stratified": SiteStratifiedSplit,
    "random": RandomSplit,
    "kfold": RepeatedKFold,
    "leave-one-site-out": LeaveOneSiteOut,
    "released": ReleasedSplit,
}
ALIASES = {"paper": "site-stratified", "loso": "leave-one-site-out"}


class Splitter(Protocol):
    """What every protocol can do."""

    def split(self, cohort: Cohort, label: str | np.ndarray | None) -> Iterator[Split]:
        """Yield ``(train, val, test)`` positions of the cohort."""
        ...


def protocol(name: str, **settings: Any) -> Splitter:
    """Return the protocol with this name, or the splits of a file.

    Parameters
    ----------
    name : str
        ``site-stratified`` (or ``paper``), ``random``, ``kfold``, ``leave-one-site-out``, ``released``, or the path
        of a table of splits (.csv or .tsv).
    **settings
        Fields of the protocol's dataclass.

    Examples
    --------
    >>> protocol("kfold", n_folds=10)
    RepeatedKFold(n_folds=10, n_repeats=1, seed=0, validation=0.125, train_fraction=1.0)
    """
    key = ALIASES.get(name, name)
    if settings.get("seed", 0) < 0:
        raise BadInput(f"The seed of the splits is {settings['seed']}: give a whole number from 0.")
    made: type
    if key in PROTOCOLS:
        made = PROTOCOLS[key]
    elif Path(name).suffix in (".csv", ".tsv"):
        if not Path(name).is_file():
            raise BadInput(f"There is no file {name}: give a table of splits that exists.")
        made = SavedSplits
        settings = {"path": name, **settings}
    else:
        known = ", ".join([*PROTOCOLS, *ALIASES])
        raise BadInput(f"There is no protocol {name!r}: choose one of {known}, or a .csv or .tsv table of splits.")
    allowed = [f.name for f in fields(made)]
    unknown = [setting for setting in settings if setting not in allowed]
    if unknown:
        raise BadInput(f"Protocol {name!r} has no setting {unknown[0]!r}; it has {', '.join(allowed)}.")
    plain = {key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}
    return made(**plain)


def split_labels(name: str, cohort: Cohort, n_splits: int) -> list[str]:
    """Return names for the splits of a protocol: columns of a table, sites left out, or numbers."""
    if Path(name).suffix in (".csv", ".tsv"):
        return split_names(name)
    if ALIASES.get(name, name) == "leave-one-site-out":
        return [str(site) for site in np.unique(cohort.sites)]
    return [f"split{k}" for k in range(n_splits)]


def choose_split(
    cohort: Cohort, label: str | np.ndarray | None, name: str, *, which: str = "0", seed: int = 0
) -> tuple[str, Split]:
    """Return one split of a protocol and its name; say whom and what it lacks on standard error.

    Parameters
    ----------
    cohort : Cohort
    label : str
    name : str
        A protocol or a table of splits, as for :func:`protocol`.
    which : str
        Number of the split, or its name: a column of the table, a site to leave out.
    seed : int
        Seed of the protocol; a table has none.

    Returns
    -------
    name : str
    split : (train, val, test)
    """
    key = ALIASES.get(name, name)
    number = int(which) if which.isdigit() else None
    settings: dict[str, Any] = {} if key not in PROTOCOLS else {"seed": seed}
    if number is not None and key in ("site-stratified", "random", "released"):
        settings["n_splits"] = number + 1
    if number is not None and key == "kfold":
        settings["n_repeats"] = number // RepeatedKFold().n_folds + 1
    chosen = protocol(name, **settings)
    if isinstance(chosen, SavedSplits):
        names = split_names(name)
        if which not in names and number is not None and number < len(names):
            which = names[number]
        found = f"{Path(name).name}:{which}", read_splits(name, cohort, [which])[0]
        missing = left_out(cohort, [found[1]])
        if missing:
            say(f"{missing} of {len(cohort)} subjects are not in split {which} of {Path(name).name}.")
        _say_absent(cohort, label, *found)
        return found
    splits = list(chosen.split(cohort, label))
    names = split_labels(name, cohort, len(splits))
    if which in names:
        number = names.index(which)
    if number is None or number >= len(splits):
        span = ", ".join(names) if len(names) <= 30 else f"0 to {len(splits) - 1}"
        raise BadInput(f"Protocol {name!r} has no split {which!r}: choose one of {span}.")
    _say_absent(cohort, label, f"{key}:{seed}:{names[number]}", splits[number])
    return f"{key}:{seed}:{names[number]}", splits[number]


def _say_absent(cohort: Cohort, label: str | np.ndarray | None, name: str, split: Split) -> None:
    """Say which classes the split lacks; a score lacks none."""
    if not isinstance(label, str):
        return
    y = cohort.labels(label)
    if not is_score(y):
        for one in absent_classes(label, y, [(name, split)]):
            if one.part != "training":  # which training refuses
                say(f"{one}: AUROC is undefined there, if it is a class.")


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


def split_notices(
    cohort: Cohort, name: str, splits: Sequence[tuple[str, Split]], *, n_splits: int, names: Sequence[str] = ()
) -> list[str]:
    """Return sentences about splits that are fewer than asked for, and about subjects whom no split has.

    Parameters
    ----------
    cohort : Cohort
    name : str
        A protocol or a table, as for :func:`~bnt.splits.named_splits`, which made ``splits``.
    splits : sequence of (name, (train, val, test))
    n_splits : int
        How many were asked for.
    names : sequence of str
        Columns that were asked for in their place.
    """
    key = ALIASES.get(name, name)
    if key == "leave-one-site-out" and n_splits != len(splits):
        return [f"leave-one-site-out has one split a site: {len(splits)} splits, whatever --splits says."]
    if key in PROTOCOLS:
        return []
    said = []
    if not names and len(splits) < n_splits:
        count = f"{len(splits)} split{'s' * (len(splits) != 1)}"
        said.append(f"{Path(name).name} has {count}, fewer than the {n_splits} of --splits: all are used.")
    missing = left_out(cohort, [split for _, split in splits])
    if missing:
        said.append(f"{missing} of {len(cohort)} subjects are in no split of {Path(name).name}.")
    return said
