"""Numbers in files: tables in text, and arrays in ``.npy`` and ``.npz``; pickles in them are never loaded.

Numbers are read from ``.1D``, ``.tsv``, ``.csv`` and ``.txt``, plain or gzipped, with or without headers.
"""

from __future__ import annotations

import csv
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import StringIO
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bnt.errors import BadInput
from bnt.sources._names import check_expanded, expanded, parsing

MISSING = ("", "n/a", "na", "nan", "null", "none")
_INDEX_HEADS = ("", "node", "index", "roi", "unnamed: 0")


@dataclass(frozen=True)
class Table:
    """A text file of numbers: ``values`` (rows, columns), and the names of columns and rows where it has them."""

    values: np.ndarray
    columns: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()


def read_text(file: Path) -> str:
    """Return the text of a UTF-8 file, unzipped where its name ends in ``.gz``."""
    with parsing(file, "a text file"):
        data = file.read_bytes()
        if file.name.endswith(".gz"):
            data = expanded(file, data, 31)
        text = data.decode("utf-8-sig")
    if "\0" in text:
        raise BadInput(f"{file} holds zero bytes, so it is not a text file: make it again, or leave it out.")
    return text


def _is_number(cell: str) -> bool:
    cell = cell.strip()
    if cell.lower() in MISSING:
        return True
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell  # Python reads 1_0 as ten, a label such as 7_3 is no number


def _separator(line: str, file: Path) -> str | None:
    """Return tab, comma or semicolon, or None for any white space."""
    if "\t" in line and ".1d" not in file.name.lower():  # AFNI's .1D may pad its columns with tabs
        return "\t"
    return next((s for s in (",", ";") if s in line), None)


def _split(line: str, separator: str | None) -> list[str]:
    if separator is None:
        return line.split()
    if '"' in line:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=separator))]
    return [cell.strip() for cell in line.split(separator)]


def _is_header(first: list[str], second: list[str]) -> bool:
    """Tell whether the first row names the columns.

    It does when one of its cells is no number; or when all are different whole numbers without a
    point (ROI numbers) and the row below them is not of that sort.
    """
    if not all(map(_is_number, first)):
        return True

    def numbered(cells: list[str]) -> bool:
        return all(re.fullmatch(r"\d+", c) for c in cells) and len(set(cells)) == len(cells)

    return len(first) > 1 and numbered(first) and not numbered(second)


def read_table(file: Path) -> Table:
    """Read a table of numbers.

    Lines that begin with ``#`` are comments; the last of them that has as many words as there are
    columns names the columns (ABIDE's ``#1 #2 ...``). A first row that is not all numbers names
    the columns. A first column of words, or headed ``Node`` or by nothing, names the rows.
    ``n/a``, ``NaN`` and empty cells are missing values.
    """
    lines = re.split(r"\r\n|\r|\n", read_text(file))
    comments = [line for line in lines if line.lstrip().startswith("#")]
    rows = [(i, line) for i, line in enumerate(lines, 1) if line.strip() and not line.lstrip().startswith("#")]
    if not rows:
        raise BadInput(f"{file} holds no rows of numbers: make it again, or leave it out.")
    separator = _separator(rows[0][1], file)
    with parsing(file, "a table of numbers"):
        cells = _split(rows[0][1], separator)
        header: list[str] = []
        if _is_header(cells, _split(rows[1][1], separator) if len(rows) > 1 else []):
            header, rows = cells, rows[1:]
        if not rows:
            raise BadInput(f"{file} has a header and no rows of numbers: make it again, or leave it out.")
        width = len(_split(rows[0][1], separator))
        values = _quick(rows, separator)
        for number, line in rows if values is None else ():
            quick = separator is not None and '"' not in line
            found = line.count(separator) + 1 if quick and separator else len(_split(line, separator))
            if found != width:
                raise BadInput(f"{file} has {found} columns in line {number} and {width} above: make it again.")
    named_rows = bool(header) and (header[0].lower() in _INDEX_HEADS or len(header) == width - 1)
    first = [_split(line, separator)[0] for _, line in rows] if named_rows or values is None else []
    named_rows = named_rows or not all(map(_is_number, first))
    if header and len(header) == width and named_rows:
        header = header[1:]
    skip = int(named_rows)
    if header and len(header) != width - skip:
        raise BadInput(f"{file} names {len(header)} columns and has {width - skip}: make it again.")
    values = _parse(file, rows, separator, width, skip) if values is None or skip >= width else values[:, skip:]
    return Table(values, tuple(header) or _commented(comments, width), tuple(first) if named_rows else ())


def _commented(comments: list[str], width: int) -> tuple[str, ...]:
    for line in reversed(comments):
        words = [w.strip().lstrip("#") for w in re.split(r"[\s,]+", line.strip().lstrip("#").strip()) if w]
        if len(words) == width and width > 1 and len(set(words)) == width:
            return tuple(words)
    return ()


def _quick(rows: list[tuple[int, str]], separator: str | None) -> np.ndarray | None:
    """Return the numbers where every cell is one, as in most files; None otherwise."""
    try:
        return np.loadtxt([line for _, line in rows], delimiter=separator, comments=None, ndmin=2)
    except ValueError:
        return None


def _parse(file: Path, rows: list[tuple[int, str]], separator: str | None, width: int, skip: int) -> np.ndarray:
    if skip >= width:
        raise BadInput(f"{file} has one column of names and no numbers: make it again, or leave it out.")
    try:
        frame = pd.read_csv(
            StringIO("\n".join(line for _, line in rows)),
            sep=separator or r"\s+",
            header=None,
            usecols=range(skip, width),
            na_values=[*MISSING, "N/A", "NA"],
            skipinitialspace=True,
            dtype=np.float64,
        )
    except (ValueError, OverflowError, pd.errors.ParserError):
        for number, line in rows:
            for column, cell in enumerate(_split(line, separator)[skip:], skip + 1):
                if not _is_number(cell):
                    raise BadInput(
                        f"{file} has {cell[:40]!r} in line {number}, column {column}, where a number should be: "
                        "make it again, or leave it out."
                    ) from None
        raise BadInput(f"{file} cannot be read as a table of numbers: make it again, or leave it out.") from None
    return frame.to_numpy()


def check_names(table: Table, file: Path) -> None:
    """Refuse a matrix whose rows and columns are both named, and differently."""
    if not table.rows or not table.columns or table.rows == table.columns:
        return
    if len(table.rows) != len(table.columns):
        raise BadInput(f"{file} has {len(table.rows)} rows and {len(table.columns)} columns: give a square matrix.")
    i = next(i for i, (a, b) in enumerate(zip(table.rows, table.columns)) if a != b)
    raise BadInput(
        f"{file} names row {i + 1} {table.rows[i]!r} and column {i + 1} {table.columns[i]!r}: "
        "give rows and columns in the same order."
    )


def read_square(file: Path) -> Table:
    """Read a matrix; where rows and columns are both named, the names must agree in order."""
    table = read_table(file)
    check_names(table, file)
    return table


ID_NAMES = ("ids", "participant_id", "participant_ids", "participants", "subject_id", "subject_ids", "subjects")
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
            raise BadInput(f"{file} holds {names}: name the array of scans with variable.", "variable")
        chosen = able[0] if len(able) == 1 else preferred[0]

    def words(options: tuple[str, ...]) -> tuple[str, ...]:
        name = next((n for n in options if n in found), None)
        return tuple(_word(v) for v in found[name].ravel()) if name else ()

    if found[chosen].ndim == 3 and not words(ID_NAMES):
        _refuse_unknown_names({k: v for k, v in found.items() if k not in (chosen, *extras)}, found[chosen], file)
    return Arrays(found[chosen], words(ID_NAMES), words(LABEL_NAMES))


def _refuse_unknown_names(others: Mapping[str, np.ndarray], stack: np.ndarray, file: Path) -> None:
    """Refuse an array of as many different words as there may be scans: they would be ignored, and may be their ids."""
    for name, values in others.items():
        if values.dtype.kind in "US" and values.size in stack.shape and len(np.unique(values)) == values.size:
            raise BadInput(
                f"{file} holds {values.size} different words in {name!r}: call it ids if they name the scans, "
                "roi_labels if they name the ROIs, or leave it out."
            )


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
            sizes = [member.file_size for member in archive.zip.infolist()] if archive.zip is not None else []
            check_expanded(file, sum(sizes))
            found = {name: archive[name] for name in archive.files}
    for name, values in found.items():
        if not isinstance(values, np.ndarray):
            raise BadInput(f"{file} holds {name}, which is not an array: save arrays with numpy.savez.")
    return pick(found, file, variable)


_HDF5 = b"\x89HDF\r\n\x1a\n"
_MATRIX, _COMPRESSED = 14, 15
_STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_TEXT = {1: "latin1", 2: "utf-8", 4: "utf-16", 16: "utf-8", 17: "utf-16", 18: "utf-32"}
_CELL, _CHAR = 1, 4
_NUMERIC = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
_COMPLEX = 0x08


def read_mat(file: Path, variable: str | None = None) -> Arrays:
    """Read a ``.mat`` file.

    A stack of matrices may be (n, V, V) or, as MATLAB's users keep them, (V, V, n); it is returned as
    the first. Where all three numbers are equal it is taken as (V, V, n). Series are (n, T, V).
    """
    with parsing(file, "a MATLAB file"):
        data = file.read_bytes()
        if data.startswith((b"MATLAB 7.3", _HDF5)) or data[512:520] == _HDF5:
            raise BadInput(f"{file} is a MATLAB 7.3 (HDF5) file: save it again in MATLAB with save(..., '-v7').")
        found = read_variables(data, file)
    arrays = pick(found, file, variable)
    values = arrays.values
    if (
        values.ndim == 3
        and values.shape[0] == values.shape[1]
        and (values.shape[1] != values.shape[2] or len(set(values.shape)) == 1)
    ):
        values = np.moveaxis(values, 2, 0)
    return Arrays(values, arrays.ids, arrays.labels)


def read_variables(data: bytes, file: Path) -> dict[str, np.ndarray]:
    """Return the variables of a MATLAB 5 file; texts and cells of texts are arrays of strings."""
    order = {b"IM": "<", b"MI": ">"}.get(data[126:128])
    if order is None:
        raise ValueError("its header is not that of MATLAB 5 to 7; older files are to be saved again")
    found: dict[str, np.ndarray] = {}
    for kind, body in _elements(data[128:], order):
        if kind == _COMPRESSED:
            pairs = list(_elements(expanded(file, body, 15), order))
        else:
            pairs = [(kind, body)]
        for inner, content in pairs:
            if inner == _MATRIX:
                name, values = _matrix(content, order)
                if values is not None:
                    found[name] = values
    return found


def _elements(data: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    """Yield (type, bytes) of each element; small ones keep their bytes inside the tag."""
    at = 0
    while at < len(data):
        if len(data) - at < 8:
            raise ValueError("it ends inside a tag")
        kind, size = struct.unpack_from(order + "II", data, at)
        if kind >> 16:  # a small element: type and size share the first four bytes
            kind, size = kind & 0xFFFF, kind >> 16
            start, at = at + 4, at + 8
        else:
            start = at + 8
            at = start + size if kind == _COMPRESSED else start + (size + 7) // 8 * 8
        if start + size > len(data) or (start + size > at):
            raise ValueError(f"an element of {size} bytes goes beyond its end")
        yield kind, data[start : start + size]


def _matrix(body: bytes, order: str, depth: int = 0) -> tuple[str, np.ndarray | None]:
    """Return the name and values of one matrix; None for kinds that are passed over."""
    parts = _elements(body, order)
    (_, flags), (_, dimensions), (_, name) = (next(parts, (0, b"")) for _ in range(3))
    if len(flags) != 8 or len(dimensions) % 4 or not 8 <= len(dimensions) <= 32 * 4:
        raise ValueError("a matrix without flags or dimensions")
    code = struct.unpack(order + "I", flags[:4])[0]
    shape = struct.unpack(f"{order}{len(dimensions) // 4}i", dimensions)
    if min(shape) < 0:
        raise ValueError(f"dimensions {shape}")
    kind, text = code & 0xFF, name.decode("latin1")
    if (code >> 8) & _COMPLEX:
        return text, None
    if kind == _CELL and depth == 0:
        cells = [_matrix(content, order, 1)[1] for inner, content in parts if inner == _MATRIX]
        words = [str(cell.ravel()[0]) if cell is not None and cell.size else "" for cell in cells]
        return text, np.array(words) if len(words) == prod(shape) else None
    if kind == _CHAR:
        stored, content = next(parts, (0, b""))
        return text, _rows_of_text(content, stored, shape, order)
    if kind in _NUMERIC:
        stored, content = next(parts, (0, b""))
        if stored not in _STORED:
            raise ValueError(f"numbers stored as type {stored}")
        values = np.frombuffer(content, np.dtype(order + _STORED[stored]))
        if values.size != prod(shape):
            raise ValueError(f"{values.size} numbers for dimensions {shape}")
        with np.errstate(invalid="ignore"):
            numbers = values.astype(_NUMERIC[kind])
        if values.dtype.kind == "f" and numbers.dtype.kind != "f" and not np.array_equal(numbers, values):
            raise ValueError(f"{text} is of a class of whole numbers, and its numbers are not")
        return text, numbers.reshape(shape, order="F")
    return text, None


def _rows_of_text(content: bytes, stored: int, shape: tuple[int, ...], order: str) -> np.ndarray:
    """Return a character matrix as one string per row."""
    encoding = _TEXT.get(stored)
    if encoding is None:
        raise ValueError(f"text stored as type {stored}")
    if encoding in ("utf-16", "utf-32"):
        encoding += "-le" if order == "<" else "-be"
    letters = content.decode(encoding)
    if not shape or len(letters) != prod(shape):
        raise ValueError(f"{len(letters)} characters for dimensions {shape}")
    return np.array(["".join(letters[i :: shape[0]]) for i in range(shape[0])])
