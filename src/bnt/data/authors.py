"""The paper authors' ``abide.npy``: a pickled dictionary of arrays, read without running the pickle.

Its keys are ``timeseires`` (their spelling; (n, V, T), the first 100 volumes), ``corr`` and ``pcorr`` ((n, V, V),
Ledoit-Wolf correlations of the whole series after arctanh, zero diagonal), ``label`` and ``site``.
There ``label`` is 0 for autism and 1 for controls; here ``diagnosis`` is 1 for autism. It holds no subject
ids, and the order of its subjects is that of some folder once, so they are numbered.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bnt.data.inert_pickle import Refused, read_inert
from bnt.data.scan import Content, Scan, as_numbers, parsing
from bnt.errors import BadInput

LEVELS = {"diagnosis": {"0": "control", "1": "ASD"}}


def is_object_array(file: Path) -> bool:
    """Tell whether an ``.npy`` file holds a pickle; only its header is read."""
    with parsing(file, "an .npy file"), open(file, "rb") as stream:
        return _object_header(stream)


def _object_header(stream: Any) -> bool:
    if stream.read(6) != b"\x93NUMPY":
        return False
    stream.seek(0)
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    return bool(read(stream)[2].hasobject)


def read_authors(file: Path) -> dict[str, Any]:
    """Return the dictionary, its arrays checked against each other."""
    with parsing(file, "the authors' abide.npy"), open(file, "rb") as stream:
        if not _object_header(stream):
            raise BadInput(f"{file} is not a pickled dictionary: give it as a plain file of arrays.")
        try:
            content = read_inert(stream)
        except Refused as refusal:
            raise BadInput(
                f"{file} is a pickle that holds {refusal}, which plain arrays do not need: it was not run; "
                "save the arrays with numpy.savez instead."
            ) from refusal
    if not isinstance(content, dict) or "corr" not in content or "label" not in content:
        keys = ", ".join(map(str, content)) if isinstance(content, dict) else type(content).__name__
        raise BadInput(
            f"{file} is a pickle of other things ({keys[:80]}) than the authors' dictionary with corr and label: "
            "save the arrays with numpy.savez instead."
        )
    corr, label = np.asarray(content["corr"]), np.asarray(content["label"]).ravel()
    if corr.ndim != 3 or corr.shape[1] != corr.shape[2] or corr.shape[1] < 2 or len(label) != len(corr):
        raise BadInput(f"{file} has corr of shape {corr.shape} and {len(label)} labels: give (n, V, V) and n.")
    if label.dtype.kind not in "biuf" or not np.isin(label, (0, 1)).all():
        raise BadInput(f"{file} has labels other than 0 (autism) and 1 (control): give the authors' file.")
    checked: dict[str, Any] = {"corr": as_numbers(corr, file), "diagnosis": 1 - label.astype(int)}
    if "site" in content:
        site = [s.decode("latin1") if isinstance(s, bytes) else str(s) for s in np.asarray(content["site"]).ravel()]
        if len(site) != len(corr):
            raise BadInput(f"{file} has {len(site)} sites for {len(corr)} subjects: give the authors' file.")
        checked["site"] = site
    series = content.get("timeseires", content.get("timeseries"))
    if series is not None:
        series = as_numbers(np.asarray(series), file)
        if series.ndim != 3 or series.shape[:2] != corr.shape[:2]:
            raise BadInput(f"{file} has series of shape {series.shape} for corr of shape {corr.shape}.")
        checked["series"] = series
    return checked


def find_authors(file: Path, *, kind: str | None = None, content: str = "auto") -> tuple[list[Scan], str]:
    """Return the subjects of the file and the kind of their connectomes.

    The matrices of the file are taken (kind ``released``), with the series kept beside them. Another
    kind, or ``content="series"``, computes it from the series, of which the file holds 100 volumes.
    A pickle cannot be read in parts: the whole file is held in memory, 0.8 GB for the 1,009 subjects.
    """
    held = read_authors(file)
    stored = content != "series" and kind in (None, "released")
    if not stored and "series" not in held:
        raise BadInput(f"{file} holds no series to compute {kind or 'paper'!r} from: pass --kind released.")
    if not stored and content == "matrix":
        raise BadInput(
            f"{file} holds matrices of kind released, not {kind!r}: pass --kind released or --content series."
        )

    def load(i: int) -> Content:
        series = held["series"][i].T if "series" in held else None  # (T, V)
        return Content(series=series, matrix=held["corr"][i] if stored else None)

    scans = []
    for i in range(len(held["corr"])):
        columns = {"diagnosis": int(held["diagnosis"][i])}
        if "site" in held:
            columns["site"] = held["site"][i]
        scans.append(Scan(f"authors-{i + 1:04d}", file, partial(load, i), columns=columns))
    return scans, "released" if stored else kind or "paper"
