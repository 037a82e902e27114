"""Finds the reader for a source and lists its scans, without reading them.

XCP-D writes one tab-separated table per run and atlas, under BIDS names. Series are
``<entities>_seg-<atlas>_stat-mean_timeseries.tsv``; earlier versions wrote ``_atlas-<atlas>_`` for ``_seg-``, and
before that no ``_stat-mean``. Matrices are ``_stat-pearsoncorrelation_relmat.tsv``, before that
``_stat-pearsoncorrelation_conmat.tsv`` and ``_measure-pearsoncorrelation_conmat.tsv``, with the parcels' names in the
first row and in a first column ``Node``. Parcels that the scan covers too little are ``n/a`` throughout.
XCP-D censors volumes with motion before it correlates. Its series are censored too in its ``linc`` mode, but
interpolated in its ``abcd`` and ``hbcd`` modes: there, take its matrices (``content="matrix"``).

C-PAC writes ``*_timeseries.1D`` (and ABIDE's ``*_rois_<atlas>.1D``) and ``*_correlations.tsv``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bnt.cohort._store import ROI_COLUMNS
from bnt.connectivity import kind_of
from bnt.errors import BadInput
from bnt.sources._atlas import is_atlas
from bnt.sources._authors import LEVELS, find_authors, is_object_array
from bnt.sources._extract import Denoising, Extraction, is_bold
from bnt.sources._names import Name, list_files, one_atlas, one_variant, parsing
from bnt.sources._number_files import Arrays, check_names, read_mat, read_npy, read_npz, read_square, read_table
from bnt.sources._people import read_words, typed, with_points
from bnt.sources._roi_tables import NAME_COLUMNS, xcpd_networks
from bnt.sources._scan import CONTENTS, Content, Scan, as_numbers, content_of, looks_like_matrix

FORMATS = ("auto", "fmriprep", "xcpd", "cpac", "cifti", "files", "authors")
TEXT = ("1d", "tsv", "csv", "txt", "1d.gz", "tsv.gz", "csv.gz")
ARRAYS = ("npy", "npz", "mat")
TABLES_OF_PEOPLE = ("participants", "rois", "phenotype", "phenotypic", "sessions", "scans")


@dataclass(frozen=True)
class Found:
    """The scans of a source and what its names and files say about all of them.

    Parameters
    ----------
    kind : str
        Of connectome: to compute from series, or what the matrices hold.
    source : dict
        What the cohort's manifest says about where the data came from.
    rois : callable
        From the ROI names of the scans and the number of ROIs to a table of ROIs; None where nothing is known.
    levels : dict
        What the codes of a label mean.
    extraction : Extraction, optional
        Of images: what reads them, which several processes can do ahead.
    """

    scans: list[Scan]
    kind: str
    source: dict[str, Any]
    atlas: str = ""
    rois: Callable[[tuple[str, ...], int], pd.DataFrame | None] = lambda labels, n_rois: None
    levels: dict[str, dict[str, str]] = field(default_factory=dict)
    extraction: Extraction | None = None


@dataclass(frozen=True)
class Derivatives:
    """The files of one pipeline: how series and matrices are told by their names, and read."""

    pipeline: str
    is_series: Callable[[Name], bool]
    is_matrix: Callable[[Name], bool]
    read_series: Callable[[Path], Content]
    read_matrix: Callable[[Path], Content]
    example_series: str
    example_matrix: str

    def find(
        self, names: Sequence[Name], source: Path, *, atlas: str | None, content: str, kind: str
    ) -> tuple[list[Scan], str]:
        """Return the scans among the files, and the atlas they are of.

        Series are preferred to matrices, since any kind of connectivity can be computed from them.
        """
        series, matrices = [n for n in names if self.is_series(n)], [n for n in names if self.is_matrix(n)]
        square = content == "matrix" or (content == "auto" and bool(matrices) and not series)
        chosen = _of_kind(matrices, kind) if square else series
        if not chosen:
            wanted = self.example_matrix if square else self.example_series
            raise BadInput(f"{source} holds no {wanted} file of {self.pipeline} for kind {kind!r}.")
        chosen, found = one_atlas(chosen, atlas, source)
        return _scans(chosen, source, self.read_matrix if square else self.read_series), found


def _scans(names: Sequence[Name], source: Path, read: Callable[[Path], Content]) -> list[Scan]:
    return [Scan(n.participant, n.file, partial(read, n.file), n.run) for n in one_variant(names, source)]


def _of_kind(matrices: list[Name], kind: str) -> list[Name]:
    """Keep C-PAC's partial correlations for that kind, Pearson's for the others, where names tell them apart."""
    described = {n: n.entities.get("desc", "").lower() for n in matrices}
    wanted = "partial" if kind == "partial" else "pearson"
    return [n for n in matrices if described[n].startswith(wanted)] or [
        n for n in matrices if not described[n].startswith(("partial", "pearson"))
    ]


def _of_xcpd(name: Name) -> bool:
    return name.extension == "tsv" and "sub" in name.entities and bool(name.atlas)


def is_xcpd_series(name: Name) -> bool:
    """Tell whether a file holds XCP-D's series."""
    stat = name.entities.get("stat", "mean")
    return _of_xcpd(name) and name.suffix == "timeseries" and stat == "mean" and "desc" not in name.entities


def is_xcpd_matrix(name: Name) -> bool:
    """Tell whether a file holds XCP-D's matrix of all volumes, not one of the first so many (``desc-200volumes``)."""
    measure = name.entities.get("stat", name.entities.get("measure", ""))
    whole = not re.fullmatch(r"\d+volumes", name.entities.get("desc", ""))
    return _of_xcpd(name) and name.suffix in ("relmat", "conmat") and measure == "pearsoncorrelation" and whole


def is_cpac_series(name: Name) -> bool:
    """Tell whether a file holds C-PAC's series."""
    return name.extension in ("1D", "1D.gz") and (
        name.suffix == "timeseries" or bool(re.search(r"_rois_[A-Za-z0-9]+$", name.stem))
    )


def is_cpac_matrix(name: Name) -> bool:
    """Tell whether a file holds one of C-PAC's matrices."""
    return name.extension in ("tsv", "csv") and name.suffix == "correlations"


def read_series(file: Path, named: bool = False) -> Content:
    """Read a text file of series: ROIs in columns, volumes in rows; ``named`` insists on the names of the ROIs."""
    return _content(file, "series", named)


def read_matrix(file: Path, named: bool = False) -> Content:
    """Read a text file of a matrix."""
    return _content(file, "matrix", named)


def _content(file: Path, content: str, named: bool) -> Content:
    table = read_square(file) if content == "matrix" else read_table(file)
    if named and not table.columns:
        raise BadInput(f"{file} does not name its parcels in the first row, as XCP-D does: make it again.")
    return content_of(table.values, file, content, table.columns)


def read_cifti(file: Path) -> Content:
    """Read a ``ptseries.nii`` or ``pconn.nii`` file; ROI names come from its parcels axis."""
    import nibabel as nib
    from nibabel.cifti2 import ParcelsAxis
    from nibabel.imageglobals import LoggingOutputSuppressor

    with parsing(file, "a CIFTI file"), LoggingOutputSuppressor():  # it would print on damaged headers
        image = nib.Cifti2Image.from_filename(file)
        axes = [image.header.get_axis(i) for i in range(image.ndim)]
        values = np.asarray(image.dataobj, dtype=np.float64)
        parcels = [tuple(str(n) for n in axis.name) if isinstance(axis, ParcelsAxis) else None for axis in axes]
    square = file.name.lower().endswith("pconn.nii")
    if len(parcels) != 2 or parcels[1] is None or (square and parcels[0] != parcels[1]):
        wanted = "parcels by the same parcels" if square else "time by parcels"
        raise BadInput(f"{file} is not {wanted}: give a *.ptseries.nii or *.pconn.nii file.")
    if values.shape[1] != len(parcels[1]):
        raise BadInput(f"{file} names {len(parcels[1])} parcels and has data of shape {values.shape}: make it again.")
    return content_of(values, file, "matrix" if square else "series", parcels[1])


def is_ptseries(name: Name) -> bool:
    """Tell whether a file is a CIFTI file of series."""
    return name.extension.lower() == "ptseries.nii"


def is_pconn(name: Name) -> bool:
    """Tell whether a file is a CIFTI file of a matrix."""
    return name.extension.lower() == "pconn.nii"


# In the order in which a folder is tried: one of XCP-D holds CIFTI files too.
DERIVATIVES = {
    "xcpd": Derivatives(
        "XCP-D",
        is_xcpd_series,
        is_xcpd_matrix,
        partial(read_series, named=True),
        partial(read_matrix, named=True),
        "*_stat-mean_timeseries.tsv",
        "*_stat-pearsoncorrelation_relmat.tsv",
    ),
    "cpac": Derivatives(
        "C-PAC", is_cpac_series, is_cpac_matrix, read_series, read_matrix, "*_timeseries.1D", "*_correlations.tsv"
    ),
    "cifti": Derivatives("CIFTI", is_ptseries, is_pconn, read_cifti, read_cifti, "*.ptseries.nii", "*.pconn.nii"),
}


def detect_format(names: Collection[Name]) -> str:
    """Return the reader for these files."""
    for name, of in DERIVATIVES.items():
        if any(of.is_series(n) or of.is_matrix(n) for n in names):
            return name
    if any(is_bold(n) for n in names):
        return "fmriprep"
    only = next(iter(names)) if len(names) == 1 else None
    if only is not None and only.source is None and only.extension == "npy" and is_object_array(only.file):
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
    participants: str | Path | None = None,
    rois: str | Path | None = None,
    denoising: Denoising | None = None,
    data_dir: str | Path | None = None,
) -> Found:
    """Return the scans of a file or folder.

    Parameters
    ----------
    format : {"auto", "fmriprep", "xcpd", "cpac", "cifti", "files", "authors"}
        ``auto`` tells by the names of the files.
    kind, atlas, content, pattern, variable
        As in :func:`~bnt.sources.import_cohort`.
    participants, rois : path, optional
        Tables that the user named: they are no scans.
    denoising, data_dir
        Of images: how they are cleaned, and where nilearn keeps atlases.
    """
    for name, value, allowed in (("format", format, FORMATS), ("content", content, CONTENTS)):
        if value not in allowed:
            raise BadInput(f"{name} is {value!r}: choose one of {', '.join(allowed)}.", name)
    kind = None if kind is None else kind_of(kind).name
    tables = {Path(p).resolve() for p in (participants, rois) if p is not None}
    names = [n for n in list_files(source, pattern) if n.file.resolve() not in tables]
    if format == "auto":
        images = atlas is not None and is_atlas(atlas) and any(is_bold(n) for n in names)
        format = "fmriprep" if images else detect_format(names)
    facts = {"reader": format, "path": str(source.resolve()), "content": content}
    if format == "authors":
        if not source.is_file():
            raise BadInput(f"{source} is not a file: give the authors' abide.npy itself.")
        scans, found_kind = find_authors(source, kind=kind, content=content)
        return Found(scans, found_kind, facts, atlas or "", partial(roi_table, rois, {}), LEVELS)
    kind = kind or "pearson"
    if format == "fmriprep":
        from bnt.sources._images import find_fmriprep

        given: dict[str, Any] = {"rois": rois, "denoising": denoising, "data_dir": data_dir}
        return find_fmriprep(names, source, atlas=atlas, kind=kind, facts=facts, **given)
    if format == "files":
        scans, found = find_plain(names, source, atlas=atlas, content=content, variable=variable)
    else:
        scans, found = DERIVATIVES[format].find(names, source, atlas=atlas, content=content, kind=kind)
    networks = xcpd_networks(source, found) if format == "xcpd" else {}
    return Found(scans, kind, facts, found or atlas or "", partial(roi_table, rois, networks))


def roi_table(
    given: str | Path | None, networks: Mapping[str, str], labels: tuple[str, ...], n_rois: int
) -> pd.DataFrame | None:
    """Return the ROI table that the user gave, in the order of the scans, or their labels with the known networks.

    The names of its ROIs are in ``label``, or in another usual column (``name``) that holds those of the scans.
    """
    if given is None:
        return pd.DataFrame({"label": labels, "network": [networks.get(n) for n in labels]}) if labels else None
    file = Path(given)
    words = read_words(file)
    lower = [str(c).lower() for c in words]
    known = [c in (*ROI_COLUMNS, *NAME_COLUMNS) and lower.count(c) == 1 for c in lower]
    words.columns = [low if ours else str(c) for c, low, ours in zip(words, lower, known)]
    names = sorted((c for c in NAME_COLUMNS if c in words), key=lambda c: c != "label")
    wanted = sorted(labels) if labels else None
    own = next((c for c in names if wanted in (None, sorted(words[c].str.strip()))), "label")
    if own != "label":
        words = words.drop(columns="label", errors="ignore").rename(columns={own: "label"})
    for axis in [c for c in "xyz" if c in words]:
        words[axis] = with_points(words[axis], file)
    table = typed(words, ["label", "network"])
    if len(table) != n_rois:
        raise BadInput(f"{file} lists {len(table)} ROIs, the scans have {n_rois}: give the atlas of the scans.")
    if not labels:
        return table
    if "label" not in table:
        return table.assign(label=labels)
    if sorted(table["label"].astype(str)) != sorted(labels) or not table["label"].is_unique:
        raise BadInput(f"{file} has other labels than the scans (theirs begin with {labels[0]!r}): give their atlas.")
    return table.set_index("label").loc[list(labels)].reset_index()


# -- plain files ---------------------------------------------------------------------------------------------


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
    return _scans(names, source, read), found


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
