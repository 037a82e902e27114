"""Grouping and stratification of splits: who stays together, balanced strata, and sets of exact sizes.

A stratum of n_s subjects is owed n_s N_p / n of its subjects in a set of N_p. Rounding all these quotas down or
up so that both the strata and the sets add up is controlled rounding: a network flow, solved here as a linear
programme whose corner solutions are whole numbers. Units (families, repeated scans) move as one.
"""

from __future__ import annotations

from math import floor

import numpy as np

from bnt.cohort import Cohort
from bnt.cohort._scans import joined
from bnt.errors import BadInput

LEAST_IN_STRATUM = 3  # fewer cannot be present in training, validation and test
MOST_VALUES = 20  # a numeric label with more different values than this is shared out by quantiles
QUANTILES = 5
OUTSIDE_STRATUM = 100.0  # cost of one subject beyond a stratum's rounded quota, in squared deviations
OUTSIDE_CLASS = 10.0  # the same for a class as a whole
TIE_BREAK = 1e-4
ATTEMPTS = 30


def shared_by_value(values: np.ndarray) -> bool:
    """Return whether a label is shared out value by value: text, or at most 20 whole numbers; else by quantiles.

    Examples
    --------
    >>> shared_by_value(np.arange(15)), shared_by_value(np.arange(30)), shared_by_value(np.array([0.5, 1.0]))
    (True, False, False)
    """
    if values.dtype.kind not in "iuf":
        return True
    return np.array_equal(values, np.round(values)) and len(np.unique(values)) <= MOST_VALUES


def units_of(cohort: Cohort) -> np.ndarray:
    """Return for each subject the number of its unit: those who share a family or a scan share a unit.

    Sharing is transitive: if A and B are one family and B and C one scan, all three stay together.

    Returns
    -------
    array of int, (n,)
        Units are numbered by their first subject.
    """
    return joined(cohort.families, cohort.scans)


def classes_of(cohort: Cohort, label: str | np.ndarray | None) -> np.ndarray:
    """Return the class of each subject as 0, 1, ...; a label of many values is cut into quantiles.

    Parameters
    ----------
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
    if not shared_by_value(values):
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


def allocate(
    units: np.ndarray, strata: np.ndarray, classes: np.ndarray, sizes: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Return for each subject the set it goes to.

    Parameters
    ----------
    units : array of int, (n,)
        Subjects with the same number stay together.
    strata, classes : array of int, (n,)
        Every stratum lies in one class.
    sizes : array of int, (sets,)
        Their sum is n. Kept exactly whenever the units allow it.

    Returns
    -------
    array of int, (n,)
    """
    best, best_error = np.zeros(len(units), dtype=np.int64), np.inf
    for _ in range(ATTEMPTS):  # only units that fill the sets badly need more than one
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
    owed = np.outer(counts, sizes / sizes.sum())  # (strata, sets): what is still to be placed
    room = sizes.astype(np.int64).copy()
    part = np.full(len(units), -1, dtype=np.int64)

    _, unit = np.unique(units, return_inverse=True)
    members = np.split(np.argsort(unit, kind="stable"), np.cumsum(np.bincount(unit))[:-1])
    together = [m for m in members if len(m) > 1]
    rng.shuffle(together)
    for group in sorted(together, key=len, reverse=True):
        wish = np.clip(owed[strata[group]], 1e-9, None).sum(0)  # (sets,)
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
    """Return sizes >= 0 that sum to ``n_left``, where a unit too large for every set has overrun one."""
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
    quotas : array, (strata, sets)
    rows : array of int, (strata,)
    columns : array of int, (sets,)
        Sum as ``rows`` do.
    classes : array of int, (strata,)
        Class of each stratum.
    rng : numpy Generator
        Breaks ties.

    Returns
    -------
    array of int, (strata, sets)
    """
    from scipy.optimize import linprog
    from scipy.sparse import csr_matrix, hstack, identity, kron, vstack

    n_rows, n_columns = quotas.shape
    if n_rows == 1:
        return columns.reshape(1, -1).astype(np.int64)
    _, classes = np.unique(classes, return_inverse=True)
    in_class = csr_matrix((np.ones(n_rows), (classes, np.arange(n_rows))))  # (classes, strata)
    class_quotas = in_class @ quotas

    # x = floor + up + over - under, for each cell and for each class in each set
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
        raise BadInput(f"Sizes of sets {tuple(shares)} are not three positive shares that sum to 1.")
    train, val = floor(n * shares[0] + 1e-9), floor(n * shares[1] + 1e-9)
    sizes = np.array([train, val, n - train - val])
    if sizes.min() < 1:
        raise BadInput(f"{n} subjects are too few to be split into shares of {tuple(shares)}: a set would be empty.")
    return sizes


def check_fraction(train_fraction: float) -> None:
    """Refuse a share of the training set outside (0, 1]."""
    if not 0 < train_fraction <= 1:
        raise BadInput(f"train_fraction is {train_fraction}: give a share of the training set in (0, 1].")


def thinned(
    train: np.ndarray, n_keep: int, units: np.ndarray, strata: np.ndarray, classes: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Return ``n_keep`` of the training subjects, strata in proportion, for learning curves."""
    if n_keep < 1:
        raise BadInput(f"The fraction leaves none of {len(train)} training subjects: choose a larger one.")
    if n_keep >= len(train):
        return train
    sizes = np.array([n_keep, len(train) - n_keep])
    pooled = np.unique(strata[train], return_inverse=True)[1]
    part = allocate(units[train], pooled, classes[train], sizes, rng)
    return train[part == 0]


def brought_together(
    first: np.ndarray, second: np.ndarray, sites: np.ndarray, classes: np.ndarray, units: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return two sets of which no unit is in both, by as few exchanges of subjects as are needed.

    Subjects who are exchanged take each other's places; everyone else stays where they are.
    """
    places = np.concatenate([first, second]).astype(np.int64)
    side = np.repeat([0, 1], [len(first), len(second)])  # of each place
    names, counts = np.unique(units, return_counts=True)
    alone = np.isin(units, names[counts == 1])
    for unit in names[counts > 1]:
        mine = np.flatnonzero((units[places] == unit) & (places >= 0))
        if len(set(side[mine])) < 2:
            continue
        home = round(side[mine].mean() - 1e-9)  # the majority's side, else the first
        for stray in mine[side[mine] != home]:
            subject = places[stray]
            partners = np.flatnonzero(
                (side == home) & alone[places] & (sites[places] == sites[subject]) & (places >= 0)
            )
            if partners.size:
                same_class = partners[classes[places[partners]] == classes[subject]]
                among = same_class if same_class.size else partners
                partner = among[places[among].argmin()]
                alone[places[partner]] = False  # moved once is enough
                places[stray], places[partner] = places[partner], subject
            else:
                places[stray] = -1
    return places[(side == 0) & (places >= 0)], places[(side == 1) & (places >= 0)]
