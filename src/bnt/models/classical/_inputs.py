"""Inputs of classical models: edge vectors, sites, time series, and confounds as a design matrix.

Where the products and features of so many people would take more memory than :func:`memory_bound` allows, edges stay on
disk (:class:`StoredEdges`) and features go into a file (:class:`Streamed`); both are read block by block.

A confound is a column of ``participants.tsv``: numbers as they are, words (and sites, whatever their names) as one
column per level but the first. A missing number counts as the training subjects' mean, a word that training has not
seen as the first level.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from bnt.cohort import Cohort
from bnt.cohort._scans import Series
from bnt.errors import BadInput
from bnt.models.classical._subject_matrices import content_of
from bnt.sources._people import MOST_CODES

AT_ONCE = 256  # subjects per block
COLUMNS_AT_ONCE = 8192  # features, where all subjects are read together
MOST_PRODUCTS = 3000  # subjects: beyond, passes over the features take less time than the products of all pairs
_bound_gb: float | None = None  # None: half of what the machine has


@contextmanager
def memory_bound(gb: float | None) -> Iterator[None]:
    """Let classical models take about so much memory, in GB; None is half of this machine's."""
    global _bound_gb
    if gb is not None and not gb > 0:
        raise BadInput(f"{gb} GB of memory are too little: give more than 0.", "memory_gb")
    before, _bound_gb = _bound_gb, gb
    try:
        yield
    finally:
        _bound_gb = before


def bound_gb() -> float:
    """Return how much memory, in GB, classical models may take: as said, or half of this machine's (or container's)."""
    if _bound_gb is not None:
        return _bound_gb
    most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for file in ("memory.max", "memory/memory.limit_in_bytes"):
        limit = Path("/sys/fs/cgroup") / file
        text = limit.read_text().strip() if limit.is_file() else ""
        most = min(most, int(text)) if text.isdigit() else most
    return most / 2e9


def exact_gb(n: int, n_edges: int) -> float:
    """Return about how much memory, in GB, an exact solution for n subjects takes: edges, features, products."""
    return (12.0 * n * n_edges + 80.0 * n * n) / 1e9


def products_gb(n: int) -> float:
    """Return about how much memory, in GB, the inner products of n subjects take, made from features on disk."""
    return (80.0 * n * n + 12.0 * n * COLUMNS_AT_ONCE) / 1e9


class StoredEdges:
    """Edges of a cohort that stay on disk; an index reads those rows, (n, E) float32."""

    ndim = 2

    def __init__(self, cohort: Cohort) -> None:
        self.cohort, self.shape = cohort, cohort.shape

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> np.ndarray:
        return self.cohort.edges(np.arange(len(self))[rows])


class Streamed:
    """Features of many subjects, (n, F) float32, in a file without a name: read block by block, never whole.

    Parameters
    ----------
    transform : callable
        From the inputs of a block to its features.
    """

    def __init__(self, transform: Callable[[Inputs], np.ndarray], inputs: Inputs) -> None:
        self.shape = (len(inputs), 0)
        self._file = tempfile.TemporaryFile(prefix="bnt-features-")  # noqa: SIM115 - it lives as long as this object
        for rows, part in inputs.blocks():
            found = np.ascontiguousarray(transform(part), dtype=np.float32)
            if rows.start == 0:
                self.shape = (len(inputs), found.shape[1])
                self._check_room()
            self._file.write(found.data)
        self._file.flush()

    def _check_room(self) -> None:
        needed, place = 4 * self.shape[0] * self.shape[1], tempfile.gettempdir()
        free = shutil.disk_usage(place).free
        if needed > free:
            raise BadInput(
                f"The features of {self.shape[0]} subjects take {needed / 1e9:.1f} GB and {place} has {free / 1e9:.1f} "
                "free: set TMPDIR to a folder with more, or give more --memory-gb.",
                "memory_gb",
            )

    def __len__(self) -> int:
        return self.shape[0]

    def slices(self) -> Iterator[slice]:
        """Yield the rows of each block."""
        for start in range(0, len(self), AT_ONCE):
            yield slice(start, min(start + AT_ONCE, len(self)))

    def block(self, rows: slice) -> np.ndarray:
        """Read one block, (m, F) float32."""
        out = np.empty((rows.stop - rows.start, self.shape[1]), dtype=np.float32)
        self._read(out, rows.start * self.shape[1])
        return out

    def columns(self, part: slice) -> np.ndarray:
        """Read some features of everyone, (n, m) float32."""
        out = np.empty((len(self), part.stop - part.start), dtype=np.float32)
        for i, row in enumerate(out):
            self._read(row, i * self.shape[1] + part.start)
        return out

    def _read(self, out: np.ndarray, first: int) -> None:
        """Fill ``out`` with the numbers of the file from ``first`` on."""
        view, position = out.reshape(-1).view(np.uint8).data, 4 * first
        while len(view):  # one call reads 2 GB at most
            read = os.preadv(self._file.fileno(), [view], position)
            if not read:
                raise OSError("a temporary file of features has become shorter")
            view, position = view[read:], position + read


@dataclass(frozen=True)
class Inputs:
    """Subjects as a classical model sees them.

    Attributes
    ----------
    edges : array, (n, E) float32
        Connectomes in the order of :mod:`bnt.cohort._triangle`; or :class:`StoredEdges`.
    kind : str
        What the entries are: a name of :data:`bnt.connectivity.KINDS`, or ``unknown``.
    diagonal : float
        What stands on the diagonal of the square matrices.
    sites : array of str, (n,), or None
    series : Series or None
        Time series of the same subjects.
    people : DataFrame or None
        Their rows of ``participants.tsv``: confounds, and who is of one family.
    atlas : str
    others : mapping
        The same subjects in the other atlases of the cohort, by name; empty unless a model asks for them.
    content : str
        A digest of edges and series, by which the runs of a study find what they share; empty outside one.

    Examples
    --------
    >>> import bnt
    >>> from bnt.models.classical._inputs import Inputs
    >>> cohort = bnt.simulate_cohort(n_subjects=40, n_rois=20, n_sites=2, seed=0)
    >>> inputs = Inputs.of(cohort)
    >>> inputs.take([0, 1, 2]).edges.shape
    (3, 190)
    """

    edges: np.ndarray
    kind: str = "unknown"
    diagonal: float = 1.0
    sites: np.ndarray | None = None
    series: Series | None = None
    people: pd.DataFrame | None = None
    atlas: str = ""
    others: Mapping[str, Inputs] = field(default_factory=dict)
    content: str = ""

    def __post_init__(self) -> None:
        if self.edges.ndim != 2:
            raise BadInput(f"Edges of shape {self.edges.shape} were given: give (subjects, V(V-1)/2).")
        for name, part in (("sites", self.sites), ("series", self.series), ("people", self.people)):
            if part is not None and len(part) != len(self.edges):
                raise BadInput(f"There are {len(self.edges)} connectomes and {len(part)} {name}: give one per subject.")

    def __len__(self) -> int:
        return len(self.edges)

    @classmethod
    def of(cls, cohort: Cohort, rows: Any = None, every_atlas: bool = False, bounded: bool = False) -> Inputs:
        """Return the inputs of a cohort, or of some of its subjects (positions, or a mask).

        With ``bounded``, edges stay on disk where an exact solution would take more than :func:`memory_bound`.
        """
        others = [name for name in cohort.atlases if name != cohort.atlas] if every_atlas else []
        chosen = cohort if rows is None else cohort.select(rows)
        stored = bounded and exact_gb(*chosen.shape) > bound_gb()
        return cls(
            edges=cast(np.ndarray, StoredEdges(chosen)) if stored else chosen.edges(np.arange(len(chosen))),
            kind=chosen.kind,
            diagonal=chosen.diagonal,
            sites=np.asarray(chosen.sites).astype(str),
            series=chosen.timeseries,
            people=chosen.participants,
            atlas=chosen.atlas,
            others={name: cls.of(chosen.with_atlas(name), bounded=bounded) for name in others},
            content="" if stored else content_of(chosen),
        )

    @property
    def stored(self) -> bool:
        """Whether the edges stay on disk, so that features are streamed."""
        return isinstance(self.edges, StoredEdges)

    def solver(self) -> str:
        """Return, in one sentence, how models of these training subjects are solved where that is not in memory."""
        if not self.stored:
            return ""
        n, n_edges = self.edges.shape
        how = "the model is solved by passes over them"
        if not self.by_passes:
            how = "a model of products of subjects is solved exactly from these, any other by passes over the features"
        return (
            f"{n:,} training subjects would take about {exact_gb(n, n_edges):.1f} GB and the bound is {bound_gb():.3g} "
            f"GB (--memory-gb): the features stay on disk, and {how}."
        )

    @property
    def by_passes(self) -> bool:
        """Whether not even the inner products of these subjects are to be had, so that solvers pass over features."""
        return self.stored and (len(self) > MOST_PRODUCTS or products_gb(len(self)) > bound_gb())

    def blocks(self) -> Iterator[tuple[slice, Inputs]]:
        """Yield rows and inputs, a few subjects at a time where the edges stay on disk, otherwise all at once."""
        if not self.stored:
            yield slice(0, len(self)), self
            return
        for start in range(0, len(self), AT_ONCE):
            rows = slice(start, min(start + AT_ONCE, len(self)))
            part = self.take(np.arange(rows.start, rows.stop))
            yield rows, replace(part, edges=self.edges[rows])

    @property
    def families(self) -> np.ndarray | None:
        """Family of each subject, who stay together in inner folds; None where the table has none."""
        if self.people is None or "family" not in self.people:
            return None
        return self.people["family"].astype(str).to_numpy()

    def by_atlas(self) -> dict[str, Inputs]:
        """Return the inputs of each atlas, the cohort's own first."""
        return {self.atlas: self, **self.others}

    def take(self, rows: Any) -> Inputs:
        """Return some of the subjects: positions, or a boolean mask."""
        rows = np.asarray(rows)
        if rows.dtype == bool:
            rows = np.flatnonzero(rows)
        edges = self.edges
        if isinstance(edges, StoredEdges):
            edges = cast(np.ndarray, StoredEdges(edges.cohort.select(rows)))
        return Inputs(
            edges=edges if self.stored else edges[rows],
            kind=self.kind,
            diagonal=self.diagonal,
            sites=None if self.sites is None else self.sites[rows],
            series=None if self.series is None else self.series.select(rows),
            people=None if self.people is None else self.people.iloc[rows],
            atlas=self.atlas,
            others={name: other.take(rows) for name, other in self.others.items()},
        )


# -- confounds -----------------------------------------------------------------------------------------


def numbers_of(column: pd.Series, name: str) -> pd.Series | None:
    """Return a confound as numbers, NaN where missing; None for one of words, as the names of sites always are.

    Infinite values are refused, words in a column of numbers, and a column of nothing but different words: each would
    become a level of its own.
    """
    if name == "site":
        return None
    numbers = pd.to_numeric(column, errors="coerce").astype("float64")
    wrong = column[np.isinf(numbers)]
    words = column[numbers.isna() & column.notna()]
    if numbers.nunique() > MOST_CODES and len(words) < numbers.notna().sum():
        wrong = pd.concat([wrong, words])
    if len(wrong):
        raise BadInput(
            f"Column {name!r} of participants.tsv has {str(wrong.iloc[0])!r} among its numbers: write a finite number "
            "or n/a there."
        )
    if words.nunique() > max(MOST_CODES, len(column) / 2):
        raise BadInput(
            f"Column {name!r} of participants.tsv has {words.nunique()} different words, such as {words.iloc[0]!r}, in "
            f"{len(column)} subjects: a confound has numbers (with a point) or a few classes."
        )
    return numbers if words.empty else None


class Confounds:
    """Columns of people as a design matrix.

    Parameters
    ----------
    names : tuple of str
        Columns of ``participants.tsv``.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.facts: dict[str, Any] = {}  # column -> the mean of numbers, or the levels of words

    def fit(self, people: pd.DataFrame | None, weight: np.ndarray) -> Confounds:
        """Learn means and levels from training subjects."""
        for name in self.names:
            column = self._column(people, name)
            numbers = numbers_of(column, name)
            known = column.notna().to_numpy()
            if numbers is not None and (known & (weight > 0)).any():
                self.facts[name] = float(np.average(numbers[known], weights=weight[known]))
                continue
            words = column[column.notna().to_numpy() & (weight > 0)].astype(str)
            if words.empty:
                raise BadInput(f"Column {name!r} of participants.tsv is empty for all training subjects: leave it out.")
            self.facts[name] = sorted(words.unique().tolist())
        return self

    @staticmethod
    def _column(people: pd.DataFrame | None, name: str) -> pd.Series:
        if people is None or name not in people:
            there = "" if people is None else f"; there are {', '.join(map(str, people.columns))}"
            raise BadInput(f"The confound {name!r} is not a column of participants.tsv of these subjects{there}.")
        return people[name].replace("n/a", np.nan)

    def design(self, people: pd.DataFrame | None) -> np.ndarray:
        """Return (n, k): deviations of numbers from the training mean, and one column per level."""
        columns = []
        for name, fact in self.facts.items():
            column = self._column(people, name)
            if isinstance(fact, float):
                numbers = pd.to_numeric(column, errors="coerce").astype("float64")
                wrong = column[column.notna() & ~np.isfinite(numbers)]
                if len(wrong):
                    raise BadInput(
                        f"Column {name!r} of participants.tsv has {str(wrong.iloc[0])!r}, where training had numbers: "
                        "write a finite number or n/a there."
                    )
                columns.append(numbers.fillna(fact).to_numpy(dtype=np.float64) - fact)
            else:
                new = sorted(set(column.dropna().astype(str)) - set(fact)) if name != "site" else []
                if new:
                    there = ", ".join(map(repr, fact[:5]))
                    warnings.warn(
                        f"Column {name!r} of participants.tsv has {new[0]!r}, which no training subject has (they have "
                        f"{there}): it counts as {fact[0]!r}.",
                        stacklevel=2,
                    )
                columns += [(column.astype(str) == level).to_numpy(dtype=np.float64) for level in fact[1:]]
        return np.stack(columns, axis=1) if columns else np.zeros((0 if people is None else len(people), 0))


def words_to_array(words: Any) -> np.ndarray:
    """Return names and the like as the bytes of JSON, to be kept beside arrays of numbers."""
    return np.frombuffer(json.dumps(words).encode(), dtype=np.uint8).copy()


def array_to_words(array: Any) -> Any:
    """Undo :func:`words_to_array`."""
    return json.loads(np.asarray(array).tobytes())
