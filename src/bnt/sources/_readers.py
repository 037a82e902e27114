"""Which reader a source needs, and what that reader finds."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from bnt.errors import BadInput
from bnt.sources import _authors as authors
from bnt.sources import _derivatives as cifti
from bnt.sources import _derivatives as cpac
from bnt.sources import _derivatives as xcpd
from bnt.sources._arrays import Arrays, read_mat, read_npy, read_npz
from bnt.sources._names import Name, list_files, one_atlas, one_variant
from bnt.sources._scan import CONTENTS, Content, Scan, as_numbers, content_of, looks_like_matrix
from bnt.sources._text_tables import check_names, read_table

FORMATS = ("auto", "xcpd", "cpac", "cifti", "files", "authors")


@dataclass(frozen=True)
class Found:
    """The scans of a source and what its names and files say about all of them."""

    scans: list[Scan]
    format: str
    kind: str
    atlas: str = ""
    rois: pd.DataFrame | None = None
    levels: dict[str, dict[str, str]] = field(default_factory=dict)


def detect_format(names: Collection[Name]) -> str:
    """Return the reader for these files.

    XCP-D's names come before C-PAC's, those before CIFTI files, and these before plain files:
    a folder of XCP-D holds CIFTI files too.
    """
    if any(xcpd.is_xcpd_series(n) or xcpd.is_xcpd_matrix(n) for n in names):
        return "xcpd"
    if any(cpac.is_cpac_series(n) or cpac.is_cpac_matrix(n) for n in names):
        return "cpac"
    if any(cifti.is_cifti(n) for n in names):
        return "cifti"
    only = next(iter(names)) if len(names) == 1 else None
    if only is not None and only.source is None and only.extension == "npy" and authors.is_object_array(only.file):
        return "authors"
    return "files"


def find_scans(
    source: Path,
    *,
    format: str = "auto",
    kind: str | None = None,
    atlas: str | None = None,
    content: str = "auto",
    pattern: str | None = None,
    variable: str | None = None,
    leave_out: Collection[Path] = (),
) -> Found:
    """Return the scans of a file or folder; nothing of them is read yet.

    Parameters
    ----------
    source : path
    format : {"auto", "xcpd", "cpac", "cifti", "files", "authors"}
        ``auto`` tells by the names of the files.
    kind, atlas, content, pattern, variable
        As in :func:`~bnt.sources._ingest.import_cohort`.
    leave_out : collection of paths
        Files that are not scans, such as the participants table.
    """
    for name, value, allowed in (("--format", format, FORMATS), ("--content", content, CONTENTS)):
        if value not in allowed:
            raise BadInput(f"{name} {value!r} is not one of {', '.join(allowed)}.")
    out = {p.resolve() for p in leave_out}
    names = [n for n in list_files(source, pattern) if n.file.resolve() not in out]
    if format == "auto":
        format = detect_format(names)
    if format == "authors":
        if not source.is_file():
            raise BadInput(f"{source} is not a file: give the authors' abide.npy itself.")
        scans, found_kind = authors.find_authors(source, kind=kind, content=content)
        return Found(scans, format, found_kind, atlas or "", levels=authors.LEVELS)
    kind = kind or "pearson"
    if format == "xcpd":
        scans, found = xcpd.find_xcpd(names, source, atlas=atlas, content=content)
        return Found(scans, format, kind, found, xcpd.xcpd_rois(source, found))
    if format == "cpac":
        scans, found = cpac.find_cpac(names, source, atlas=atlas, content=content, kind=kind)
    elif format == "cifti":
        scans, found = cifti.find_cifti(names, source, atlas=atlas, content=content)
    else:
        scans, found = find_plain(names, source, atlas=atlas, content=content, variable=variable)
    return Found(scans, format, kind, found or atlas or "")


TEXT = ("1d", "tsv", "csv", "txt", "1d.gz", "tsv.gz", "csv.gz")
ARRAYS = ("npy", "npz", "mat")
TABLES_OF_PEOPLE = ("participants", "rois", "phenotype", "phenotypic", "sessions", "scans")


def is_plain(name: Name) -> bool:
    """Tell whether a file may hold a scan: by its extension, tables about people and ROIs left out."""
    return name.extension.lower() in (*TEXT, *ARRAYS) and name.suffix.lower() not in TABLES_OF_PEOPLE


def read_arrays(file: Path, variable: str | None = None) -> Arrays:
    """Read any of the plain formats; which one is told by the extension."""
    extension = Name(file).extension.lower()
    if extension == "npy":
        return read_npy(file)
    if extension == "npz":
        return read_npz(file, variable)
    if extension == "mat":
        return read_mat(file, variable)
    if extension in TEXT:
        table = read_table(file)
        if set(table.rows) == set(table.columns):
            check_names(table, file)
        return Arrays(table.values, labels=table.columns)
    raise BadInput(
        f"{file} has an unknown extension: give one of {', '.join((*TEXT, *ARRAYS))}, ptseries.nii or pconn.nii."
    )


def read_plain(file: Path, content: str = "auto", variable: str | None = None) -> Content:
    """Read one scan from one file."""
    arrays = read_arrays(file, variable)
    if arrays.values.ndim == 3:
        raise BadInput(f"{file} holds a stack of shape {arrays.values.shape}: import that file alone.")
    return content_of(np.asarray(arrays.values), file, content, arrays.labels)


def find_plain(
    names: Sequence[Name], source: Path, *, atlas: str | None = None, content: str = "auto", variable: str | None = None
) -> tuple[list[Scan], str]:
    """Return the scans of a folder of plain files, or of one file, and the atlas their names give."""
    names = [n for n in names if is_plain(n)]
    if source.is_file():
        return find_stack(source, content, variable), Name(source).atlas
    if not names:
        raise BadInput(
            f"{source} holds no file of a known kind (.1D .tsv .csv .npy .npz .mat .ptseries.nii .pconn.nii)."
        )
    names, found = one_atlas(names, atlas, source)
    read = partial(read_plain, content=content, variable=variable)
    return [Scan(n.participant, n.file, partial(read, n.file), n.run) for n in one_variant(names, source)], found


def find_stack(file: Path, content: str = "auto", variable: str | None = None) -> list[Scan]:
    """Return the scans of one file.

    Two dimensions are one scan. Three are a stack, (n, V, V) or (n, T, V); which of them is told by
    the first slice as in :func:`~bnt.sources._scan.content_of`. Scans of a stack are named by the
    file's ids, or else left nameless for the rows of a participants table to name.
    """
    arrays = read_arrays(file, variable)
    values = as_numbers(arrays.values, file)
    if values.ndim != 3:
        name = Name(file)
        whole = partial(content_of, np.asarray(values), file, content, arrays.labels)
        return [Scan(arrays.ids[0] if len(arrays.ids) == 1 else name.participant, file, whole, name.run)]
    if not len(values):
        raise BadInput(f"{file} holds a stack of no scans, of shape {values.shape}.")
    if arrays.ids and len(arrays.ids) != len(values):
        raise BadInput(f"{file} names {len(arrays.ids)} participants and holds {len(values)} scans.")
    if content == "auto":
        content = "matrix" if looks_like_matrix(np.asarray(values[0])) else "series"

    def load(i: int) -> Content:
        return content_of(np.asarray(values[i]), file, content, arrays.labels)

    return [Scan(arrays.ids[i] if arrays.ids else "", file, partial(load, i)) for i in range(len(values))]
