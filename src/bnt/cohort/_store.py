"""Cohorts on disk: atomic writing and checked reading of tables and arrays."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from functools import lru_cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from io import StringIO
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pandas as pd

from bnt.cohort._files import new_folder, read_json, readable
from bnt.cohort._scans import N_PROJECTIONS, same_scans, scan_digest, sketches
from bnt.cohort._triangle import EDGE_ORDER, n_edges
from bnt.errors import BadInput

FORMAT = 1
DTYPES = ("float32", "float16")
TIMES = ".times.json"  # apart from cohort.json, which is the same for the same cohort
_HEADER = 128  # bytes: one alignment unit of the .npy format, enough for any shape of ours


REQUIRED = ("participant_id", "site", "n_volumes", "family")
SCANS = ("participant_id", "n_volumes", "family", "digest", "scan", "series")  # columns of scans.tsv
COUNTS = ("n_missing_rois", "sub_id")  # facts about the scan: never offered as something to predict
DESCRIBED = ("kind", "diagonal", "atlas", "source", "levels", "findings")  # of a cohort and of its manifest
ROI_COLUMNS = ("roi", "label", "x", "y", "z", "network")
KIND_ALIASES = {"correlation": "pearson", "paper": "pearson", "released": "shrunk-z"}  # the last two: bnt 0.1.0


def canonical_kind(name: str) -> str:
    """Return the name of a connectivity kind as it is written today; names of bnt 0.1.0 are still read."""
    return KIND_ALIASES.get(name, name)


def complete_participants(participants: pd.DataFrame) -> pd.DataFrame:
    """Return the table with the columns every cohort has, in front, or say what is wrong with it."""
    table = participants.reset_index(drop=True).copy()
    if "participant_id" not in table:
        raise BadInput(f"The participants table has no participant_id column, only {list(table.columns)}.")
    table["participant_id"] = table["participant_id"].astype(str)
    repeated = table["participant_id"][table["participant_id"].duplicated()]
    if len(repeated):
        raise BadInput(
            f"Participant {repeated.iloc[0]!r} is listed twice in the participants table: keep one row per scan."
        )
    if "site" not in table:
        table["site"] = "unknown"
    table["site"] = table["site"].fillna("unknown").astype(str)
    if "n_volumes" not in table:
        table["n_volumes"] = pd.array([pd.NA] * len(table), dtype="Int64")
    table["n_volumes"] = table["n_volumes"].astype("Int64")
    if "family" not in table:
        table["family"] = table["participant_id"]
    table["family"] = table["family"].fillna(table["participant_id"]).astype(str)
    front = [*REQUIRED]
    return table[front + [c for c in table.columns if c not in front]]


def complete_rois(rois: pd.DataFrame | None, n_rois: int) -> pd.DataFrame:
    """Return the ROI table with its six columns; unknown ones are empty."""
    if rois is None:
        rois = pd.DataFrame({"roi": np.arange(1, n_rois + 1)})
    if len(rois) != n_rois:
        raise BadInput(f"The ROI table has {len(rois)} rows, the connectomes have {n_rois} ROIs.")
    table = rois.reset_index(drop=True).copy()
    if "roi" not in table:
        table["roi"] = np.arange(1, n_rois + 1)
    for column in ("label", "network"):
        table[column] = table[column].fillna("").astype(str) if column in table else ""
    for column in ("x", "y", "z"):
        table[column] = pd.to_numeric(table[column], errors="coerce") if column in table else np.nan
    return table[[*ROI_COLUMNS, *(c for c in table.columns if c not in ROI_COLUMNS)]]


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file, read in blocks."""
    digest = sha256()
    with open(path, "rb") as handle:
        while block := handle.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def size_and_time(path: Path) -> list[int]:
    """Return the size of a file and when it was last written, in nanoseconds: cheap signs that it is the same."""
    found = path.stat()
    return [found.st_size, found.st_mtime_ns]


def arrays_untouched(path: Path) -> bool:
    """Whether the arrays have the size and the time at which they were written; a copy may have other times."""
    try:
        times = json.loads((path / TIMES).read_text())
        return bool(times) and all(size_and_time(path / name) == found for name, found in times.items())
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        return False


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the ``cohort.json`` of a cohort's folder, or say why the folder is no cohort of ours."""
    file = path / "cohort.json"
    if not path.is_dir():
        raise BadInput(f"{path} is not a folder: give a cohort made by bnt simulate, bnt fetch or bnt import.")
    if not file.is_file():
        raise BadInput(f"{path} has no cohort.json, so it is not a cohort: make one with bnt import {path} OUT.")
    manifest = read_json(file, "write the cohort again")
    with readable(file, "write the cohort again"):
        int(manifest["n_rois"]), int(manifest["n_subjects"]), dict(manifest["sha256"])
    if manifest.get("format") != FORMAT:
        raise BadInput(f"{file} has format {manifest.get('format')}, this version reads {FORMAT}.")
    outside = [name for name in manifest["sha256"] if Path(name).is_absolute() or ".." in Path(name).parts]
    if outside:
        raise BadInput(f"{file} lists {outside[0]}, which is not in its folder: write the cohort again.")
    missing = [name for name in manifest["sha256"] if not (path / name).is_file()]
    if missing:
        raise BadInput(f"{path} lacks {missing[0]}, which its cohort.json lists: write the cohort again.")
    return dict(manifest)


def changed_files(path: Path) -> list[str]:
    """Return the files of a cohort whose bytes are not those that its manifest recorded (reads everything)."""
    recorded: dict[str, str] = json.loads((path / "cohort.json").read_text())["sha256"]
    return [name for name, digest in recorded.items() if file_sha256(path / name) != digest]


class GrowingArray:
    """An .npy file written row by row; its header is put in place when the number of rows is known."""

    def __init__(self, path: Path, n_columns: int, dtype: str) -> None:
        self.n_columns, self.dtype, self.n_rows = n_columns, np.dtype(dtype), 0
        self._file = open(path, "wb")  # noqa: SIM115 - closed by close()
        self._file.write(b"\0" * _HEADER)

    def append(self, rows: np.ndarray) -> None:
        self._file.write(np.ascontiguousarray(rows, dtype=self.dtype).data)
        self.n_rows += len(rows)

    def close(self) -> None:
        shape = (self.n_rows, self.n_columns)
        text = f"{{'descr': '{self.dtype.str}', 'fortran_order': False, 'shape': {shape}, }}"
        head = b"\x93NUMPY\x01\x00" + (_HEADER - 10).to_bytes(2, "little")
        self._file.seek(0)
        self._file.write(head + text.ljust(_HEADER - 11).encode("latin1") + b"\n")
        self._file.close()


class CohortWriter:
    """Write a cohort batch by batch, with at most one batch in memory.

    A context manager. The folder appears, complete and synced, when the block ends without an
    exception and :meth:`finish` was called; otherwise nothing is left behind.

    Parameters
    ----------
    path : path
        The folder to make.
    n_rois : int
    dtype : {"float32", "float16"}
    overwrite : bool
        Replace a cohort that is there already.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from bnt.cohort import CohortWriter, load_cohort
    >>> with CohortWriter("written", n_rois=4, overwrite=True) as writer:
    ...     writer.append(np.zeros((2, 6)))
    ...     writer.append(np.ones((1, 6)))
    ...     writer.finish(pd.DataFrame({"participant_id": ["a", "b", "c"]}))
    >>> load_cohort("written").connectomes.shape
    (3, 6)
    """

    def __init__(self, path: str | Path, n_rois: int, *, dtype: str = "float32", overwrite: bool = False) -> None:
        if dtype not in DTYPES:
            raise BadInput(f"dtype is {dtype!r}: choose one of {', '.join(DTYPES)}.", "dtype")
        self.path, self.n_rois, self.dtype = Path(path), n_rois, dtype
        self._overwrite = overwrite
        self._stack = ExitStack()
        self._digests: list[str] = []
        self._sketches: list[np.ndarray] = [np.empty((0, N_PROJECTIONS))]
        self._series_digests: list[str] = []
        self._lengths: list[int] = []
        self._series: GrowingArray | None = None
        self._finished = False

    def __enter__(self) -> CohortWriter:
        self._work = self._stack.enter_context(new_folder(self.path, overwrite=self._overwrite))
        self._edges = GrowingArray(self._work / "connectomes.npy", n_edges(self.n_rois), self.dtype)
        return self

    def append(self, edges: np.ndarray, series: Iterable[np.ndarray] | None = None) -> None:
        """Add subjects.

        Parameters
        ----------
        edges : array, (n, V(V-1)/2)
        series : iterable of (volumes, V) arrays, optional
            For all subjects or for none.
        """
        edges = np.asarray(edges)
        if edges.ndim != 2 or edges.shape[1] != n_edges(self.n_rois):
            raise BadInput(
                f"Connectomes of shape {edges.shape} do not fit {self.n_rois} ROIs ({n_edges(self.n_rois)} edges)."
            )
        stored = np.ascontiguousarray(edges, dtype=self.dtype)
        self._digests += [scan_digest(row) for row in stored]
        self._sketches.append(sketches(stored))
        self._edges.append(stored)
        for one in series if series is not None else ():
            if np.ndim(one) != 2 or np.shape(one)[1] != self.n_rois:
                raise BadInput(f"A series has shape {np.shape(one)}, expected (volumes, {self.n_rois}).")
            if self._series is None:
                self._series = GrowingArray(self._work / "timeseries.npy", self.n_rois, "float32")
            self._series.append(one)
            self._lengths.append(len(one))
            self._series_digests.append(scan_digest(one))

    def finish(
        self,
        participants: pd.DataFrame,
        rois: pd.DataFrame | None = None,
        *,
        kind: str = "pearson",
        diagonal: float = 1.0,
        atlas: str = "",
        source: Mapping[str, Any] | None = None,
        levels: Mapping[str, Mapping[str, str]] | None = None,
        findings: Iterable[Mapping[str, Any]] = (),
    ) -> None:
        """Write the tables and the manifest; the parameters are those of :class:`~bnt.cohort.Cohort`."""
        table = complete_participants(participants)
        if len(table) != self._edges.n_rows:
            raise BadInput(f"{self._edges.n_rows} connectomes were written, {len(table)} participants are listed.")
        if self._series is not None and len(self._lengths) != len(table):
            raise BadInput(f"{len(self._lengths)} of {len(table)} subjects have series: give all or none.")
        if self._series is not None:
            table["n_volumes"] = pd.array(self._lengths, dtype="Int64")
            self._series.close()
        self._edges.close()
        table.to_csv(self._work / "participants.tsv", sep="\t", index=False, na_rep="n/a")
        self._scan_table(table).to_csv(self._work / "scans.tsv", sep="\t", index=False, na_rep="n/a")
        complete_rois(rois, self.n_rois).to_csv(self._work / "rois.tsv", sep="\t", index=False, na_rep="n/a")
        names = ("brain-network-transformer", "numpy", "nilearn")
        manifest = {
            "format": FORMAT,
            "atlas": atlas,
            "n_subjects": len(table),
            "n_rois": self.n_rois,
            "kind": canonical_kind(kind),
            "diagonal": diagonal,
            "edge_order": EDGE_ORDER,
            "dtype": self.dtype,
            "source": dict(source or {}),
            "levels": {k: dict(v) for k, v in (levels or {}).items()},
            "findings": [dict(f) for f in findings],
            "versions": {name: _version(name) for name in names},
            "sha256": {f.name: file_sha256(f) for f in sorted(self._work.iterdir())},
        }
        (self._work / "cohort.json").write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")
        times = {f.name: size_and_time(f) for f in sorted(self._work.glob("*.npy"))}
        (self._work / TIMES).write_text(json.dumps(times) + "\n")
        self._finished = True

    def _scan_table(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return ``scans.tsv``: what the guard and the digest of the data need, apart from what users edit."""
        edges, count = np.load(self._work / "connectomes.npy", mmap_mode="r"), n_edges(self.n_rois)
        names = same_scans(self._digests, np.concatenate(self._sketches), count, lambda rows: edges[rows])
        series = self._series_digests or [""] * len(table)
        facts = [c for c in (*SCANS[:3], "n_missing_rois") if c in table]
        return table[facts].assign(digest=self._digests, scan=names, series=series)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and not self._finished:
            kind, error = (RuntimeError, RuntimeError("CohortWriter: the block ended before finish() was called."))
            self._stack.__exit__(kind, error, None)
            raise error
        self._stack.__exit__(kind, error, trace)


def open_array(path: Path, n_columns: int) -> np.memmap:
    """Map an .npy file of ours, or say what is wrong with it. Objects (pickles) are never read."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except MemoryError:
        raise
    except Exception as error:  # numpy raises nearly anything where a header is damaged
        raise BadInput(f"{path} cannot be read as a plain .npy array ({error}): write the cohort again.") from error
    if array.ndim != 2 or array.shape[1] != n_columns or str(array.dtype) not in DTYPES:
        raise BadInput(
            f"{path} holds {array.dtype} of shape {array.shape}, expected float32 or float16 with {n_columns} "
            "columns: write the cohort again."
        )
    return array


def refuse_control_characters(path: Path, text: str) -> None:
    """Refuse a table with characters that mean nothing in it and that a terminal obeys when they are printed."""
    found = re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x9b]", text)
    if found:
        line = text.count("\n", 0, found.start()) + 1
        raise BadInput(f"{path} has a control character (code {ord(found[0])}) in line {line}: remove it.")


def read_table(path: Path, strings: tuple[str, ...] = ()) -> pd.DataFrame:
    """Read a table of a cohort's folder; columns in ``strings`` stay text."""
    try:
        text = path.read_text(encoding="utf-8")
        # Only what the writer writes is missing: None, NA and NULL may be classes, sites or groups.
        table = pd.read_csv(
            StringIO(text), sep="\t", dtype=dict.fromkeys(strings, str), na_values=["n/a", ""], keep_default_na=False
        )
    except (OSError, ValueError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read as a tab-separated table: {' '.join(str(error).split())}.") from error
    refuse_control_characters(path, text)
    return table


def read_scans(path: Path, manifest: Mapping[str, Any]) -> pd.DataFrame | None:
    """Return the ``scans.tsv`` of a cohort; None for cohorts of bnt 0.1 and 0.2, which have none."""
    file = path / "scans.tsv"
    if "scans.tsv" not in manifest["sha256"]:
        return None
    if file_sha256(file) != manifest["sha256"]["scans.tsv"]:
        raise BadInput(f"{file} was changed, and it says who must stay together in a split: write the cohort again.")
    return read_table(file, tuple(c for c in SCANS if c != "n_volumes")).fillna({"series": "", "family": ""})


def read_rois(path: Path, manifest: Mapping[str, Any]) -> pd.DataFrame:
    """Return the ``rois.tsv`` of a cohort, whose rows are the ROIs of the arrays; users may edit its other columns."""
    file = path / "rois.tsv"
    table = read_table(file, ("label", "network"))
    lost = [name for name in ROI_COLUMNS if name not in table]
    if lost:
        raise BadInput(f"{file} has lost its column {lost[0]}: put it back.")
    if file_sha256(file) != manifest["sha256"].get("rois.tsv"):
        numbers = pd.to_numeric(table["roi"], errors="coerce")
        if not (numbers.is_monotonic_increasing and numbers.is_unique and numbers.notna().all()):
            raise BadInput(f"{file} was changed, and its rows are no longer in the order of the arrays: restore it.")
    return table


@lru_cache(maxsize=1)
def _halves() -> np.ndarray:
    """Every float16 as float32, by its bits: looking them up is faster than numpy's conversion."""
    return np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)


def read_rows(path: Path, array: np.memmap, rows: np.ndarray) -> np.ndarray:
    """Read rows of a mapped .npy file with ``pread`` into a new float32 array."""
    n_columns = array.shape[1]
    width = n_columns * array.dtype.itemsize
    out = np.empty((rows.size, n_columns), dtype=np.float32)
    bits = np.empty(n_columns, dtype=np.uint16) if array.dtype == np.float16 else None  # one row at a time: in cache
    handle = os.open(path, os.O_RDONLY)
    try:
        for i, row in enumerate(rows.ravel().tolist()):
            row += len(array) if row < 0 else 0
            target = out[i] if bits is None else bits
            read = os.preadv(handle, [target.data], array.offset + row * width)
            if read != width:
                raise BadInput(f"{path} ends inside subject {row}: it was truncated; write the cohort again.")
            if bits is not None:
                np.take(_halves(), bits, out=out[i], mode="clip")  # "clip" writes to ``out`` without a buffer
    finally:
        os.close(handle)
    return out
