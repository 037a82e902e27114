"""MATLAB files up to version 7, through scipy."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bnt.data.arrays import Arrays, pick
from bnt.data.scan import parsing
from bnt.errors import BadInput

_HDF5 = b"\x89HDF\r\n\x1a\n"


def read_mat(file: Path, variable: str | None = None) -> Arrays:
    """Read a ``.mat`` file.

    A stack of matrices may be (n, V, V) or, as MATLAB's users keep them, (V, V, n); it is returned as
    the first. Where all three numbers are equal it is taken as (V, V, n). Series are (n, T, V).
    """
    from scipy.io import loadmat

    with parsing(file, "a MATLAB file"), open(file, "rb") as stream:
        head = stream.read(520)
        if head.startswith((b"MATLAB 7.3", _HDF5)) or _HDF5 in head:
            raise BadInput(f"{file} is a MATLAB 7.3 (HDF5) file: save it again in MATLAB with save(..., '-v7').")
        stream.seek(0)
        loaded = loadmat(stream, struct_as_record=True, chars_as_strings=True)
        found = {k: _words(v) for k, v in loaded.items() if not k.startswith("__") and isinstance(v, np.ndarray)}
    arrays = pick(found, file, variable)
    values = arrays.values
    if (
        values.ndim == 3
        and values.shape[0] == values.shape[1]
        and (values.shape[1] != values.shape[2] or len(set(values.shape)) == 1)
    ):
        values = np.moveaxis(values, 2, 0)
    return Arrays(values, arrays.ids, arrays.labels)


def _words(values: np.ndarray) -> np.ndarray:
    """Return a cell array of strings as an array of strings; anything else as it is."""
    if values.dtype != object:
        return values
    cells = [cell.ravel() for cell in values.ravel() if isinstance(cell, np.ndarray)]
    return np.array([str(cell[0]) if cell.size else "" for cell in cells])
