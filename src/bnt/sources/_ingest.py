"""From derivatives, CIFTI files and tables to a cohort, one scan in memory at a time."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from bnt._progress import say, track
from bnt.cohort import Cohort, CohortWriter, load_cohort
from bnt.cohort._cohort import scan_digest
from bnt.cohort._files import refuse_existing
from bnt.cohort._store import DTYPES
from bnt.connectivity import Kind, kind_of
from bnt.errors import BadInput
from bnt.sources._participants import People, find_participants, read_frame, read_participants
from bnt.sources._readers import Found, find_scans
from bnt.sources._scan import Run, Scan, combine_runs, group_scans
from bnt.sources._scan_checks import SameRegions, check_matrix, check_series

MIN_VOLUMES = 20


def import_cohort(
    source: str | Path,
    out: str | Path,
    *,
    participants: str | Path | None = None,
    kind: str | None = None,
    format: str = "auto",
    atlas: str | None = None,
    runs: str = "average",
    content: str = "auto",
    pattern: str | None = None,
    variable: str | None = None,
    rois: str | Path | None = None,
    id_column: str = "participant_id",
    site_column: str | None = None,
    group_column: str | None = None,
    min_volumes: int = MIN_VOLUMES,
    drop_short: bool = False,
    drop_unlisted: bool = False,
    allow_asymmetric: bool = False,
    dtype: str = "float32",
    overwrite: bool = False,
) -> Cohort:
    """Make a cohort of the scans in a file or folder, and open it.

    Parameters
    ----------
    source : path
        A folder of XCP-D or C-PAC derivatives, of CIFTI files or of plain files, or one file.
    out : path
        The folder to make. It appears when every scan has passed its checks, or not at all.
    participants : path, optional
        The table of labels; for derivatives, ``participants.tsv`` of the BIDS root is found.
        A scan that is not in the table is refused unless ``drop_unlisted``; rows without a scan are counted.
    kind : str, optional
        Of series: the connectivity to compute. Of matrices: what their numbers are.
        ``pearson`` unless given; ``shrunk-z`` for the authors' file.
    format : {"auto", "xcpd", "cpac", "cifti", "files", "authors"}
    atlas : str, optional
        Needed where the files are of several atlases.
    runs : {"average", "first", "separate", "concatenate"}
        What to do with several sessions or runs, see :func:`~bnt.sources._scan.combine_runs`.
    content : {"auto", "series", "matrix"}
        See :func:`~bnt.sources._scan.content_of`; where derivatives have both, ``auto`` takes the series.
    pattern : str, optional
        Take only files whose name matches, such as ``*_task-rest_*``.
    variable : str, optional
        The array to take from ``.npz`` and ``.mat`` files.
    rois : path, optional
        A table with ``label, x, y, z, network``, in the order of the scans or with their labels.
    id_column, site_column, group_column : str
        Columns of the participants table, see :func:`~bnt.sources._participants.read_participants`.
    min_volumes : int
        A shorter run is refused, or left out with ``drop_short``.
    allow_asymmetric : bool
        Average the halves of matrices that are not symmetric, and list them in the cohort's findings.
    dtype : {"float32", "float16"}
    overwrite : bool
        Replace a cohort that is at ``out``.

    Returns
    -------
    Cohort

    Examples
    --------
    >>> from pathlib import Path
    >>> import numpy as np
    >>> import bnt
    >>> Path("scans").mkdir(exist_ok=True)
    >>> for i in range(3):
    ...     np.save(f"scans/sub-{i:02d}.npy", np.random.default_rng(i).normal(size=(200, 10)))  # volumes x ROIs
    >>> cohort = bnt.import_cohort("scans", "imported", overwrite=True)
    >>> cohort.ids.tolist(), cohort.n_rois
    (['sub-00', 'sub-01', 'sub-02'], 10)
    """
    source, out = Path(source), Path(out)
    refuse_existing(out, overwrite, "cohort.json")
    if dtype not in DTYPES:
        raise BadInput(f"dtype {dtype!r} is not one of {', '.join(DTYPES)}.")
    if kind is not None:
        kind = kind_of(kind).name
    tables = [Path(p) for p in (participants, rois) if p is not None]
    found = find_scans(
        source,
        format=format,
        kind=kind,
        atlas=atlas,
        content=content,
        pattern=pattern,
        variable=variable,
        leave_out=tables,
    )
    place = Path(participants) if participants is not None else _own_table(source, found.format)
    people = None
    if place is not None:
        people = read_participants(place, id_column=id_column, site_column=site_column, group_column=group_column)
    scans, row_of, notes = _match(found.scans, people, source, drop_unlisted)
    groups = group_scans(scans, runs)
    if len(scans) > len(groups) and runs != "first":
        said = {"average": "averaged", "concatenate": "joined"}[runs]
        say(f"{source.name}: {len(scans)} scans of {len(groups)} participants; a participant's are {said} (--runs).")
    chosen = kind_of(found.kind)
    regions = SameRegions()
    rows: list[dict[str, Any]] = []
    findings: list[dict[str, Any]] = []
    with ExitStack() as stack:
        writer: CohortWriter | None = None
        for name, of in track(groups.items(), f"Importing {source.name}", len(groups)):
            checked = _read_runs(of, regions, chosen, findings, min_volumes, drop_short, allow_asymmetric)
            if not checked:
                continue
            if writer is None:
                writer = stack.enter_context(CohortWriter(out, regions.n_rois, dtype=dtype, overwrite=overwrite))
            person = combine_runs(checked, runs, chosen)
            writer.append(person.edges[None], None if person.series is None else [person.series])
            rows.append(
                {
                    **of[0].columns,
                    **(people.table.iloc[row_of[of[0].participant]] if people else {}),
                    "participant_id": name,
                    "digest": scan_digest(person.edges.astype(dtype)),
                    "n_missing_rois": person.n_missing,
                    "person": of[0].participant,
                }
            )
        if writer is None:
            raise BadInput(f"{source} has no scan of {min_volumes} volumes or more: ask for fewer with --min-volumes.")
        writer.finish(
            _table(rows, findings),
            _regions(rois, found, regions),
            kind=chosen.name,
            diagonal=chosen.diagonal,
            atlas=found.atlas,
            source={
                "reader": found.format,
                "path": str(source.resolve()),
                "participants": str(people.file) if people else "",
                "runs": runs,
                "content": content,
                "n_scans": len(scans),
                **notes,
                "scans_too_short": sum(f["check"] == "too short" for f in findings),
            },
            levels=found.levels,
            findings=findings,
        )
    return load_cohort(out)


def _own_table(source: Path, format: str) -> Path | None:
    """Return the participants table that comes with the source: above derivatives, or in a plain folder."""
    if format in ("xcpd", "cpac", "cifti") and source.is_dir():
        return find_participants(source)
    inside = [source / f"participants.{e}" for e in ("tsv", "csv")] if source.is_dir() else []
    return next((file for file in inside if file.is_file()), None)


def _match(
    scans: list[Scan], people: People | None, source: Path, drop_unlisted: bool
) -> tuple[list[Scan], dict[str, int], dict[str, int]]:
    """Name nameless scans, drop or refuse those the table does not list, and count what is left over.

    Returns the scans to read, the row of each participant in the table, and the counts.
    """
    if any(not scan.participant for scan in scans):
        if people is not None and len(people.table) != len(scans):
            raise BadInput(
                f"{source} holds {len(scans)} scans without ids and {people.file} lists {len(people.table)} "
                "participants: give one row a scan, in the same order."
            )
        if people is not None:
            say(f"{source.name}: its scans have no names, so that they are taken in the order of {people.file.name}.")
        names = [f"scan-{i:04d}" for i in range(1, len(scans) + 1)]
        given = names if people is None else people.table["participant_id"].tolist()
        scans = [replace(scan, participant=name) for scan, name in zip(scans, given)]
    if people is None:
        if not scans[0].columns:
            say(f"{source.name}: no participants table was found, so there are no sites and no labels.")
        return scans, {}, {}
    ids = list(dict.fromkeys(scan.participant for scan in scans))
    rows = dict(zip(ids, people.rows_of(ids)))
    unlisted = [name for name in ids if rows[name] is None]
    if unlisted and (not drop_unlisted or len(unlisted) == len(ids)):
        first = next(scan for scan in scans if scan.participant == unlisted[0])
        advice = "name another column with --id-column" if len(unlisted) == len(ids) else "pass --drop-unlisted"
        raise BadInput(
            f"{first} is not in {people.file} (nor are {len(unlisted) - 1} others of {len(ids)}): "
            f"add a row, or {advice}."
        )
    without_scan = len(people.table) - len(ids) + len(unlisted)
    for count, what in ((without_scan, "rows have no scan"), (len(unlisted), "scans have no row and are left out")):
        if count:
            say(f"{people.file.name}: {count} {what}.")
    notes = {"rows_without_scan": without_scan, "scans_without_row": len(unlisted)}
    row_of = {name: row for name, row in rows.items() if row is not None}
    return [scan for scan in scans if scan.participant in row_of], row_of, notes


def _read_runs(
    scans: Sequence[Scan],
    regions: SameRegions,
    kind: Kind,
    findings: list[dict[str, Any]],
    min_volumes: int,
    drop_short: bool,
    allow_asymmetric: bool,
) -> list[Run]:
    """Read and check the runs of one row; short ones may be left out."""
    checked = []
    for scan in scans:
        content = scan.read()
        regions.check(scan, content)
        series, edges = None, None
        if content.series is not None:
            if drop_short and len(content.series) < min_volumes:
                findings.append(
                    {"check": "too short", "participant_id": scan.participant, "value": len(content.series)}
                )
                continue
            series, missing = check_series(scan, content.series, min_volumes)
        if content.matrix is not None:
            edges, missing, asymmetry = check_matrix(scan, content.matrix, kind, allow_asymmetric)
            if asymmetry is not None:
                findings.append({"check": "asymmetric", "participant_id": scan.participant, "value": asymmetry.value})
        checked.append(Run(scan, missing, edges, series))
    return checked


def _table(rows: list[dict[str, Any]], findings: list[dict[str, Any]]) -> pd.DataFrame:
    """Return the participants table; runs of one person and identical scans share a group."""
    table = pd.DataFrame(rows)
    person, digest = table.pop("person"), table.pop("digest")
    given = table.get("group", person)
    group = given.where(given.notna(), person).astype(str).to_numpy(dtype=object)
    for _, same in table.groupby(digest.to_numpy(), sort=False):
        first, *others = same.index
        for i in others:
            findings.append(
                {
                    "check": "same scan",
                    "participant_id": table["participant_id"][i],
                    "value": table["participant_id"][first],
                }
            )
            group[group == group[i]] = group[first]
    if len(same_scans := [f for f in findings if f["check"] == "same scan"]):
        one = same_scans[0]
        say(
            f"Scans that appear twice: {len(same_scans)}, such as {one['participant_id']} = {one['value']}; "
            "they share a group."
        )
    table["group"] = group
    return table


def _regions(rois: str | Path | None, found: Found, regions: SameRegions) -> pd.DataFrame | None:
    """Return the ROI table: the one given, or the labels of the scans with the networks of the atlas."""
    labels = list(regions.labels)
    if rois is not None:
        file = Path(rois)
        table = read_frame(file, ["label", "network"])
        if len(table) != regions.n_rois:
            raise BadInput(
                f"{file} lists {len(table)} ROIs, the scans have {regions.n_rois}: give the atlas of the scans."
            )
        if not labels:
            return table
        if "label" not in table:
            return table.assign(label=labels)
        if sorted(table["label"].astype(str)) != sorted(labels) or not table["label"].is_unique:
            raise BadInput(
                f"{file} has other labels than the scans (theirs begin with {labels[0]!r}): give their atlas."
            )
        return table.set_index("label").loc[labels].reset_index()
    if not labels:
        return None
    table = pd.DataFrame({"label": labels})
    if found.rois is not None and found.rois["label"].is_unique:
        table["network"] = table["label"].map(found.rois.set_index("label")["network"])
    return table
