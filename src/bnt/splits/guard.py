"""The guard: no subject, group or scan on two sides of a split."""

from __future__ import annotations

from typing import Any

import numpy as np

from bnt.cohort import Cohort
from bnt.errors import BadInput

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
