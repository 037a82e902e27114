"""Small trees of fMRIPrep with the names that it writes: tiny images, six regions, a few dozen volumes."""

from __future__ import annotations

import json
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd

SHAPE = (10, 12, 10)
AFFINE = np.array([[6.0, 0, 0, -27], [0, 6, 0, -33], [0, 0, 6, -27], [0, 0, 0, 1]])
NUMBERS = (2, 3, 5, 7, 11, 13)  # labels of an atlas need not be 1, 2, 3
NAMES = tuple(f"7Networks_{h}H_{n}_1" for h in "LR" for n in ("Vis", "SomMot", "Default"))
T, T_R = 80, 2.0
SPACE = "space-MNI152NLin2009cAsym"


def label_values() -> np.ndarray:
    values = np.zeros(SHAPE, dtype=np.int16)
    for i, number in enumerate(NUMBERS):
        values[1 + 4 * (i // 3) : 5 + 4 * (i // 3), 1 + 3 * (i % 3) : 4 + 3 * (i % 3), 1:9] = number  # left, right
    return values


def write_atlas(file: Path, table: bool = True) -> Path:
    """A label image, and its table in the columns of BIDS."""
    file.parent.mkdir(parents=True, exist_ok=True)
    nib.Nifti1Image(label_values(), AFFINE).to_filename(file)
    if table:
        pd.DataFrame({"index": NUMBERS, "name": NAMES}).to_csv(
            file.with_name(file.name.removesuffix(".nii.gz") + ".tsv"), sep="\t", index=False
        )
    return file


def write_maps(file: Path) -> Path:
    """Three overlapping maps."""
    rng = np.random.default_rng(5)
    nib.Nifti1Image(rng.uniform(0, 1, (*SHAPE, 3)).astype(np.float32), AFFINE).to_filename(file)
    return file


def confounds(rng: np.random.Generator, volumes: int = T) -> pd.DataFrame:
    """The columns that nilearn's strategies read, as fMRIPrep names them."""
    table = {}
    for name in ("trans_x", "trans_y", "trans_z", "rot_x", "rot_y", "rot_z", "csf", "white_matter", "global_signal"):
        values = rng.normal(size=volumes)
        slope = np.append(np.nan, np.diff(values))
        table |= {
            name: values,
            f"{name}_derivative1": slope,
            f"{name}_power2": values**2,
            f"{name}_derivative1_power2": slope**2,
        }
    time = np.arange(volumes)
    for k in range(2):
        table[f"cosine{k:02d}"] = np.cos(np.pi * (2 * time + 1) * (k + 1) / (2 * volumes))
    table["framewise_displacement"] = np.append(np.nan, rng.uniform(0.05, 0.3, volumes - 1))
    table["std_dvars"] = np.append(np.nan, rng.uniform(0.8, 1.2, volumes - 1))
    for k in range(3):
        table[f"a_comp_cor_{k:02d}"] = rng.normal(size=volumes)
    for k in range(2):  # two volumes before the scanner was in its steady state
        table[f"non_steady_state_outlier{k:02d}"] = (time == k).astype(float)
    found = pd.DataFrame(table)
    found.loc[20, "framewise_displacement"] = 1.4
    return found


def write_run(root: Path, entities: str, seed: int, volumes: int = T, bold: np.ndarray | None = None) -> Path:
    """One run: image, sidecar, mask, confounds and their JSON; returns the image."""
    rng = np.random.default_rng(seed)
    parts = entities.split("_")
    folder = root / parts[0] / next((p for p in parts if p.startswith("ses-")), "") / "func"
    folder.mkdir(parents=True, exist_ok=True)
    head = folder / f"{entities}_task-rest"
    data = rng.normal(1000, 20, (*SHAPE, volumes)) if bold is None else bold
    image = nib.Nifti1Image(data.astype(np.float32), AFFINE)
    image.header.set_xyzt_units("mm", "sec")
    image.header.set_zooms((6, 6, 6, 1.0))  # wrong on purpose: the sidecar says 2 s
    file = Path(f"{head}_{SPACE}_desc-preproc_bold.nii.gz")
    image.to_filename(file)
    Path(f"{head}_{SPACE}_desc-preproc_bold.json").write_text(json.dumps({"RepetitionTime": T_R}))
    mask = np.ones(SHAPE, dtype=np.uint8)
    mask[:, :, 0] = mask[:2] = 0
    nib.Nifti1Image(mask, AFFINE).to_filename(f"{head}_{SPACE}_desc-brain_mask.nii.gz")
    table = confounds(rng, volumes)
    table.to_csv(f"{head}_desc-confounds_timeseries.tsv", sep="\t", index=False, na_rep="n/a")
    about = {f"a_comp_cor_{k:02d}": {"Mask": "combined", "Method": "aCompCor", "Retained": True} for k in range(3)}
    Path(f"{head}_desc-confounds_timeseries.json").write_text(json.dumps(about))
    return file


def write_tree(root: Path, n: int = 3, volumes: int = T) -> Path:
    """fMRIPrep's folder with ``n`` participants, inside a BIDS folder with their table."""
    out = root / "derivatives" / "fmriprep"
    for i in range(n):
        write_run(out, f"sub-{i + 1:02d}", seed=i, volumes=volumes)
    description = {"Name": "fMRIPrep", "BIDSVersion": "1.4.0", "GeneratedBy": [{"Name": "fMRIPrep", "Version": "24.1"}]}
    (out / "dataset_description.json").write_text(json.dumps(description | {"DatasetType": "derivative"}))
    people = pd.DataFrame({"participant_id": [f"sub-{i + 1:02d}" for i in range(n)]})
    people["diagnosis"] = np.arange(n) % 2
    people.to_csv(root / "participants.tsv", sep="\t", index=False)
    return out


def dense_axis():
    """Twelve vertices of each hemisphere and eight voxels."""
    left = nib.cifti2.BrainModelAxis.from_surface(np.arange(2, 14), 20, name="CortexLeft")
    right = nib.cifti2.BrainModelAxis.from_surface(np.arange(0, 12), 20, name="CortexRight")
    block = np.zeros((4, 4, 4), dtype=bool)
    block[1:3, 1:3, 1:3] = True
    voxels = nib.cifti2.BrainModelAxis.from_mask(block, name="thalamus_left", affine=np.diag([2.0, 2, 2, 1]))
    return left + right + voxels


def write_dense(root: Path, entities: str, seed: int) -> Path:
    """A dense run beside the volume's confounds."""
    volume = write_run(root, entities, seed)
    file = volume.with_name(f"{entities}_task-rest_space-fsLR_den-91k_bold.dtseries.nii")
    axis = dense_axis()
    data = np.random.default_rng(seed).normal(1000, 20, (T, len(axis))).astype(np.float32)
    header = nib.Cifti2Header.from_axes((nib.cifti2.SeriesAxis(0, T_R, T), axis))
    nib.Cifti2Image(data, header).to_filename(file)
    return file


def write_surfaces(folder: Path, kind: str = "midthickness", n: int = 20, shift: float = 0.0) -> dict[str, np.ndarray]:
    """Both hemispheres' surfaces with the names of fMRIPrep; returns their vertices."""
    found = {}
    for side, hemisphere in enumerate("LR"):
        points = (
            np.random.default_rng(side).normal(size=(n, 3)).astype(np.float32) * 10 + shift + [60 * side - 30, 0, 0]
        )
        arrays = [
            nib.gifti.GiftiDataArray(points.astype(np.float32), intent="NIFTI_INTENT_POINTSET"),
            nib.gifti.GiftiDataArray(np.array([[0, 1, 2]], dtype=np.int32), intent="NIFTI_INTENT_TRIANGLE"),
        ]
        file = folder / f"tpl-fsLR_den-32k_hemi-{hemisphere}_{kind}.surf.gii"
        nib.GiftiImage(darrays=arrays).to_filename(file)
        found[hemisphere] = points.astype(np.float32)
    return found


def write_dlabel(file: Path) -> Path:
    """Labels for all vertices of the surface (the runs have some of them) and for the voxels."""
    full = [nib.cifti2.BrainModelAxis.from_surface(np.arange(20), 20, name=f"Cortex{s}") for s in ("Left", "Right")]
    axis = full[0] + full[1] + dense_axis()[24:]
    keys = np.concatenate([np.repeat([1, 2], 10), np.repeat([3, 4], 10), np.full(8, 9)])
    keys[3] = 0
    names = {0: ("???", (0, 0, 0, 0)), 1: ("LH_Vis_1", (1, 0, 0, 1)), 2: ("LH_Default_1", (0, 1, 0, 1))}
    names |= {3: ("RH_Vis_1", (0, 0, 1, 1)), 4: ("RH_Default_1", (1, 1, 0, 1)), 9: ("Thalamus", (0, 1, 1, 1))}
    header = nib.Cifti2Header.from_axes((nib.cifti2.LabelAxis(["parcels"], [names]), axis))
    nib.Cifti2Image(keys[None].astype(np.float32), header).to_filename(file)
    return file
