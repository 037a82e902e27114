"""The guard: no subject, family or scan on two sides of a split, and no class that a part lacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from bnt.cohort import Cohort
from bnt.errors import BadInput
from bnt.splits._split import PARTS, SPOKEN, Split


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
        A part is empty, a position is not in the cohort, or a subject, a family or a scan (connectomes that are
        equal, or nearly so) is on two sides. The message names the subjects.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.simulate_cohort(n_subjects=40, n_rois=20, n_sites=2, seed=0)
    >>> from bnt.splits import check_split
    >>> check_split(cohort, [0, 1], [2], [3])
    >>> check_split(cohort, [0, 1], [2], [0])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    bnt.errors.BadInput: Subject ... is in both the training and the test part: a subject belongs to one part, once.
    """
    parts = [np.asarray(part) for part in (train, val, test)]
    for name, part in zip(SPOKEN.values(), parts):
        if part.size == 0:
            raise BadInput(f"The {name} part of the split is empty: every part needs a subject.")
        if part.ndim != 1 or part.dtype.kind not in "iu":
            raise BadInput(
                f"The {name} part is an array of {part.dtype} of shape {part.shape}: give positions of subjects."
            )
        outside = part[(part < 0) | (part >= len(cohort))]
        if outside.size:
            raise BadInput(f"The {name} part names subject number {outside[0]}; the cohort has {len(cohort)}.")
    leak = find_leak(Split.of(cohort, parts), cohort.identities)
    if leak:
        raise BadInput(leak)


def find_leak(split: Split, identities: pd.DataFrame) -> str:
    """Return the first leak between the parts of a split, as a sentence that names the subjects; empty without one.

    Parameters
    ----------
    split : Split
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
                where = f"in both the {a} and the {b} part" if a != b else f"twice in the {a} part"
                return f"Subject {value} is {where}: a subject belongs to one part, once."
            if a != b:
                shared = f"are of one family ({value})" if what == "family" else "have the same scan"
                return (
                    f"Subjects {ids[first]} ({a}) and {ids[k]} ({b}) {shared}: they must be on the same side of the "
                    "split."
                )
    return ""


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


def absent_classes(cohort: Cohort, label: str, splits: Sequence[Split]) -> list[Absent]:
    """Return the classes of a label that parts of splits lack, split by split."""
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
    cohort : Cohort
    label : str
        A column of classes.
    splits : sequence of Split
    selecting : sequence of str
        Models that select their epoch on the validation part.

    Raises
    ------
    BadInput
        A class is in no training part, or in no validation part that an epoch is selected on.
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
