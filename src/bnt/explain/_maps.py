"""Edge maps as brain images: ROI maps and seed maps as NIfTI, matrices and ROI maps as CIFTI.

An ROI's strength is the sum of the sizes of its edges' scores; its balance is their sum, positive where stronger
connections of the ROI speak for the target.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bnt._words import say
from bnt.cohort import Cohort, square
from bnt.errors import BadInput
from bnt.sources._atlas import Atlas, find_atlas

if TYPE_CHECKING:
    from nibabel import Nifti1Image

N_SEEDS = 10
MAPS = ("strength", "balance")


def atlas_of(cohort: Cohort, given: str | None) -> Atlas | None:
    """Return the atlas of a cohort: the one given, or the one it was imported with where the file is still there."""
    word = given
    if word is None:
        file = Path(str(cohort.source.get("atlas_image", {}).get("file", "")))
        if not file.is_file():
            return None
        word = str(file)
    atlas = find_atlas(word)
    if len(atlas.rois) != cohort.n_rois:
        raise BadInput(
            f"{atlas.file} has {len(atlas.rois)} ROIs, {cohort.path or 'the cohort'} has {cohort.n_rois}: give the "
            "atlas that the cohort was made with.",
            "atlas",
        )
    theirs = cohort.rois["label"].astype(str).tolist()
    if atlas.labels and all(theirs) and list(atlas.labels) != theirs:
        at = next(i for i, (a, b) in enumerate(zip(atlas.labels, theirs)) if a != b)
        found = (
            f"{atlas.file} has {atlas.labels[at]!r} as ROI {at + 1}, {cohort.path or 'the cohort'} has {theirs[at]!r}"
        )
        if sorted(atlas.labels) == sorted(theirs):
            raise BadInput(f"{found}: give the atlas that the cohort was made with.", "atlas")
        say(f"{found}: make sure that it is the same atlas in the same order.")
    return atlas


def roi_values(score: np.ndarray) -> dict[str, np.ndarray]:
    """Return strength and balance of each ROI, (V,), from a map of edges, (E,)."""
    matrix = square(score, 0.0)
    return {"strength": np.abs(matrix).sum(axis=0), "balance": matrix.sum(axis=0)}


def painted(atlas: Atlas, values: np.ndarray) -> Nifti1Image:
    """Return a brain image of values of ROIs, (V,) or (V, n): of labels their value, of maps the weighted sum."""
    import nibabel as nib

    image = atlas.image()
    data = np.asarray(image.dataobj)
    values = np.asarray(values, dtype=np.float32)
    if atlas.form == "maps":
        return nib.Nifti1Image(np.asarray(data, dtype=np.float32) @ values, image.affine)
    table = np.zeros((int(data.max()) + 1, *values.shape[1:]), dtype=np.float32)
    table[atlas.rois["roi"].to_numpy(dtype=np.int64)] = values
    return nib.Nifti1Image(table[np.maximum(data, 0).astype(np.int64)], image.affine)  # not the labels' whole numbers


def write_brain_maps(score: np.ndarray, atlas: Atlas, folder: Path) -> dict[str, Any]:
    """Write the maps of an edge map into a folder; return which files hold what.

    Parameters
    ----------
    score : array, (E,)
    atlas : Atlas
    folder : path
    """
    values = roi_values(score)
    if atlas.form == "cifti":
        _dense_maps(values, atlas, folder / "rois.dscalar.nii")
        _matrix(score, _dense_parcels(atlas), folder / "edges.pconn.nii")
        return {"files": ["rois.dscalar.nii", "edges.pconn.nii"], "atlas": str(atlas.file)}
    files = [f"roi_{name}.nii.gz" for name in MAPS]
    for name, file in zip(MAPS, files):
        painted(atlas, values[name]).to_filename(folder / file)
    seeds = np.argsort(-values["strength"], kind="stable")[:N_SEEDS]
    painted(atlas, square(score, 0.0)[:, seeds]).to_filename(folder / "seed_maps.nii.gz")
    table = atlas.rois.iloc[seeds][["roi", "label", "network"]].assign(strength=values["strength"][seeds])
    table.insert(0, "volume", np.arange(len(seeds)))
    table.to_csv(folder / "seed_maps.csv", index=False, float_format="%.8g")
    files += ["seed_maps.nii.gz", "seed_maps.csv"]
    if atlas.form == "labels":
        _matrix(score, _volume_parcels(atlas), folder / "edges.pconn.nii")
        files.append("edges.pconn.nii")
    return {"files": files, "atlas": str(atlas.file)}


def strongest_rois(score: np.ndarray, rois: pd.DataFrame) -> pd.DataFrame:
    """Return the ROI table with strength and balance, the strongest first."""
    table = rois.assign(**roi_values(score))
    return table.sort_values("strength", ascending=False, kind="stable").reset_index(drop=True)


# -- CIFTI ---------------------------------------------------------------------------------------------------


def _names(atlas: Atlas) -> list[str]:
    return [label or f"ROI {number}" for number, label in zip(atlas.rois["roi"], atlas.rois["label"])]


def _volume_parcels(atlas: Atlas) -> Any:
    """Return the label image's ROIs as CIFTI parcels of voxels."""
    from nibabel.cifti2 import BrainModelAxis, ParcelsAxis

    image = atlas.image()
    data = np.asarray(image.dataobj)
    models = [BrainModelAxis.from_mask(data == n, name="other", affine=image.affine) for n in atlas.rois["roi"]]
    return ParcelsAxis.from_brain_models(list(zip(_names(atlas), models)))


def _dense_labels(atlas: Atlas) -> tuple[Any, np.ndarray]:
    import nibabel as nib

    labels: Any = nib.load(atlas.file)
    return labels.header.get_axis(1), np.asarray(labels.dataobj)[0].astype(np.int64)


def _dense_parcels(atlas: Atlas) -> Any:
    """Return a CIFTI label file's ROIs as parcels."""
    from nibabel.cifti2 import ParcelsAxis

    axis, keys = _dense_labels(atlas)
    return ParcelsAxis.from_brain_models([(n, axis[keys == k]) for n, k in zip(_names(atlas), atlas.rois["roi"])])


def _matrix(score: np.ndarray, parcels: Any, file: Path) -> None:
    """Write edges as a CIFTI matrix of parcels by parcels."""
    import nibabel as nib

    header = nib.Cifti2Header.from_axes((parcels, parcels))
    nib.Cifti2Image(square(score, 0.0).astype(np.float32), header).to_filename(file)


def _dense_maps(values: dict[str, np.ndarray], atlas: Atlas, file: Path) -> None:
    """Write values of ROIs as CIFTI maps of grayordinates."""
    import nibabel as nib

    axis, keys = _dense_labels(atlas)
    out = np.zeros((len(values), len(keys)), dtype=np.float32)
    for i, number in enumerate(atlas.rois["roi"]):
        out[:, keys == number] = np.array([one[i] for one in values.values()])[:, None]
    header = nib.Cifti2Header.from_axes((nib.cifti2.ScalarAxis(list(values)), axis))
    nib.Cifti2Image(out, header).to_filename(file)
