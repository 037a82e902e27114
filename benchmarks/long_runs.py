"""Permuted labels for every model, and many commands in one process: parts of ``reliability.py``."""

from __future__ import annotations

import csv
import gc
import os
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
from fault_targets import COMPARE, NETWORK

import bnt
from bnt.cli._main import main

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


# -- growth --------------------------------------------------------------------------------------------


def measured(before: set[str]) -> dict[str, float]:
    """Return what this process holds: memory, files, threads, and what is new in the folder of temporary files."""
    gc.collect()
    with open("/proc/self/statm") as statm:
        resident = int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    mine = {f for f in set(os.listdir(tempfile.gettempdir())) - before if f.startswith(("bnt", "tmp", "torch", "pymp"))}
    return {
        "resident_mb": round(resident, 1),
        "open_files": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "temporary_files": len(mine),
    }


def growth(file: Path, cycles: int = 20, workers: bool = True) -> list[dict[str, Any]]:
    """Train, predict, report and, with ``workers``, compare again and again in one process; one command is refused."""
    rows: list[dict[str, Any]] = []
    before = set(os.listdir(tempfile.gettempdir()))
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
        rows.append({"cycle": i, **measured(before)})
        write(file, rows)
    return rows


def grows(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return by how much each measure grows per cycle over the second half, by the slope of a line."""
    half = rows[len(rows) // 2 :]
    names = [name for name in rows[0] if name != "cycle"]
    return {name: float(np.polyfit(range(len(half)), [float(r[name]) for r in half], 1)[0]) for name in names}
