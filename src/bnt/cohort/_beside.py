"""Additional files in a cohort's folder: other atlases, and cached matrices computed from the time series.

::

    cohort/                 a cohort like any other, of the first atlas; cohort.json lists all ``atlases``
      participants.tsv      the one table of people
      atlas-msdl/           a cohort of the same people: cohort.json, rois.tsv, connectomes.npy, timeseries.npy and
                            scans.tsv, but no table of people

Both ``cohort`` and ``cohort/atlas-msdl`` open as cohorts, so that every command takes either.

``COHORT/cache`` holds plain arrays, mapped into memory when they are read. The name of a file has a digest of
everything that decides its numbers: the series, the code's revision, the libraries and the processor. A file is written
under a lock and appears whole. Nothing there is needed: whoever deletes the folder waits a little longer next time.
Where the cohort's folder cannot be written, the user's state folder (``BNT_STATE``) is used.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from hashlib import file_digest, sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bnt.cohort._files import held, new_folder, state_folder, sync_file, sync_folder, write_atomic
from bnt.cohort._scans import Series, as_stored
from bnt.cohort._store import GrowingArray, file_sha256, read_manifest, read_table, size_and_time
from bnt.errors import BadInput

if TYPE_CHECKING:
    from bnt.cohort._cohort import Cohort

TEXT_COLUMNS = ("participant_id", "site", "family")


def root_of(path: Path) -> Path:
    """Return the folder with the table of people: the folder itself, or the one above an atlas' folder."""
    return path.parent if (path / "scans.tsv").is_file() and not (path / "participants.tsv").is_file() else path


def atlas_folder(path: Path, manifest: Mapping[str, Any], atlas: str) -> Path:
    """Return the folder of one atlas of a cohort."""
    root = root_of(path)
    names = manifest.get("atlases") or [manifest["atlas"]]
    if atlas not in names:
        there = ", ".join(name for name in names if name) or "without a name"
        raise BadInput(f"{root} has no atlas {atlas!r}; it has {there}.", "atlas")
    return root if atlas == names[0] else root / f"atlas-{atlas}"


def read_people(path: Path, scans: pd.DataFrame | None) -> pd.DataFrame:
    """Read the participants table of a cohort with its own scans; that of an atlas' folder is the one above."""
    file = root_of(path) / "participants.tsv"
    texts = TEXT_COLUMNS if scans is not None else ("participant_id", "site", "group")  # the latter: bnt 0.1 and 0.2
    return as_stored(read_table(file, texts), scans, file)


def write_together(out: Path, makers: Mapping[str, Callable[[Path], object]], *, overwrite: bool = False) -> None:
    """Make one cohort of several atlases: the folder appears when all of them are there, or not at all.

    Parameters
    ----------
    makers : mapping
        For each atlas what makes its cohort in the folder that it is given; the first is the cohort's own.
    overwrite : bool
        Replace an existing cohort at ``out``.
    """
    first, *others = makers
    with new_folder(out, overwrite=overwrite) as work:
        for name, make in makers.items():
            make(work / f"atlas-{name}")
        manifests = {name: read_manifest(work / f"atlas-{name}") for name in makers}
        people = read_table(work / f"atlas-{first}" / "participants.tsv", TEXT_COLUMNS)
        for name in others:
            _share(work / f"atlas-{name}", people, first, name)
        own = work / f"atlas-{first}"
        for file in list(own.iterdir()):
            os.replace(file, work / file.name)
        own.rmdir()
        for name, described in manifests.items():
            folder = work if name == first else work / f"atlas-{name}"
            manifest = described | {"atlases": list(makers)}
            manifest["sha256"] = {
                name: file_sha256(folder / name) for name in described["sha256"] if (folder / name).is_file()
            }
            write_atomic(folder / "cohort.json", json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")


def _share(folder: Path, people: pd.DataFrame, first: str, name: str) -> None:
    """Remove the participants table of an atlas' folder, which has the people of the first atlas."""
    table = read_table(folder / "participants.tsv", TEXT_COLUMNS)
    mine, theirs = table["participant_id"].tolist(), people["participant_id"].tolist()
    if mine != theirs:
        odd = sorted(set(mine) ^ set(theirs)) or [a for a, b in zip(mine, theirs) if a != b]
        has = name if odd[0] in mine else first
        raise BadInput(
            f"{odd[0]} has a scan of atlas {has} and none of {first if has == name else name}: atlases of one cohort "
            "have the same people; leave the scan out, or import the atlases apart."
        )
    (folder / "participants.tsv").unlink()


class CohortInMemory(AbstractContextManager["CohortInMemory"]):
    """Takes what a :class:`~bnt.cohort.CohortWriter` takes; its ``cohort`` is in memory after :meth:`finish`."""

    def __init__(self, n_rois: int) -> None:
        self.n_rois = n_rois
        self._edges: list[np.ndarray] = []
        self._series: list[np.ndarray] = []

    def __exit__(self, *_: object) -> None: ...

    def append(self, edges: np.ndarray, series: Iterable[np.ndarray] | None = None) -> None:
        """Add subjects, as :meth:`bnt.cohort.CohortWriter.append` does."""
        self._edges.append(edges)
        self._series += [] if series is None else list(series)

    def finish(self, participants: pd.DataFrame, rois: pd.DataFrame | None = None, **described: Any) -> None:
        """Make the cohort; the parameters are those of :class:`Cohort`."""
        from bnt.cohort._cohort import Cohort

        edges, series = np.concatenate(self._edges), self._series or None
        self.cohort = Cohort(edges, participants, rois, timeseries=series, **described)


FOLDER = "cache"
MOST_DIGESTED = 2 * 10**9  # bytes of an array that is compared with its digest once per process: a second per GB
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
            temporary.unlink(missing_ok=True)  # a link of that name, in a folder from elsewhere, is not written through
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
            seconds = round(time.process_time() - started, 3)
            facts = {"file": size_and_time(path), "digest": _digest(path), "cpu_seconds": seconds}
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
    """Yield the arrays that a cache has written: others in its folder, or in one that it is a link to, are not ours."""
    ours = (path for path in folder.glob("*.npy") if re.fullmatch(r"\w+-[0-9a-f]{24}", path.stem))
    return (path for path in ours if path.is_file() and not path.is_symlink())


def _facts_of(path: Path) -> Path:
    return path.with_suffix(".json")


def _digest(path: Path) -> str:
    """Return a digest of an array's file; none of one so large that reading it again would take long."""
    if path.stat().st_size > MOST_DIGESTED:
        return ""
    with open(path, "rb") as handle:
        return file_digest(handle, "blake2b").hexdigest()


def _opened(path: Path, shape: tuple[int, int]) -> tuple[np.ndarray, float] | None:
    """Map an array that is as it was written; None where there is none, or where it was touched since."""
    try:
        facts = json.loads(_facts_of(path).read_text())
        if size_and_time(path) != facts["file"] or _digest(path) != facts["digest"]:
            return None
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        seconds = float(facts["cpu_seconds"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return (array, seconds) if array.shape == shape and array.dtype == np.float32 else None


def cache_size(path: Path) -> tuple[int, int]:
    """Return how many arrays are kept beside a cohort, and their bytes."""
    sizes = [file.stat().st_size for file in _arrays(path / FOLDER)]
    return len(sizes), sum(sizes)
