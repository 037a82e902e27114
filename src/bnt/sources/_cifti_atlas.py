"""CIFTI label files as atlases: their ROIs, and where these lie.

A ``dlabel.nii`` file knows the voxels of its subcortical ROIs, but of cortical ones only the numbers of vertices. Where
vertices lie is in surfaces (``*_hemi-L_midthickness.surf.gii``, ``*.L.midthickness.*.surf.gii``): those beside the file
are read, where they have as many vertices. An ROI lies at the mean of its vertices and voxels.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bnt._progress import say
from bnt.errors import BadInput
from bnt.sources._names import parsing
from bnt.sources._roi_tables import described, network_of, table_beside

# Anatomical surfaces, the best first: spheres and inflated ones are not where the cortex is.
SURFACES = ("midthickness", "graymid", "pial", "white")
HEMISPHERES = {"CIFTI_STRUCTURE_CORTEX_LEFT": "L", "CIFTI_STRUCTURE_CORTEX_RIGHT": "R"}


def cifti_rois(file: Path, table: pd.DataFrame | None = None, surfaces: Iterable[Path] = ()) -> pd.DataFrame:
    """Return the ROIs of a ``dlabel.nii`` file: the labels that grayordinates have, by their keys.

    Parameters
    ----------
    file : path
    table : DataFrame, optional
        Of its ROIs; by default the one beside it.
    surfaces : iterable of path
        To look for vertices in, before those beside the file.
    """
    import nibabel as nib

    with parsing(file, "a CIFTI label file"):
        image: Any = nib.load(file)
        axis = image.header.get_axis(0)
        is_label = isinstance(axis, nib.cifti2.LabelAxis)
        values = np.asarray(image.dataobj)[0].astype(np.int64) if is_label else np.array([], dtype=np.int64)
    if not is_label:
        raise BadInput(f"{file} is a CIFTI file without a label table: give a .dlabel.nii file.", "atlas")
    names = {key: str(name) for key, (name, _) in axis.label[0].items()}
    numbers = [key for key in np.unique(values).tolist() if key > 0 and names.get(key, "") != "???"]
    rois = pd.DataFrame({"roi": numbers, "label": [names.get(n, "") for n in numbers]})
    beside = table_beside(file) if table is None else table
    if beside is not None:
        rois = described(rois[["roi"]], beside, file)
    else:
        rois["network"] = [network_of(one) for one in rois["label"]]
    if {"x", "y", "z"} <= set(rois.columns) and rois[["x", "y", "z"]].notna().any(axis=None):
        return rois
    places = grayordinates(image.header.get_axis(1), [*surfaces, *sorted(file.parent.glob("*.surf.gii"))])
    means = pd.DataFrame(places, columns=list("xyz")).groupby(values).mean().reindex(rois["roi"])
    unknown = int(means["x"].isna().sum())
    if unknown:
        say(
            f"{file.name}: {unknown} of {len(rois)} ROIs have no coordinates, because no surface with their vertices "
            "(*_hemi-L_midthickness.surf.gii, and R) lies beside it; brain pictures leave them out."
        )
    return rois.assign(**{name: np.round(means[name].to_numpy(), 2) for name in "xyz"})


def grayordinates(axis: Any, surfaces: Iterable[Path]) -> np.ndarray:
    """Return where each grayordinate lies, (n, 3): voxels by the affine, vertices by surfaces; NaN where not known."""
    import nibabel as nib

    places = np.full((len(axis), 3), np.nan)
    surfaces = list(surfaces)
    for name, part, model in axis.iter_structures():
        if name not in axis.nvertices:
            places[part] = nib.affines.apply_affine(axis.affine, model.voxel)
            continue
        found = _vertices(surfaces, HEMISPHERES.get(name, ""), axis.nvertices[name])
        if found is not None:
            places[part] = found[model.vertex]
    return places


def _vertices(surfaces: list[Path], hemisphere: str, n: int) -> np.ndarray | None:
    """Return the vertices of the first surface of a hemisphere that has as many of them."""
    import nibabel as nib

    mine = [f for f in surfaces if re.search(rf"(?:hemi-|[._]){hemisphere}[._]", f.name)] if hemisphere else []
    for kind in SURFACES:
        for file in mine:
            if not re.search(rf"[._]{kind}[._]", file.name) and f"_{kind}_" not in file.name:
                continue
            with parsing(file, "a surface"):
                image: Any = nib.load(file)
                arrays = image.agg_data("pointset")
            if not isinstance(arrays, tuple) and len(arrays) == n:
                return np.asarray(arrays, dtype=np.float64)
    return None
