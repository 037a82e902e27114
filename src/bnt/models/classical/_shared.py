"""What the runs of a study share: matrices of single subjects, kept on disk, and features of a split, in memory.

Everything shared is known by all that went into it: the settings of a feature map, what it learned, and the content of
the subjects that it reads. So two runs share the features of the same training people, and nothing of a test subject
can reach a training feature. A run has the same bits whether it computes something or finds it.

Nothing is shared outside :func:`sharing`, which jobs of studies enter.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bnt.cohort import Cohort
from bnt.cohort._cache import SeriesCache

MEMORY_BYTES = 1 << 30  # 1 GiB per process: the features of one split of ABIDE at 200 ROIs take 0.5
DISK_GB = 8.0

Value = np.ndarray | dict[str, np.ndarray]


@dataclass
class Shared:
    """What one process has computed for its runs.

    Attributes
    ----------
    disk_bytes : int
        Largest cache beside a cohort; 0 keeps nothing on disk.
    kept : OrderedDict
        What was computed and what it cost, by key; what was longest out of use is forgotten first.
    seconds : float
        CPU seconds that other runs spent on what the present run used.
    """

    disk_bytes: int = 0
    kept: OrderedDict[str, tuple[Value, float]] = field(default_factory=OrderedDict)
    seconds: float = 0.0
    _used: set[str] = field(default_factory=set)
    _caches: dict[str, SeriesCache] = field(default_factory=dict)

    def remembered(self, key: str, make: Callable[[], Value]) -> Value:
        """Return what is known by a key, or make it."""
        if key in self.kept:
            self.kept.move_to_end(key)
            value, seconds = self.kept[key]
            self._count(key, seconds)
            return value
        before, started = self.seconds, time.process_time()
        value = make()
        cost = time.process_time() - started + self.seconds - before
        self._used.add(key)
        size = _nbytes(value)
        if size <= MEMORY_BYTES:
            self.kept[key] = value, cost
            total = sum(_nbytes(one) for one, _ in self.kept.values())
            while total > MEMORY_BYTES:
                total -= _nbytes(self.kept.popitem(last=False)[1][0])
        return value

    def _count(self, key: str, seconds: float) -> None:
        """Count what another run spent, once per run."""
        if key not in self._used:
            self._used.add(key)
            self.seconds += seconds

    def begin(self, disk_bytes: int) -> None:
        """Begin a run."""
        self.seconds = 0.0
        self._used.clear()
        if disk_bytes != self.disk_bytes:
            self.disk_bytes = disk_bytes
            self._caches.clear()

    def know(self, cohort: Cohort) -> None:
        """Let the series of a cohort be found beside it."""
        if cohort.path is None or cohort._series is None or not self.disk_bytes:
            return
        path = str(cohort.path)
        if path not in self._caches or self._caches[path].whole is not cohort._series:
            self._caches[path] = SeriesCache(cohort, self.disk_bytes)

    def rows(
        self,
        series: Sequence[np.ndarray],
        name: str,
        made_with: str,
        width: int,
        make: Callable[[Sequence[np.ndarray]], np.ndarray],
    ) -> np.ndarray | None:
        """Return one row per series, from what is kept beside their cohort; None where nothing is."""
        file = getattr(getattr(series, "stacked", None), "filename", None)
        cache = self._caches.get(str(Path(file).parent)) if file else None
        rows = None if cache is None else cache.rows_of(series)
        if cache is None or rows is None:
            return None
        found = cache.array(name, made_with, width, make)
        if found is None:
            return None
        array, cost = found
        self._count(f"{name} {file}", cost * len(rows) / len(array))
        return array[rows]


_process = Shared()  # of this process, for all of its runs
_active: Shared | None = None


@contextmanager
def sharing(disk_gb: float = DISK_GB) -> Iterator[Shared]:
    """Let a run use what earlier runs of this process have computed, and leave what it computes to the next ones."""
    global _active
    _process.begin(int(disk_gb * 1e9))
    _active = _process
    try:
        yield _process
    finally:
        _active = None


def forget() -> None:
    """Forget what is kept in memory."""
    _process.kept.clear()
    _process._caches.clear()


def seconds_of_others() -> float:
    """Return the CPU seconds that other runs spent on what the present run used."""
    return 0.0 if _active is None else _active.seconds


def content_of(cohort: Cohort) -> str:
    """Return a digest of the subjects' edges and series, in their order; empty where nothing is shared.

    What was changed on its way from the store (harmonised edges) is not shared.
    """
    if _active is None or cohort.edge_changes:
        return ""
    _active.know(cohort)
    series = None if cohort.timeseries is None else cohort.series_digests
    facts = (cohort.kind, cohort.diagonal, cohort.n_rois, torch.get_num_threads())
    return key_of(*facts, cohort.digests, "" if series is None else series)


def remembered(key: str, make: Callable[[], Value]) -> Value:
    """Return what is known by a key, or make it; without a key, or where nothing is shared, it is made."""
    return make() if _active is None or not key else _active.remembered(key, make)


def rows_of_cohort(
    series: Sequence[np.ndarray],
    name: str,
    made_with: str,
    width: int,
    make: Callable[[Sequence[np.ndarray]], np.ndarray],
) -> np.ndarray | None:
    """Return one row per series, from what is kept beside their cohort; None where nothing is."""
    return None if _active is None else _active.rows(series, name, f"{made_with} {machine()}", width, make)


def machine() -> str:
    """Return what decides the last bits of a computation besides its code."""
    threads = torch.get_num_threads()
    return f"torch {torch.__version__} numpy {np.__version__} {torch.backends.cpu.get_cpu_capability()} {threads}"


def key_of(*parts: Any) -> str:
    """Return a digest of texts, numbers, arrays and dictionaries of arrays."""
    found = blake2b(digest_size=20)
    for part in parts:
        if isinstance(part, Mapping):
            part = key_of(*(x for name in sorted(part) for x in (name, part[name])))
        if isinstance(part, np.ndarray) and part.dtype == object:
            part = "\n".join(map(str, part.tolist()))
        if isinstance(part, np.ndarray):
            found.update(f"{part.dtype}{part.shape}".encode())
            found.update(np.ascontiguousarray(part).data)
        else:
            found.update(f"{type(part).__name__} {part}\0".encode())
    return found.hexdigest()


def _nbytes(value: Value) -> int:
    return value.nbytes if isinstance(value, np.ndarray) else sum(one.nbytes for one in value.values())
