"""Which reader a source needs, and what that reader finds."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from bnt.data import authors, cifti, cpac, files, xcpd
from bnt.data.names import Name, list_files
from bnt.data.scan import CONTENTS, Scan
from bnt.errors import BadInput

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
        As in :func:`~bnt.data.importing.import_cohort`.
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
    kind = kind or "paper"
    if format == "xcpd":
        scans, found = xcpd.find_xcpd(names, source, atlas=atlas, content=content)
        return Found(scans, format, kind, found, xcpd.xcpd_rois(source, found))
    if format == "cpac":
        scans, found = cpac.find_cpac(names, source, atlas=atlas, content=content, kind=kind)
    elif format == "cifti":
        scans, found = cifti.find_cifti(names, source, atlas=atlas, content=content)
    else:
        scans, found = files.find_plain(names, source, atlas=atlas, content=content, variable=variable)
    return Found(scans, format, kind, found or atlas or "")
