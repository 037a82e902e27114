"""What the campaign of ``reliability.py`` breaks: one small thing of every kind that the program reads.

What is read of a broken file is garbage unless it is one of these:

- the same as before;
- for files under a digest (a run, a study's tables, arrays, checkpoints): nothing else. Any other value is garbage;
- for files of a user (scans, tables of people, splits), which may legally hold other numbers: what an independent
  reader (Python's ``csv``, ``float`` and ``json``, numpy, SciPy, nibabel, gzip) finds in the same bytes;
- for files of ours whose digests were made anew on purpose: values that can be (probabilities between 0 and 1 that sum
  to 1, finite numbers, known words).
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import bnt
from bnt.cli._main import main

sys.path[:0] = [str(Path(__file__).parents[1] / "tests"), str(Path(__file__).parents[1] / "tests" / "sources")]
from source_files import (  # noqa: E402
    LABELS,
    authors_dictionary,
    pearson,
    series,
    write_1d,
    write_participants,
    write_pconn,
    write_ptseries,
    write_xcpd_matrix,
    write_xcpd_series,
)

from fmriprep_files import write_atlas, write_dense, write_dlabel, write_tree  # noqa: E402

NETWORK = ["--model", "bnt", "--option", "n_clusters=3", "--epochs", "2", "--threads", "1"]
COMPARE = ["compare", "cohort", "--models", "ridge", "logistic", "--splits", "2", "--jobs", "1"]
OWN = """import torch
class Net(torch.nn.Module):
    def __init__(self, n_rois, n_classes):
        super().__init__()
        self.out = torch.nn.Linear(n_rois * n_rois, n_classes)
    def forward(self, x):
        return self.out(x.flatten(1))
"""
SLOW = [
    ["train", "cohort", "--model", "multi-kernel", "--out", "kernels"],
    ["explain", "linear", "cohort", "--permutations", "9", "--out", "linear/explain"],
    [
        "tune",
        "cohort",
        "--model",
        "ridge",
        "--grid",
        "penalty=0.1,1",
        *["--splits", "1", "--jobs", "1", "--out", "tuned"],
    ],
]
SCANS = ("npy", "npz", "mat", "csv", "txt", "tsv.gz", "1D", "ptseries.nii", "pconn.nii")


def make(folder: Path, everything: bool = True) -> None:
    """Make everything that is broken, or what is quickly made, in ``folder``, which becomes the working directory."""
    os.chdir(folder)
    cohort = bnt.simulate_cohort(n_subjects=60, n_rois=20, n_sites=2, n_volumes=40, seed=0)
    cohort.save("cohort")
    Path("mine.py").write_text(OWN)
    for words in (
        ["train", "cohort", *NETWORK, "--out", "run"],
        ["train", "cohort", "--model", "ridge", "--out", "linear"],
        ["train", "cohort", "--model", "mine.py:Net", "--epochs", "1", "--out", "own"],
        [*COMPARE, "--out", "study"],
        ["split", "cohort", "--n-splits", "3", "--out", "splits.csv"],
        *(SLOW if everything else []),
    ):
        assert main(words) == 0, words
    shutil.copy("study/study.json", "study.json")
    cut(resume=False)
    few = bnt.BrainNetworkClassifier(model="ridge", random_state=0)
    few.fit(cohort.connectomes, cohort.labels("diagnosis")).save("estimator")
    table = pd.read_csv("linear/predictions.csv")
    table["probability"] = table["p_1"]
    table[table["part"] == "test"][["participant_id", "probability"]].to_csv("scores.csv", index=False)
    pd.read_csv("splits.csv").iloc[:, :2].to_csv("one-split.csv", index=False)
    _scans()
    if everything:
        write_tree(Path("bids"), n=1, volumes=40)
        write_atlas(Path("six.nii.gz"))
        write_dense(Path("dense/fmriprep"), "sub-01", seed=3)
        write_dlabel(Path("parcels.dlabel.nii"))


def _scans() -> None:
    """Write two scans of every format, XCP-D's folder and the authors' file."""
    import scipy.io

    for kind in SCANS:
        Path(f"scans-{kind}").mkdir()
        for i in range(2):
            x, file = series(i), Path(f"scans-{kind}/sub-{i:02d}.{kind}")
            if kind == "npy":
                np.save(file, x)
            elif kind == "npz":
                np.savez_compressed(file, series=x)
            elif kind == "mat":
                scipy.io.savemat(file, {"series": x}, do_compression=bool(i))
            elif kind == "csv":
                pd.DataFrame(x, columns=LABELS).to_csv(file, index=False)
            elif kind == "txt":
                np.savetxt(file, x)
            elif kind == "tsv.gz":
                file.write_bytes(gzip.compress(pd.DataFrame(x).to_csv(sep="\t", index=False, header=False).encode()))
            elif kind == "1D":
                write_1d(file, x)
            elif kind == "ptseries.nii":
                write_ptseries(file, x)
            else:
                write_pconn(file, pearson(x))
    for i in range(2):
        write_xcpd_series(Path("xcpd"), f"sub-{i:02d}_task-rest", series(i))
        write_xcpd_matrix(Path("xcpd-m"), f"sub-{i:02d}_task-rest", pearson(series(i)))
        stem = f"xcpd/sub-{i:02d}/func/sub-{i:02d}_task-rest"
        pd.DataFrame({"framewise_displacement": np.linspace(0, 1, 30)}).to_csv(f"{stem}_motion.tsv", sep="\t")
    write_participants(
        Path("people.tsv"), participant_id=["sub-00", "sub-01"], site=["x", "y"], age=[31.5, 40], diagnosis=[0, 1]
    )
    pd.DataFrame({"label": LABELS, "network": "Vis", "x": 1.5, "y": 2, "z": 3}).to_csv("rois.tsv", sep="\t")
    np.save("abide.npy", authors_dictionary(2), allow_pickle=True)


def cut(resume: bool) -> Any:
    """Train a network and stop after the second epoch, or resume that."""
    from bnt.splits import named_splits
    from bnt.training import describe, find_recipe, train_run

    class Stop(Exception):
        pass

    def watch(stage: str, line: dict[str, Any]) -> None:
        if line["epoch"] == 2 and not resume:
            raise Stop

    cohort = bnt.load_cohort("cohort")
    (split,) = named_splits(cohort, "diagnosis", "site-stratified", n_splits=1)
    recipe = find_recipe("default", epochs=3, min_steps=0)
    options = {"n_clusters": 3, "ffn": 16}
    config = describe(cohort, "diagnosis", split, model="bnt", recipe=recipe, options=options)
    try:
        train_run(cohort, split, config, "cut", resume=resume, watch=watch)
    except Stop:
        return None
    return [Path("cut", name).read_bytes() for name in ("weights.safetensors", "predictions.csv", "splits.csv")]


# -- independent readers -------------------------------------------------------------------------------

MISSING = ("", "n/a", "na", "nan", "null", "none")


def _float(cell: str) -> float | None:
    if cell.strip().lower() in MISSING:
        return float("nan")
    try:
        return float(cell) if "_" not in cell else None
    except ValueError:
        return None


def numbers(text: str, separator: str | None) -> np.ndarray | None:
    """Return the numbers of a text: comments, a header and a column of names left out; None where it has no such."""
    lines = [line for line in re.split(r"\r\n|\r|\n", text) if line.strip() and not line.lstrip().startswith("#")]
    if separator is None:
        rows = [line.split() for line in lines]
    else:
        rows = [[c.strip() for c in row] for row in csv.reader(lines, delimiter=separator)]
    values = [[_float(cell) for cell in row] for row in rows]
    if values and None in values[0]:
        rows, values = rows[1:], values[1:]
    if values and any(row and row[0] is None for row in values):
        values = [row[1:] for row in values]
    if not values or len({len(row) for row in values}) != 1 or any(None in row for row in values):
        return None
    return np.array(values, dtype=np.float64)


def independent(file: Path) -> list[np.ndarray]:
    """Return the arrays that a scan's file may hold, read without the program; none where it cannot be read."""
    import nibabel as nib
    import scipy.io

    name, data = file.name, file.read_bytes()
    try:
        if name.endswith(".gz"):
            data, name = gzip.decompress(data), name.removesuffix(".gz")
        if name.endswith(".npy"):
            return [np.load(io.BytesIO(data), allow_pickle=False)]
        if name.endswith(".npz"):
            return list(dict(np.load(io.BytesIO(data), allow_pickle=False)).values())
        if name.endswith(".mat"):
            return [v for k, v in scipy.io.loadmat(io.BytesIO(data)).items() if not k.startswith("__")]
        if name.endswith(".nii"):
            return [np.asarray(nib.Cifti2Image.from_bytes(data).dataobj)]
        text, words = data.decode("utf-8-sig"), ("\t", ",", ";", None)
        return [x for s in words if (x := numbers(text, s)) is not None]
    except Exception:  # noqa: BLE001 - whatever it is, it cannot be read
        return []


def edges_of(x: np.ndarray) -> np.ndarray | None:
    """Return the triangle of correlations of (volumes, ROIs), or of a matrix, by numpy; 0 for ROIs without a signal."""
    if x.ndim != 2 or x.dtype.kind not in "biuf" or not np.isfinite(x[:, np.isfinite(x).all(axis=0)]).any():
        return None
    square = x.shape[0] == x.shape[1] and np.allclose(x, x.T, atol=1e-4, equal_nan=True)  # rounding is averaged
    with np.errstate(all="ignore"):
        matrix = x if square else np.corrcoef(x.astype(np.float64), rowvar=False)
        if not square:  # the rule of bnt.connectivity: a spread below 1e-10 of the subject's largest value is none
            spread = np.sqrt(((x - x.mean(axis=0)) ** 2).sum(axis=0))
            still = spread <= 1e-10 * np.nanmax(np.maximum(np.abs(x[0]), spread))
            matrix[still] = matrix[:, still] = np.nan
    return np.array([matrix[i, j] for j in range(len(matrix)) for i in range(j)])


def wrong_scans(found: Any, name: str, data: bytes) -> str:
    """Compare the connectomes that were read with those of an independent reader of the same files."""
    edges = np.frombuffer(found[1]).reshape(found[2])
    if not np.isfinite(edges).all() or np.abs(edges).max() > 1 + 1e-5:
        return "a connectome that is none"
    for got, file in zip(edges, sorted(Path(name).parent.iterdir())):
        wanted = [e for x in independent(file) if (e := edges_of(x)) is not None and e.shape == got.shape]
        if not any(np.allclose(got, np.where(np.isfinite(e), e, 0), atol=2e-4) for e in wanted):
            return f"{file} read as other numbers than its own ({len(wanted)} other readings)"
    return ""


def wrong_images(found: Any, name: str, data: bytes) -> str:
    """Connectomes of images: possible values, of a file that gzip and nibabel read to its end."""
    edges = np.frombuffer(found[1])
    if not np.isfinite(edges).all() or np.abs(edges).max() > 1 + 1e-5:
        return "a connectome that is none"
    try:
        if name.endswith(".gz"):
            gzip.decompress(data)
        elif name.endswith(".json"):
            json.loads(data)
    except Exception as error:  # noqa: BLE001
        return f"{name} is damaged ({error}) and was read"
    return ""


def wrong_cells(found: Any, name: str, data: bytes) -> str:
    """Compare a table, as lists of columns, with what Python's csv reads of the same bytes."""
    text = data.decode("utf-8-sig", errors="replace")
    separator = "\t" if name.endswith(".tsv") else ","
    rows = [
        row for row in csv.reader(re.split(r"\r\n|\r|\n", text), delimiter=separator) if any(c.strip() for c in row)
    ]
    head = [cell.strip() for cell in rows[0]]
    for column, values in found:
        if head.count(column) != 1:
            return f"column {column} out of {head[:6]}"
        at = head.index(column)
        wanted = [row[at].strip() if at < len(row) else "" for row in rows[1:]]
        if sorted(map(_text, wanted)) != sorted(map(_text, values)):
            return f"{column}: {values[:3]} for {wanted[:3]}"
    return ""


def _text(value: Any) -> str:
    number = _float("" if value == "unknown" else str(value))  # a site that is missing is "unknown"
    return str(value).strip().lower() if number is None else repr(number + 0.0)


def wrong_probabilities(found: Any, name: str, data: bytes) -> str:
    """Probabilities that cannot be, of a run whose digests were made anew."""
    for text in found:
        table = pd.read_csv(io.StringIO(text)).filter(regex="^p_")
        values = table.to_numpy(dtype=np.float64)
        if not values.size or not np.isfinite(values).all() or values.min() < 0 or values.max() > 1:
            return "a probability that is none"
        if np.abs(values.sum(axis=1) - 1).max() > 1e-3:
            return "probabilities that do not sum to 1"
    return ""


def wrong_splits(found: Any, name: str, data: bytes) -> str:
    """Compare splits with the cells of the table."""
    rows = list(
        csv.reader(data.decode("utf-8-sig").splitlines(), delimiter="\t" if b"\t" in data.split(b"\n")[0] else ",")
    )
    words = {"0": "train", "1": "validation", "2": "test", "val": "validation", "valid": "validation"}
    for k, (_, *parts) in enumerate(found, 1):
        cells = {row[0].strip(): row[k].strip().lower() if k < len(row) else "" for row in rows[1:] if row}
        for word, people in zip(("train", "validation", "test"), parts):
            wanted = {n for n, c in cells.items() if words.get(c.removesuffix(".0"), c) == word}
            if wanted != set(people):
                return f"{word}: {sorted(wanted ^ set(people))[:3]}"
    return ""


def legal(found: Any, name: str, data: bytes) -> str:
    """Take whatever was read: a page shows what the files hold."""
    return ""
