"""What is computed once from the series of a whole cohort, one row per subject, and kept beside it.

``COHORT/cache`` holds plain arrays, mapped into memory when they are read. The name of a file has a digest of
everything that decides its numbers: the series, the code's revision, the libraries and the processor. A file is written
under a lock and appears whole. Nothing there is needed: whoever deletes the folder waits a little longer next time.
Where the cohort's folder cannot be written, the user's state folder (``BNT_STATE``) is used.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path

import numpy as np

from bnt.cohort._cohort import Cohort
from bnt.cohort._files import held, state_folder, sync_file, sync_folder, write_atomic
from bnt.cohort._scans import Series
from bnt.cohort._store import GrowingArray, size_and_time
from bnt.errors import BadInput

FOLDER = "cache"
AT_ONCE = 256  # subjects
WAIT_SECONDS = 3600.0  # for another process that computes the same: it is not computed twice

Make = Callable[[Sequence[np.ndarray]], np.ndarray]  # series of some subjects -> one row each


class SeriesCache:
    """Rows computed from each subject's series, on disk.

    Parameters
    ----------
    cohort : Cohort
        Opened from disk; its whole folder is meant, whatever is selected.
    most_bytes : int
        Largest size of the cache's folder.
    """

    def __init__(self, cohort: Cohort, most_bytes: int) -> None:
        self.whole = cohort._series if cohort.path is not None else None
        self.most_bytes = most_bytes
        self._scans = cohort._scans
        self._folders = [] if cohort.path is None else [cohort.path / FOLDER, state_folder() / FOLDER]
        self._open: dict[str, tuple[np.ndarray, float]] = {}

    def rows_of(self, series: Sequence[np.ndarray]) -> np.ndarray | None:
        """Return the positions of these series in the cohort; None where they are of another one."""
        whole = self.whole
        if whole is None or not isinstance(series, Series) or series.stacked is not whole.stacked or not len(series):
            return None
        rows = np.minimum(np.searchsorted(whole.starts, series.starts), len(whole) - 1)
        same = np.array_equal(whole.starts[rows], series.starts) and np.array_equal(whole.lengths[rows], series.lengths)
        return rows if same else None

    def array(self, name: str, made_with: str, width: int, make: Make) -> tuple[np.ndarray, float] | None:
        """Return the rows of all subjects, mapped from the disk, and the CPU seconds that making them cost before.

        None where nothing can be kept: no folder can be written, or the array is larger than the bound.

        Parameters
        ----------
        name : str
            What is computed; part of the file's name.
        made_with : str
            Whatever else decides the numbers.
        width : int
            Numbers per subject.
        make : callable
        """
        if self.whole is None or len(self.whole) * width * 4 > self.most_bytes:
            return None
        key = self._key(made_with)
        file = f"{name}-{key}.npy"
        if file in self._open:
            return self._open[file]
        shape = (len(self.whole), width)
        found = next(filter(None, (_opened(folder / file, shape) for folder in self._folders)), None)
        if found is not None:
            self._open[file] = found
            return found
        for folder in self._folders:
            try:
                found = self._made(folder, file, shape, make)
            except OSError:
                continue  # not here: the folder cannot be written, or the disk is full
            except BadInput:
                return None  # a subject whose series cannot be used; whoever asks for that one is told
            if found is None:
                break  # there is no room
            self._open[file] = found
            return found[0], 0.0
        return None

    def _key(self, made_with: str) -> str:
        digests = self._scans.series
        assert digests is not None
        return sha256("\n".join([made_with, *digests.tolist()]).encode()).hexdigest()[:24]

    def _made(self, folder: Path, file: str, shape: tuple[int, int], make: Make) -> tuple[np.ndarray, float] | None:
        """Compute an array and keep it in a folder, unless another process does so first; OSError where it cannot."""
        assert self.whole is not None
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(folder)
        path, temporary = folder / file, folder / f"{file}.tmp"
        with held(path.with_suffix(".lock"), wait=WAIT_SECONDS, of=path):
            found = _opened(path, shape)
            if found is not None:
                return found
            if not self._has_room(folder, file, shape[0] * shape[1] * 4):
                return None
            started = time.process_time()
            try:
                growing = GrowingArray(temporary, shape[1], "float32")
                try:
                    for start in range(0, shape[0], AT_ONCE):
                        growing.append(make(self.whole[start : start + AT_ONCE]))
                finally:
                    growing.close()
                sync_file(temporary)
                os.replace(temporary, path)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
            sync_folder(folder)
            facts = {"file": size_and_time(path), "cpu_seconds": round(time.process_time() - started, 3)}
            write_atomic(_facts_of(path), json.dumps(facts) + "\n")
            return _opened(path, shape)

    def _has_room(self, folder: Path, file: str, needed: int) -> bool:
        """Delete what other data or another version left, oldest first, until there is room; never what is in use."""
        key = file.rpartition("-")[2]
        there = sorted(_arrays(folder), key=lambda path: path.stat().st_mtime_ns)
        total = sum(path.stat().st_size for path in there)
        for path in there:
            if total + needed <= self.most_bytes:
                break
            if not path.name.endswith(key):
                total -= path.stat().st_size
                path.unlink(missing_ok=True)
                _facts_of(path).unlink(missing_ok=True)
        return total + needed <= self.most_bytes


def _arrays(folder: Path) -> Iterator[Path]:
    return (path for path in folder.glob("*.npy") if path.is_file() and not path.is_symlink())


def _facts_of(path: Path) -> Path:
    return path.with_suffix(".json")


def _opened(path: Path, shape: tuple[int, int]) -> tuple[np.ndarray, float] | None:
    """Map an array that is as it was written; None where there is none, or where it was touched since."""
    try:
        facts = json.loads(_facts_of(path).read_text())
        if size_and_time(path) != facts["file"]:
            return None
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        seconds = float(facts["cpu_seconds"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return (array, seconds) if array.shape == shape and array.dtype == np.float32 else None


def cache_size(path: Path) -> tuple[int, int]:
    """Return how many arrays are kept beside a cohort, and their bytes."""
    sizes = [file.stat().st_size for file in _arrays(path / FOLDER)]
    return len(sizes), sum(sizes)
