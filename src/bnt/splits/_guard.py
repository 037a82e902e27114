"""The guard: no subject, group or scan on two sides of a split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bnt.cohort import Cohort
from bnt.errors import BadInput
from bnt.splits._shuffle import Split

PARTS = ("training", "validation", "test")


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
        A part is empty, a position is not in the cohort, or a subject, a group or a scan (connectomes with the
        same bytes) is on two sides. The message names the subjects.
    """
    parts = [np.asarray(part) for part in (train, val, test)]
    for name, part in zip(PARTS, parts):
        if part.size == 0:
            raise BadInput(f"The {name} part of the split is empty: every part needs a subject.")
        if part.ndim != 1 or part.dtype.kind not in "iu":
            raise BadInput(
                f"The {name} part is an array of {part.dtype} of shape {part.shape}: give positions of subjects."
            )
        outside = part[(part < 0) | (part >= len(cohort))]
        if outside.size:
            raise BadInput(f"The {name} part names subject number {outside[0]}; the cohort has {len(cohort)}.")
    rows = np.concatenate(parts).astype(np.int64)
    side = np.repeat(np.arange(3), [part.size for part in parts])
    for what, values in (
        ("subject", cohort.ids[rows]),
        ("group", cohort.groups[rows]),
        ("scan", cohort.scans[rows]),
    ):
        _refuse_shared(cohort, what, values, rows, side)


def _refuse_shared(cohort: Cohort, what: str, values: np.ndarray, rows: np.ndarray, side: np.ndarray) -> None:
    """Raise if one value is found on two sides (a subject: also if it is found twice on one)."""
    seen: dict[str, int] = {}
    for k, value in enumerate(values):
        if value == "":
            continue
        first = seen.setdefault(value, k)
        if first == k:
            continue
        a, b = PARTS[side[first]], PARTS[side[k]]
        if what == "subject":
            where = f"in both the {a} and the {b} part" if a != b else f"twice in the {a} part"
            raise BadInput(f"Subject {value} is {where}: a subject belongs to one part, once.")
        if a != b:
            one, other = cohort.ids[rows[first]], cohort.ids[rows[k]]
            shared = f"are of one group ({value})" if what == "group" else "have the same scan"
            raise BadInput(
                f"Subjects {one} ({a}) and {other} ({b}) {shared}: they must be on the same side of the split."
            )


MOST_NAMED = 3


@dataclass(frozen=True)
class Absent:
    """A class that a part of a split has no subject of.

    Parameters
    ----------
    split, part : str
    label : str
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


def absent_classes(label: str, y: np.ndarray, splits: Sequence[tuple[str, Split]]) -> list[Absent]:
    """Return the classes that parts of splits lack, split by split.

    Parameters
    ----------
    label : str
        What the classes are called.
    y : array, (n,)
        The class of every subject of the cohort.
    splits : sequence of (name, (train, val, test))
    """
    classes, counts = np.unique(np.asarray(y), return_counts=True)
    return [
        Absent(name, part, label, value, int(n), len(y))
        for name, split in splits
        for part, rows in zip(PARTS, split)
        for value, n in zip(classes.tolist(), counts)
        if not (y[np.asarray(rows)] == value).any()
    ]


def check_classes(
    label: str, y: np.ndarray, splits: Sequence[tuple[str, Split]], selecting: Sequence[str] = ()
) -> list[str]:
    """Refuse splits that lack a class where a model needs it; return what is undefined elsewhere, in sentences.

    Parameters
    ----------
    label, y, splits
        As for :func:`absent_classes`.
    selecting : sequence of str
        Models that select their epoch on the validation part.

    Raises
    ------
    BadInput
        A class is in no training part, or in no validation part that an epoch is selected on.
    """
    found = absent_classes(label, y, splits)
    for one in found:
        if one.part == "training":
            raise BadInput(f"{one}: use other splits, or a label with more subjects of each class.")
        if one.part == "validation" and selecting:
            raise BadInput(
                f"{one}, so that {selecting[0]} cannot select its epoch there: use other splits, or "
                "--change select=last."
            )
    untested = {one.split: one for one in found if one.part == "test"}
    said = [f"AUROC is undefined on split {name}: no test subject has {one.what}." for name, one in untested.items()]
    if len(said) > MOST_NAMED:
        rest = list(untested)[MOST_NAMED:]
        said[MOST_NAMED:] = [f"AUROC is undefined on {len(rest)} more splits, too: {', '.join(rest)}."]
    return said
