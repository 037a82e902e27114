"""CIFTI: parcellated series (``*.ptseries.nii``) and connectomes (``*.pconn.nii``), through nibabel."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from bnt.data.names import Name, one_atlas, one_variant
from bnt.data.scan import Content, Scan, content_of, parsing
from bnt.errors import BadInput


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
