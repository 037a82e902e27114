"""Tables in text files: the numbers of a scan, and the table of participants.

Numbers are read from ``.1D``, ``.tsv``, ``.csv`` and ``.txt``, plain or gzipped, with or without headers.
"""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd

from bnt.errors import BadInput
from bnt.sources._names import parsing

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
            data = gzip.decompress(data)
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


# -- participants ------------------------------------------------------------------------------------------

NOTHING = ["", "n/a"]
UNKNOWN = ("N/A", "NA", "NaN", "nan", "<NA>", "#N/A")
NO_NUMBER = ("None", "none", "NULL", "null", "-nan", "-NaN")
OURS = ("n_volumes", "n_missing_rois", "family")
"""Columns the import writes; a column of that name in the table is kept as ``given_...``."""
SITE_NAMES = ("site", "site_id", "scanner_site", "acquisition_site")


@dataclass(frozen=True)
class People:
    """A participants table whose column ``participant_id`` is in place, and where it came from."""

    table: pd.DataFrame
    file: Path

    def rows_of(self, ids: Sequence[str]) -> list[int | None]:
        """Return the row of each participant, or None; ``sub-01`` and ``01`` are the same.

        A participant with two rows is refused. (Those without a scan may share an id: ABIDE's table has
        ``no_filename`` for all of them.)
        """
        names = self.table["participant_id"].map(bare)
        rows = {name: i for i, name in enumerate(names)}
        wanted = [bare(name) for name in ids]
        twice = set(names[names.duplicated()]).intersection(wanted)
        if twice:
            raise BadInput(f"{self.file} lists participant {min(twice)!r} twice: keep one row per participant.")
        return [rows.get(name) for name in wanted]


def bare(name: str) -> str:
    """Return an id without BIDS' ``sub-``."""
    return name.strip().removeprefix("sub-")


def find_participants(source: Path) -> Path | None:
    """Return the ``participants.tsv`` of the data set: in the folder of derivatives, or up to three above it.

    ``<root>/derivatives/xcp_d`` finds that of ``<root>``. The search ends at the first folder with a
    ``dataset_description.json`` that is not inside ``derivatives``.
    """
    folder = source.resolve()
    for place in (folder, *list(folder.parents)[:3]):
        for name in ("participants.tsv", "participants.csv"):
            if (place / name).is_file():
                return place / name
        derived = "derivatives" in (place.name, place.parent.name)
        if (place / "dataset_description.json").is_file() and place != folder and not derived:
            return None
    return None


def _missing(words: pd.Series, plain: bool) -> list[str]:
    """Return the words of a column that mean that nothing is known; ``None`` and ``NULL`` only beside numbers.

    Parameters
    ----------
    words : Series
    plain : bool
        Whether it is a column of names, where NA is one like others.
    """
    if plain:
        return NOTHING
    others = words[~words.str.strip().isin([*NOTHING, *UNKNOWN, *NO_NUMBER])]
    numbers = pd.to_numeric(others, errors="coerce").notna().all()
    return [*NOTHING, *UNKNOWN, *(NO_NUMBER if numbers else ())]


def _refuse_long_rows(file: Path, text: str, separator: str) -> None:
    """Refuse a row with more fields than the header: its values would stand under other names."""
    rows = csv.reader(StringIO(text), delimiter=separator)
    header = next(rows, [])
    for row in rows:
        if any(field.strip() for field in row[len(header) :]):
            raise BadInput(
                f"{file} has {len(row)} fields in line {rows.line_num} and {len(header)} in its header: put what holds "
                f"a {'tab' if separator == chr(9) else 'comma'} into double quotes."
            )


def read_frame(file: Path, text: Sequence[str] = ()) -> pd.DataFrame:
    """Read a tab- or comma-separated table; the columns in ``text``, and sites, stay text: ``007`` stays ``007``."""
    with parsing(file, "a table of participants"):
        head = file.read_text(encoding="utf-8-sig")
        if "\0" in head:
            raise ValueError("it holds zero bytes")
        separator = "\t" if file.suffix == ".tsv" or "\t" in head.partition("\n")[0] else ","
        _refuse_long_rows(file, head, separator)
        words = pd.read_csv(
            file, sep=separator, dtype=str, keep_default_na=False, encoding="utf-8-sig", index_col=False
        )
        plain = [c for c in words if str(c).strip() in text or str(c).strip().lower() in SITE_NAMES]
        frame = pd.read_csv(
            file,
            sep=separator,
            dtype=dict.fromkeys(plain, str),
            na_values={str(c): _missing(words[c], c in plain) for c in words},
            keep_default_na=False,
            encoding="utf-8-sig",
            index_col=False,
        )
    frame.columns = [str(c).strip() for c in frame.columns]
    if frame.empty:
        raise BadInput(f"{file} lists nobody: give a table with one row per participant.")
    return frame


def read_participants(
    file: Path,
    *,
    id_column: str = "participant_id",
    site_column: str | None = None,
    group_column: str | None = None,
) -> People:
    """Read the table; every column is kept.

    Parameters
    ----------
    file : path
        ``.tsv`` or ``.csv``.
    id_column : str
        The column that names participants as the scans do.
    site_column : str, optional
        The column of sites; found by name (``site``, ``SITE_ID``) when not given.
    group_column : str, optional
        The column of those who must stay together in splits, such as a family.
    """
    table = read_frame(file, [id_column, *(c for c in (group_column, site_column) if c)])
    for column in (id_column, site_column, group_column):
        if column is not None and column not in table:
            raise BadInput(f"{file} has no column {column!r}; it has {', '.join(table.columns)}.")
    if table[id_column].isna().any():
        raise BadInput(f"{file} has no {id_column} in row {int(table[id_column].isna().argmax()) + 1}: fill it in.")
    ids = table[id_column].str.strip()
    group = table[group_column].astype("string") if group_column else None
    table = table.rename(columns={c: f"given_{c}" for c in OURS if c in table and c != id_column})
    if id_column != "participant_id":
        table = table.rename(columns={"participant_id": "given_participant_id"})
    table["participant_id"] = ids
    if site_column is None:
        site_column = next((c for n in SITE_NAMES for c in table.columns if c.lower() == n), None)
    if site_column is not None and site_column != "site":
        if "site" in table:
            table = table.rename(columns={"site": "given_site"})
        table["site"] = table[site_column]
    if group is not None:
        table["family"] = group.where(group.notna(), ids)
    return People(table, file)
