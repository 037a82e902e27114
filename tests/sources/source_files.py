"""Small files of every kind the import reads, under the names their tools document."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

LABELS = [f"LH_Vis_{i}" for i in range(1, 7)]
V, T = len(LABELS), 30


def series(seed: int, volumes: int = T, n_rois: int = V) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(volumes, n_rois)) @ rng.normal(size=(n_rois, n_rois)) + 100.0


def pearson(x: np.ndarray) -> np.ndarray:
    return np.corrcoef(x, rowvar=False)


def edges(matrix: np.ndarray) -> np.ndarray:
    """The triangle by a naive loop over columns, then rows above the diagonal."""
    return np.array([matrix[i, j] for j in range(len(matrix)) for i in range(j)])


def xcpd_name(entities: str, atlas: str = "Gordon", tail: str = "stat-mean_timeseries", key: str = "seg") -> str:
    return f"{entities}_space-MNI152NLin2009cAsym_{key}-{atlas}_{tail}.tsv"


def put(file: Path) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


def write_xcpd_series(folder: Path, entities: str, x: np.ndarray, labels: list[str] = LABELS, **name: str) -> Path:
    sub = entities.split("_")[0]
    file = put(folder / sub / "func" / xcpd_name(entities, **name))
    pd.DataFrame(x, columns=labels).to_csv(file, sep="\t", index=False, na_rep="n/a")
    return file


def write_xcpd_matrix(
    folder: Path, entities: str, m: np.ndarray, tail: str = "stat-pearsoncorrelation_relmat", **name: str
) -> Path:
    sub = entities.split("_")[0]
    file = put(folder / sub / "func" / xcpd_name(entities, tail=tail, **name))
    pd.DataFrame(m, columns=LABELS, index=pd.Index(LABELS, name="Node")).to_csv(file, sep="\t", na_rep="n/a")
    return file


def write_participants(file: Path, **columns: list) -> Path:
    pd.DataFrame(columns).to_csv(put(file), sep="\t", index=False, na_rep="n/a")
    return file


def write_1d(file: Path, x: np.ndarray) -> Path:
    head = "\t".join(f"#{i}" for i in range(1, x.shape[1] + 1))
    rows = "\n".join("\t".join(f"{v:.10g}" for v in row) for row in x)
    put(file).write_text(f"{head}\n{rows}\n")
    return file


def write_ptseries(file: Path, x: np.ndarray, labels: list[str] = LABELS) -> Path:
    import nibabel as nib

    header = nib.Cifti2Header.from_axes((nib.cifti2.SeriesAxis(0, 2.0, len(x)), _parcels(labels)))
    nib.Cifti2Image(x.astype(np.float32), header).to_filename(put(file))
    return file


def write_pconn(file: Path, m: np.ndarray, labels: list[str] = LABELS) -> Path:
    import nibabel as nib

    header = nib.Cifti2Header.from_axes((_parcels(labels), _parcels(labels)))
    nib.Cifti2Image(m.astype(np.float32), header).to_filename(put(file))
    return file


def _parcels(labels: list[str]):
    import nibabel as nib

    model = nib.cifti2.BrainModelAxis.from_surface(np.arange(len(labels)), 100, name="CortexLeft")
    return nib.cifti2.ParcelsAxis.from_brain_models([(label, model[i : i + 1]) for i, label in enumerate(labels)])


def authors_dictionary(n: int = 4) -> dict[str, np.ndarray]:
    """The keys, shapes and codes of docs/facts.md, Data: label 0 is autism, 1 control."""
    x = np.stack([series(i, 100) for i in range(n)])
    with np.errstate(divide="ignore"):
        corr = np.stack([np.arctanh(pearson(s)) for s in x])
    corr[np.isinf(corr)] = 0
    for m in corr:
        np.fill_diagonal(m, 0)
    return {
        "timeseires": np.swapaxes(x, 1, 2),  # (n, V, T)
        "label": np.array([0, 1] * (n // 2)),
        "corr": corr,
        "pcorr": corr * 0.5,
        "site": np.array(["NYU", "PITT"] * (n // 2)),
    }
