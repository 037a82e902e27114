"""Splits by name: of a protocol, or of a table with a row per subject and a column per split.

A cell is train, validation, test, or empty for left out. A run's own ``splits.csv`` is such a table with one column.
Tables with 0, 1, 2 in place of the words, and the ``splits.csv`` of bnt 0.1.0 (whose column is called ``part``), are
read as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from bnt._words import say
from bnt.cohort import Cohort
from bnt.cohort._inspect import is_score
from bnt.errors import BadInput
from bnt.splits._split import PARTS, Rows, Split, SplitName, absent_classes, check_split
from bnt.splits._splitters import LeaveOneSiteOut, RandomSplit, ReleasedSplit, RepeatedKFold, SiteStratifiedSplit

ID_COLUMNS = ("participant_id", "file_id", "subject_id", "id")
WORDS = {"0": "train", "1": "validation", "2": "test", "": "", **{part: part for part in PARTS}}
WORDS |= {"training": "train", "val": "validation", "valid": "validation"}


def is_table(name: str) -> bool:
    """Whether a protocol's name is the path of a table of splits.

    Examples
    --------
    >>> is_table("splits.csv"), is_table("kfold")
    (True, False)
    """
    return Path(name).suffix in (".csv", ".tsv")


def split_names(path: str | Path) -> list[str]:
    """Return the names of the splits in a table."""
    return list(_read(Path(path)).columns[1:])


def read_splits(path: str | Path, cohort: Cohort | None = None, names: Sequence[str] | None = None) -> list[Split]:
    """Read splits by subject id and check them.

    The first column holds ids: those of the cohort or, if the cohort's participants table has a column of that name
    (such as ``file_id``), the ids there. Subjects of the cohort whom the table does not list, or lists with an empty
    cell, are left out of the split. A subject listed but not in the cohort is refused.

    Parameters
    ----------
    path : path
        Comma- or tab-separated: one column per split with train, validation, test (or 0, 1, 2) or nothing.
    cohort : Cohort, optional
        Without it the ids are those of the table, and nothing is checked.
    names : sequence of str, optional
        Columns to read; all if not given.

    Returns
    -------
    list of Split
        In the cohort's order of subjects.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.simulate_cohort(n_subjects=40, n_rois=20, n_sites=2, seed=0)
    >>> from bnt.splits import named_splits, read_splits, save_splits
    >>> save_splits("splits.csv", cohort, named_splits(cohort, "diagnosis", "random", n_splits=2))
    >>> splits = read_splits("splits.csv", cohort)
    """
    path = Path(path)
    table = _read(path)
    wanted = list(table.columns[1:]) if names is None else [str(name) for name in names]
    unknown = [name for name in wanted if name not in table.columns[1:]]
    if unknown:
        raise BadInput(f"{path} has no split {unknown[0]!r}; it has {', '.join(table.columns[1:])}.")
    ids = table.iloc[:, 0].str.strip().to_numpy(dtype=object)
    order = np.arange(len(ids))
    if cohort is not None:
        rows = _positions(path, table, cohort)
        ids, order = cohort.ids[rows], np.argsort(rows)
    out = []
    for name in wanted:
        if name.lower() == "fold" and table[name].str.strip().str.fullmatch(r"[0-9.]*").all():
            raise BadInput(
                f"{path} has numbers in its column {name}, which may be those of folds: use --protocol kfold, or write "
                "train, validation and test there."
            )
        side = sides(f"{path}, split {name}", table[name], table.iloc[:, 0]).to_numpy()[order]
        train, validation, test = (tuple(ids[order][side == part].tolist()) for part in PARTS)
        split = Split(str(SplitName(path.name, None, name)), train, validation, test, str(path))
        if cohort is not None:
            try:
                check_split(cohort, *split.rows(cohort))
            except BadInput as error:
                raise BadInput(f"{path}, split {name}: {error}") from error
        out.append(split)
    return out


def left_out(cohort: Cohort, splits: Sequence[Split]) -> int:
    """Return how many subjects of the cohort are in no set of any of the splits."""
    seen = {name for split in splits for part in split.parts.values() for name in part}
    return len(set(cohort.ids.tolist()) - seen)


def read_cells(path: Path) -> pd.DataFrame:
    """Return a table of text, separated by commas, semicolons or tabs."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read as a table of splits ({error}).") from error
    separator = max(",;\t", key=text.partition("\n")[0].count)
    try:
        table = pd.read_csv(StringIO(text), sep=separator, dtype=str, keep_default_na=False)
    except (ValueError, pd.errors.ParserError) as error:
        raise BadInput(f"{path} is not a table of splits: {error}.") from error
    return table.rename(columns=str.strip)


def _read(path: Path) -> pd.DataFrame:
    return wide_table(path, read_cells(path))


def wide_table(path: Path, table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with one row per subject and one column per split; refuse any other."""
    if table.shape[1] < 2 or table.columns[0] not in ID_COLUMNS:
        raise BadInput(
            f"{path} is not a table of splits: its first column must be one of {', '.join(ID_COLUMNS)}, followed by "
            f"one column per split; it has {', '.join(map(str, table.columns[:5]))}."
        )
    ids = table.iloc[:, 0].str.strip()
    if ids.duplicated().any():
        raise BadInput(
            f"{path} lists subject {ids[ids.duplicated()].iloc[0]} twice: keep one row (bnt audit also reads one row "
            "per subject and split, with the columns split and part)."
        )
    return table


def sides(where: str, cells: pd.Series, ids: pd.Series) -> pd.Series:
    """Return train, validation, test or nothing for cells of a table; another word is refused."""
    words = cells.fillna("").str.strip().str.lower().str.removesuffix(".0")
    wrong = ~words.isin(list(WORDS))
    if wrong.any():
        raise BadInput(
            f"{where}, subject {ids[wrong].iloc[0]}: {cells[wrong].iloc[0].strip()!r} is not train, validation, test "
            "(0, 1, 2) or empty."
        )
    return words.map(WORDS)


def _positions(path: Path, table: pd.DataFrame, cohort: Cohort) -> np.ndarray:
    """Return the position in the cohort of each row of the table."""
    listed = table.iloc[:, 0].str.strip()
    key = str(table.columns[0])
    participants = cohort.participants
    candidates = [participants[key].astype(str)] if key in participants else []
    candidates.append(pd.Series(cohort.ids.astype(str)))
    best: pd.Series | None = None
    for ids in candidates:
        place = listed.map({name: i for i, name in enumerate(ids)})
        if not place.isna().any():
            return place.to_numpy(dtype=np.int64)
        if best is None or place.isna().sum() < best.isna().sum():
            best = place
    absent = listed[best.isna()] if best is not None else listed
    raise BadInput(
        f"{path} lists {len(absent)} of {len(listed)} subjects who are not in the cohort (the first is "
        f"{absent.iloc[0]}): use the cohort it was made for, or remove their rows."
    )


@dataclass(frozen=True)
class SavedSplits:
    """Splits read from a table, as a protocol.

    Parameters
    ----------
    path : str
    names : tuple of str
        Columns to use; all if empty.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.simulate_cohort(n_subjects=40, n_rois=20, n_sites=2, seed=0)
    >>> from bnt.splits import SavedSplits, named_splits, save_splits
    >>> save_splits("splits.csv", cohort, named_splits(cohort, "diagnosis", "random", n_splits=2))
    >>> len(list(SavedSplits("splits.csv").split(cohort, "diagnosis")))
    2
    """

    path: str
    names: tuple[str, ...] = ()

    def split(self, cohort: Cohort, label: str | np.ndarray | None) -> Iterator[Rows]:
        """Yield ``(train, val, test)`` positions of the cohort, in the order of the columns."""
        return (split.rows(cohort) for split in read_splits(self.path, cohort, self.names or None))


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
                say(f"{one}: the AUROC of that set is undefined.")
    return split


def split_notices(
    cohort: Cohort, name: str, splits: Sequence[Split], *, n_splits: int, names: Sequence[str] = ()
) -> list[str]:
    """Return sentences about splits that are fewer than asked for, and about subjects whom no split has.

    Parameters
    ----------
    name : str
        The protocol or table that :func:`~bnt.splits.named_splits` made ``splits`` from.
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
