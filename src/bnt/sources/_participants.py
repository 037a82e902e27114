"""The table of participants: found, read, and put beside the scans."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from bnt.errors import BadInput
from bnt.sources._scan import parsing

NOTHING = ["", "n/a"]
UNKNOWN = ("N/A", "NA", "NaN", "nan", "<NA>", "#N/A")
NO_NUMBER = ("None", "none", "NULL", "null", "-nan", "-NaN")
OURS = ("scan", "n_volumes", "n_missing_rois", "group")
"""Columns the import writes; a column of that name in the table is kept as ``given_...``.

BIDS tables often have ``group`` for patients and controls, where a cohort's ``group`` says who must
stay on one side of a split.
"""
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
            raise BadInput(f"{self.file} lists participant {min(twice)!r} twice: keep one row a participant.")
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
    rows = csv.reader(io.StringIO(text), delimiter=separator)
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
        raise BadInput(f"{file} lists nobody: give a table with one row a participant.")
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
        table["group"] = group.where(group.notna(), ids)
    return People(table, file)
