"""Benchmark of a cohort of ABCD's size: write, open and read random batches, each in a fresh process.

The connectomes are random correlations of low rank: quick to make, and of the right size and range.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bnt._words import say
from bnt.bench import BenchSettings, peak_memory
from bnt.cohort import CohortWriter, flat, load_cohort
from bnt.errors import BadInput

SUBJECTS, ROIS = 7901, 360  # ABCD in the paper
BATCH, BATCHES = 64, 40
RANK = 24


def data(settings: BenchSettings) -> list[dict[str, Any]]:
    """Return one row per store (float32, float16): seconds, memory, file sizes, rounding error."""
    subjects, rois = settings.subjects or SUBJECTS, settings.rois or ROIS
    if subjects < 2 or rois < 2:
        raise BadInput(f"subjects is {subjects} and rois is {rois}: give two or more of both.")
    place = Path(settings.folder or tempfile.gettempdir())
    if not place.is_dir():
        raise BadInput(f"Folder {place} for temporary files does not exist: choose another.", parameter="folder")
    needed = subjects * rois * (rois - 1) // 2 * 6
    if shutil.disk_usage(place).free < 1.2 * needed:
        raise BadInput(f"{place} has no room for {needed / 1e9:.1f} GB of temporary files.", parameter="folder")
    rows = []
    with tempfile.TemporaryDirectory(prefix="bnt-bench-", dir=place) as folder:
        for dtype in ("float32", "float16"):
            path = f"{folder}/{dtype}"
            say(f"{dtype}: writing {subjects} subjects of {rois} ROIs")
            source = "" if dtype == "float32" else f"{folder}/float32"
            write = _phase("write", path, subjects, rois, dtype, source, threads=settings.threads)
            opened = [_phase("open", path, threads=settings.threads) for _ in range(max(1, settings.repeats))]
            say(f"{dtype}: reading")
            read = _phase("read", path, threads=settings.threads)
            square = _phase("square", path, threads=settings.threads)
            rows.append(
                {
                    "store": dtype,
                    "subjects": subjects,
                    "rois": rois,
                    "file MB": (Path(path) / "connectomes.npy").stat().st_size / 1e6,
                    "write s": write["seconds"],
                    "open s": min(one["seconds"] for one in opened),
                    "batch ms": read["median"] * 1e3,
                    "batch ms best": read["best"] * 1e3,
                    "batch ms p95": read["p95"] * 1e3,
                    "squares ms": square["median"] * 1e3,
                    "write MB": write["memory"],
                    "read MB": read["memory"],
                    "squares MB": square["memory"],
                    "rounding error": write["error"],
                }
            )
    return rows


def _phase(*arguments: Any, threads: int) -> dict[str, Any]:
    """Run one phase in a fresh process and return what it measured."""
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}
    command = [sys.executable, "-m", "bnt.bench._data", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it left no message"])[-1]
        raise RuntimeError(f"The phase {arguments[0]!r} of the benchmark failed: {last}")
    return json.loads(done.stdout.splitlines()[-1])


def random_connectomes(rng: np.random.Generator, subjects: int, rois: int) -> np.ndarray:
    """Return (subjects, V(V-1)/2) correlations of ROIs described by a few random numbers each."""
    x = rng.standard_normal((subjects, rois, RANK), dtype=np.float32)
    x += 0.5 * x[:, :1]  # a common part: correlations are positive on average, as in the brain
    x /= np.linalg.norm(x, axis=2, keepdims=True)
    return flat(x @ x.transpose(0, 2, 1))


def write_store(path: str, subjects: int, rois: int, dtype: str, source: str) -> dict[str, float]:
    """Write a store, or copy one to another precision, and return how long it took."""
    started = time.perf_counter()
    if source:
        load_cohort(source).save(path, dtype=dtype)
    else:
        rng = np.random.default_rng(0)
        with CohortWriter(path, rois, dtype=dtype) as writer:
            for start in range(0, subjects, BATCH):
                writer.append(random_connectomes(rng, min(BATCH, subjects - start), rois))
            numbers = np.arange(subjects)
            table = {
                "participant_id": [f"sub-{i:05d}" for i in numbers],
                "site": [f"site-{i % 21:02d}" for i in numbers],
                "sex": np.where(rng.random(subjects) < 0.5, "F", "M"),
            }
            writer.finish(pd.DataFrame(table), source={"name": "bench data"})
    seconds = time.perf_counter() - started
    error = 0.0
    if source:
        exact, rounded = load_cohort(source), load_cohort(path)
        for start in range(0, subjects, 256):
            rows = np.arange(start, min(start + 256, subjects))
            error = max(error, float(np.abs(exact.edges(rows) - rounded.edges(rows)).max()))
    return {"seconds": seconds, "error": error, "memory": peak_memory()}


def open_store(path: str) -> dict[str, float]:
    """Open a store; the libraries are imported before the clock starts."""
    started = time.perf_counter()
    load_cohort(path)
    return {"seconds": time.perf_counter() - started, "memory": peak_memory()}


def read_store(path: str, square: bool) -> dict[str, float]:
    """Read random batches twice and time the second pass, when the files are in the system's cache."""
    cohort = load_cohort(path)
    rng = np.random.default_rng(1)
    batches = [rng.choice(len(cohort), size=min(BATCH, len(cohort)), replace=False) for _ in range(BATCHES)]
    read = cohort.batch if square else cohort.edges
    for rows in batches:
        read(rows)
    seconds = []
    for rows in batches:
        started = time.perf_counter()
        read(rows)
        seconds.append(time.perf_counter() - started)
    return {
        "best": min(seconds),
        "median": float(np.median(seconds)),
        "p95": float(np.quantile(seconds, 0.95)),
        "memory": peak_memory(),
    }


def measure(phase: str, path: str, *rest: Any) -> dict[str, float]:
    """Run one phase in this process."""
    if phase == "write":
        subjects, rois, dtype, source = rest
        return write_store(path, int(subjects), int(rois), dtype, source)
    if phase == "open":
        return open_store(path)
    return read_store(path, square=phase == "square")


if __name__ == "__main__":
    print(json.dumps(measure(*sys.argv[1:])))
