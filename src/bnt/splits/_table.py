"""Splits as a table: one row per subject, one column per split; train, validation, test, or empty for left out.

A run's own ``splits.csv`` is such a table with one column. Tables with 0, 1, 2 in place of the words, and the
``splits.csv`` of bnt 0.1.0 (whose column is called ``part``), are read as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd

from bnt.cohort import Cohort
from bnt.cohort._files import write_atomic
from bnt.errors import BadInput
from bnt.splits._split import PARTS, Rows, Split, SplitName, check_split

ID_COLUMNS = ("participant_id", "file_id", "subject_id", "id")
WORDS = {"0": "train", "1": "validation", "2": "test", "": "", **{part: part for part in PARTS}}


def is_table(name: str) -> bool:
    """Whether a protocol's name is the path of a table of splits.

    Examples
    --------
    >>> is_table("splits.csv"), is_table("kfold")
    (True, False)
    """
    return Path(name).suffix in (".csv", ".tsv")


def splits_text(splits: Sequence[Split], ids: Iterable[str] | None = None, separator: str = ",") -> str:
    """Return splits as the text of a table.

    Parameters
    ----------
    splits : sequence of Split
        The columns are called by their short names.
    ids : iterable of str, optional
        The rows; without it, the subjects of the splits in sorted order.
    """
    columns = [split.short or "split" for split in splits]
    if len(set(columns)) != len(columns):
        raise BadInput(f"{len(splits)} splits need as many different names, not {', '.join(columns)}.")
    sides = [{name: part for part, names in split.parts.items() for name in names} for split in splits]
    ids = list(ids) if ids is not None else sorted({name for side in sides for name in side})
    table = {"participant_id": ids} | {c: [side.get(i, "") for i in ids] for c, side in zip(columns, sides)}
    return pd.DataFrame(table).to_csv(index=False, sep=separator, lineterminator="\n")


def save_splits(
    path: str | Path, cohort: Cohort, splits: Iterable[Split | Rows], names: Sequence[str] | None = None
) -> None:
    """Write splits by subject id, tab-separated if ``path`` ends in ``.tsv``, else with commas.

    Parameters
    ----------
    path : path
    cohort : Cohort
    splits : iterable of Split or of (train, val, test)
        Each is checked by :func:`check_split` first; nothing is written if one leaks.
    names : sequence of str, optional
        Names of the columns; without it the splits' own, or ``split0``, ``split1``, ... for positions.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.simulate_cohort(n_subjects=40, n_rois=20, n_sites=2, seed=0)
    >>> from bnt.splits import named_splits, read_splits, save_splits
    >>> save_splits("splits.csv", cohort, named_splits(cohort, "diagnosis", "random", n_splits=2))
    >>> len(read_splits("splits.csv", cohort))
    2
    """
    path, found = Path(path), []
    for k, one in enumerate(splits):
        rows = one.rows(cohort) if isinstance(one, Split) else one
        check_split(cohort, *rows)
        own = one.short if isinstance(one, Split) else f"split{k}"
        found.append(Split.of(cohort, rows, own if names is None else str(names[k]) if k < len(names) else ""))
    if not found:
        raise BadInput(f"There is no split to write to {path}.")
    if names is not None and len(names) != len(found):
        raise BadInput(f"{len(found)} splits need as many names, not {len(names)}.")
    try:
        write_atomic(path, splits_text(found, cohort.ids.tolist(), "\t" if path.suffix == ".tsv" else ","))
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}.") from error


def split_names(path: str | Path) -> list[str]:
    """Return the names of the splits in a table."""
    return list(_read(Path(path)).columns[1:])


def read_splits(path: str | Path, cohort: Cohort | None = None, names: Sequence[str] | None = None) -> list[Split]:
    """Read splits by subject id and check them.

    The first column holds ids: those of the cohort or, if the cohort's participants table has a column of that name
    (such as ``file_id``), the ids there. Subjects of the cohort whom the table does not list, or lists with an empty
    cell, are left out of the split. A subject listed but not in the cohort is refused.

    Parameters
    ----------
    path : path
        Comma- or tab-separated: one column per split with train, validation, test (or 0, 1, 2) or nothing.
    cohort : Cohort, optional
        Without it the ids are those of the table, and nothing is checked.
    names : sequence of str, optional
        Columns to read; all if not given.

    Returns
    -------
    list of Split
        In the cohort's order of subjects.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.simulate_cohort(n_subjects=40, n_rois=20, n_sites=2, seed=0)
    >>> from bnt.splits import named_splits, read_splits, save_splits
    >>> save_splits("splits.csv", cohort, named_splits(cohort, "diagnosis", "random", n_splits=2))
    >>> splits = read_splits("splits.csv", cohort)
    """
    path = Path(path)
    table = _read(path)
    wanted = list(table.columns[1:]) if names is None else [str(name) for name in names]
    unknown = [name for name in wanted if name not in table.columns[1:]]
    if unknown:
        raise BadInput(f"{path} has no split {unknown[0]!r}; it has {', '.join(table.columns[1:])}.")
    ids = table.iloc[:, 0].str.strip().to_numpy(dtype=object)
    order = np.arange(len(ids))
    if cohort is not None:
        rows = _positions(path, table, cohort)
        ids, order = cohort.ids[rows], np.argsort(rows)
    out = []
    for name in wanted:
        cells = table[name].str.strip().str.removesuffix(".0")
        wrong = ~cells.isin(list(WORDS))
        if wrong.any():
            subject, cell = table.iloc[:, 0][wrong].iloc[0], cells[wrong].iloc[0]
            raise BadInput(
                f"{path}, split {name}, subject {subject}: {cell!r} is not train, validation, test (0, 1, 2) or empty."
            )
        side = cells.map(WORDS).to_numpy()[order]
        train, validation, test = (tuple(ids[order][side == part].tolist()) for part in PARTS)
        split = Split(str(SplitName(path.name, None, name)), train, validation, test, str(path))
        if cohort is not None:
            try:
                check_split(cohort, *split.rows(cohort))
            except BadInput as error:
                raise BadInput(f"{path}, split {name}: {error}") from error
        out.append(split)
    return out


def left_out(cohort: Cohort, splits: Sequence[Split]) -> int:
    """Return how many subjects of the cohort are in no part of any of the splits."""
    seen = {name for split in splits for part in split.parts.values() for name in part}
    return len(set(cohort.ids.tolist()) - seen)


def _read(path: Path) -> pd.DataFrame:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read as a table of splits ({error}).") from error
    first = text.partition("\n")[0]
    try:
        table = pd.read_csv(StringIO(text), sep="\t" if "\t" in first else ",", dtype=str, keep_default_na=False)
    except (ValueError, pd.errors.ParserError) as error:
        raise BadInput(f"{path} is not a table of splits: {error}.") from error
    if table.shape[1] < 2 or table.columns[0] not in ID_COLUMNS:
        raise BadInput(
            f"{path} is not a table of splits: its first column must be one of {', '.join(ID_COLUMNS)}, followed by "
            f"one column per split; it has {', '.join(map(str, table.columns[:5]))}."
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

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.simulate_cohort(n_subjects=40, n_rois=20, n_sites=2, seed=0)
    >>> from bnt.splits import SavedSplits, named_splits, save_splits
    >>> save_splits("splits.csv", cohort, named_splits(cohort, "diagnosis", "random", n_splits=2))
    >>> len(list(SavedSplits("splits.csv").split(cohort, "diagnosis")))
    2
    """

    path: str
    names: tuple[str, ...] = ()

    def split(self, cohort: Cohort, label: str | np.ndarray | None) -> Iterator[Rows]:
        """Yield ``(train, val, test)`` positions of the cohort, in the order of the columns."""
        return (split.rows(cohort) for split in read_splits(self.path, cohort, self.names or None))
