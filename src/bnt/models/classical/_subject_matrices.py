"""Symmetric matrices per subject, and the features that the runs of a study share: on disk, and in memory per split.

These matrices belong to single subjects and know nothing of any fold, so they may be kept: a study keeps those of
series beside the cohort, anything else in memory, by the content of the series.

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
from torch import Tensor

from bnt.cohort import Cohort, flat, square
from bnt.cohort._beside import SeriesCache
from bnt.cohort._triangle import n_edges
from bnt.connectivity._estimate import centred_batches, check_series, ledoit_wolf_covariance, unit_columns

KEPT_BYTES = 1 << 30  # 1 GiB: ABIDE at 200 ROIs takes 80 MB
LEAST_EIGENVALUE = 1e-3
REVISION = 1  # of the estimates from series: raise it when their numbers change

_kept: OrderedDict[bytes, np.ndarray] = OrderedDict()


def pack(matrices: np.ndarray) -> np.ndarray:
    """Return edges, then the diagonal, of symmetric matrices: (n, V, V) -> (n, V(V+1)/2)."""
    return np.concatenate([flat(matrices), np.diagonal(matrices, axis1=-2, axis2=-1)], axis=-1)


def unpack(packed: np.ndarray, n_rois: int) -> np.ndarray:
    """Return the symmetric matrices that :func:`pack` took apart."""
    edges = n_edges(n_rois)
    full = square(packed[..., :edges], 0.0)
    full[..., np.arange(n_rois), np.arange(n_rois)] = packed[..., edges:]
    return full


def forget() -> None:
    """Empty the store of covariances."""
    _kept.clear()


def from_series(series: Sequence[np.ndarray], n_rois: int, estimate: str = "standardised") -> np.ndarray:
    """Return a matrix of each subject's series, packed, (n, V(V+1)/2) float32.

    Parameters
    ----------
    series : sequence of (T_i, V) arrays
    estimate : str
        A name of :data:`bnt.models.classical._subject_matrices.ESTIMATES`.
    """
    width = n_edges(n_rois) + n_rois
    kept = rows_of_cohort(series, estimate, f"revision {REVISION}", width, lambda part: _estimated(part, estimate))
    if kept is not None:
        return kept
    person = estimate.encode()[:16]
    digests = [
        blake2b(np.ascontiguousarray(one).data, digest_size=16, salt=_shape_salt(one), person=person).digest()
        for one in series
    ]
    missing = [i for i, digest in enumerate(digests) if digest not in _kept]
    fresh: dict[bytes, np.ndarray] = {}
    if missing:
        computed = _estimated([series[i] for i in missing], estimate)
        fresh = {digests[i]: one.copy() for i, one in zip(missing, computed)}  # a view would keep all of them alive
    out = np.empty((len(digests), width), dtype=np.float32)
    for i, digest in enumerate(digests):
        out[i] = fresh[digest] if digest in fresh else _kept[digest]
    _keep(fresh, digests)
    return out


def _keep(fresh: dict[bytes, np.ndarray], used: list[bytes]) -> None:
    """Keep new matrices; those longest out of use go first when there are too many."""
    _kept.update(fresh)
    for digest in used:
        _kept.move_to_end(digest)
    total = sum(one.nbytes for one in _kept.values())
    while total > KEPT_BYTES:
        total -= _kept.popitem(last=False)[1].nbytes


def _shape_salt(one: np.ndarray) -> bytes:
    return np.shape(one)[-1].to_bytes(8, "little") + str(one.dtype)[:8].encode()


def _estimated(series: Sequence[np.ndarray], estimate: str) -> np.ndarray:
    n_rois = check_series(series)
    out = np.empty((len(series), n_edges(n_rois) + n_rois), dtype=np.float32)
    for rows, centred in centred_batches([np.asarray(one) for one in series], torch.float32, "cpu"):
        out[rows] = pack(ESTIMATES[estimate](centred).numpy())
    return out


def from_correlations(edges: np.ndarray, shrinkage: float, n_rois: int) -> np.ndarray:
    """Return correlation matrices shrunk towards the identity, packed, (n, V(V+1)/2) float32.

    Parameters
    ----------
    edges : array, (n, E)
        Correlations.
    shrinkage : float
        Share of the identity. It is raised for a subject whose matrix would still have an eigenvalue below 0.001,
        to the share that lifts it there, so that every matrix is positive definite.
    """
    out = np.empty((len(edges), edges.shape[1] + n_rois), dtype=np.float32)
    out[:, edges.shape[1] :] = 1.0
    for rows in few(len(edges), n_rois):
        part = edges[rows]
        share = _share(torch.from_numpy(square(part, 1.0)).double(), shrinkage)[:, None]
        out[rows, : edges.shape[1]] = part * (1.0 - share)
    return out


def few(n: int, n_rois: int) -> Iterator[slice]:
    """Yield slices of a few subjects, so that their square matrices are few: 64, and less from 256 ROIs on."""
    at_once = max(2, min(64, 64 * 256**2 // n_rois**2))
    for start in range(0, n, at_once):
        yield slice(start, start + at_once)


def _share(matrices: Tensor, shrinkage: float) -> np.ndarray:
    """Return each subject's share of the identity; the eigenvalues are needed only where it must be raised."""
    found = np.full(len(matrices), shrinkage)
    moved = (1.0 - shrinkage) * matrices + (shrinkage - LEAST_EIGENVALUE) * torch.eye(matrices.shape[-1])
    low = (torch.linalg.cholesky_ex(moved).info > 0).numpy()
    if low.any():
        least = torch.linalg.eigvalsh(matrices[torch.from_numpy(low)]).numpy()[:, 0]
        lifted = (LEAST_EIGENVALUE - least) / np.maximum(1.0 - least, LEAST_EIGENVALUE)
        found[low] = np.maximum(shrinkage, lifted)
    return found


ORDER = 3  # volumes that the autoregression looks back


def _standardise(centred: Tensor) -> Tensor:
    return unit_columns(centred) * centred.shape[1] ** 0.5


def standardised(centred: Tensor) -> Tensor:
    """Return the Ledoit-Wolf covariance of series of variance 1.

    A region without a signal keeps only the shrinkage's share on its diagonal.
    """
    return ledoit_wolf_covariance(_standardise(centred))


def amplitude(centred: Tensor) -> Tensor:
    """Return the Ledoit-Wolf covariance of the series as they are, but for one scale per subject.

    Unlike a correlation it tells how strongly each region fluctuates beside the others.
    """
    power = centred.square().mean(dim=(1, 2), keepdim=True)
    return ledoit_wolf_covariance(centred * power.rsqrt())


def prewhitened(centred: Tensor) -> Tensor:
    """Return the Ledoit-Wolf covariance of what an autoregression of order 3 does not foresee.

    One set of coefficients per subject, fitted to all regions at once. Slow drifts make neighbouring volumes alike,
    so that a plain correlation rests on fewer independent volumes than it seems to.
    """
    if len(centred) == 1:  # alone, it would be rounded differently than among others
        return prewhitened(centred.expand(2, -1, -1))[:1]
    z = _standardise(centred)
    order = min(ORDER, z.shape[1] - 3)
    if order < 1:
        return ledoit_wolf_covariance(z)
    n = z.shape[1]
    past = torch.stack([z[:, order - 1 - k : n - 1 - k] for k in range(order)], dim=-1).flatten(1, 2)  # (B, N, order)
    now = z[:, order:].flatten(1).unsqueeze(2)  # (B, N, 1)
    normal = (past.mT @ past).double()
    normal += 1e-6 * normal.diagonal(dim1=1, dim2=2).mean(1).view(-1, 1, 1) * torch.eye(order)
    coefficients = torch.linalg.solve(normal, (past.mT @ now).double()).to(z.dtype)
    rest = (now - past @ coefficients).view(len(z), n - order, -1)
    return ledoit_wolf_covariance(_standardise(rest - rest.mean(1, keepdim=True)))


def lagged(centred: Tensor) -> Tensor:
    """Return the correlation of each region with each other one volume later, averaged over both directions."""
    z = _standardise(centred)
    product = z[:, 1:].mT @ z[:, :-1] / (z.shape[1] - 1)
    return (product + product.mT) / 2


ESTIMATES = {
    "standardised": standardised,
    "amplitude": amplitude,
    "prewhitened": prewhitened,
    "lagged": lagged,
}


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


def forget_shared() -> None:
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
