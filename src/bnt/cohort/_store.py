"""A cohort on disk: written once, whole or not at all; opened in milliseconds whatever its size."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pandas as pd

from bnt.cohort._cohort import Cohort, Series, canonical_kind, complete_participants, complete_rois, scan_digest
from bnt.cohort._files import new_folder
from bnt.cohort._triangle import EDGE_ORDER, n_edges
from bnt.errors import BadInput

FORMAT = 1
DTYPES = ("float32", "float16")
_HEADER = 128  # bytes: one alignment unit of the .npy format, enough for any shape of ours


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file, read in blocks."""
    digest = sha256()
    with open(path, "rb") as handle:
        while block := handle.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


class _GrowingArray:
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
    """Write a cohort batch by batch: never more than one batch in memory.

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
            raise BadInput(f"dtype {dtype!r} is not one of {', '.join(DTYPES)}.")
        self.path, self.n_rois, self.dtype = Path(path), n_rois, dtype
        self._overwrite = overwrite
        self._stack = ExitStack()
        self._scans: list[str] = []
        self._lengths: list[int] = []
        self._series: _GrowingArray | None = None
        self._finished = False

    def __enter__(self) -> CohortWriter:
        self._work = self._stack.enter_context(new_folder(self.path, overwrite=self._overwrite))
        self._edges = _GrowingArray(self._work / "connectomes.npy", n_edges(self.n_rois), self.dtype)
        return self

    def append(self, edges: np.ndarray, series: Iterable[np.ndarray] | None = None) -> None:
        """Add subjects: their (n, V(V-1)/2) vectors and, for all subjects or for none, their series."""
        edges = np.asarray(edges)
        if edges.ndim != 2 or edges.shape[1] != n_edges(self.n_rois):
            raise BadInput(
                f"Connectomes of shape {edges.shape} do not fit {self.n_rois} ROIs ({n_edges(self.n_rois)} edges)."
            )
        stored = np.ascontiguousarray(edges, dtype=self.dtype)
        self._scans += [scan_digest(row) for row in stored]
        self._edges.append(stored)
        for one in series if series is not None else ():
            if np.ndim(one) != 2 or np.shape(one)[1] != self.n_rois:
                raise BadInput(f"A series has shape {np.shape(one)}, expected (volumes, {self.n_rois}).")
            if self._series is None:
                self._series = _GrowingArray(self._work / "timeseries.npy", self.n_rois, "float32")
            self._series.append(one)
            self._lengths.append(len(one))

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
        from importlib.metadata import PackageNotFoundError, version

        table = complete_participants(participants)
        if len(table) != self._edges.n_rows:
            raise BadInput(f"{self._edges.n_rows} connectomes were written, {len(table)} participants are listed.")
        if self._series is not None and len(self._lengths) != len(table):
            raise BadInput(f"{len(self._lengths)} of {len(table)} subjects have series: give all or none.")
        table["scan"] = self._scans
        if self._series is not None:
            table["n_volumes"] = pd.array(self._lengths, dtype="Int64")
            self._series.close()
        self._edges.close()
        table.to_csv(self._work / "participants.tsv", sep="\t", index=False, na_rep="n/a")
        complete_rois(rois, self.n_rois).to_csv(self._work / "rois.tsv", sep="\t", index=False, na_rep="n/a")
        versions = {}
        for name in ("brain-network-transformer", "numpy", "nilearn"):
            try:
                versions[name] = version(name)
            except PackageNotFoundError:
                versions[name] = "not installed"
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
            "versions": versions,
            "sha256": {f.name: file_sha256(f) for f in sorted(self._work.iterdir())},
        }
        (self._work / "cohort.json").write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")
        self._finished = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and not self._finished:
            kind, error = (
                RuntimeError,
                RuntimeError("CohortWriter: the block ended before finish() was called."),
            )
            self._stack.__exit__(kind, error, None)
            raise error
        self._stack.__exit__(kind, error, trace)


def save_cohort(cohort: Cohort, path: str | Path, *, dtype: str = "float32", overwrite: bool = False) -> Cohort:
    """Write any cohort or view as a folder, 256 subjects at a time, and open it."""
    with CohortWriter(path, cohort.n_rois, dtype=dtype, overwrite=overwrite) as writer:
        for start in range(0, len(cohort), 256):
            rows = np.arange(start, min(start + 256, len(cohort)))
            series = cohort.timeseries
            writer.append(cohort.edges(rows), None if series is None else [series[i] for i in rows])
        writer.finish(
            cohort.participants,
            cohort.rois,
            kind=cohort.kind,
            diagonal=cohort.diagonal,
            atlas=cohort.atlas,
            source=cohort.source,
            levels=cohort.levels,
            findings=cohort.findings,
        )
    return load_cohort(path)


def _open_array(path: Path, n_columns: int) -> np.memmap:
    """Map an .npy file of ours, or say what is wrong with it. Objects (pickles) are never read."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read as a plain .npy array ({error}): write the cohort again.") from error
    if array.ndim != 2 or array.shape[1] != n_columns or str(array.dtype) not in DTYPES:
        raise BadInput(
            f"{path} holds {array.dtype} of shape {array.shape}, expected float32 or float16 with {n_columns} "
            "columns: write the cohort again."
        )
    return array


def read_table(path: Path, strings: tuple[str, ...] = ()) -> pd.DataFrame:
    """Read a table of a cohort's folder; columns in ``strings`` stay text."""
    try:
        # Only what the writer writes is missing: None, NA and NULL may be classes, sites or groups.
        return pd.read_csv(
            path, sep="\t", dtype=dict.fromkeys(strings, str), na_values=["n/a", ""], keep_default_na=False
        )
    except (OSError, ValueError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read as a tab-separated table: {error}.") from error


def load_cohort(path: str | Path) -> Cohort:
    """Open a cohort folder; arrays are memory-mapped, so the size does not matter.

    Parameters
    ----------
    path : path
        A folder made by ``bnt simulate``, ``bnt fetch``, ``bnt import`` or :meth:`Cohort.save`.

    Returns
    -------
    Cohort

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.load_cohort("cohort")  # a folder made by bnt simulate cohort
    >>> cohort.connectomes.shape
    (40, 190)
    """
    path = Path(path)
    manifest_file = path / "cohort.json"
    if not path.is_dir():
        raise BadInput(f"{path} is not a folder: give a cohort made by bnt simulate, bnt fetch or bnt import.")
    if not manifest_file.is_file():
        raise BadInput(f"{path} has no cohort.json, so it is not a cohort: make one with bnt import {path} OUT.")
    try:
        manifest = json.loads(manifest_file.read_text())
        n_rois, n_subjects = int(manifest["n_rois"]), int(manifest["n_subjects"])
        hashes = dict(manifest["sha256"])
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise BadInput(f"{manifest_file} is not a manifest of ours ({error!r}): write the cohort again.") from error
    if manifest.get("format") != FORMAT:
        raise BadInput(f"{manifest_file} has format {manifest.get('format')}, this version reads {FORMAT}.")
    missing = [name for name in hashes if not (path / name).is_file()]
    if missing:
        raise BadInput(f"{path} lacks {missing[0]}, which its cohort.json lists: write the cohort again.")
    edges = _open_array(path / "connectomes.npy", n_edges(n_rois))
    participants = read_table(path / "participants.tsv", ("participant_id", "site", "group", "scan"))
    rois = read_table(path / "rois.tsv", ("label", "network"))
    if not len(edges) == len(participants) == n_subjects:
        raise BadInput(
            f"{path} has {len(edges)} connectomes, {len(participants)} participants and {n_subjects} in cohort.json."
        )
    series = None
    if "timeseries.npy" in hashes:
        stacked = _open_array(path / "timeseries.npy", n_rois)
        lengths = participants["n_volumes"].to_numpy(dtype=np.int64)
        if lengths.sum() != len(stacked):
            raise BadInput(
                f"{path / 'timeseries.npy'} has {len(stacked)} volumes, participants.tsv counts {lengths.sum()}."
            )
        series = Series(stacked, np.cumsum(lengths) - lengths, lengths)
    return Cohort(
        edges,
        participants,
        rois,
        timeseries=series,
        kind=manifest["kind"],
        diagonal=manifest["diagonal"],
        atlas=manifest["atlas"],
        source=manifest["source"],
        levels=manifest["levels"],
        findings=manifest["findings"],
        path=path,
    )


def verify_cohort(path: str | Path) -> None:
    """Compare every file of a cohort with the sha256 in its manifest (reads everything)."""
    path = Path(path)
    for name, expected in json.loads((path / "cohort.json").read_text())["sha256"].items():
        found = file_sha256(path / name)
        if found != expected:
            raise BadInput(
                f"{path / name} has changed since it was written (sha256 {found[:12]}..., recorded "
                f"{expected[:12]}...): write the cohort again."
            )


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
