"""The import pipeline: every source of scans goes through :func:`ingest`, into a folder or into memory."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from bnt._words import say, track
from bnt.cohort import Cohort, CohortWriter, load_cohort
from bnt.cohort._beside import CohortInMemory
from bnt.cohort._files import refuse_existing
from bnt.cohort._scans import scan_digest
from bnt.cohort._store import DTYPES
from bnt.connectivity import Kind, kind_of
from bnt.errors import BadInput
from bnt.sources._joining import Run, combine_runs, combined_columns, combined_quality, group_scans, join_tables
from bnt.sources._motion import COLUMNS, SIMPLE, Denoising
from bnt.sources._names import MAX_EXPANDED, expanding
from bnt.sources._readers import Found, find_scans
from bnt.sources._scan import (
    SYMMETRY_TOLERANCE,
    Content,
    SameRegions,
    Scan,
    check_matrix,
    check_series,
    refuse_transposed,
)

MIN_VOLUMES = 20


@dataclass(frozen=True)
class Rules:
    """What to do with runs, short scans, asymmetric matrices and duplicates; see :func:`import_cohort`.

    ``duplicates`` is ``group`` (the same scan under two names shares a group) or ``drop`` (the first is kept).
    """

    runs: str = "average"
    min_volumes: int = MIN_VOLUMES
    drop_short: bool = False
    allow_asymmetric: bool = False
    duplicates: str = "group"
    transpose: bool = False


def import_cohort(
    source: str | Path,
    out: str | Path,
    *,
    participants: str | Path | None = None,
    kind: str | None = None,
    format: str = "auto",
    atlas: str | Sequence[str] | None = (),
    denoising: Denoising = SIMPLE,
    jobs: int = 0,
    data_dir: str | Path | None = None,
    runs: str = "average",
    content: str = "auto",
    pattern: str | None = None,
    variable: str | None = None,
    rois: str | Path | None = None,
    id_column: str = "participant_id",
    site_column: str | None = None,
    family: str | None = None,
    keep_case: bool = False,
    missing: Sequence[str] | None = None,
    min_volumes: int = MIN_VOLUMES,
    drop_short: bool = False,
    drop_unlisted: bool = False,
    allow_asymmetric: bool = False,
    transpose: bool = False,
    max_expanded: float = MAX_EXPANDED,
    dtype: str = "float32",
    overwrite: bool = False,
    work: str | Path | None = None,
) -> Cohort:
    """Make a cohort of the scans in a file or folder, and open it.

    Parameters
    ----------
    source : path
        A folder of fMRIPrep, XCP-D or C-PAC derivatives, of CIFTI files or of plain files, or one file.
    out : path
        The folder to make. It is written only if every scan passes its checks.
    participants : path, optional
        The table of labels; for derivatives, the ``participants.tsv`` of the BIDS root is found. A scan that is not in
        the table is refused unless ``drop_unlisted`` is set; rows without a scan are counted.
    kind : str, optional
        For time series, the kind of connectome to compute; for matrices, the kind of their values. ``pearson`` by
        default; ``shrunk-z`` for the authors' file.
    format : {"auto", "fmriprep", "xcpd", "cpac", "cifti", "files", "authors"}
    atlas : str or sequence of str, optional
        Needed if there are files of several atlases, and for fMRIPrep images: a file (``atlas.nii.gz``,
        ``atlas.dlabel.nii``) or a name that nilearn or TemplateFlow downloads (``schaefer_2018:400``). Several atlases
        give one cohort with several atlases (:meth:`Cohort.with_atlas`).
    denoising : Denoising, optional
        For images: confounds, filter and scrubbing (:class:`bnt.sources.Denoising`).
    jobs : int
        Number of processes that read images, or a hundred or more other files; 0 is one per core. The cohort is
        bit-identical whatever their number.
    data_dir : path, optional
        nilearn's folder of downloaded atlases.
    runs : {"average", "first", "separate", "sessions", "concatenate"}
        How to combine several sessions or runs of a participant: the mean of their connectomes (by Fisher's z), the
        first, one row per run, one row per session (the mean of its runs), or one connectome of the concatenated time
        series. With several rows per participant, results are still counted and tested per participant.
    content : {"auto", "series", "matrix"}
        Content of the files. ``auto`` reads a square symmetric array as a matrix, and prefers time series if
        derivatives have both.
    pattern : str, optional
        Read only files whose name matches, such as ``*_task-rest_*``.
    variable : str, optional
        The array to read from ``.npz`` and ``.mat`` files.
    rois : path, optional
        A table with ``label, x, y, z, network``, in the order of the scans or with their labels.
    id_column, site_column, family : str
        Columns of the participants table with the names of the scans, the sites, and the families, which stay together
        in splits. A column called ``site`` or ``SITE_ID``, and one called ``family_id`` or similar, is found without
        this.
    keep_case : bool
        Treat ``MDD`` and ``mdd`` as different; by default, words that differ only in case or spaces are one, with a
        message.
    missing : sequence of str, optional
        Codes for unknown values in the tables of people, such as ``["-9", "888"]``. By default, codes like -9999 and
        999 that stand apart from all other values of a column are read as missing, with a message; ``["none"]`` keeps
        every number.
    min_volumes : int
        A run with fewer volumes is refused, or left out with ``drop_short``.
    allow_asymmetric : bool
        Average the two halves of asymmetric matrices, and list them in the cohort's findings.
    transpose : bool
        Time series have ROIs in rows and volumes in columns. Without this option, such time series are refused if the
        ROIs have no names and time seems to run along the columns; ``content="series"`` skips that check.
    max_expanded : float
        Limit in GB of the expanded size of one compressed file; a larger file is refused.
    dtype : {"float32", "float16"}
    overwrite : bool
        Replace an existing cohort at ``out``.
    work : path, optional
        Folder that keeps the extracted time series of images for other imports. By default they are next to ``out``
        until it is complete.

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
    from bnt.sources._images import ingest_atlases, same_people

    source, out = Path(source), Path(out)
    refuse_existing(out, overwrite, "cohort.json")
    with expanding(max_expanded):
        founds = [
            find_scans(
                source,
                format=format,
                kind=kind,
                atlas=word,
                content=content,
                pattern=pattern,
                variable=variable,
                participants=participants,
                rois=rois,
                denoising=denoising,
                data_dir=data_dir,
            )
            for word in ((atlas,) if isinstance(atlas, str) else tuple(atlas or ()) or (None,))
        ]
        first = join_tables(
            founds[0],
            source,
            participants,
            drop_unlisted=drop_unlisted,
            id_column=id_column,
            site_column=site_column,
            family=family,
            keep_case=keep_case,
            missing=missing,
        )
        rules = Rules(runs, min_volumes, drop_short, allow_asymmetric, transpose=transpose)
        founds = [first, *(same_people(other, first) for other in founds[1:])]
        return ingest_atlases(
            founds, rules, source.name, out=out, jobs=jobs, dtype=dtype, overwrite=overwrite, work=work
        )


def read_cohort(
    source: str | Path,
    *,
    like: Cohort | str | Path | None = None,
    participants: str | Path | None = None,
    kind: str | None = None,
    format: str = "auto",
    atlas: str | None = None,
    runs: str | None = None,
    content: str | None = None,
    pattern: str | None = None,
    variable: str | None = None,
    id_column: str = "participant_id",
    site_column: str | None = None,
    min_volumes: int = MIN_VOLUMES,
    max_expanded: float = MAX_EXPANDED,
) -> Cohort:
    """Read the scans in a file or folder into memory; nothing is written.

    Parameters
    ----------
    source : path
        As in :func:`import_cohort`.
    like : Cohort or path, optional
        An existing cohort, which gives the defaults of ``kind``, ``runs`` and ``content``.
    participants, kind, format, atlas, runs, content, pattern, variable, id_column, site_column, min_volumes
        As in :func:`import_cohort`.
    max_expanded : float
        Limit in GB of the expanded size of one compressed file.

    Returns
    -------
    Cohort
        The same as that of :func:`import_cohort`, in memory.

    Examples
    --------
    >>> import numpy as np
    >>> from bnt.sources import read_cohort
    >>> np.save("sub-07.npy", np.random.default_rng(0).normal(size=(200, 10)))  # volumes x ROIs
    >>> read_cohort("sub-07.npy", kind="fisher-z").ids.tolist()
    ['sub-07']
    """
    source = Path(source)
    before, denoising = load_cohort(like) if isinstance(like, str | Path) else like, None
    if before is not None:
        kind = kind or (before.kind if before.kind != "unknown" else None)
        runs, content = runs or before.source.get("runs"), content or before.source.get("content")
        atlas = atlas or before.source.get("atlas_image", {}).get("file")
        denoising = Denoising(**before.source["denoising"]) if "denoising" in before.source else None
    with expanding(max_expanded):
        found = find_scans(
            source,
            format=format,
            kind=kind,
            atlas=atlas,
            content=content or "auto",
            pattern=pattern,
            variable=variable,
            participants=participants,
            denoising=denoising,
        )
        columns: dict[str, Any] = {"id_column": id_column, "site_column": site_column}
        found = join_tables(found, source, participants, labels_needed=False, **columns)
        transpose = before is not None and bool(before.source.get("transpose"))
        return ingest(found, Rules(runs or "average", min_volumes, transpose=transpose), source.name)


def ingest(
    found: Found, rules: Rules, name: str, *, out: Path | None = None, dtype: str = "float32", overwrite: bool = False
) -> Cohort:
    """Read, check and combine scans, one participant in memory at a time; return the cohort.

    Parameters
    ----------
    found : Found
        The scans; their ``columns`` become those of the participants table.
    name : str
        What messages call the source.
    out : path, optional
        The folder to make; in memory without it.
    dtype, overwrite
        As in :class:`~bnt.cohort.CohortWriter`.
    """
    if dtype not in DTYPES:
        raise BadInput(f"dtype is {dtype!r}: choose one of {', '.join(DTYPES)}.", "dtype")
    groups = group_scans(found.scans, rules.runs)
    if len(found.scans) > len(groups) and rules.runs != "first":
        done = "joined" if rules.runs == "concatenate" else "averaged"
        one = "session" if rules.runs == "sessions" else "participant"
        say(f"{name}: {len(found.scans)} scans of {len(groups)} {one}s; the scans of a {one} are {done}.")
    kind, regions = kind_of(found.kind), SameRegions()
    unsure = found.source.get("content") == "auto" and found.source["reader"] in ("files", "cpac")
    rows: list[dict[str, Any]] = []
    findings: list[dict[str, Any]] = []
    differ: set[str] = set()  # columns whose values the scans of one row do not share
    first_with: dict[str, str] = {}  # digest of a scan -> the participant who had it first
    with ExitStack() as stack:
        writer: CohortWriter | CohortInMemory | None = None
        for participant, scans in track(groups.items(), f"Reading {name}", len(groups)):
            runs = _read_runs(scans, regions, kind, findings, rules, unsure=unsure)
            if not runs:
                continue
            person = combine_runs(runs, rules.runs, kind)
            edges = person.edges[None].astype(dtype)
            digest = scan_digest(edges)
            twin = first_with.setdefault(digest, participant)
            if twin != participant:
                findings.append({"check": "same scan", "participant_id": participant, "value": twin})
                if rules.duplicates == "drop":
                    continue
            if writer is None:
                writer = new_writer(regions.n_rois, out, dtype, overwrite)
                stack.enter_context(writer)
            writer.append(edges, None if person.series is None else [person.series])
            used = [run.scan for run in runs]
            columns, differing = combined_columns(used)
            differ.update(differing)
            own = {"participant_id": participant, "n_missing_rois": person.n_missing}
            rows.append({**columns, **combined_quality(used), **own, "person": scans[0].participant, "twin": twin})
        if writer is None:
            raise BadInput(
                f"{name} has no scan of min_volumes={rules.min_volumes} or more volumes: lower min_volumes.",
                "min_volumes",
            )
        if emptied := sorted(differ - {*COLUMNS}):
            say(
                f"{name}: {', '.join(emptied)} differ between scans that were put together, and are left empty there: "
                "runs separate or sessions (--runs) keeps the sessions apart."
            )
        short = sum(f["check"] == "too short" for f in findings)
        facts: dict[str, Any] = {"transpose": True} if rules.transpose else {}
        facts |= {"runs": rules.runs, "n_scans": len(found.scans), "scans_too_short": short}
        writer.finish(
            _table(rows),
            found.rois(regions.labels, regions.n_rois),
            kind=kind.name,
            diagonal=kind.diagonal,
            atlas=found.atlas,
            source=found.source | facts,
            levels=found.levels,
            findings=findings,
        )
    return finished(writer)


def new_writer(n_rois: int, out: str | Path | None, dtype: str, overwrite: bool) -> CohortWriter | CohortInMemory:
    """Return what takes the rows of a cohort: a writer of the folder ``out``, or of none."""
    return CohortInMemory(n_rois) if out is None else CohortWriter(out, n_rois, dtype=dtype, overwrite=overwrite)


def finished(writer: CohortWriter | CohortInMemory) -> Cohort:
    """Return the cohort that was written."""
    return writer.cohort if isinstance(writer, CohortInMemory) else load_cohort(writer.path)


def _read_runs(
    scans: Sequence[Scan], regions: SameRegions, kind: Kind, findings: list[dict[str, Any]], rules: Rules, unsure: bool
) -> list[Run]:
    """Read and check the runs of one row; short ones may be left out, ``unsure`` looks for transposed series."""
    checked = []
    for scan in scans:
        content = scan.read()
        if content.series is not None and content.matrix is None and rules.transpose:
            content = Content(series=content.series.T)
        elif content.series is not None and content.matrix is None and unsure and not content.labels:
            refuse_transposed(scan, content.series)
        regions.check(scan, content)
        series, edges = None, None
        if content.series is not None:
            if rules.drop_short and len(content.series) < rules.min_volumes:
                found = {"check": "too short", "participant_id": scan.participant, "value": len(content.series)}
                findings.append(found)
                continue
            series, missing = check_series(scan, content.series, rules.min_volumes)
        if content.matrix is not None:
            edges, missing, asymmetry = check_matrix(scan, content.matrix, kind, rules.allow_asymmetric)
            if asymmetry > SYMMETRY_TOLERANCE:
                findings.append({"check": "asymmetric", "participant_id": scan.participant, "value": asymmetry})
        checked.append(Run(scan, missing, edges, series))
    return checked


def _table(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Return the participants table; runs of one person and identical scans share a family.

    With several rows for one person, ``person`` names who it is.
    """
    table = pd.DataFrame(rows)
    person, twin = table.pop("person"), table.pop("twin")
    given = table.get("family", person)
    family = given.where(given.notna(), person).astype(str).to_numpy(dtype=object)
    position = {name: i for i, name in enumerate(table["participant_id"])}
    twins = [i for i, name in enumerate(twin) if name != table["participant_id"][i]]
    for i in twins:
        family[family == family[i]] = family[position[twin[i]]]
    if twins:
        one = twins[0]
        say(
            f"Scans that appear twice: {len(twins)}, such as {table['participant_id'][one]} = {twin[one]}; "
            "they share a family."
        )
    table["family"] = family
    return table.assign(person=person) if (person != table["participant_id"]).any() else table
