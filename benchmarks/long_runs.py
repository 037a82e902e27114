"""Parts of ``reliability.py``: permuted labels for every model, near-duplicates among many, many commands in a row."""

from __future__ import annotations

import csv
import gc
import os
import resource
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from fault_targets import COMPARE, NETWORK

import bnt
from bnt.cli._main import main
from bnt.cohort._scans import same_scans, sketches

# -- permuted labels -----------------------------------------------------------------------------------

SHARES = (0.12, 0.35, 0.58, 0.81)  # of the positive class by site, as in the cohort that raised the question
N_TRAIN, N_VALIDATION, N_TEST = 200, 60, 3000
LIMITS = (0.48, 0.52)


def null_cohort(seed: int = 0) -> bnt.Cohort:
    """Return many people of few ROIs at four sites of one size, which their connectomes show."""
    n = N_TRAIN + N_VALIDATION + N_TEST
    cohort = bnt.simulate_cohort(n_subjects=n, n_rois=14, n_sites=4, n_volumes=40, seed=seed)
    people = cohort.participants.assign(site=[f"site-{i % 4}" for i in range(n)])
    rng = np.random.default_rng(seed)
    shift = rng.normal(0, 0.08, (4, cohort.connectomes.shape[1]))[np.arange(n) % 4]
    edges = (cohort.connectomes + shift).clip(-0.99, 0.99).astype(np.float32)
    return bnt.Cohort(edges, people, cohort.rois, timeseries=cohort.timeseries)


def permuted(cohort: bnt.Cohort, seed: list[int]) -> bnt.Cohort:
    """Return the cohort with labels that are permuted within sites: site tells the label, nothing within it does."""
    rng, y = np.random.default_rng(seed), np.zeros(len(cohort), dtype=int)
    for k, share in enumerate(SHARES):
        rows = np.flatnonzero(cohort.sites == f"site-{k}")
        y[rows] = rng.permutation(np.arange(len(rows)) < round(share * len(rows)))
    people = cohort.participants.assign(diagnosis=y)
    return bnt.Cohort(cohort.connectomes, people, cohort.rois, timeseries=cohort.timeseries)


def scores(cohort: bnt.Cohort, model: str, repetition: int) -> tuple[float, float]:
    """Train a model on permuted labels; return its AUROC within sites and over all of the test part."""
    from bnt.models import find_entry
    from bnt.splits import Split
    from bnt.training import describe, find_recipe, train_run

    number = bnt.list_models().index(model)
    null = permuted(cohort, [number, repetition])
    ids = np.random.default_rng([number, repetition, 1]).permutation(null.ids).tolist()
    parts = ids[:N_TRAIN], ids[N_TRAIN : N_TRAIN + N_VALIDATION], ids[N_TRAIN + N_VALIDATION :]
    split = Split("null:0:split0", *(tuple(part) for part in parts))
    recipe = find_recipe("default", epochs=8, min_steps=0)
    options = dict(getattr(find_entry(model).constructor(), "small", {}))
    config = describe(null, "diagnosis", split, model=model, options=options, recipe=recipe, seed=repetition)
    with tempfile.TemporaryDirectory() as folder:
        test = train_run(null, split, config, Path(folder) / "run").report["test"]
    return test["auroc_within_site"], test["auroc"]


def permuted_labels(file: Path, repetitions: int = 6) -> list[dict[str, Any]]:
    """Train every model on labels permuted within sites: within sites nothing may be found.

    The AUROC over all sites is above 0.5 by right, since a site can be recognised and its share of patients learned; so
    the AUROC of pairs of one site is what must be 0.5. Few are trained on and many are tested, so that the mean has a
    standard error of about 0.005, and 0.48 and 0.52 are four of them away.
    """
    columns = ("model", "repetitions", "n_tested", "auroc_within_site", "se", "auroc", "within_limits")
    rows = list(csv.DictReader(open(file, newline=""))) if file.is_file() else []  # noqa: SIM115
    cohort = null_cohort()
    for model in bnt.list_models():
        if model in {row["model"] for row in rows}:
            continue
        found = np.array([scores(cohort, model, k) for k in range(repetitions)])
        (within, pooled), se = found.mean(axis=0), found[:, 0].std(ddof=1) / repetitions**0.5
        fine = LIMITS[0] <= within <= LIMITS[1]
        row = [model, repetitions, repetitions * N_TEST, f"{within:.4f}", f"{se:.4f}", f"{pooled:.4f}", fine]
        rows.append(dict(zip(columns, row)))
        write(file, rows)
        print(*row, flush=True)
    return rows


def write(file: Path, rows: list[dict[str, Any]]) -> None:
    """Write a table."""
    with open(file, "w", newline="") as handle:
        writer = csv.DictWriter(handle, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


# -- near-duplicates -----------------------------------------------------------------------------------


def near_duplicates(
    file: Path, n_rois: int = 100, cases: tuple[tuple[int, float], ...] = ((10_000, 0.3), (40_000, 0.3), (10_000, 0.01))
) -> list[dict[str, Any]]:
    """Look for scans that are nearly the same among many; two people are the same but for noise of 1e-6.

    ``cases`` are the number of people and how far each is from the mean connectome (spread 0.3): at 0.01 everyone is so
    like everyone that all pairs must be compared by their edges, which no real cohort is.
    """
    rows: list[dict[str, Any]] = []
    n_edges = n_rois * (n_rois - 1) // 2
    for n, apart in cases:
        rng = np.random.default_rng(0)
        edges = np.empty((n, n_edges), dtype=np.float32)
        mean = rng.normal(0, 0.3, n_edges)
        for start in range(0, n, 1000):
            edges[start : start + 1000] = mean + rng.normal(0, apart, (len(edges[start : start + 1000]), n_edges))
        edges[n // 2] = edges[3] + rng.normal(0, 1e-6, n_edges)
        began, started = time.process_time(), time.perf_counter()
        sketched = np.concatenate([sketches(edges[i : i + 256]) for i in range(0, n, 256)])
        names = same_scans([str(i) for i in range(n)], sketched, n_edges, lambda rows, edges=edges: edges[rows])
        taken = time.process_time() - began, time.perf_counter() - started
        first, peak = names[n // 2] == "3", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
        columns = ("subjects", "rois", "apart", "cpu_seconds", "seconds", "array_mb", "peak_mb", "scans", "found")
        values = (
            n,
            n_rois,
            apart,
            *(f"{t:.1f}" for t in taken),
            edges.nbytes >> 20,
            round(peak),
            len(set(names)),
            first,
        )
        rows.append(dict(zip(columns, values)))
        write(file, rows)
    return rows


# -- growth --------------------------------------------------------------------------------------------


def measured() -> dict[str, float]:
    """Return what this process holds: memory, files, threads, and what is in the folder of temporary files."""
    gc.collect()
    with open("/proc/self/statm") as statm:
        resident = int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    return {
        "resident_mb": round(resident, 1),
        "open_files": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "temporary_files": len(os.listdir(tempfile.gettempdir())),
    }


def growth(file: Path, cycles: int = 20, workers: bool = True) -> list[dict[str, Any]]:
    """Train, predict, report and, with ``workers``, compare again and again in one process; one command is refused."""
    rows: list[dict[str, Any]] = []
    Path("temporary").mkdir(exist_ok=True)
    tempfile.tempdir = os.environ["TMPDIR"] = str(Path("temporary").resolve())  # apart from what other programs leave
    for i in range(cycles):
        for folder in ("grown", "grown-linear", "grown-study"):
            shutil.rmtree(folder, ignore_errors=True)
        for words in (
            ["train", "cohort", *NETWORK, "--out", "grown"],
            ["train", "cohort", "--model", "svm", "--out", "grown-linear"],
            ["predict", "grown", "cohort", "--out", "grown.csv"],
            ["predict", "grown-linear", "cohort", "--out", "grown.csv"],
            ["report", "grown", "--out", "grown.html"],
            *([[*COMPARE, "--out", "grown-study"]] if workers else []),
            ["train", "nowhere", "--model", "svm", "--out", "grown-not"],
        ):
            assert main(words) == (2 if "nowhere" in words else 0), words
        rows.append({"cycle": i, **measured()})
        write(file, rows)
    tempfile.tempdir = None
    del os.environ["TMPDIR"]
    return rows


def grows(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return by how much each measure grows per cycle over the second half, by the slope of a line."""
    half = rows[len(rows) // 2 :]
    names = [name for name in rows[0] if name != "cycle"]
    return {name: float(np.polyfit(range(len(half)), [float(r[name]) for r in half], 1)[0]) for name in names}
