"""One split: its name, the subjects of its three sets, and the checks for leaks and missing classes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bnt.cohort import Cohort
from bnt.cohort._files import writable, write_atomic
from bnt.errors import BadInput

PARTS = ("train", "validation", "test")  # in files and tables
SPOKEN = {"train": "training", "validation": "validation", "test": "test"}  # in sentences
MOST_NAMED = 3  # splits in a caution
Rows = tuple[np.ndarray, np.ndarray, np.ndarray]


class SplitName(NamedTuple):
    """What the name of a split says.

    Parameters
    ----------
    source : str
        A protocol, or the file name of a table.
    seed : int or None
        Of the protocol; a table has none.
    short : str
        The split within it: ``split0``, a site, a column of the table.
    """

    source: str
    seed: int | None
    short: str

    @classmethod
    def parse(cls, text: str) -> SplitName:
        """Read a name as configurations and study tables keep it.

        Examples
        --------
        >>> SplitName.parse("leave-one-site-out:0:NYU")
        SplitName(source='leave-one-site-out', seed=0, short='NYU')
        >>> SplitName.parse("splits.csv:seed100")
        SplitName(source='splits.csv', seed=None, short='seed100')
        """
        head, _, short = text.rpartition(":")
        source, _, seed = head.rpartition(":")
        return cls(source, int(seed), short) if source and seed.isdigit() else cls(head, None, short)

    def __str__(self) -> str:
        """Return the name as it is kept."""
        return ":".join(str(word) for word in self if word not in (None, ""))


@dataclass(frozen=True)
class Split:
    """The participant ids of a training, a validation and a test set.

    Parameters
    ----------
    name : str
        The name with its source: ``site-stratified:0:split3``, ``splits.csv:seed100`` (see :class:`SplitName`).
    train, validation, test : tuple of str
        Participant ids.
    protocol : str
        The protocol that made it, or the path of its table.

    Examples
    --------
    >>> from bnt import Split
    >>> split = Split("mine", train=("sub-01", "sub-02"), validation=("sub-03",), test=("sub-04",))
    >>> split.sizes
    (2, 1, 1)
    """

    name: str
    train: tuple[str, ...]
    validation: tuple[str, ...]
    test: tuple[str, ...]
    protocol: str = ""

    @classmethod
    def of(cls, cohort: Cohort, rows: Sequence[np.ndarray], name: str = "", protocol: str = "") -> Split:
        """Return the split of three arrays of positions in a cohort, as splitters yield them."""
        train, validation, test = (tuple(cohort.ids[np.asarray(part, dtype=np.int64)].tolist()) for part in rows)
        return cls(name, train, validation, test, protocol)

    @property
    def parts(self) -> dict[str, tuple[str, ...]]:
        """The three sets under their names."""
        return dict(zip(PARTS, (self.train, self.validation, self.test)))

    @property
    def sizes(self) -> tuple[int, int, int]:
        """How many subjects are in the training, validation and test set."""
        return len(self.train), len(self.validation), len(self.test)

    @property
    def short(self) -> str:
        """The last word of the name: the column of a table, and a word of a run's folder."""
        return SplitName.parse(self.name).short

    def rows(self, cohort: Cohort) -> Rows:
        """Return the positions in a cohort of training, validation and test subjects, in their order.

        Raises
        ------
        BadInput
            The cohort lacks a subject, whom the message names.
        """
        position = {name: i for i, name in enumerate(cohort.ids.tolist())}
        for name in (*self.train, *self.validation, *self.test):
            if name not in position:
                where = cohort.path or "The cohort"
                raise BadInput(f"{where} has no participant {name!r}, whom split {self.name or 'given'} names.")
        train, validation, test = (np.array([position[n] for n in p], dtype=np.int64) for p in self.parts.values())
        return train, validation, test

    def digest(self) -> str:
        """Return the sha256 of the three lists of ids, which a run keeps as ``split_sha256``."""
        return sha256(json.dumps(list(self.parts.values())).encode()).hexdigest()


def check_split(cohort: Cohort, train: Any, val: Any, test: Any) -> None:
    """Refuse a split that leaks, or that cannot be used.

    Parameters
    ----------
    cohort : Cohort
    train, val, test : array of int
        Positions in the cohort.

    Raises
    ------
    BadInput
        A set is empty, a position is not in the cohort, or a subject, a family or a scan (connectomes that are
        equal, or nearly so) is in two sets. The message names the subjects.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.simulate_cohort(n_subjects=40, n_rois=20, n_sites=2, seed=0)
    >>> from bnt.splits import check_split
    >>> check_split(cohort, [0, 1], [2], [3])
    >>> check_split(cohort, [0, 1], [2], [0])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    bnt.errors.BadInput: Subject ... is in both the training and the test set: a subject belongs to one set, once.
    """
    parts = [np.asarray(part) for part in (train, val, test)]
    for name, part in zip(SPOKEN.values(), parts):
        if part.size == 0:
            raise BadInput(f"The {name} set of the split is empty: every set needs a subject.")
        if part.ndim != 1 or part.dtype.kind not in "iu":
            raise BadInput(
                f"The {name} set is an array of {part.dtype} of shape {part.shape}: give positions of subjects."
            )
        outside = part[(part < 0) | (part >= len(cohort))]
        if outside.size:
            raise BadInput(f"The {name} set names subject number {outside[0]}; the cohort has {len(cohort)}.")
    leak = find_leak(Split.of(cohort, parts), cohort.identities)
    if leak:
        raise BadInput(leak)


def find_leak(split: Split, identities: pd.DataFrame) -> str:
    """Return the first leak between the sets of a split, as a sentence that names the subjects; empty without one.

    Parameters
    ----------
    identities : DataFrame
        ``participant_id``, ``family`` and ``scan``, from :attr:`bnt.Cohort.identities`.
    """
    side = [part for part, ids in split.parts.items() for _ in ids]
    ids = [name for part in split.parts.values() for name in part]
    table = identities.set_index("participant_id")
    for what in ("subject", "family", "scan"):
        values = ids if what == "subject" else table[what].reindex(ids).fillna("").astype(str).tolist()
        seen: dict[str, int] = {}
        for k, value in enumerate(values):
            first = k if value == "" else seen.setdefault(value, k)
            if first == k:
                continue
            a, b = SPOKEN[side[first]], SPOKEN[side[k]]
            if what == "subject":
                where = f"in both the {a} and the {b} set" if a != b else f"twice in the {a} set"
                return f"Subject {value} is {where}: a subject belongs to one set, once."
            if a != b:
                shared = f"are of one family ({value})" if what == "family" else "have the same scan"
                return (
                    f"Subjects {ids[first]} ({a}) and {ids[k]} ({b}) {shared}: they must be on the same side of the "
                    "split."
                )
    return ""


def splits_text(splits: Sequence[Split], ids: Iterable[str] | None = None, separator: str = ",") -> str:
    """Return splits as the text of a table.

    Parameters
    ----------
    splits : sequence of Split
        The columns are called by their short names.
    ids : iterable of str, optional
        The rows; without it, the subjects of the splits in sorted order.
    """
    columns = [split.short or "split" for split in splits]
    if len(set(columns)) != len(columns):
        raise BadInput(f"{len(splits)} splits need as many different names, not {', '.join(columns)}.")
    sides = [{name: part for part, names in split.parts.items() for name in names} for split in splits]
    ids = list(ids) if ids is not None else sorted({name for side in sides for name in side})
    table = {"participant_id": ids} | {c: [side.get(i, "") for i in ids] for c, side in zip(columns, sides)}
    return pd.DataFrame(table).to_csv(index=False, sep=separator, lineterminator="\n")


def save_splits(
    path: str | Path, cohort: Cohort, splits: Iterable[Split | Rows], names: Sequence[str] | None = None
) -> None:
    """Write splits by subject id, tab-separated if ``path`` ends in ``.tsv``, else with commas.

    Parameters
    ----------
    path : path
    cohort : Cohort
    splits : iterable of Split or of (train, val, test)
        Each is checked by :func:`check_split` first; nothing is written if one leaks.
    names : sequence of str, optional
        Names of the columns; without it the splits' own, or ``split0``, ``split1``, ... for positions.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.simulate_cohort(n_subjects=40, n_rois=20, n_sites=2, seed=0)
    >>> from bnt.splits import named_splits, read_splits, save_splits
    >>> save_splits("splits.csv", cohort, named_splits(cohort, "diagnosis", "random", n_splits=2))
    >>> len(read_splits("splits.csv", cohort))
    2
    """
    path, found = Path(path), []
    for k, one in enumerate(splits):
        rows = one.rows(cohort) if isinstance(one, Split) else one
        check_split(cohort, *rows)
        own = one.short if isinstance(one, Split) else f"split{k}"
        found.append(Split.of(cohort, rows, own if names is None else str(names[k]) if k < len(names) else ""))
    if not found:
        raise BadInput(f"There is no split to write to {path}.")
    if names is not None and len(names) != len(found):
        raise BadInput(f"{len(found)} splits need as many names, not {len(names)}.")
    with writable(path):
        write_atomic(path, splits_text(found, cohort.ids.tolist(), "\t" if path.suffix == ".tsv" else ","))


@dataclass(frozen=True)
class Absent:
    """A class that a set of a split has no subject of.

    Parameters
    ----------
    value : Any
        The class.
    n, total : int
        How many subjects of the cohort have it, and how many there are.
    """

    split: str
    part: str
    label: str
    value: Any
    n: int
    total: int

    @property
    def what(self) -> str:
        """The class and how rare it is."""
        value = f"{self.value:g}" if isinstance(self.value, float) else self.value
        return f"{self.label} = {value} ({self.n} of {self.total} subjects have it)"

    def __str__(self) -> str:
        """Say it, as the beginning of a sentence."""
        return f"No {self.part} subject of split {self.split} has {self.what}"


def absent_classes(cohort: Cohort, label: str, splits: Sequence[Split]) -> list[Absent]:
    """Return the classes of a label that sets of splits lack, split by split."""
    y = cohort.labels(label)
    classes, counts = np.unique(y, return_counts=True)
    return [
        Absent(split.name, SPOKEN[part], label, value, int(n), len(y))
        for split in splits
        for part, rows in zip(PARTS, split.rows(cohort))
        for value, n in zip(classes.tolist(), counts)
        if not (y[rows] == value).any()
    ]


def check_classes(cohort: Cohort, label: str, splits: Sequence[Split], selecting: Sequence[str] = ()) -> list[str]:
    """Refuse splits that lack a class where a model needs it; return what is undefined elsewhere, in sentences.

    Parameters
    ----------
    label : str
        A column of classes.
    selecting : sequence of str
        Models that select their epoch on the validation set.

    Raises
    ------
    BadInput
        A class is in no training set, or in no validation set that an epoch is selected on.
    """
    found = absent_classes(cohort, label, splits)
    for one in found:
        if one.part == "training":
            raise BadInput(f"{one}: use other splits, or a label with more subjects of each class.")
        if one.part == "validation" and selecting:
            raise BadInput(
                f"{one}, so that {selecting[0]} cannot select its epoch there: use other splits, or a recipe with "
                "select = last.",
                "change",
            )
    untested = {one.split: one for one in found if one.part == "test"}
    said = [f"AUROC is undefined on split {name}: no test subject has {one.what}." for name, one in untested.items()]
    if len(said) > MOST_NAMED:
        rest = list(untested)[MOST_NAMED:]
        said[MOST_NAMED:] = [f"AUROC is undefined on {len(rest)} more splits, too: {', '.join(rest)}."]
    return said
