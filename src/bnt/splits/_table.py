"""Splits as a table: one row a subject, one column a split; 0 training, 1 validation, 2 test, empty left out.

A run's own ``splits.csv`` has the words in place of the numbers, and is read as a table of one split.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from bnt.cohort import Cohort
from bnt.cohort._files import write_atomic
from bnt.errors import BadInput
from bnt.splits._guard import check_split
from bnt.splits._shuffle import Split

ID_COLUMNS = ("participant_id", "file_id", "subject_id", "id")
_CODES = {"0": 0, "1": 1, "2": 2, "": -1, "train": 0, "validation": 1, "test": 2}


def save_splits(path: str | Path, cohort: Cohort, splits: Iterable[Split], names: Sequence[str] | None = None) -> None:
    """Write splits by subject id, tab-separated if ``path`` ends in ``.tsv``, else with commas.

    Parameters
    ----------
    path : path
    cohort : Cohort
    splits : iterable of (train, val, test)
        Each is checked by :func:`check_split` first; nothing is written if one leaks.
    names : sequence of str, optional
        Names of the columns; ``split0``, ``split1``, ... if not given.
    """
    path, splits = Path(path), list(splits)
    columns = [f"split{k}" for k in range(len(splits))] if names is None else [str(name) for name in names]
    if not splits:
        raise BadInput(f"There is no split to write to {path}.")
    if len(columns) != len(splits) or len(set(columns)) != len(columns):
        raise BadInput(f"{len(splits)} splits need as many different names, not {columns}.")
    table = {"participant_id": cohort.ids.astype(str)}
    for column, parts in zip(columns, splits):
        check_split(cohort, *parts)
        side = np.full(len(cohort), "", dtype=object)
        for code, part in enumerate(parts):
            side[part] = str(code)
        table[column] = side
    separator = "\t" if path.suffix == ".tsv" else ","
    try:
        write_atomic(path, pd.DataFrame(table).to_csv(index=False, sep=separator, lineterminator="\n"))
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}.") from error


def split_names(path: str | Path) -> list[str]:
    """Return the names of the splits in a table."""
    return list(_read(Path(path)).columns[1:])


def read_splits(path: str | Path, cohort: Cohort, names: Sequence[str] | None = None) -> list[Split]:
    """Read splits by subject id and check them.

    The first column holds ids: those of the cohort or, if the cohort's participants table has a column of that name
    (such as ``file_id``), the ids there. Subjects of the cohort whom the table does not list, or lists with an empty
    cell, are left out of the split. A subject listed but not in the cohort is refused. Parts are 0, 1 and 2 or, as in
    the ``splits.csv`` of a run, train, validation and test.

    Parameters
    ----------
    path : path
        Comma- or tab-separated.
    cohort : Cohort
    names : sequence of str, optional
        Columns to read; all if not given.

    Returns
    -------
    list of (train, val, test)
        Positions in the cohort, sorted.
    """
    path = Path(path)
    table = _read(path)
    wanted = list(table.columns[1:]) if names is None else [str(name) for name in names]
    unknown = [name for name in wanted if name not in table.columns[1:]]
    if unknown:
        raise BadInput(f"{path} has no split {unknown[0]!r}; it has {', '.join(table.columns[1:])}.")
    rows = _positions(path, table, cohort)
    out: list[Split] = []
    for name in wanted:
        cells = table[name].str.strip().str.removesuffix(".0")
        wrong = ~cells.isin(list(_CODES))
        if wrong.any():
            subject, cell = table.iloc[:, 0][wrong].iloc[0], cells[wrong].iloc[0]
            raise BadInput(
                f"{path}, split {name}, subject {subject}: {cell!r} is not 0, 1, 2 (train, validation, test) or empty."
            )
        side = cells.map(_CODES).to_numpy()
        parts = [np.sort(rows[side == code]) for code in range(3)]
        try:
            check_split(cohort, *parts)
        except BadInput as error:
            raise BadInput(f"{path}, split {name}: {error}") from error
        out.append((parts[0], parts[1], parts[2]))
    return out


def left_out(cohort: Cohort, splits: Sequence[Split]) -> int:
    """Return how many subjects of the cohort are in no part of any of the splits."""
    seen = np.zeros(len(cohort), dtype=bool)
    for split in splits:
        seen[np.concatenate([np.asarray(part) for part in split])] = True
    return int((~seen).sum())


def _read(path: Path) -> pd.DataFrame:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read as a table of splits ({error}).") from error
    from io import StringIO

    first = text.partition("\n")[0]
    try:
        table = pd.read_csv(StringIO(text), sep="\t" if "\t" in first else ",", dtype=str, keep_default_na=False)
    except (ValueError, pd.errors.ParserError) as error:
        raise BadInput(f"{path} is not a table of splits: {error}.") from error
    if table.shape[1] < 2 or table.columns[0] not in ID_COLUMNS:
        raise BadInput(
            f"{path} is not a table of splits: its first column must be one of {', '.join(ID_COLUMNS)}, followed by "
            f"one column a split; it has {', '.join(map(str, table.columns[:5]))}."
        )
    ids = table.iloc[:, 0].str.strip()
    if ids.duplicated().any():
        raise BadInput(f"{path} lists subject {ids[ids.duplicated()].iloc[0]} twice: keep one row.")
    return table


def _positions(path: Path, table: pd.DataFrame, cohort: Cohort) -> np.ndarray:
    """Return the position in the cohort of each row of the table."""
    listed = table.iloc[:, 0].str.strip()
    key = str(table.columns[0])
    participants = cohort.participants
    candidates = [participants[key].astype(str)] if key in participants else []
    candidates.append(pd.Series(cohort.ids.astype(str)))
    best: pd.Series | None = None
    for ids in candidates:
        place = listed.map({name: i for i, name in enumerate(ids)})
        if not place.isna().any():
            return place.to_numpy(dtype=np.int64)
        if best is None or place.isna().sum() < best.isna().sum():
            best = place
    absent = listed[best.isna()] if best is not None else listed
    raise BadInput(
        f"{path} lists {len(absent)} of {len(listed)} subjects who are not in the cohort (the first is "
        f"{absent.iloc[0]}): use the cohort it was made for, or remove their rows."
    )


@dataclass(frozen=True)
class SavedSplits:
    """Splits read from a table, as a protocol.

    Parameters
    ----------
    path : str
    names : tuple of str
        Columns to use; all if empty.
    """

    path: str
    names: tuple[str, ...] = ()

    def split(self, cohort: Cohort, label: str | np.ndarray | None) -> Iterator[Split]:
        """Yield ``(train, val, test)`` positions of the cohort, in the order of the columns."""
        return iter(read_splits(self.path, cohort, self.names or None))
