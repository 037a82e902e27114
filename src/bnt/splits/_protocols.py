"""Protocols by name, for the command line and for settings read from a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from bnt._words import say
from bnt.cohort import Cohort
from bnt.cohort._inspect import is_score
from bnt.errors import BadInput
from bnt.splits._split import Rows, Split, SplitName, absent_classes
from bnt.splits._splitters import LeaveOneSiteOut, RandomSplit, ReleasedSplit, RepeatedKFold, SiteStratifiedSplit
from bnt.splits._table import SavedSplits, is_table, left_out, read_splits, split_names

PROTOCOLS: dict[str, type] = {
    "site-stratified": SiteStratifiedSplit,
    "random": RandomSplit,
    "kfold": RepeatedKFold,
    "nested": RepeatedKFold,  # its outer folds; bnt tune makes the inner ones
    "leave-one-site-out": LeaveOneSiteOut,
    "released": ReleasedSplit,
}
ALIASES = {"paper": "site-stratified", "loso": "leave-one-site-out"}  # older names, still read
MOST_LISTED = 30


class Splitter(Protocol):
    """What every protocol can do."""

    def split(self, cohort: Cohort, label: str | np.ndarray | None) -> Iterator[Rows]:
        """Yield ``(train, val, test)`` positions of the cohort."""
        ...


def canonical(name: str) -> str:
    """Return a protocol's own name: ``paper`` is ``site-stratified``; a table's path is returned as it is."""
    return ALIASES.get(name, name)


def protocol(name: str, **settings: Any) -> Splitter:
    """Return the protocol with this name, or the splits of a file.

    Parameters
    ----------
    name : str
        ``site-stratified``, ``random``, ``kfold``, ``nested``, ``leave-one-site-out``, ``released``, or the path
        of a table of splits (.csv or .tsv).
    **settings
        Fields of the protocol's dataclass.

    Examples
    --------
    >>> from bnt.splits import protocol
    >>> protocol("kfold", n_folds=10)
    RepeatedKFold(n_folds=10, n_repeats=1, seed=0, validation=0.125, train_fraction=1.0)
    """
    if settings.get("seed", 0) < 0:
        raise BadInput(f"The seed of the splits is {settings['seed']}: give a whole number from 0.", "split_seed")
    made: type
    if canonical(name) in PROTOCOLS:
        made = PROTOCOLS[canonical(name)]
    elif is_table(name):
        if not Path(name).is_file():
            raise BadInput(f"There is no file {name}: give a table of splits that exists.")
        made = SavedSplits
        settings = {"path": name, **settings}
    else:
        known = ", ".join(PROTOCOLS)
        raise BadInput(f"Unknown protocol {name!r}: choose one of {known}, or a .csv or .tsv table of splits.")
    allowed = [f.name for f in fields(made)]
    unknown = [setting for setting in settings if setting not in allowed]
    if unknown:
        raise BadInput(f"Protocol {name!r} has no setting {unknown[0]!r}; it has {', '.join(allowed)}.")
    plain = {key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}
    return made(**plain)


def named_splits(
    cohort: Cohort,
    label: str | np.ndarray | None,
    name: str,
    *,
    n_splits: int | None = 5,
    names: Sequence[str] = (),
    seed: int = 0,
    **settings: Any,
) -> list[Split]:
    """Return the splits of a protocol or of a table, with names that contain their source.

    Parameters
    ----------
    cohort : Cohort
    label : str, array or None
        The label to stratify by; not used for a table.
    name : str
        A protocol or a table, as for :func:`~bnt.splits.protocol`.
    n_splits : int or None
        Number of splits; None is the number in the protocol's settings. Leave-one-site-out always gives all sites.
    names : sequence of str
        The splits to return: columns of a table, ``split3`` of a protocol, or sites to leave out; by default the first
        ``n_splits``.
    seed : int
        Seed of the protocol.
    **settings
        Further fields of the protocol, such as ``train_fraction``.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.simulate_cohort(n_subjects=40, n_rois=20, n_sites=2, seed=0)
    >>> from bnt.splits import named_splits
    >>> [split.name for split in named_splits(cohort, "diagnosis", "kfold", n_splits=2)]
    ['kfold:0:split0', 'kfold:0:split1']
    """
    key = canonical(name)
    if n_splits is not None and n_splits < 1:
        raise BadInput(f"n_splits is {n_splits}: ask for at least 1.", "n_splits")
    if key not in PROTOCOLS:
        protocol(name)  # says what is wrong with a name that is neither a protocol nor a file
        return read_splits(name, cohort, list(names) or split_names(name)[:n_splits])
    if names and key != "leave-one-site-out":
        n_splits = 1 + max(_split_number(name, word) for word in names)
    allowed = {field.name: field.default for field in fields(PROTOCOLS[key])}
    if n_splits is not None and "n_splits" in allowed:
        settings.setdefault("n_splits", n_splits)
    if n_splits is not None and "n_repeats" in allowed:
        settings.setdefault("n_repeats", -(-n_splits // settings.get("n_folds", allowed["n_folds"])))
    found = protocol(name, seed=seed, **settings).split(cohort, label)
    if key == "leave-one-site-out":
        parts, short = list(found), [str(site) for site in np.unique(cohort.sites)]
    else:
        parts = list(islice(found, n_splits))
        short = [f"split{k}" for k in range(len(parts))]
    made = {word: Split.of(cohort, rows, str(SplitName(key, seed, word)), key) for word, rows in zip(short, parts)}
    absent = next((word for word in names if word not in made), None)
    if absent is not None:
        raise BadInput(f"Protocol {name!r} has no split {absent!r}: choose from {', '.join(short)}.", "split_names")
    return [made[word] for word in names] if names else list(made.values())


def _split_number(protocol: str, word: str) -> int:
    """Return the number of ``split7``."""
    if not (word.startswith("split") and word[5:].isdigit()):
        raise BadInput(
            f"Protocol {protocol!r} has no split {word!r}: they are called split0, split1, ...", "split_names"
        )
    return int(word[5:])


def choose_split(
    cohort: Cohort, label: str | np.ndarray | None, name: str, *, which: str = "0", seed: int = 0
) -> Split:
    """Return one split of a protocol or a table; say whom and what it lacks on standard error.

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
    """
    if canonical(name) not in PROTOCOLS:
        protocol(name)
        columns = split_names(name)
        if which not in columns and which.isdigit() and int(which) < len(columns):
            which = columns[int(which)]
        split = read_splits(name, cohort, [which])[0]
        missing = left_out(cohort, [split])
        if missing:
            say(f"{missing} of {len(cohort)} subjects are not in split {which} of {Path(name).name}.")
    else:
        word = which.removeprefix("split")
        number = int(word) if word.isdigit() else None
        splits = named_splits(cohort, label, name, n_splits=None if number is None else number + 1, seed=seed)
        short = [one.short for one in splits]
        if which in short:
            number = short.index(which)
        if number is None or number >= len(splits):
            span = ", ".join(short) if len(short) <= MOST_LISTED else f"0 to {len(short) - 1}"
            raise BadInput(f"Protocol {name!r} has no split {which!r}: choose one of {span}.")
        split = splits[number]
    if isinstance(label, str) and not is_score(cohort.labels(label)):
        for one in absent_classes(cohort, label, [split]):
            if one.part != "training":  # training itself refuses that
                say(f"{one}: the AUROC of that part is undefined.")
    return split


def split_notices(
    cohort: Cohort, name: str, splits: Sequence[Split], *, n_splits: int, names: Sequence[str] = ()
) -> list[str]:
    """Return sentences about splits that are fewer than asked for, and about subjects whom no split has.

    Parameters
    ----------
    cohort : Cohort
    name : str
        The protocol or table that :func:`~bnt.splits.named_splits` made ``splits`` from.
    splits : sequence of Split
    n_splits : int
        How many were asked for.
    names : sequence of str
        Columns that were asked for in their place.
    """
    key = canonical(name)
    if key == "leave-one-site-out" and not names and n_splits != len(splits):
        return [f"leave-one-site-out has one split per site: {len(splits)} splits, not {n_splits}."]
    if key in PROTOCOLS:
        return []
    said = []
    if not names and len(splits) < n_splits:
        count = f"{len(splits)} split{'s' * (len(splits) != 1)}"
        said.append(f"{Path(name).name} has {count}, fewer than {n_splits}: all are used.")
    missing = left_out(cohort, splits)
    if missing:
        said.append(f"{missing} of {len(cohort)} subjects are in no split of {Path(name).name}.")
    return said
