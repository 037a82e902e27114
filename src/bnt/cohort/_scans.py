"""The scans of a cohort: time series, digests, and which scans are duplicates or belong to one family.

The store keeps all of this in ``scans.tsv``, apart from the table that users edit, so that the leak guard cannot be
switched off by editing it. What the store does not know is computed from the arrays when it is first asked for.

Two connectomes count as one scan where their edges differ by at most ``SAME_SCAN`` (2 %) of their own spread, root mean
square: the same recording rounded to two decimals or with a little noise does, two recordings of one person differ by
40 % and more. Pairs are found through random projections, a block of people against another at a time, and each is
checked on the whole vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache
from hashlib import blake2b, sha256
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from bnt.errors import BadInput

SAME_SCAN = 0.02  # of the spread of a connectome's edges
FEWEST_EDGES = 10  # of fewer numbers, those of two people may be alike by chance
N_PROJECTIONS = 32
# Twice the threshold, as both vectors are scaled by their own spread; chi-square of 32 is above 105.2 once in 1e9.
_RADIUS = 2 * SAME_SCAN * 105.2**0.5
_AT_ONCE = 256
_BLOCK = 2048  # people whose sketches are compared with those of as many others at once
_NUMBERS = 1 << 23  # edges of each side that are compared at once


class Series(Sequence[np.ndarray]):
    """Time series of different lengths, each a view of one (sum of volumes, V) array.

    Parameters
    ----------
    stacked : array, (sum of volumes, V)
    starts : array of int, (subjects,)
        Row at which each subject's series begins.
    lengths : array of int, (subjects,)
        Number of volumes of each subject.
    """

    def __init__(self, stacked: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> None:
        self.stacked = stacked
        self.starts = starts
        self.lengths = lengths

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, i):
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        start = int(self.starts[i])
        return self.stacked[start : start + int(self.lengths[i])]

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[i] for i in range(len(self)))

    def select(self, rows: np.ndarray) -> Series:
        """Return the series of some subjects; nothing is copied."""
        return Series(self.stacked, self.starts[rows], self.lengths[rows])

    @cached_property
    def digest_of_0_2(self) -> str:
        """The digest that bnt 0.1 and 0.2 made: of the lengths and of everyone's first and last volume."""
        found = sha256(np.asarray(self.lengths, dtype=np.int64).tobytes())
        for one in self:
            found.update(np.ascontiguousarray(one[[0, -1]] if len(one) else one, dtype=np.float32).tobytes())
        return found.hexdigest()

    def __repr__(self) -> str:
        span = f"{self.lengths.min()}-{self.lengths.max()}" if len(self) else "no"
        return f"Series({len(self)} subjects, {span} volumes, {self.stacked.shape[1]} ROIs)"


def scan_digest(values: np.ndarray) -> str:
    """Return a short digest of one subject's connectome or series: equal digests are the same numbers."""
    return blake2b(np.ascontiguousarray(values, dtype=np.float32).tobytes(), digest_size=8).hexdigest()


def joined(*labels: Sequence[str] | np.ndarray) -> np.ndarray:
    """Return for each subject the first subject that it is joined to: by an equal label, in any of the lists.

    Joining is transitive: if A and B are one family and B and C one scan, all three are one. An empty label joins
    nobody.

    Examples
    --------
    >>> joined(["a", "a", "b", ""], ["1", "2", "2", ""]).tolist()
    [0, 0, 0, 3]
    """
    parent = np.arange(len(labels[0]))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = int(parent[i])
        return i

    for values in labels:
        first: dict[str, int] = {}
        for i, value in enumerate(values):
            if value == "":
                continue
            a, b = root(first.setdefault(value, i)), root(i)
            parent[max(a, b)] = min(a, b)
    return np.array([root(i) for i in range(len(parent))], dtype=np.int64)


def as_stored(participants: pd.DataFrame, scans: pd.DataFrame | None, file: Path) -> pd.DataFrame:
    """Return the participants table in the order of the arrays, with the volumes and families that the store knows.

    A family in the table joins more people than the store does, never fewer. In a cohort of bnt 0.1 or 0.2
    the families are the column ``group``.
    """
    for column in ("participant_id", "site"):
        if column not in participants:
            raise BadInput(f"{file} has no column {column}: put it back.")
    if scans is None:
        if "group" not in participants:
            raise BadInput(f"{file} has lost its column group (who must stay together): put it back.")
        return participants.drop(columns=["scan", "family"], errors="ignore").rename(columns={"group": "family"})
    ids = scans["participant_id"]
    other = sorted(set(participants["participant_id"]) ^ set(ids))
    if other or len(participants) != len(ids):
        who = other[0] if other else participants["participant_id"][participants["participant_id"].duplicated()].iloc[0]
        raise BadInput(f"{file} and scans.tsv beside it do not name the same subjects once each ({who}): restore it.")
    table = participants.set_index("participant_id").loc[ids].reset_index()
    given = (table["family"] if "family" in table else pd.Series([""] * len(table))).fillna("").astype(str).tolist()
    stored = scans["family"].tolist()
    names = np.array([mine or theirs for mine, theirs in zip(given, stored)], dtype=object)
    facts = {name: scans[name].to_numpy() for name in ("n_volumes", "n_missing_rois") if name in scans}
    return table.assign(**facts, family=names[joined(stored, given)])


@lru_cache(maxsize=4)
def _projection(n_edges: int) -> np.ndarray:
    drawn = np.random.default_rng(0).standard_normal((n_edges, N_PROJECTIONS), dtype=np.float32)
    return drawn / np.float32(n_edges**0.5)


def _spread(edges: np.ndarray) -> np.ndarray:
    return edges.std(axis=-1, dtype=np.float64)


def sketches(edges: np.ndarray) -> np.ndarray:
    """Return a few numbers per connectome, close where connectomes are; NaN where all edges are equal."""
    edges = np.asarray(edges, dtype=np.float32)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        centred = edges - edges.mean(axis=1, keepdims=True, dtype=np.float64).astype(np.float32)
        found = (centred @ _projection(edges.shape[1])) / _spread(edges)[:, None]
    return np.where(np.isfinite(found), found, np.nan)


def same_scans(
    digests: Sequence[str], sketched: np.ndarray, n_edges: int, read: Callable[[np.ndarray], np.ndarray]
) -> list[str]:
    """Return the name of each scan: its digest, or that of the first scan that it is the same as.

    Parameters
    ----------
    sketched : array, (n, projections)
        From :func:`sketches`.
    read : callable
        Returns the edges of some positions.
    """
    _, first = np.unique(np.asarray(digests, dtype=str), return_index=True)
    usable = np.sort(first)[np.isfinite(sketched[np.sort(first)]).all(axis=1)]
    scan = np.arange(len(digests))
    if len(usable) > 1 and n_edges >= FEWEST_EDGES:
        for pairs in _close(sketched[usable]):
            _join(scan, usable[pairs], n_edges, read)
    roots = joined(list(digests), [str(i) for i in scan])
    return [digests[i] for i in roots]


def _close(sketched: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the pairs of positions whose sketches are close, a block at a time: memory does not grow with their number.

    People are sorted along the axis in which they differ most; each is compared with those that are near along it.
    """
    points = sketched - sketched.mean(axis=0)
    points = points @ np.linalg.eigh(points.T @ points)[1][:, ::-1]
    order = np.argsort(points[:, 0], kind="stable")
    points = points[order].astype(np.float32)
    along, squares = points[:, 0], np.einsum("nk,nk->n", points, points)
    for start in range(0, len(points), _BLOCK):
        rows = slice(start, start + _BLOCK)
        end = int(np.searchsorted(along, along[rows][-1] + _RADIUS, side="right"))
        for other in range(start, end, _BLOCK):
            columns = slice(other, min(other + _BLOCK, end))
            squared = squares[rows, None] + squares[columns] - 2 * (points[rows] @ points[columns].T)
            i, k = np.nonzero(squared <= _RADIUS**2)
            later = i + start < k + other
            yield np.column_stack([order[i[later] + start], order[k[later] + other]])


def _join(scan: np.ndarray, pairs: np.ndarray, n_edges: int, read: Callable[[np.ndarray], np.ndarray]) -> None:
    """Give both of each pair one number in ``scan``, the lower, if their edges say that they are one scan."""
    step = max(1, _NUMBERS // n_edges)
    while len(pairs := pairs[scan[pairs[:, 0]] != scan[pairs[:, 1]]]):
        rows = np.unique(pairs[:, 0])[:step]
        mine = np.isin(pairs[:, 0], rows)
        columns = np.unique(pairs[mine, 1])[:step]
        mine &= np.isin(pairs[:, 1], columns)
        a, b = read(rows).astype(np.float64), read(columns).astype(np.float64)
        squared = np.einsum("ne,ne->n", a, a)[:, None] + np.einsum("ne,ne->n", b, b) - 2 * (a @ b.T)
        same = squared <= n_edges * (SAME_SCAN * np.minimum(_spread(a)[:, None], _spread(b))) ** 2
        now, pairs = pairs[mine], pairs[~mine]
        now = now[same[np.searchsorted(rows, now[:, 0]), np.searchsorted(columns, now[:, 1])]]
        if len(now):
            graph = coo_array((np.ones(len(now)), scan[now.T]), shape=(len(scan), len(scan)))
            n_groups, group = connected_components(graph, directed=False)
            lowest = np.full(n_groups, len(scan))
            np.minimum.at(lowest, group, np.arange(len(scan)))
            scan[:] = lowest[group[scan]]


class Scans:
    """What is known of the scans of a cohort, by position: read from the store, or computed when first asked for.

    Parameters
    ----------
    read : callable
        Returns the edges of some positions, float32.
    recorded : DataFrame, optional
        ``digest``, ``scan`` and ``series`` as the store has them.
    trusted : bool
        Whether the arrays have the size and time at which they were recorded.
    """

    def __init__(
        self,
        n_edges: int,
        read: Callable[[np.ndarray], np.ndarray],
        n: int,
        series: Series | None = None,
        recorded: pd.DataFrame | None = None,
        trusted: bool = False,
    ) -> None:
        self._n_edges, self._read, self._n, self._series_data = n_edges, read, n, series
        self._recorded, self.trusted = recorded, trusted and recorded is not None
        self._digests: np.ndarray | None = None
        self._names: np.ndarray | None = None
        self._series: np.ndarray | None = None
        if self.trusted and recorded is not None:
            self._digests, self._names = (recorded[c].to_numpy(dtype=object) for c in ("digest", "scan"))
            self._series = recorded["series"].to_numpy(dtype=object)

    @property
    def digests(self) -> np.ndarray:
        """A digest of each connectome."""
        if self._digests is None:
            self._digests = np.array([scan_digest(row) for block in self._blocks() for row in block], dtype=object)
        return self._digests

    @property
    def names(self) -> np.ndarray:
        """The scan that each connectome is of: one name for connectomes that are the same, or nearly so."""
        if self._names is None:
            empty = np.empty((0, N_PROJECTIONS))
            sketched = np.concatenate([empty, *(sketches(block) for block in self._blocks())])
            found = same_scans(self.digests.tolist(), sketched, self._n_edges, self._read)
            self._names = np.array(found, dtype=object)
        return self._names

    @property
    def series(self) -> np.ndarray | None:
        """A digest of each series, all of it; None where there are none."""
        if self._series_data is None:
            return None
        if self._series is None:
            self._series = np.array([scan_digest(one) for one in self._series_data], dtype=object)
        return self._series

    def _blocks(self) -> Iterator[np.ndarray]:
        for start in range(0, self._n, _AT_ONCE):
            yield self._read(np.arange(start, min(start + _AT_ONCE, self._n)))

    def read_again(self) -> None:
        """Forget what was recorded or computed: the next question reads the arrays."""
        self._digests = self._names = self._series = None
        self.trusted = False

    def changed(self) -> np.ndarray:
        """Return the positions whose connectome or series is not what was recorded; none where nothing was."""
        if self._recorded is None or self.trusted:
            return np.empty(0, dtype=np.int64)
        other = self.digests != self._recorded["digest"].to_numpy(dtype=object)
        if self.series is not None:
            other |= self.series != self._recorded["series"].to_numpy(dtype=object)
        return np.flatnonzero(other)
