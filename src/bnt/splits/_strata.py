"""What a split has to respect: who stays together, and which strata are shared out evenly."""

from __future__ import annotations

import numpy as np

from bnt.cohort import Cohort
from bnt.errors import BadInput

LEAST_IN_STRATUM = 3  # fewer cannot be present in training, validation and test
MOST_CLASSES = 20  # a numeric label with more distinct values than this is a score
QUANTILES = 5


def is_score(values: np.ndarray) -> bool:
    """Return whether a label is a score and not classes: numbers that are not whole, or more than 20 different ones.

    Examples
    --------
    >>> is_score(np.arange(15)), is_score(np.arange(30)), is_score(np.array([0.5, 1.0]))
    (False, True, True)
    """
    if values.dtype.kind not in "iuf":
        return False
    return not np.array_equal(values, np.round(values)) or len(np.unique(values)) > MOST_CLASSES


def units_of(cohort: Cohort) -> np.ndarray:
    """Return for each subject the number of its unit: those who share a group or a scan share a unit.

    Sharing is transitive: if A and B are one family and B and C one scan, all three stay together.

    Returns
    -------
    array of int, (n,)
        Units are numbered by their first subject.
    """
    parent = np.arange(len(cohort))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = int(parent[i])
        return i

    for values in (cohort.groups, cohort.scans):
        first: dict[str, int] = {}
        for i, value in enumerate(values):
            if value == "":
                continue
            a, b = root(first.setdefault(value, i)), root(i)
            parent[max(a, b)] = min(a, b)
    return np.array([root(i) for i in range(len(cohort))], dtype=np.int64)


def classes_of(cohort: Cohort, label: str | np.ndarray | None) -> np.ndarray:
    """Return the class of each subject as 0, 1, ...; a score (:func:`is_score`) is cut into quantiles.

    Parameters
    ----------
    cohort : Cohort
    label : str, array or None
        A column of the participants table, one value a subject, or None for no label.

    Returns
    -------
    array of int, (n,)
    """
    if len(cohort) == 0:
        raise BadInput("The cohort has no subjects, so there is nothing to split.")
    if label is None:
        return np.zeros(len(cohort), dtype=np.int64)
    name = label if isinstance(label, str) else "label"
    values = cohort.labels(label) if isinstance(label, str) else np.asarray(label)
    if values.shape != (len(cohort),):
        raise BadInput(f"The label has shape {values.shape}, the cohort {len(cohort)} subjects: give one value each.")
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        subject = cohort.ids[~np.isfinite(values)][0]
        raise BadInput(f"Label {name!r} of {subject} is not a number: select the subjects who have it first.")
    distinct, codes = np.unique(values, return_inverse=True)
    if len(distinct) < 2:
        raise BadInput(
            f"Label {name!r} has one value only ({distinct[0]!s}) in {len(cohort)} subjects: choose a label with two "
            "classes or more, or other subjects."
        )
    if is_score(values):
        cuts = np.quantile(values, np.linspace(0, 1, QUANTILES + 1)[1:-1])
        codes = np.searchsorted(np.unique(cuts), values, side="right")
    return codes.astype(np.int64)


def strata_of(sites: np.ndarray, classes: np.ndarray, least: int = LEAST_IN_STRATUM) -> np.ndarray:
    """Return the stratum of each subject: site x class, as 0, 1, ...

    A stratum with fewer than ``least`` subjects is rare: it cannot be shared out, so the rare strata of one
    class are pooled over sites.
    """
    _, site = np.unique(sites, return_inverse=True)
    combined = classes * (site.max() + 2) + site
    _, codes, counts = np.unique(combined, return_inverse=True, return_counts=True)
    combined = np.where(counts[codes] < least, classes * (site.max() + 2) + site.max() + 1, combined)
    return np.unique(combined, return_inverse=True)[1].astype(np.int64)
