"""Joins scans with tables, and combines the scans of a participant into a row of the cohort."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bnt._words import say
from bnt.cohort import flat
from bnt.connectivity import Kind, connectomes
from bnt.errors import BadInput
from bnt.sources._motion import COLUMNS, find_quality
from bnt.sources._people import (
    NOTHING,
    SESSION,
    People,
    bare,
    find_participants,
    read_participants,
    read_words,
    tidied,
    typed,
)
from bnt.sources._readers import Found
from bnt.sources._scan import Scan, named


def join_tables(
    found: Found,
    source: Path,
    given: str | Path | None,
    *,
    drop_unlisted: bool = False,
    labels_needed: bool = True,
    **columns: Any,
) -> Found:
    """Return the scans with everything that tables say about them as columns.

    Parameters
    ----------
    source : path
        The file or folder of the scans.
    given : path, optional
        The participants table; else the one above derivatives or in a plain folder.
    drop_unlisted : bool
        Leave scans out that the table does not list, instead of refusing them.
    labels_needed : bool
        Refuse a table that was not given and lists none of the scans, instead of leaving it aside.
    **columns
        ``id_column``, ``site_column``, ``family``, ``keep_case`` and ``missing`` of
        :func:`~bnt.sources._people.read_participants`.
    """
    file = Path(given) if given is not None else None
    derived = found.source["reader"] in ("fmriprep", "xcpd", "cpac", "cifti")
    if file is None and source.is_dir():
        inside = [source / f"participants.{e}" for e in ("tsv", "csv")]
        file = find_participants(source) if derived else next((f for f in inside if f.is_file()), None)
    people = None if file is None else read_participants(file, **columns)
    if people is not None and given is None and not labels_needed:
        ids = list(dict.fromkeys(scan.participant for scan in found.scans))
        if all(row is None for row in people.rows_of(ids)):  # a table of other people, such as those of training
            say(f"{people.file} lists none of these {len(ids)} people and is not used.")
            people = None
    found = with_participants(found, people, source.name, drop_unlisted)
    if people is not None:
        found = with_sessions(found, people, source)
    return replace(found, scans=find_quality(found.scans, source)) if derived and source.is_dir() else found


def with_participants(found: Found, people: People | None, name: str, drop_unlisted: bool = False) -> Found:
    """Return the scans with their rows of the participants table as columns.

    Nameless scans are named by the table's order; scans that the table does not list are refused or dropped.
    """
    scans = _named(found.scans, people, name)
    if people is None:
        if not scans[0].columns:
            say(f"{name}: no participants table is used, so there are no sites and no labels.")
        return replace(found, scans=scans, source=found.source | {"participants": ""})
    ids = list(dict.fromkeys(scan.participant for scan in scans))
    rows = dict(zip(ids, people.rows_of(ids)))
    unlisted = [one for one in ids if rows[one] is None]
    if unlisted and (not drop_unlisted or len(unlisted) == len(ids)):
        first = next(scan for scan in scans if scan.participant == unlisted[0])
        parameter, way = "drop_unlisted", "use drop_unlisted"
        if len(unlisted) == len(ids):
            parameter, way = "id_column", "name another id_column"
        listed_first = people.table["participant_id"].iloc[0]
        raise BadInput(
            f"{first} is not in {people.file} (nor are {len(unlisted) - 1} others of {len(ids)}; its first id is "
            f"{listed_first!r}): add a row, or {way}.",
            parameter,
        )
    listed_people = people.table["participant_id"].map(bare).nunique() if people.is_long else len(people.table)
    without_scan = listed_people - len(ids) + len(unlisted)
    for count, what in ((without_scan, "rows have no scan"), (len(unlisted), "scans have no row and are left out")):
        if count:
            say(f"{people.file.name}: {count} {what}.")
    notes = {"participants": str(people.file), "rows_without_scan": without_scan, "scans_without_row": len(unlisted)}
    listed = [
        replace(scan, columns={**scan.columns, **people.table.iloc[row]})
        for scan in scans
        if (row := rows[scan.participant]) is not None
    ]
    return replace(found, scans=listed, source=found.source | notes)


def _named(scans: list[Scan], people: People | None, name: str) -> list[Scan]:
    """Return the scans, nameless ones named by the order of the table, or numbered."""
    if all(scan.participant for scan in scans):
        return scans
    names = [f"scan-{i:04d}" for i in range(1, len(scans) + 1)]
    if people is not None:
        if len(people.table) != len(scans):
            raise BadInput(
                f"{scans[0].file} holds {len(scans)} scans without ids and {people.file} lists {len(people.table)} "
                "participants: give one row per scan, in the same order."
            )
        say(f"{name}: its scans have no names, so they are taken in the order of {people.file.name}.")
        names = people.table["participant_id"].tolist()
    return [replace(scan, participant=one) for scan, one in zip(scans, names)]


# -- sessions --------------------------------------------------------------------------------------------------


def with_sessions(found: Found, people: People, source: Path) -> Found:
    """Return the scans with what is known of their session, from a long table or from ``sub-01_sessions.tsv``."""
    long = _of_long_table(people) if people.is_long else {}
    if not people.is_long:
        _say_other_sessions(found.scans, people)
    others = {scan.participant: None for scan in found.scans if bare(scan.participant) not in long}
    of_files = _of_session_files(list(others), people, source)
    scans, joined, without = [], 0, 0
    for scan in found.scans:
        who, session = scan.participant, scan.session
        sessions = long.get(bare(who)) or of_files.get(who, {})
        if not sessions:
            scans.append(scan)
            continue
        if not session and len(sessions) == 1:
            (session,) = sessions
        if people.is_long and session not in sessions:
            what = f"is of session {session!r}" if session else "has no session in its name"
            raise BadInput(f"{scan} {what}, and {people.file} has {', '.join(sessions)} of {who}: add its row.")
        row = sessions.get(session, {})
        joined, without = joined + bool(row), without + (not row)
        scans.append(replace(scan, columns={**scan.columns, **row}))
    if joined:
        where = people.file.name if people.is_long else "*_sessions.tsv"
        say(f"{where}: joined to {joined} scans by session" + (f"; {without} have no row." if without else "."))
    return replace(found, scans=scans)


def _say_other_sessions(scans: Sequence[Scan], people: People) -> None:
    """Say which scans have the values of another session: the table names one session of each participant."""
    if SESSION not in people.table:
        return
    named = dict(zip(people.table["participant_id"].map(bare), people.table[SESSION].fillna("").astype(str).map(bare)))
    pairs = [(scan, named.get(bare(scan.participant), "")) for scan in scans]
    odd = [(scan, one) for scan, one in pairs if scan.session and one and scan.session.lstrip("0") != one.lstrip("0")]
    if odd:
        scan, one = odd[0]
        say(
            f"{people.file.name}: {len(odd)} of {len(scans)} scans get the values of another session, such as {scan}, "
            f"whose row is of session {one!r}: pattern (--pattern '*ses-{one}*') takes the scans of one session."
        )


def _of_long_table(people: People) -> dict[str, dict[str, dict[str, Any]]]:
    """Return participant -> session -> columns of a long participants table."""
    rows: dict[str, dict[str, dict[str, Any]]] = {}
    for row in people.table.to_dict("records"):
        rows.setdefault(bare(row["participant_id"]), {})[bare(str(row[SESSION]))] = {
            str(k): v for k, v in row.items() if k != "participant_id"
        }
    return rows


def _of_session_files(
    participants: Sequence[str], people: People, source: Path
) -> dict[str, dict[str, dict[str, Any]]]:
    """Return participant -> session -> columns of each ``sub-01_sessions.tsv``, in the BIDS root or the derivatives.

    They are cleaned as one table, so that a column means the same for everybody.
    """
    places = (people.file.parent, source if source.is_dir() else source.parent)
    tables: dict[str, pd.DataFrame] = {}
    for who in participants:
        name = who if who.startswith("sub-") else f"sub-{who}"
        file = next((f for p in places if (f := p / name / f"{name}_sessions.tsv").is_file()), None)
        if file is None:
            continue
        words = read_words(file)
        names = words[SESSION].map(bare) if SESSION in words else pd.Series([""])
        if names.isin(NOTHING).any() or names.duplicated().any():
            raise BadInput(f"{file} needs a column {SESSION} that names each session once: add it.")
        tables[who] = words
    if not tables:
        return {}
    whole = pd.concat(tables.values(), ignore_index=True).fillna("")
    whole = typed(tidied(whole, Path("*_sessions.tsv"), [SESSION], people.keep_case, people.missing), [SESSION])
    rows = iter(whole.to_dict("records"))
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for who, words in tables.items():
        of_one = [next(rows) for _ in range(len(words))]
        found[who] = {bare(row[SESSION]): {str(c): row[c] for c in words} for row in of_one}
    return found


RUNS = ("average", "first", "separate", "sessions", "concatenate")


@dataclass(frozen=True)
class Run:
    """One run after its checks: its edges where the file is a matrix, its series where it has one."""

    scan: Scan
    missing: np.ndarray  # (V,) bool
    edges: np.ndarray | None = None  # (V(V-1)/2,)
    series: np.ndarray | None = None  # (T, V)


@dataclass(frozen=True)
class Person:
    """What enters the cohort as one row."""

    edges: np.ndarray
    series: np.ndarray | None
    n_missing: int


def group_scans(scans: Sequence[Scan], runs: str) -> dict[str, list[Scan]]:
    """Return the scans of each row of the cohort, by its participant id.

    ``separate`` gives each run a row of its own, named ``sub-01_ses-1_run-2``; ``sessions`` each session,
    ``sub-01_ses-1``.
    """
    if runs not in RUNS:
        raise BadInput(f"runs is {runs!r}: choose one of {', '.join(RUNS)}.", "runs")
    groups: dict[str, list[Scan]] = {}
    first: dict[str, Scan] = {}  # of each participant
    for scan in scans:
        other = first.setdefault(bare(scan.participant), scan)
        if other.participant != scan.participant:
            raise BadInput(
                f"{other} and {scan} are of one participant under two names: choose one with pattern.", "pattern"
            )
        part = {"separate": scan.run, "sessions": f"ses-{scan.session}" if scan.session else ""}.get(runs, "")
        name = f"{scan.participant}_{part}" if part else scan.participant
        groups.setdefault(name, []).append(scan)
    repeated = next((name for name, of in groups.items() if len({s.run for s in of}) < len(of)), None)
    if repeated is not None:
        raise BadInput(f"{groups[repeated][0].file} names participant {repeated!r} twice: give each scan its own id.")
    return {name: of[:1] for name, of in groups.items()} if runs == "first" else groups


def combine_runs(runs: Sequence[Run], mode: str, kind: Kind) -> Person:
    """Return one row from the runs of one participant.

    ``average`` takes the mean of the runs' connectomes over those runs that have both ROIs, through
    Fisher's z where they are correlations. ``concatenate`` computes one connectome from the joined
    series. The series kept are the joined ones in both cases (see :func:`join_series`).
    """
    if len(runs) == 1:
        run = runs[0]
        return Person(_edges(run, kind), run.series, int(run.missing.sum()))
    series = join_series(runs)
    if mode == "concatenate":
        if series is None or runs[0].edges is not None:
            raise BadInput(
                f"{runs[0].scan} is a matrix, which cannot be joined to another: use runs='average'.", "runs"
            )
        missing = np.any([run.missing for run in runs], axis=0)
        return Person(connectomes([series], kind.name)[0], series, int(missing.sum()))
    edges = np.stack([_edges(run, kind) for run in runs]).astype(np.float64)  # (runs, E)
    there = np.stack([flat(~(run.missing[:, None] | run.missing[None, :])) for run in runs])
    if not kind.fisher:
        edges = np.arctanh(np.clip(edges, -1 + 1e-7, 1 - 1e-7))
    mean = np.where(there, edges, 0.0).sum(axis=0) / np.maximum(there.sum(axis=0), 1)
    mean = mean if kind.fisher else np.tanh(mean)
    n_missing = int(np.all([run.missing for run in runs], axis=0).sum())
    return Person(mean.astype(np.float32), series, n_missing)


def _edges(run: Run, kind: Kind) -> np.ndarray:
    if run.edges is not None:
        return run.edges
    if run.series is None:
        raise BadInput(f"{run.scan} holds no numbers: leave it out.")
    with named(run.scan):
        return connectomes([run.series], kind.name)[0]


def join_series(runs: Sequence[Run]) -> np.ndarray | None:
    """Return the series of the runs end to end, or None where one has none.

    Runs differ in level and scale, which would pass for correlation. Each later run is therefore moved and
    scaled, ROI by ROI, to the mean and standard deviation of the first. An ROI missing in one run is 0 in all.
    """
    parts = [run.series for run in runs if run.series is not None]
    if len(parts) < len(runs):
        return None
    mean, spread = parts[0].mean(axis=0), parts[0].std(axis=0)
    joined = [parts[0]]
    for part in parts[1:]:
        own = part.std(axis=0)
        joined.append((part - part.mean(axis=0)) / np.where(own > 0, own, 1) * spread + mean)
    out = np.concatenate(joined).astype(np.float32)
    out[:, np.any([run.missing for run in runs], axis=0)] = 0.0
    return out


def combined_columns(scans: list[Scan]) -> tuple[dict[str, Any], list[str]]:
    """Return the columns of a row made of several scans, and the names of those that differ between its sessions.

    What differs is left empty, since no one value is true of all; quality measures are combined instead
    (:func:`combined_quality`).
    """
    first = dict(scans[0].columns)
    differ = [
        name
        for name in first
        if len({str(scan.columns.get(name)) for scan in scans if not pd.isna(scan.columns.get(name))}) > 1
    ]
    if SESSION in differ:
        first.pop(SESSION)
        differ.remove(SESSION)
    return {**first, **dict.fromkeys(differ, None)}, differ


def combined_quality(scans: Iterable[Scan]) -> dict[str, Any]:
    """Return the quality of a row made of several scans: the mean FD and coverage, the sum of volumes."""
    table = pd.DataFrame([{c: scan.columns.get(c) for c in COLUMNS} for scan in scans]).apply(
        pd.to_numeric, errors="coerce"
    )
    found: dict[str, Any] = {c: float(table[c].mean()) for c in ("mean_fd", "coverage") if table[c].notna().any()}
    if table["n_retained"].notna().all():
        found["n_retained"] = int(table["n_retained"].sum())
    return found
