"""Scans and what tables say about them: participants, sessions, and the quality files of the derivatives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from bnt._progress import say
from bnt.errors import BadInput
from bnt.sources._people import SESSION, People, bare, find_participants, read_frame, read_participants
from bnt.sources._quality import find_quality
from bnt.sources._readers import Found
from bnt.sources._scan import Scan


def join_tables(
    found: Found, source: Path, given: str | Path | None, *, drop_unlisted: bool = False, **columns: Any
) -> Found:
    """Return the scans with everything that tables say about them as columns.

    Parameters
    ----------
    found : Found
    source : path
        The file or folder of the scans.
    given : path, optional
        The participants table; else the one above derivatives or in a plain folder.
    drop_unlisted : bool
        Leave scans out that the table does not list, instead of refusing them.
    **columns
        ``id_column``, ``site_column``, ``family`` and ``keep_case`` of :func:`~bnt.sources._people.read_participants`.
    """
    file = Path(given) if given is not None else None
    derived = found.source["reader"] in ("fmriprep", "xcpd", "cpac", "cifti")
    if file is None and source.is_dir():
        inside = [source / f"participants.{e}" for e in ("tsv", "csv")]
        file = find_participants(source) if derived else next((f for f in inside if f.is_file()), None)
    people = None if file is None else read_participants(file, **columns)
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
            say(f"{name}: no participants table was found, so there are no sites and no labels.")
        return replace(found, scans=scans, source=found.source | {"participants": ""})
    ids = list(dict.fromkeys(scan.participant for scan in scans))
    rows = dict(zip(ids, people.rows_of(ids)))
    unlisted = [one for one in ids if rows[one] is None]
    if unlisted and (not drop_unlisted or len(unlisted) == len(ids)):
        first = next(scan for scan in scans if scan.participant == unlisted[0])
        parameter = "id_column" if len(unlisted) == len(ids) else "drop_unlisted"
        raise BadInput(
            f"{first} is not in {people.file} (nor are {len(unlisted) - 1} others of {len(ids)}): "
            f"add a row, or {'name another id_column' if parameter == 'id_column' else 'use drop_unlisted'}.",
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
    scans, joined, without = [], 0, 0
    tables: dict[str, dict[str, dict[str, Any]]] = {}
    for scan in found.scans:
        who, session = scan.participant, scan.session
        if who not in tables:
            tables[who] = long.get(bare(who)) or _sessions_of(who, people, source)
        sessions = tables[who]
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


def _of_long_table(people: People) -> dict[str, dict[str, dict[str, Any]]]:
    """Return participant -> session -> columns of a long participants table."""
    rows: dict[str, dict[str, dict[str, Any]]] = {}
    for row in people.table.to_dict("records"):
        rows.setdefault(bare(row["participant_id"]), {})[bare(str(row[SESSION]))] = {
            str(k): v for k, v in row.items() if k != "participant_id"
        }
    return rows


def _sessions_of(participant: str, people: People, source: Path) -> dict[str, dict[str, Any]]:
    """Return session -> columns of a participant's ``sub-01_sessions.tsv``, in the BIDS root or the derivatives."""
    name = participant if participant.startswith("sub-") else f"sub-{participant}"
    places = (people.file.parent, source if source.is_dir() else source.parent)
    file = next((f for p in places if (f := p / name / f"{name}_sessions.tsv").is_file()), None)
    if file is None:
        return {}
    table = read_frame(file, [SESSION])
    if SESSION not in table or table[SESSION].isna().any() or table[SESSION].duplicated().any():
        raise BadInput(f"{file} needs a column {SESSION} that names each session once: add it.")
    return {bare(row[SESSION]): {str(k): v for k, v in row.items()} for row in table.to_dict("records")}
