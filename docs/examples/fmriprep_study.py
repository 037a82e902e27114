"""A study from fMRIPrep's folder to a page, on the command line only, with a small made-up folder.

``python docs/examples/fmriprep_study.py FOLDER`` writes a BIDS folder with fMRIPrep's derivatives of 48 people from
three sites (tiny images with the names, masks and confounds that fMRIPrep writes), two atlases of the same brain, and
runs the commands that docs/fmriprep.md names. The effect of the diagnosis is planted: ``bnt simulate`` gives the series
of the ROIs, and every voxel has its ROI's series, the motion of its scan and noise.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
from nilearn.datasets import load_mni152_brain_mask
from nilearn.image import resample_img

import bnt
from bnt.sources import simulate_cohort

N_ROIS, T_R, VOLUMES = 28, 2.0, 120
AFFINE = np.array([[8.0, 0, 0, -76], [0, 8, 0, -112], [0, 0, 8, -72], [0, 0, 0, 1]])
SHAPE = (20, 25, 21)
SHORT = {"Visual": "Vis", "Somatomotor": "SomMot", "Dorsal Attention": "DorsAttn", "Ventral Attention": "SalVentAttn"}
SHORT |= {"Limbic": "Limbic", "Frontoparietal": "Cont", "Default": "Default"}
MOTION = ("trans_x", "trans_y", "trans_z", "rot_x", "rot_y", "rot_z")


def brain() -> np.ndarray:
    """Return nilearn's brain mask on a grid of 8 mm."""
    found = resample_img(
        load_mni152_brain_mask(resolution=2),
        AFFINE,
        SHAPE,
        interpolation="nearest",
        copy_header=True,
        force_resample=True,
    )
    return np.asarray(found.dataobj) > 0


def parcels(mask: np.ndarray, n: int, seed: int) -> np.ndarray:
    """Return labels 1 to n of the brain's voxels, half of them on the left: each voxel has its nearest centre's."""
    rng = np.random.default_rng(seed)
    labels = np.zeros(SHAPE, dtype=np.int16)
    places = np.argwhere(mask)
    left = nib.affines.apply_affine(AFFINE, places)[:, 0] < 0
    for side, first in ((left, 1), (~left, 1 + n // 2)):
        here = places[side]
        centres = here[rng.choice(len(here), n // 2, replace=False)].astype(float)
        for _ in range(10):  # Lloyd's iterations make them compact
            nearest = np.argmin(((here[:, None] - centres[None]) ** 2).sum(axis=2), axis=1)
            centres = np.stack([here[nearest == k].mean(axis=0) for k in range(n // 2)])
        labels[tuple(here.T)] = nearest + first
    return labels


def write_atlas(file: Path, labels: np.ndarray, names: list[str]) -> None:
    """Write a label image, and its table beside it."""
    nib.Nifti1Image(labels, AFFINE).to_filename(file)
    table = pd.DataFrame({"index": np.arange(1, len(names) + 1), "name": names})
    table.to_csv(file.with_name(file.name.replace(".nii.gz", ".tsv")), sep="\t", index=False)


def confounds(rng: np.random.Generator, restless: float) -> pd.DataFrame:
    """Return the confounds of a scan as fMRIPrep names them."""
    table: dict[str, np.ndarray] = {}
    for name in (*MOTION, "csf", "white_matter"):
        values = np.cumsum(rng.normal(size=VOLUMES)) * restless
        slope = np.append(np.nan, np.diff(values))
        table |= {name: values, f"{name}_derivative1": slope}
        table |= {f"{name}_power2": values**2, f"{name}_derivative1_power2": slope**2}
    time = np.arange(VOLUMES)
    table |= {f"cosine{k:02d}": np.cos(np.pi * (2 * time + 1) * (k + 1) / (2 * VOLUMES)) for k in range(3)}
    table["framewise_displacement"] = np.append(np.nan, np.abs(np.diff(table["trans_x"])))
    table["std_dvars"] = np.append(np.nan, rng.uniform(0.8, 1.3, VOLUMES - 1))
    table |= {f"non_steady_state_outlier{k:02d}": (time == k).astype(float) for k in range(2)}
    return pd.DataFrame(table)


def write_scan(func: Path, name: str, labels: np.ndarray, series: np.ndarray, seed: int) -> None:
    """Write one run: image, sidecar, mask, confounds."""
    rng = np.random.default_rng(seed)
    func.mkdir(parents=True)
    table = confounds(rng, rng.uniform(0.02, 0.08))
    inside = labels > 0
    signal = (series / series.std(axis=0))[:, labels[inside] - 1].T  # (voxels, volumes)
    moved = rng.normal(size=(inside.sum(), len(MOTION))) @ table[list(MOTION)].to_numpy().T
    data = np.zeros((*SHAPE, VOLUMES))
    data[inside] = 1000 + 20 * signal + 20 * moved + rng.normal(scale=40, size=signal.shape)
    data[inside, :2] += 300  # before the steady state
    space = func / f"{name}_task-rest_space-MNI152NLin2009cAsym"
    nib.Nifti1Image(data.astype(np.int16), AFFINE).to_filename(f"{space}_desc-preproc_bold.nii.gz")
    Path(f"{space}_desc-preproc_bold.json").write_text(json.dumps({"RepetitionTime": T_R}))
    nib.Nifti1Image(inside.astype(np.uint8), AFFINE).to_filename(f"{space}_desc-brain_mask.nii.gz")
    head = func / f"{name}_task-rest_desc-confounds_timeseries"
    table.to_csv(f"{head}.tsv", sep="\t", index=False, na_rep="n/a")
    Path(f"{head}.json").write_text("{}")


def write_study(root: Path, n: int, effect: float, seed: int = 0) -> None:
    """Write the BIDS folder, its derivatives and two atlases."""
    planted = simulate_cohort(n, N_ROIS, 3, effect, seed, 7, VOLUMES)
    fine = parcels(brain(), N_ROIS, seed)
    names = [
        f"7Networks_{'LH' if i < N_ROIS // 2 else 'RH'}_{SHORT[net]}_{i + 1}"
        for i, net in enumerate(planted.rois["network"])
    ]
    root.mkdir(parents=True)
    write_atlas(root / "fine.nii.gz", fine, names)
    write_atlas(
        root / "coarse.nii.gz", parcels(fine > 0, 14, seed + 1), [f"{'LR'[i // 7]}{i % 7 + 1}" for i in range(14)]
    )
    out = root / "bids" / "derivatives" / "fmriprep"
    ids = [f"sub-{i + 1:02d}" for i in range(n)]
    for i, name in enumerate(ids):
        write_scan(out / name / "func", name, fine, np.asarray(planted.timeseries[i], dtype=float), seed + i)
    made_by = {"Name": "fMRIPrep", "BIDSVersion": "1.4.0", "GeneratedBy": [{"Name": "fMRIPrep", "Version": "24.1.1"}]}
    (out / "dataset_description.json").write_text(json.dumps(made_by))
    people = planted.participants[["site", "diagnosis", "age", "sex"]].copy()
    people.insert(0, "participant_id", ids)
    people["diagnosis"] = people["diagnosis"].map({0: "control", 1: "patient"})
    people.to_csv(root / "bids" / "participants.tsv", sep="\t", index=False)


def run(command: str) -> None:
    """Print a command and run it, as a shell would."""
    print(f"\n$ {command}", flush=True)
    subprocess.run([sys.executable, "-m", *shlex.split(command)], check=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--people", type=int, default=48)
    parser.add_argument("--effect", type=float, default=2.0)
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    root, jobs = given.folder, f"--jobs {given.jobs}"
    print(f"bnt {bnt.__version__}; writing {root}")
    write_study(root, given.people, given.effect)
    atlases = f"{root}/fine.nii.gz {root}/coarse.nii.gz"
    run(f"bnt import {root}/bids/derivatives/fmriprep {root}/cohort --atlas {atlases} {jobs}")
    run(f"bnt info {root}/cohort")
    models = "--models svm ridge atlas-ensemble:base=svm --atlas all"
    run(f"bnt compare {root}/cohort {models} --splits 5 {jobs} --out {root}/study")
    run(f"bnt report {root}/study")
    first = f"{root}/study/runs/svm_fine--split0--seed0"
    run(f"bnt explain {first} {root}/cohort --out {first}/explain")
    run(f"bnt report {first}")
