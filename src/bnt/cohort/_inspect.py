"""Statistics of a cohort for ``bnt info``, computed in one pass over blocks of subjects.

Nothing is printed here: :func:`inspect_cohort` returns an :class:`Inspection`, which ``bnt info`` shows.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from bnt._words import track
from bnt.cohort._cohort import Cohort
from bnt.cohort._findings import Check, checks_of
from bnt.cohort._store import COUNTS, REQUIRED, changed_files
from bnt.cohort._triangle import endpoints
from bnt.errors import BadInput

_SUBJECTS_AT_ONCE = 64
_NUMBERS = ("age", "mean_fd", "fiq")  # described by class and by site where a cohort has them
MOST_CLASSES = 5  # a numeric label with more different values than this is a score
BINS = 12


def is_score(values: np.ndarray) -> bool:
    """Return whether a label is a score and not classes: numbers that are not whole, or more than 5 different ones.

    Text is always classes.

    Examples
    --------
    >>> is_score(np.arange(5)), is_score(np.arange(6)), is_score(np.array([0.5, 1.0]))
    (False, True, True)
    """
    if values.dtype.kind not in "iuf":
        return False
    return not np.array_equal(values, np.round(values)) or len(np.unique(values)) > MOST_CLASSES


def task_sentence(y: np.ndarray, label: str, kind: str = "auto") -> str:
    """Return what is predicted and why, and the option that changes it.

    Examples
    --------
    >>> task_sentence(np.array([0.5, 1.0]), "age")
    'Task: regression of age, which has numbers that are not whole.'
    """
    y = np.asarray(y)
    distinct = np.unique(y)
    if kind != "auto":
        return f"Task: {kind} of {label}, as --task says."
    if y.dtype.kind not in "biuf":
        named = ", ".join(map(str, distinct[:MOST_CLASSES])) + (", ..." if len(distinct) > MOST_CLASSES else "")
        return f"Task: classification of {label}, which is text ({len(distinct)} classes: {named})."
    if not is_score(y):
        named = ", ".join(f"{v:g}" for v in distinct)
        return (
            f"Task: classification of {label}, which has {len(distinct)} different whole numbers ({named}); --task "
            "regression predicts it as a score."
        )
    if not np.array_equal(y, np.round(y)):
        return f"Task: regression of {label}, which has numbers that are not whole."
    return (
        f"Task: regression of {label}, which has {len(distinct)} different numbers (more than {MOST_CLASSES}); --task "
        "classification takes them as classes."
    )


@dataclass
class Spread:
    """How a numeric column is distributed in a set of subjects."""

    n: int
    mean: float
    sd: float
    median: float


@dataclass
class Score:
    """A continuous label: how it is distributed, and how many subjects lack it."""

    spread: Spread
    smallest: float
    largest: float
    missing: int
    counts: list[int]  # subjects in bins of equal width


@dataclass
class Part:
    """Some subjects of a cohort: those of one site, or of one class."""

    name: str
    n: int
    classes: dict[str, int]
    sexes: dict[str, int]
    volumes: tuple[int, int] | None
    numbers: dict[str, Spread]
    rois_without_signal: int


@dataclass
class Values:
    """The entries of the connectomes."""

    smallest: float
    largest: float
    mean: float
    not_finite: dict[str, int] = field(default_factory=dict)  # participant -> number of entries
    beyond_one: dict[str, int] = field(default_factory=dict)
    beyond_one_share: float = 0.0  # of all entries
    without_signal: dict[str, int] = field(default_factory=dict)  # participant -> ROIs whose edges are all 0
    without_signal_by_roi: dict[int, int] = field(default_factory=dict)  # position of the ROI -> subjects
    duplicates: list[list[str]] = field(default_factory=list)  # participants whose connectomes have the same bytes
    near_duplicates: list[list[str]] = field(default_factory=list)  # nearly the same: other rounding, a little noise


@dataclass
class Inspection:
    """The report on one cohort."""

    path: str
    source: str
    atlas: str
    kind: str
    diagonal: float
    dtype: str
    n_subjects: int
    n_people: int  # fewer than subjects where people have several rows
    n_rois: int
    n_networks: int
    has_series: bool
    volumes: tuple[int, float, int] | None  # smallest, median, largest
    label: str | None
    levels: dict[str, str]  # value of the label -> what it means; empty for a score
    score: Score | None  # where the label is one
    task: str  # what the label would be predicted as, and why
    sites: list[Part]
    classes: list[Part]
    differences: dict[str, float]  # between two classes, in standard deviations
    missing: dict[str, int]  # column -> subjects without a value
    values: Values
    findings: list[dict[str, Any]]
    changed_files: list[str] | None  # None: not asked
    changed_scans: list[str]  # participants whose arrays are not those that the cohort was written with
    families: tuple[int, int]  # those of two people or more, and the people in them
    family_of: dict[str, str]  # participant -> subjects who stay together in every split
    checks: list[Check] = field(default_factory=list)


def inspect_cohort(cohort: Cohort, label: str | None = None, *, verify: bool = False) -> Inspection:
    """Look through a cohort, 64 subjects at a time.

    Parameters
    ----------
    label : str, optional
        The column to count classes by, or a score to describe; ``diagnosis`` where there is one, else the first
        column of classes.
    verify : bool
        Compare every file with its sha256 in the manifest (reads everything once more).
    """
    table = cohort.participants
    name = _label_of(cohort, label)
    changed = cohort.changed(read=verify)  # first, so that what follows is about the arrays as they are
    values = scan_values(cohort)
    table = table.assign(_without=[values.without_signal.get(p, 0) for p in table["participant_id"]])
    score = None if name is None else _score(table[name])
    levels = {} if name is None or score is not None else _levels(table[name], cohort.levels.get(name, {}))
    volumes = table["n_volumes"].dropna().to_numpy(dtype=float)
    report = Inspection(
        path=str(cohort.path) if cohort.path is not None else "in memory",
        source=str(cohort.source.get("name") or cohort.source.get("reader") or "unknown source"),
        atlas=cohort.atlas or "unknown atlas",
        kind=cohort.kind,
        diagonal=cohort.diagonal,
        dtype=str(cohort.connectomes.dtype) if len(cohort) == len(cohort._table) else "float32",
        n_subjects=len(cohort),
        n_people=len(set(people_of(table))),
        n_rois=cohort.n_rois,
        n_networks=cohort.rois["network"].replace("", np.nan).nunique(),
        has_series=cohort.timeseries is not None,
        volumes=(int(volumes.min()), float(np.median(volumes)), int(volumes.max())) if len(volumes) else None,
        label=name,
        levels=levels,
        score=score,
        task="" if name is None else task_sentence(table[name].dropna().to_numpy(), name),
        sites=[_part(str(site), rows, name, levels) for site, rows in table.groupby("site")],
        classes=_classes(table, name, levels),
        differences=_differences(table, name, levels),
        missing={str(c): int(n) for c, n in table.isna().sum().items() if n and c not in REQUIRED and n < len(table)},
        values=values,
        findings=cohort.findings,
        changed_files=(changed_files(cohort.path) if cohort.path else []) if verify else None,
        changed_scans=changed.tolist(),
        families=_families(table),
        family_of=dict(zip(table["participant_id"], table["family"])),
    )
    report.checks = checks_of(report)
    return report


def scan_values(cohort: Cohort) -> Values:
    """Read every connectome once and note what is unusual about it."""
    low, high, total, count, beyond = np.inf, -np.inf, 0.0, 0, 0
    out = Values(np.nan, np.nan, np.nan)
    by_roi = np.zeros(cohort.n_rois, dtype=int)
    ids = cohort.ids
    starts = range(0, len(cohort), _SUBJECTS_AT_ONCE)
    for start in track(starts, "Reading connectomes"):
        rows = np.arange(start, min(start + _SUBJECTS_AT_ONCE, len(cohort)))
        edges = cohort.edges(rows)  # (B, V(V-1)/2)
        finite = np.isfinite(edges)
        wrong = edges.shape[1] - finite.sum(1)
        good = edges if not wrong.any() else np.where(finite, edges, np.float32(0))
        low, high = min(low, float(good.min())), max(high, float(good.max()))
        total += float(good.sum(dtype=np.float64))
        count += int(finite.sum())
        # A correlation may exceed 1 by rounding, in float16 by half a thousandth.
        outside = (np.abs(good) > 1.001).sum(1)
        beyond += int(outside.sum())
        empty = (good == 0).sum(1)
        for i, row in enumerate(rows):
            who = str(ids[row])
            if wrong[i]:
                out.not_finite[who] = int(wrong[i])
            if outside[i]:
                out.beyond_one[who] = int(outside[i])
            if empty[i] >= cohort.n_rois - 1:
                silent = _silent_rois(good[i], cohort.n_rois)
                if silent.any():
                    out.without_signal[who] = int(silent.sum())
                    by_roi += silent
    out.smallest, out.largest, out.mean = low, high, total / max(count, 1)
    out.beyond_one_share = beyond / max(count, 1)
    out.without_signal_by_roi = {int(i): int(by_roi[i]) for i in np.flatnonzero(by_roi)}
    of_digest, of_scan = defaultdict(list), defaultdict(list)
    for who, digest, scan in zip(ids, cohort.digests, cohort.scans):
        of_digest[digest].append(str(who))
        if len(of_digest[digest]) == 1:
            of_scan[scan].append(str(who))  # one of those who have the same bytes stands for all
    out.duplicates = [people for people in of_digest.values() if len(people) > 1]
    out.near_duplicates = [people for people in of_scan.values() if len(people) > 1]
    return out


def _silent_rois(edges: np.ndarray, n_rois: int) -> np.ndarray:
    """Return a mask of the ROIs all of whose edges are 0."""
    first, second = endpoints(n_rois)
    used = edges != 0
    alive = np.zeros(n_rois, dtype=bool)
    alive[first[used]] = True
    alive[second[used]] = True
    return ~alive


def _label_of(cohort: Cohort, label: str | None) -> str | None:
    table = cohort.participants
    if label is not None:
        if label not in table:
            allowed = ", ".join(c for c in table.columns if c not in (*REQUIRED, *COUNTS)) or "none"
            raise BadInput(f"{cohort.path or 'This cohort'} has no label {label!r}; it has {allowed}.")
        return label
    columns = [c for c in table.columns if c not in (*REQUIRED, *COUNTS)]
    candidates = [c for c in columns if 2 <= table[c].nunique() <= 10 and _score(table[c]) is None]
    return "diagnosis" if "diagnosis" in candidates else next(iter(candidates), None)


def people_of(participants: pd.DataFrame) -> np.ndarray:
    """Return whose scan each row is: several rows may be scans of one person.

    An import says it in ``person``. Cohorts of bnt 0.1 and 0.2 have no such column: there a row named after its
    family, ``sub-01_ses-1`` of ``sub-01``, is a scan of that person.
    """
    ids = participants["participant_id"].astype(str)
    if "person" in participants:
        return participants["person"].astype("string").fillna(ids).astype(str).to_numpy(dtype=object)
    family = participants["family"].astype(str) if "family" in participants else ids
    named = [one.startswith(f"{other}_") for one, other in zip(ids, family)]
    return np.where(named, family, ids).astype(object)


def _families(table: pd.DataFrame) -> tuple[int, int]:
    """Return how many families have two people or more, and how many people are in them."""
    sizes = pd.Series(people_of(table)).groupby(table["family"].to_numpy()).nunique()
    return int((sizes > 1).sum()), int(sizes[sizes > 1].sum())


def as_code(value: Any) -> str:
    """Return a label's value as a code: 1.0, which a column with gaps makes of 1, is 1."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _score(column: pd.Series) -> Score | None:
    """Return how a continuous label is distributed; None for classes."""
    x = column.dropna().to_numpy()
    if not len(x) or not is_score(x):
        return None
    x = x.astype(float)
    sd = float(x.std(ddof=1)) if len(x) > 1 else 0.0
    spread = Spread(len(x), float(x.mean()), sd, float(np.median(x)))
    counts = np.histogram(x, bins=BINS)[0].tolist()
    return Score(spread, float(x.min()), float(x.max()), int(column.isna().sum()), counts)


def _levels(column: pd.Series, meaning: dict[str, str]) -> dict[str, str]:
    found = [as_code(v) for v in sorted(column.dropna().unique().tolist())]
    if len(found) > 20:
        raise BadInput(f"{column.name!r} has {len(found)} values, too many to count classes by: choose another label.")
    return {value: meaning.get(value, value) for value in found}


def _classes(table: pd.DataFrame, label: str | None, levels: dict[str, str]) -> list[Part]:
    if label is None or not levels:
        return [_part("all", table, label, {})]
    codes = table[label].map(as_code, na_action="ignore")
    return [_part(value, table[codes == value], label, levels) for value in levels]


def _part(name: str, rows: pd.DataFrame, label: str | None, levels: dict[str, str]) -> Part:
    codes = rows[label].map(as_code, na_action="ignore") if label is not None else pd.Series(dtype=str)
    volumes = rows["n_volumes"].dropna()
    numbers = {}
    for column in dict.fromkeys((*_NUMBERS, label) if label is not None and not levels else _NUMBERS):
        if column in rows:
            x = pd.to_numeric(rows[column], errors="coerce").dropna().to_numpy(dtype=float)
            if len(x):
                sd = float(x.std(ddof=1)) if len(x) > 1 else 0.0
                numbers[column] = Spread(len(x), float(x.mean()), sd, float(np.median(x)))
    sexes = rows["sex"].dropna().astype(str).tolist() if "sex" in rows else []
    return Part(
        name=name,
        n=len(rows),
        classes={value: int((codes == value).sum()) for value in levels},
        sexes={one: sexes.count(one) for one in sorted(set(sexes), reverse=True)},
        volumes=(int(volumes.min()), int(volumes.max())) if len(volumes) else None,
        numbers=numbers,
        rois_without_signal=int(rows["_without"].sum()),
    )


def _differences(table: pd.DataFrame, label: str | None, levels: dict[str, str]) -> dict[str, float]:
    """Return for two classes the standardised mean difference (second minus first) of what may confound them."""
    if label is None or len(levels) != 2:
        return {}
    codes = table[label].map(as_code, na_action="ignore")
    frame = table.reindex(columns=[*_NUMBERS]).apply(pd.to_numeric, errors="coerce")
    if "sex" in table and label != "sex" and table["sex"].nunique() == 2:
        top = table["sex"].dropna().astype(str).max()
        frame[f"sex={top}"] = (table["sex"].astype(str) == top).where(table["sex"].notna()).astype(float)
    out = {}
    first, second = levels
    for column in frame:
        a, b = frame.loc[codes == first, column].dropna(), frame.loc[codes == second, column].dropna()
        pooled = np.sqrt((a.var() + b.var()) / 2) if len(a) > 1 and len(b) > 1 else 0.0
        if pooled > 0:
            out[str(column)] = float((b.mean() - a.mean()) / pooled)
    return out
