"""XCP-D derivatives: one tab-separated table a run and atlas, under BIDS names.

Series are ``<entities>_seg-<atlas>_stat-mean_timeseries.tsv``; earlier versions wrote
``_atlas-<atlas>_`` for ``_seg-``, and before that no ``_stat-mean``. Matrices are
``_stat-pearsoncorrelation_relmat.tsv``, before that ``_stat-pearsoncorrelation_conmat.tsv`` and
``_measure-pearsoncorrelation_conmat.tsv``, with the parcels' names in the first row and in a first column ``Node``.
Parcels that the scan covers too little are ``n/a`` throughout.

XCP-D censors volumes with motion before it correlates. Its series are censored too in its ``linc``
mode, but interpolated in its ``abcd`` and ``hbcd`` modes: there, take its matrices (``--content matrix``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from bnt.errors import BadInput
from bnt.sources._names import Name, one_atlas, one_variant
from bnt.sources._scan import Content, Scan, content_of, parsing
from bnt.sources._text_tables import read_square, read_table


def is_xcpd_series(name: Name) -> bool:
    """Tell whether a name is that of XCP-D's series."""
    stat = name.entities.get("stat", "mean")
    return _is_of_atlas(name) and name.suffix == "timeseries" and stat == "mean" and "desc" not in name.entities


def is_xcpd_matrix(name: Name) -> bool:
    """Tell whether a name is that of XCP-D's matrix of all volumes.

    Those of the first so many volumes (``desc-200volumes``) are other matrices of the same scan.
    """
    measure = name.entities.get("stat", name.entities.get("measure", ""))
    whole = not re.fullmatch(r"\d+volumes", name.entities.get("desc", ""))
    return _is_of_atlas(name) and name.suffix in ("relmat", "conmat") and measure == "pearsoncorrelation" and whole


def _is_of_atlas(name: Name) -> bool:
    return name.extension == "tsv" and "sub" in name.entities and bool(name.atlas)


def find_xcpd(
    names: Sequence[Name], source: Path, *, atlas: str | None = None, content: str = "auto"
) -> tuple[list[Scan], str]:
    """Return the scans among the files of an XCP-D folder, and the atlas they are of.

    Series are preferred to matrices, since any kind of connectivity can be computed from them.
    """
    series, matrices = [n for n in names if is_xcpd_series(n)], [n for n in names if is_xcpd_matrix(n)]
    square = content == "matrix" or (content == "auto" and bool(matrices) and not series)
    chosen = matrices if square else series
    if not chosen:
        wanted = "*_stat-pearsoncorrelation_relmat.tsv" if square else "*_stat-mean_timeseries.tsv"
        raise BadInput(f"{source} holds no {wanted} file of XCP-D.")
    chosen, found = one_atlas(chosen, atlas, source)
    read = read_xcpd_matrix if square else read_xcpd_series
    return [Scan(n.participant, n.file, partial(read, n.file), n.run) for n in one_variant(chosen, source)], found


def read_xcpd_series(file: Path) -> Content:
    """Read one ``timeseries.tsv``: parcels in columns, volumes in rows."""
    table = read_table(file)
    if not table.columns:
        raise BadInput(f"{file} does not name its parcels in the first row, as XCP-D does: make it again.")
    return content_of(table.values, file, "series", table.columns)


def read_xcpd_matrix(file: Path) -> Content:
    """Read one ``relmat.tsv`` or ``conmat.tsv``."""
    table = read_square(file)
    if not table.columns:
        raise BadInput(f"{file} does not name its parcels in the first row, as XCP-D does: make it again.")
    return content_of(table.values, file, "matrix", table.columns)


def xcpd_rois(source: Path, atlas: str) -> pd.DataFrame | None:
    """Return the labels and networks of ``atlases/atlas-<atlas>/atlas-<atlas>_dseg.tsv``, where it is there."""
    found = sorted(source.glob(f"atlases/atlas-{atlas}/*_dseg.tsv")) if source.is_dir() and atlas else []
    if not found:
        return None
    try:
        table = pd.read_csv(found[0], sep="\t", dtype=str, na_values=["n/a"])
    except (OSError, ValueError):  # the names in the scans' own headers are enough
        return None
    networks = [c for c in table.columns if c.startswith("network")]
    if "label" not in table:
        return None
    return pd.DataFrame({"label": table["label"], "network": table[networks[0]] if networks else ""})


def is_cpac_series(name: Name) -> bool:
    """Tell whether a name is that of C-PAC's series."""
    return name.extension in ("1D", "1D.gz") and (
        name.suffix == "timeseries" or bool(re.search(r"_rois_[A-Za-z0-9]+$", name.stem))
    )


def is_cpac_matrix(name: Name) -> bool:
    """Tell whether a name is that of one of C-PAC's matrices."""
    return name.extension in ("tsv", "csv") and name.suffix == "correlations"


def _of_kind(matrices: list[Name], kind: str) -> list[Name]:
    """Keep partial correlations for that kind, Pearson's for the others, where names tell them apart."""
    described = {n: n.entities.get("desc", "").lower() for n in matrices}
    wanted = "partial" if kind == "partial" else "pearson"
    return [n for n in matrices if described[n].startswith(wanted)] or [
        n for n in matrices if not described[n].startswith(("partial", "pearson"))
    ]


def find_cpac(
    names: Sequence[Name], source: Path, *, atlas: str | None = None, content: str = "auto", kind: str = "pearson"
) -> tuple[list[Scan], str]:
    """Return the scans among the files of a C-PAC folder, and the atlas they are of.

    Series are preferred to matrices. Of the matrices, ``PartialNilearn`` and the like are taken for
    kind ``partial`` and ``PearsonNilearn`` and the like for the others.
    """
    series, matrices = [n for n in names if is_cpac_series(n)], [n for n in names if is_cpac_matrix(n)]
    square = content == "matrix" or (content == "auto" and bool(matrices) and not series)
    chosen = _of_kind(matrices, kind) if square else series
    if not chosen:
        wanted = f"*_correlations.tsv for kind {kind!r}" if square else "*_timeseries.1D"
        raise BadInput(f"{source} holds no {wanted} of C-PAC.")
    chosen, found = one_atlas(chosen, atlas, source)
    read = read_cpac_matrix if square else read_cpac_series
    return [Scan(n.participant, n.file, partial(read, n.file), n.run) for n in one_variant(chosen, source)], found


def read_cpac_series(file: Path) -> Content:
    """Read one ``.1D`` file: ROIs in columns, volumes in rows."""
    table = read_table(file)
    return content_of(table.values, file, "series", table.columns)


def read_cpac_matrix(file: Path) -> Content:
    """Read one matrix."""
    table = read_square(file)
    return content_of(table.values, file, "matrix", table.columns)


def is_cifti(name: Name) -> bool:
    """Tell whether a file is one of the two kinds read here."""
    return name.extension.lower() in ("ptseries.nii", "pconn.nii")


def find_cifti(
    names: Sequence[Name], source: Path, *, atlas: str | None = None, content: str = "auto"
) -> tuple[list[Scan], str]:
    """Return the scans among the files and the atlas they are of; series are preferred to matrices."""
    series = [n for n in names if n.extension.lower() == "ptseries.nii"]
    matrices = [n for n in names if n.extension.lower() == "pconn.nii"]
    chosen = matrices if content == "matrix" or (content == "auto" and matrices and not series) else series
    if not chosen:
        raise BadInput(f"{source} holds no {'*.pconn.nii' if content == 'matrix' else '*.ptseries.nii'} file.")
    chosen, found = one_atlas(chosen, atlas, source)
    return [Scan(n.participant, n.file, partial(read_cifti, n.file), n.run) for n in one_variant(chosen, source)], found


def read_cifti(file: Path) -> Content:
    """Read one file; ROI names come from its parcels axis."""
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
