"""Tables of numbers in text files: a scan, or a matrix.

Numbers are read from ``.1D``, ``.tsv``, ``.csv`` and ``.txt``, plain or gzipped, with or without headers.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd

from bnt.errors import BadInput
from bnt.sources._names import expanded, parsing

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
