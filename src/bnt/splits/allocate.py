"""Sharing subjects out to parts of exact sizes, every stratum as evenly as whole subjects allow.

A stratum of n_s subjects is owed n_s N_p / n of its subjects in a part of N_p. Rounding all these quotas down or
up so that both the strata and the parts add up is controlled rounding: a network flow, solved here as a linear
programme whose corner solutions are whole numbers. Units (families, repeated scans) move as one.
"""

from __future__ import annotations

import numpy as np

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
