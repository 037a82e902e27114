"""The participants table: read, cleaned with a message about every guess, and looked up by name.

Users' columns keep their names. The import adds ``site``, ``family`` and ``person``; a column that already has the name
of one that the import writes is kept as ``given_...``, and that is said.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd

from bnt._words import say
from bnt.cohort._store import refuse_control_characters
from bnt.errors import BadInput
from bnt.sources._names import parsing

NOTHING = ["", "n/a"]
UNKNOWN = ("N/A", "NA", "NaN", "nan", "<NA>", "#N/A")
NO_NUMBER = ("None", "none", "NULL", "null", "-nan", "-NaN")
OURS = ("n_volumes", "n_missing_rois", "family", "person")
"""Columns the import writes; a column of that name in the table is kept as ``given_...``."""
SITE_NAMES = ("site", "site_id", "scanner_site", "acquisition_site")
FAMILY_NAMES = ("family", "familyid", "famid", "relfamilyid", "twinid", "twinpair", "twinpairid", "pedigreeid")
LARGEST_FAMILY = 10  # more people with one value are no family but, for example, a family history of yes and no
MOST_CODES = 10  # different numbers beside words in a column of codes
MOST_CLASSES = 50  # a column of more different words is free text
FAR = 3  # times the largest other value: from there on a number such as 999 stands apart
SAME_WORDS = {"m": "male", "f": "female", "y": "yes", "n": "no"}
SESSION = "session_id"


@dataclass(frozen=True)
class People:
    """A participants table whose column ``participant_id`` is in place, and where it came from.

    With a column ``session_id`` it is a long table: one row per participant and session.
    """

    table: pd.DataFrame
    file: Path
    keep_case: bool = False
    missing: tuple[str, ...] | None = None

    @property
    def is_long(self) -> bool:
        """Whether some participant has several rows, told apart by ``session_id``."""
        return SESSION in self.table and bool(self.table["participant_id"].map(bare).duplicated().any())

    def rows_of(self, ids: Sequence[str]) -> list[int | None]:
        """Return the (first) row of each participant, or None; ``sub-01`` and ``01`` are the same.

        A participant with two rows is refused, but for a long table. (Those without a scan may share an id: ABIDE's
        table has ``no_filename`` for all of them.)
        """
        names = self.table["participant_id"].map(bare)
        rows = {name: i for i, name in reversed(list(enumerate(names)))}
        wanted = [bare(name) for name in ids]
        keys = list(zip(names, self.table[SESSION].astype(str).map(bare))) if self.is_long else list(names)
        seen: set[Any] = set()
        for name, key in zip(names, keys):
            if key in seen and name in wanted:
                which = f" in session {key[1]!r}" if self.is_long else ""
                raise BadInput(
                    f"{self.file} lists participant {name!r} twice{which}: keep one row per participant, or one per "
                    f"session with a column {SESSION}."
                )
            seen.add(key)
        return [rows.get(name) for name in wanted]


def bare(name: str) -> str:
    """Return an id without BIDS' ``sub-`` or ``ses-``."""
    return name.strip().removeprefix("sub-").removeprefix("ses-")


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


# -- reading ---------------------------------------------------------------------------------------------------


def _missing(words: pd.Series, plain: bool) -> list[str]:
    """Return the words of a column that mean that nothing is known; ``None`` and ``NULL`` only beside numbers.

    Parameters
    ----------
    plain : bool
        Whether it is a column of names, where NA is one like others.
    """
    if plain:
        return NOTHING
    others = words[~words.isin([*NOTHING, *UNKNOWN, *NO_NUMBER])]
    numbers = pd.to_numeric(others, errors="coerce").notna().all()
    return [*NOTHING, *UNKNOWN, *(NO_NUMBER if numbers else ())]


def _refuse_wrong_names(file: Path, text: str, separator: str) -> None:
    """Refuse two columns of one name, and a row longer than the header: values would stand under other names.

    Shorter rows are said: programs leave out empty cells at the end of a row, but another cell may be missing.
    """
    rows = csv.reader(StringIO(text), delimiter=separator)
    header = [name.strip() for name in next(rows, [])]
    twice = next((name for i, name in enumerate(header) if name and name in header[:i]), None)
    if twice is not None:
        raise BadInput(f"{file} has two columns named {twice}: rename one of them.")
    short = []
    for row in rows:
        if len(row) < len(header) and any(field.strip() for field in row):
            short.append(f"line {rows.line_num} has {len(row)} fields and the header has {len(header)}")
        if any(field.strip() for field in row[len(header) :]):
            what = {"\t": "tab", ",": "comma", ";": "semicolon"}[separator]
            raise BadInput(
                f"{file} has {len(row)} fields in line {rows.line_num} and {len(header)} in its header: put what holds "
                f"a {what} into double quotes."
            )
    if short:
        more = f" (and {len(short) - 1} more lines)" if len(short) > 1 else ""
        say(f"{file.name}: {short[0]}{more}: its last columns are read as empty; check that no other cell is missing.")


def read_words(file: Path) -> pd.DataFrame:
    """Read a table separated by tabs, commas or semicolons as text, without spaces around the cells."""
    with parsing(file, "a table of participants"):
        try:
            text = file.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            byte = error.object[error.start]
            raise BadInput(
                f"{file} is not a text in UTF-8 (byte {error.start} is {byte:#04x}): save it as CSV or TSV in UTF-8."
            ) from error
        refuse_control_characters(file, text)
        head = text.partition("\n")[0]
        separator = "\t" if file.suffix == ".tsv" or "\t" in head else ","
        if separator == "," and head.count(";") > head.count(","):
            separator = ";"
        _refuse_wrong_names(file, text, separator)
        words = pd.read_csv(StringIO(text), sep=separator, dtype=str, keep_default_na=False, index_col=False).fillna("")
    words.columns = [str(c).strip() for c in words.columns]
    words = words[(words.map(str.strip) != "").any(axis=1)].reset_index(drop=True)  # rows of separators
    if words.empty:
        raise BadInput(f"{file} has no rows below its header: give one per participant (or per ROI).")
    return words


def typed(words: pd.DataFrame, text: Sequence[str] = ()) -> pd.DataFrame:
    """Return a table of words with numbers where a column has them; columns in ``text``, and sites, stay text."""
    words = words.apply(lambda column: column.str.strip())
    plain = [c for c in words if c in text or str(c).lower() in SITE_NAMES]
    buffer = StringIO()
    words.to_csv(buffer, index=False)
    buffer.seek(0)
    return pd.read_csv(
        buffer,
        dtype=dict.fromkeys(plain, str),
        na_values={str(c): _missing(words[c], c in plain) for c in words},
        keep_default_na=False,
        index_col=False,
    )


def read_frame(file: Path, text: Sequence[str] = ()) -> pd.DataFrame:
    """Read a table of words and numbers; the columns in ``text``, and sites, stay text: ``007`` stays ``007``."""
    return typed(read_words(file), text)


# -- tidying ---------------------------------------------------------------------------------------------------

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?|[+-]?\d{1,3}(\.\d{3})+,\d+")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")


def with_points(column: pd.Series, file: Path) -> pd.Series:
    """Return a column of numbers with points where it has decimal commas, and say so; others as they are.

    1,234 alone may be 1.234 or 1234: a column whose commas all stand like that is refused.
    """
    known = column[~column.str.strip().isin([*NOTHING, *UNKNOWN, *NO_NUMBER])].str.strip()
    commas = known[known.str.contains(",")]
    if commas.empty or not known.drop(commas.index).map(lambda cell: bool(_NUMBER.fullmatch(cell))).all():
        return column
    if commas.map(lambda cell: bool(_THOUSANDS.fullmatch(cell))).all():
        one = commas.iloc[0]
        raise BadInput(
            f"{file} has {one!r} in column {column.name!r}, which may be {one.replace(',', '.')} or "
            f"{one.replace(',', '')}: write numbers with a point and without marks between thousands."
        )
    if not commas.map(lambda cell: bool(_COMMA.fullmatch(cell))).all():
        return column
    points = commas.str.replace(".", "", regex=False).str.replace(",", ".", regex=False)
    say(
        f"{file.name}: column {column.name} has decimal commas: {commas.iloc[0]} is read as {points.iloc[0]}, and "
        f"{len(commas) - 1} more."
    )
    return column.where(~column.index.isin(commas.index), points.reindex(column.index))


def one_spelling(column: pd.Series, file: Path) -> pd.Series:
    """Return a column of words in which those that differ in case or spaces only are one, and say which.

    ``M`` is ``male`` in a column of nothing but such words; the same for ``F``, ``Y`` and ``N``.
    """
    keys = column.map(lambda cell: " ".join(cell.split()).casefold())
    if keys.nunique() > MOST_CLASSES:
        return column
    if set(keys) <= {"", *SAME_WORDS, *SAME_WORDS.values()}:
        keys = keys.replace(SAME_WORDS)
    for key in keys[keys != ""].unique():
        found = column[keys == key].value_counts()
        if len(found) < 2:
            continue
        best = column[keys == key].str.strip().value_counts().index[0]
        listed = ", ".join(f"{word!r} ({n})" for word, n in found.items())
        say(f"{file.name}: column {column.name} has {listed}: read as {best!r}; keep_case (--keep-case) keeps them.")
        column = column.where(keys != key, best)
    return column


def codes_in(column: pd.Series, given: Sequence[str] | None) -> tuple[pd.Series, bool]:
    """Return which cells hold a code for an unknown value, such as -9999, and whether they should be read as missing.

    Without ``given`` codes, they are recognised: whole numbers of one digit 7, 8 or 9, repeated. A negative one (of one
    digit only -9) is a code if all other numbers are 0 or more. One of three digits or more is a code if it is more
    than :data:`FAR` times as large as every other number; a positive one of two digits then may be, and is left as it
    is. Between words, a negative number, or one of two digits or more, is a code.
    """
    cells = column.str.strip()
    known = ~cells.isin([*NOTHING, *UNKNOWN, *NO_NUMBER])
    numbers = pd.to_numeric(cells.where(known), errors="coerce")
    if given is not None:
        wanted = pd.to_numeric(pd.Series(list(given), dtype=str), errors="coerce")
        return known & (cells.isin(given) | (numbers.notna() & numbers.isin(wanted.dropna()))), True
    size = numbers.abs().map(lambda value: str(int(value)) if value == value // 1 and value < 1e9 else "")
    repeated = size.map(lambda digits: len(set(digits)) == 1 and digits[0] in "789")
    length = size.str.len()
    words = known & numbers.isna()
    if words.any():
        found = repeated & ((length > 1) | (numbers < 0))
        return found if (words | found)[known].all() else found & False, True
    negative = repeated & (numbers < 0) & ((length > 1) | (numbers == -9))  # -7 may be a week before
    large = repeated & (numbers > 0) & (length > 2)
    for found, sure in ((negative | large, True), (repeated & (numbers > 0) & (length == 2), False)):
        others = numbers[known & ~found]
        if others.empty:
            continue
        far = (numbers.abs() > FAR * others.abs().max()) & (length > 1 + sure)
        apart = (negative & (others.min() >= 0)) | far
        if (found & apart).any():
            return found & apart, sure
    return known & False, True


def without_codes(words: pd.DataFrame, file: Path, names: Sequence[str], given: Sequence[str] | None) -> pd.DataFrame:
    """Return the words with empty cells where a code stands for an unknown value, and say which codes were found."""
    words = words.copy()
    seen: dict[tuple[str, bool], list[str]] = {}
    for name in words:
        if name in names or str(name).lower() in SITE_NAMES:
            continue
        found, sure = codes_in(words[name], given)
        for code, n in words[name][found].str.strip().str.removesuffix(".0").value_counts().items():
            seen.setdefault((str(code), sure), []).append(f"{name} ({n} of {len(words)})")
        if sure:
            words[name] = words[name].mask(found, "")
    for (code, sure), columns in seen.items():
        more = f" and {len(columns) - 5} other columns" if len(columns) > 5 else ""
        where = f"{', '.join(columns[:5])}{more}"
        if given is not None:
            say(f"{file.name}: {code} is read as missing in {where}.")
        elif sure:
            say(f"{file.name}: {code} is read as missing in {where}; missing (--missing none) keeps it.")
        else:
            say(
                f"{file.name}: {code} is far from all other values of {where}, and is kept as a number; missing "
                f"(--missing {code}) reads it as missing."
            )
    return words


def _say_odd_words(words: pd.DataFrame, file: Path, names: Sequence[str]) -> None:
    """Say which columns of numbers are not read as such, because of a few words."""
    for name in words:
        if name in names or str(name).lower() in SITE_NAMES:
            continue
        known = words[name][~words[name].isin([*NOTHING, *UNKNOWN, *NO_NUMBER])]
        numbers = pd.to_numeric(known, errors="coerce")
        odd = known[numbers.isna()]
        if numbers.nunique() > MOST_CODES and 0 < len(odd) < numbers.notna().sum():
            say(
                f"{file.name}: column {name} has {odd.iloc[0]!r} among its numbers ({len(odd)} of {len(known)} cells "
                "are words), so it is read as words; correct them, or read them as missing with missing (--missing)."
            )


def tidied(
    words: pd.DataFrame, file: Path, names: Sequence[str], keep_case: bool, missing: Sequence[str] | None
) -> pd.DataFrame:
    """Return the words with decimal points, no codes for unknown values, and one spelling of each class.

    Columns of ``names`` stay as they are.
    """
    points = {str(n): words[n] if n in names else with_points(words[n], file) for n in words}
    words = without_codes(pd.DataFrame(points), file, names, missing)
    _say_odd_words(words, file, names)
    for name in [] if keep_case else [n for n in words if n not in names]:
        known = words[name][~words[name].isin([*NOTHING, *UNKNOWN, *NO_NUMBER])]
        if not pd.to_numeric(known, errors="coerce").notna().all():
            words[name] = one_spelling(words[name], file)
    return words


def family_column(words: pd.DataFrame, file: Path, given: str | None) -> str | None:
    """Return the column of families: the one given, or one of a usual name that holds families, and say so."""
    if given is not None:
        return given
    for column in words:
        if re.sub(r"[ _-]", "", str(column).lower()) not in FAMILY_NAMES:
            continue
        known = words[column].str.strip()
        sizes = known[~known.isin([*NOTHING, *UNKNOWN])].value_counts()
        if not len(sizes):
            continue
        if sizes.iloc[0] > LARGEST_FAMILY:
            say(
                f"{file.name}: column {column} has {sizes.index[0]!r} {sizes.iloc[0]} times, so it is not taken as "
                f"families; family (--family {column}) takes it."
            )
            continue
        say(
            f"{file.name}: column {column} is taken as families ({len(sizes)} of them), who stay on one side of every "
            "split; family (--family) names another."
        )
        return str(column)
    return None


def read_participants(
    file: Path,
    *,
    id_column: str = "participant_id",
    site_column: str | None = None,
    family: str | None = None,
    keep_case: bool = False,
    missing: Sequence[str] | None = None,
) -> People:
    """Read the table; every column is kept.

    Parameters
    ----------
    file : path
        ``.tsv`` or ``.csv``, separated by tabs, commas or semicolons.
    id_column : str
        The column that names participants as the scans do.
    site_column : str, optional
        The column of sites; found by name (``site``, ``SITE_ID``) when not given.
    family : str, optional
        The column of those who must stay together in splits; found by name (``family_id``) when not given.
    keep_case : bool
        Keep words apart that differ in case or spaces only.
    missing : sequence of str, optional
        Codes for unknown values; recognised (-9999, 999) when not given. ``["none"]`` keeps every number.
    """
    words = read_words(file)
    for parameter, column in (("id_column", id_column), ("site_column", site_column), ("family", family)):
        if column is not None and column not in words:
            listed = ", ".join(words.columns)
            raise BadInput(f"{file} has no column {column!r}; it has {listed}: name one of them.", parameter)
    together = family_column(words, file, family)
    names = [id_column, SESSION, *([together] if together else [])]
    names += [site_column] if site_column else []
    table = typed(tidied(words, file, names, keep_case, missing), names)
    if table[id_column].isna().any():
        raise BadInput(f"{file} has no {id_column} in row {int(table[id_column].isna().argmax()) + 1}: fill it in.")
    ids = table[id_column]
    families = table[together].astype("string") if together else None
    renamed = {c: f"given_{c}" for c in OURS if c in table and c not in (id_column, together)}
    if id_column != "participant_id" and "participant_id" in table:
        renamed["participant_id"] = "given_participant_id"
    if site_column is None:
        site_column = next((c for n in SITE_NAMES for c in table.columns if c.lower() == n), None)
    if site_column is None:
        say(f"{file.name}: no site column: one site is assumed; site_column (--site-column COLUMN) names one.")
    elif site_column != "site" and "site" in table:
        renamed["site"] = "given_site"
    table = _renamed(table, renamed, file)
    table["participant_id"] = ids
    if site_column is not None:
        table["site"] = table[site_column]
        without = table["site"].isna().to_numpy()
        if without.any():
            say(
                f"{file.name}: column {site_column} is empty for {without.sum()} of {len(table)} (the first is "
                f"{ids[without].iloc[0]}): their site is 'unknown'."
            )
    if families is not None:
        table["family"] = families.where(families.notna(), ids)
    return People(table, file, keep_case, None if missing is None else tuple(missing))


def _renamed(table: pd.DataFrame, names: Mapping[str, str], file: Path) -> pd.DataFrame:
    for old, new in names.items():
        say(f"{file.name}: column {old} is kept as {new}, since the cohort has a column {old} of its own.")
    return table.rename(columns=dict(names))
