"""Arrays in ``.npy`` and ``.npz`` files; pickles in them are never loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bnt.data.scan import parsing
from bnt.errors import BadInput

ID_NAMES = ("ids", "participant_id", "participant_ids", "subject_ids", "subjects")
LABEL_NAMES = ("roi_labels", "roi_names")
MAIN_NAMES = ("connectomes", "timeseries", "series", "connectome", "matrix", "matrices", "corr", "data", "x")


@dataclass(frozen=True)
class Arrays:
    """What a file of arrays holds: the numbers, and the ids and ROI names beside them where there are any."""

    values: np.ndarray
    ids: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()


def pick(found: Mapping[str, np.ndarray], file: Path, variable: str | None) -> Arrays:
    """Choose the array of numbers among those of a file.

    ``variable`` names it; else it is the only one of two or three dimensions, or the first of
    ``connectomes``, ``timeseries``, ... that is there. Ids are in ``ids`` or ``participant_id``,
    names of ROIs in ``roi_labels``.
    """
    names = ", ".join(f"{k} {v.shape}" for k, v in found.items())[:200] or "nothing"
    extras = {*ID_NAMES, *LABEL_NAMES}
    if variable is not None:
        if variable not in found:
            raise BadInput(f"{file} has no array {variable!r}; it holds {names}.")
        chosen = variable
    else:
        able = [
            k
            for k, v in found.items()
            if k not in extras and v.ndim in (2, 3) and v.dtype.kind in "biuf" and v.size > 1
        ]
        preferred = [k for m in MAIN_NAMES for k in able if k.lower() == m]
        if len(able) != 1 and not preferred:
            raise BadInput(f"{file} holds {names}: name the array of scans with --variable.")
        chosen = able[0] if len(able) == 1 else preferred[0]

    def words(options: tuple[str, ...]) -> tuple[str, ...]:
        name = next((n for n in options if n in found), None)
        return tuple(_word(v) for v in found[name].ravel()) if name else ()

    return Arrays(found[chosen], words(ID_NAMES), words(LABEL_NAMES))


def _word(value: Any) -> str:
    """Return a name as text; MATLAB keeps whole numbers as 50001.0."""
    return (
        str(int(value)) if isinstance(value, float | np.floating) and float(value).is_integer() else str(value).strip()
    )


def read_npy(file: Path) -> Arrays:
    """Map an ``.npy`` file: a slice of a stack is read when it is needed."""
    with parsing(file, "an .npy file"), open(file, "rb") as stream:
        if stream.read(1) == b"\x80":
            raise BadInput(f"{file} is a pickle, which could run anything: save the array with numpy.save instead.")
        values = np.load(file, mmap_mode="r", allow_pickle=False)
    if not isinstance(values, np.ndarray):
        values.close()
        raise BadInput(f"{file} is an archive under the name of a single array: rename it to .npz.")
    return Arrays(values)


def read_npz(file: Path, variable: str | None = None) -> Arrays:
    """Read an ``.npz`` file; members that are pickles are refused by numpy."""
    with parsing(file, "an .npz file"), open(file, "rb") as stream:
        if stream.read(1) == b"\x80":
            raise BadInput(f"{file} is a pickle, which could run anything: save the arrays with numpy.savez instead.")
        stream.seek(0)
        with np.load(stream, allow_pickle=False) as archive:
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise BadInput(f"{file} is a single array under the name of an archive: rename it to .npy.")
            found = {name: archive[name] for name in archive.files}
    for name, values in found.items():
        if not isinstance(values, np.ndarray):
            raise BadInput(f"{file} holds {name}, which is not an array: save arrays with numpy.savez.")
    return pick(found, file, variable)
