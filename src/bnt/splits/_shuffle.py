"""Sharing subjects out to parts of exact sizes, every stratum as evenly as whole subjects allow.

A stratum of n_s subjects is owed n_s N_p / n of its subjects in a part of N_p. Rounding all these quotas down or
up so that both the strata and the parts add up is controlled rounding: a network flow, solved here as a linear
programme whose corner solutions are whole numbers. Units (families, repeated scans) move as one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import floor

import numpy as np

from bnt.cohort import Cohort
from bnt.errors import BadInput
from bnt.splits._split import Rows
from bnt.splits._strata import classes_of, strata_of, units_of

OUTSIDE_STRATUM = 100.0  # cost of one subject beyond a stratum's rounded quota, in squared deviations
OUTSIDE_CLASS = 10.0  # the same for a class as a whole
TIE_BREAK = 1e-4
ATTEMPTS = 30


def allocate(
    units: np.ndarray, strata: np.ndarray, classes: np.ndarray, sizes: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Return for each subject the part it goes to.

    Parameters
    ----------
    units : array of int, (n,)
        Subjects with the same number stay together.
    strata, classes : array of int, (n,)
        Every stratum lies in one class.
    sizes : array of int, (parts,)
        Their sum is n. Kept exactly whenever the units allow it.
    rng : numpy Generator

    Returns
    -------
    array of int, (n,)
    """
    best, best_error = np.zeros(len(units), dtype=np.int64), np.inf
    for _ in range(ATTEMPTS):  # only units that fill the parts badly need more than one
        part = _attempt(units, strata, classes, sizes, rng)
        error = np.abs(np.bincount(part, minlength=len(sizes)) - sizes).sum()
        if error < best_error:
            best, best_error = part, error
        if error == 0:
            break
    return best


def _attempt(
    units: np.ndarray, strata: np.ndarray, classes: np.ndarray, sizes: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    n_parts, n_strata = len(sizes), strata.max() + 1
    counts = np.bincount(strata, minlength=n_strata)
    owed = np.outer(counts, sizes / sizes.sum())  # (strata, parts): what is still to be placed
    room = sizes.astype(np.int64).copy()
    part = np.full(len(units), -1, dtype=np.int64)

    _, unit = np.unique(units, return_inverse=True)
    members = np.split(np.argsort(unit, kind="stable"), np.cumsum(np.bincount(unit))[:-1])
    together = [m for m in members if len(m) > 1]
    rng.shuffle(together)
    for group in sorted(together, key=len, reverse=True):
        wish = np.clip(owed[strata[group]], 1e-9, None).sum(0)  # (parts,)
        fits = room >= len(group)
        weight = np.where(fits, wish, 0.0) if fits.any() else (room == room.max()).astype(float)
        chosen = int(rng.choice(n_parts, p=weight / weight.sum()))
        part[group] = chosen
        room[chosen] -= len(group)
        np.subtract.at(owed[:, chosen], strata[group], 1.0)

    single = np.flatnonzero(part < 0)
    if len(single):
        room = _settle(room, len(single))
        there = np.bincount(strata[single], minlength=n_strata)
        label = np.zeros(n_strata, dtype=np.int64)
        label[strata] = classes
        table = round_quotas(np.clip(owed, 0.0, None), there, room, label, rng)
        for s in np.flatnonzero(there):
            mine = rng.permutation(single[strata[single] == s])
            part[mine] = np.repeat(np.arange(n_parts), table[s])
    return part


def _settle(room: np.ndarray, n_left: int) -> np.ndarray:
    """Return sizes >= 0 that sum to ``n_left``, where a unit too large for every part has overrun one."""
    room = np.clip(room, 0, None)
    while room.sum() > n_left:
        room[room.argmax()] -= 1
    return room


def round_quotas(
    quotas: np.ndarray, rows: np.ndarray, columns: np.ndarray, classes: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Round a table of quotas to whole numbers with given row and column sums.

    Among the tables whose cells are quotas rounded down or up (and whose classes are, too), the one with the
    smallest squared deviation is taken: largest remainders first. Only where no such table exists are cells
    rounded further.

    Parameters
    ----------
    quotas : array, (strata, parts)
    rows : array of int, (strata,)
    columns : array of int, (parts,)
        Sum as ``rows`` do.
    classes : array of int, (strata,)
        Class of each stratum.
    rng : numpy Generator
        Breaks ties.

    Returns
    -------
    array of int, (strata, parts)
    """
    from scipy.optimize import linprog
    from scipy.sparse import csr_matrix, hstack, identity, kron, vstack

    n_rows, n_columns = quotas.shape
    if n_rows == 1:
        return columns.reshape(1, -1).astype(np.int64)
    _, classes = np.unique(classes, return_inverse=True)
    in_class = csr_matrix((np.ones(n_rows), (classes, np.arange(n_rows))))  # (classes, strata)
    class_quotas = in_class @ quotas

    # x = floor + up + over - under, for each cell and for each class in each part
    floor, share = _floor(quotas)
    class_floor, class_share = _floor(class_quotas)
    cells, sums = quotas.size, class_quotas.size
    jitter = rng.uniform(0, TIE_BREAK, size=cells)
    cost = np.concatenate(
        [
            1 - 2 * share + jitter,
            np.full(2 * cells, OUTSIDE_STRATUM),
            1 - 2 * class_share,
            np.full(2 * sums, OUTSIDE_CLASS),
        ]
    )
    bounds = [(0, 1)] * cells + [(0, None)] * cells + [(0, f) for f in floor]
    bounds += [(0, 1)] * sums + [(0, None)] * sums + [(0, f) for f in class_floor]
    per_row = kron(identity(n_rows), np.ones((1, n_columns)))
    per_column = kron(np.ones((1, n_rows)), identity(n_columns))
    per_class = kron(in_class, identity(n_columns))

    def with_slack(a: csr_matrix) -> csr_matrix:
        return hstack([a, a, -a])

    none = csr_matrix((n_rows + n_columns, 3 * sums))
    sides = vstack([with_slack(per_row), with_slack(per_column)])
    eye = identity(sums)
    equalities = vstack([hstack([sides, none]), hstack([with_slack(per_class), -eye, -eye, eye])])
    right = np.concatenate([rows - per_row @ floor, columns - per_column @ floor, class_floor - per_class @ floor])
    solved = linprog(cost, A_eq=equalities, b_eq=right, bounds=bounds, method="highs-ds")
    if solved.status != 0:  # slack makes every table possible, so only the solver itself can fail
        raise RuntimeError(f"The subjects could not be shared out: {solved.message}")
    x = solved.x
    table = floor + x[:cells] + x[cells : 2 * cells] - x[2 * cells : 3 * cells]
    return np.rint(table).astype(np.int64).reshape(n_rows, n_columns)


def _floor(quotas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return whole and remaining shares, flattened; a quota within rounding error of a whole number is whole."""
    flat = quotas.ravel()
    floor = np.floor(flat + 1e-9)
    return floor, np.clip(flat - floor, 0.0, 1.0)


def part_sizes(n: int, shares: tuple[float, float, float]) -> np.ndarray:
    """Return the number of training, validation and test subjects: shares rounded down, the rest is test.

    Examples
    --------
    >>> part_sizes(1009, (0.7, 0.1, 0.2)).tolist()
    [706, 100, 203]
    """
    if len(shares) != 3 or min(shares) <= 0 or abs(sum(shares) - 1) > 1e-6:
        raise BadInput(f"Part sizes {tuple(shares)} are not three positive shares that sum to 1.")
    train, val = floor(n * shares[0] + 1e-9), floor(n * shares[1] + 1e-9)
    sizes = np.array([train, val, n - train - val])
    if sizes.min() < 1:
        raise BadInput(f"{n} subjects are too few to be split into shares of {tuple(shares)}: a part would be empty.")
    return sizes


def check_fraction(train_fraction: float) -> None:
    """Refuse a share of the training part outside (0, 1]."""
    if not 0 < train_fraction <= 1:
        raise BadInput(f"train_fraction is {train_fraction}: give a share of the training part in (0, 1].")


def thinned(
    train: np.ndarray,
    n_keep: int,
    units: np.ndarray,
    strata: np.ndarray,
    classes: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """Return ``n_keep`` of the training subjects, strata in proportion, for learning curves."""
    if n_keep < 1:
        raise BadInput(f"The fraction leaves no one of {len(train)} training subjects: choose a larger one.")
    if n_keep >= len(train):
        return train
    sizes = np.array([n_keep, len(train) - n_keep])
    pooled = np.unique(strata[train], return_inverse=True)[1]
    part = allocate(units[train], pooled, classes[train], sizes, rng)
    return train[part == 0]


def _shuffled(
    cohort: Cohort,
    label: str | np.ndarray | None,
    *,
    n_splits: int,
    seed: int,
    sizes: tuple[float, float, float],
    stratify: bool,
    train_fraction: float,
) -> Iterator[Rows]:
    check_fraction(train_fraction)
    if n_splits < 1:
        raise BadInput(f"n_splits is {n_splits}: ask for at least one split.")
    classes = classes_of(cohort, label)
    units = units_of(cohort)
    wanted = part_sizes(len(cohort), sizes)
    strata = strata_of(cohort.sites, classes) if stratify else np.zeros(len(cohort), dtype=np.int64)
    level = classes if stratify else strata
    for repeat in range(n_splits):
        rng = np.random.default_rng([seed, repeat])  # split k is the same however many are asked for
        part = allocate(units, strata, level, wanted, rng)
        train, val, test = (np.flatnonzero(part == p) for p in range(3))
        if train_fraction < 1:
            n_keep = floor(len(cohort) * sizes[0] * train_fraction + 1e-9)
            train = thinned(train, n_keep, units, strata, level, rng)
        yield train, val, test


@dataclass(frozen=True)
class SiteStratifiedSplit:
    """Repeated random splits in which every site x label stratum is shared out evenly.

    The sizes are exact (706 / 100 / 203 for the 1,009 subjects of ABIDE) and each stratum is within one subject
    of its quota. Strata with fewer than three subjects are pooled over sites, class by class. Subjects who share
    a group or a scan stay together. Scores are cut into five quantiles.

    Parameters
    ----------
    n_splits : int
    seed : int
        Split k depends on the seed and k only.
    sizes : tuple of float
        Shares of training, validation and test; rounded down, the rest is test.
    stratify : bool
        False ignores sites and labels, as :class:`RandomSplit` does.
    train_fraction : float
        Keep this share of the training part; validation and test stay as they are.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.simulate_cohort(n_subjects=40, n_rois=20, n_sites=2, seed=0)
    >>> train, val, test = next(bnt.SiteStratifiedSplit(n_splits=1, seed=0).split(cohort, "diagnosis"))
    >>> len(train), len(val), len(test)
    (28, 4, 8)
    """

    n_splits: int = 20
    seed: int = 0
    sizes: tuple[float, float, float] = (0.7, 0.1, 0.2)
    stratify: bool = True
    train_fraction: float = 1.0

    def split(self, cohort: Cohort, label: str | np.ndarray | None) -> Iterator[Rows]:
        """Yield ``(train, val, test)`` positions of the cohort, sorted."""
        return _shuffled(
            cohort,
            label,
            n_splits=self.n_splits,
            seed=self.seed,
            sizes=self.sizes,
            stratify=self.stratify,
            train_fraction=self.train_fraction,
        )


@dataclass(frozen=True)
class RandomSplit:
    """Repeated random splits without strata; groups stay together and sizes are exact.

    Parameters
    ----------
    n_splits, seed, sizes, train_fraction
        As in :class:`SiteStratifiedSplit`.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.simulate_cohort(n_subjects=40, n_rois=20, n_sites=2, seed=0)
    >>> splits = list(bnt.RandomSplit(n_splits=3, seed=0).split(cohort, "diagnosis"))
    >>> len(splits)
    3
    """

    n_splits: int = 20
    seed: int = 0
    sizes: tuple[float, float, float] = (0.7, 0.1, 0.2)
    train_fraction: float = 1.0

    def split(self, cohort: Cohort, label: str | np.ndarray | None) -> Iterator[Rows]:
        """Yield ``(train, val, test)`` positions of the cohort, sorted."""
        return _shuffled(
            cohort,
            label,
            n_splits=self.n_splits,
            seed=self.seed,
            sizes=self.sizes,
            stratify=False,
            train_fraction=self.train_fraction,
        )
