"""Benchmarks of cohorts: their store, connectivity beside nilearn, and a whole study beside nilearn and scikit-learn.

Store: a cohort of ABCD's size is written, opened and read in random batches, each in a fresh process, which loads no
library before it needs it. The connectomes are random correlations of low rank: quick to make, and of the right size.

Connectivity: the same series, threads and run. Study: tangent space and logistic regression on several splits. Both
sides run in processes of their own, on one cohort and the same splits; CPU seconds count everything, from the start of
the interpreter to the last table, of all processes. Our side starts without a cache beside the cohort. Without splits
for the user's code, our side alone is measured, run by run.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bnt._words import say
from bnt.bench import BenchSettings, peak_memory
from bnt.cohort import CohortWriter, flat, load_cohort
from bnt.errors import BadInput

STORE_SUBJECTS, STORE_ROIS = 7901, 360  # ABCD in the paper
BATCH, BATCHES = 64, 40
RANK = 24
PHASE = "import json, sys; from bnt.bench._cohorts import measure; print(json.dumps(measure(*sys.argv[1:])))"


def data(settings: BenchSettings) -> list[dict[str, Any]]:
    """Return one row per store (float32, float16): seconds, memory, file sizes, rounding error."""
    subjects, rois = settings.subjects or STORE_SUBJECTS, settings.rois or STORE_ROIS
    if subjects < 2 or rois < 2:
        raise BadInput(f"subjects is {subjects} and rois is {rois}: give two or more of both.")
    place = Path(settings.folder or tempfile.gettempdir())
    if not place.is_dir():
        raise BadInput(f"Folder {place} for temporary files does not exist: choose another.", "folder")
    needed = subjects * rois * (rois - 1) // 2 * 6
    if shutil.disk_usage(place).free < 1.2 * needed:
        raise BadInput(f"{place} has no room for {needed / 1e9:.1f} GB of temporary files.", "folder")
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
    printed = _python(["-c", PHASE, *map(str, arguments)], threads, f"The phase {arguments[0]!r}")
    return json.loads(printed.splitlines()[-1])


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


SUBJECTS, ROIS = 1009, 200  # ABIDE
TANGENT_SUBJECTS = 200  # nilearn's geometric mean takes minutes for all
STUDY_SUBJECTS, STUDY_ROIS, SPLITS = 200, 100, 20
LABEL = "diagnosis"
SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of prctl(2): processes that lose their parent become ours

USERS = """
import sys
import time
import numpy as np
import pandas as pd
from nilearn.connectome import ConnectivityMeasure
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline

folder, splits, label = sys.argv[1:]
people = pd.read_csv(folder + "/participants.tsv", sep="\\t", dtype={"participant_id": str})
stacked = np.load(folder + "/timeseries.npy")
ends = people["n_volumes"].cumsum()
series = [stacked[end - n : end] for n, end in zip(people["n_volumes"], ends)]
y = people[label].to_numpy()
table = pd.read_csv(splits, dtype=str).set_index("participant_id").loc[people["participant_id"]]
started, scores = time.process_time(), []
for name in table.columns:
    part = table[name].to_numpy()
    train, test = np.flatnonzero(part == "train"), np.flatnonzero(part == "test")
    model = make_pipeline(ConnectivityMeasure(kind="tangent", vectorize=True), LogisticRegression(max_iter=1000))
    model.fit([series[i] for i in train], y[train])
    scores.append(roc_auc_score(y[test], model.predict_proba([series[i] for i in test])[:, 1]))
print(np.mean(scores), started)
"""


def connectivity(settings: BenchSettings) -> list[dict[str, Any]]:
    """Return one row per kind: CPU seconds of both, their ratio, and how far the results differ."""
    import torch
    from nilearn.connectome import ConnectivityMeasure
    from sklearn.covariance import EmpiricalCovariance
    from threadpoolctl import threadpool_limits

    from bnt.connectivity import TangentSpace, connectomes, covariances

    series = load_series(settings)
    edges = {"vectorize": True, "discard_diagonal": True}

    def nilearn(**chosen: Any) -> Callable[[list[np.ndarray]], np.ndarray]:
        return lambda s: ConnectivityMeasure(**chosen).fit_transform(s)

    def tangent(s: list[np.ndarray]) -> np.ndarray:
        covs = covariances(s)
        return TangentSpace().fit(covs).transform(covs)

    plain = EmpiricalCovariance(store_precision=False)
    pairs: list[tuple[str, str, Callable, Callable]] = [
        ("ledoit-wolf", "correlation", lambda s: connectomes(s, "ledoit-wolf"), nilearn(kind="correlation", **edges)),
        (
            "pearson",
            "correlation, EmpiricalCovariance",
            lambda s: connectomes(s),
            nilearn(kind="correlation", cov_estimator=plain, **edges),
        ),
        (
            "partial",
            "partial correlation",
            lambda s: connectomes(s, "partial"),
            nilearn(kind="partial correlation", **edges),
        ),
        ("tangent", "tangent", tangent, nilearn(kind="tangent")),
    ]
    rows = []
    torch.set_num_threads(settings.threads)
    # Constant ROIs make nilearn divide by 0 in plain correlations; ours are 0 there, nilearn's are left out.
    with threadpool_limits(settings.threads), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for name, theirs_name, ours, theirs in pairs:
            given = series[:TANGENT_SUBJECTS] if name == "tangent" else series
            ours(given[:32])  # the libraries are loaded and their threads started
            theirs(given[:32])
            seconds = {"ours": float("inf"), "theirs": float("inf")}
            for _ in range(1 if name == "tangent" else settings.repeats):
                seconds["ours"], a = _best(seconds["ours"], ours, given)
                seconds["theirs"], b = _best(seconds["theirs"], theirs, given)
            rows.append(
                {
                    "kind": name,
                    "nilearn kind": theirs_name,
                    "subjects": len(given),
                    "rois": given[0].shape[1],
                    "threads": settings.threads,
                    "ours CPU s": seconds["ours"],
                    "nilearn CPU s": seconds["theirs"],
                    "times faster": seconds["theirs"] / seconds["ours"],
                    "largest difference": float(np.nanmax(np.abs(a - b))),
                }
            )
    return rows


def _best(so_far: float, function: Callable, series: list[np.ndarray]) -> tuple[float, np.ndarray]:
    started = time.process_time()  # of all threads: what else the machine does counts little
    result = function(series)
    return min(so_far, time.process_time() - started), result


def load_series(settings: BenchSettings) -> list[np.ndarray]:
    """Return the series of the cohort, or random ones of ABIDE's size and lengths, as float64 in memory.

    float64 is what nilearn's maskers and text files give.
    """
    if settings.cohort is not None:
        cohort = load_cohort(settings.cohort)
        if cohort.timeseries is None:
            raise BadInput(f"{settings.cohort} has no time series: choose a cohort with time series.", "cohort")
        chosen = cohort.timeseries[: settings.subjects]
        return [np.array(one, dtype=np.float64) for one in chosen]
    rng = np.random.default_rng(0)
    n_rois = settings.rois or ROIS
    lengths = rng.choice([116, 146, 176, 196, 236, 296], size=settings.subjects or SUBJECTS)
    mixing = rng.normal(size=(20, n_rois))
    return [rng.normal(size=(t, 20)) @ mixing + rng.normal(scale=3.0, size=(t, n_rois)) for t in lengths]


def study(settings: BenchSettings) -> list[dict[str, Any]]:
    """Return one row per side: CPU seconds, of how many splits they were measured, and the mean AUROC."""
    from bnt.splits import named_splits, save_splits

    if sys.platform != "linux":
        raise BadInput("bnt bench study counts the CPU time of all processes, which only works on Linux.")
    wanted, users = settings.splits or SPLITS, settings.user_splits
    if wanted < 1 or not 0 <= users <= wanted:
        raise BadInput(f"There are {wanted} splits and {users} for the user's code: give 1 or more, and no more of it.")
    models = settings.models or ("tangent-logistic",)
    with tempfile.TemporaryDirectory(prefix="bnt-bench-", dir=settings.folder) as place:
        folder = _cohort(settings, Path(place))
        cohort = load_cohort(folder)
        if cohort.timeseries is None:
            raise BadInput(f"{settings.cohort} has no time series: give a cohort with time series.", "cohort")
        say(f"our study: {' '.join(models)}, {wanted} splits")
        out = Path(place) / "study"
        words = ["-m", "bnt", "compare", str(folder), "--models", *models, "--splits", str(wanted), "--jobs", "1"]
        ours, _ = _measured([*words, "--out", str(out)], settings.threads)
        size = {"subjects": len(cohort), "rois": cohort.n_rois, "splits": wanted}
        if not users:
            return [*_runs(out, size), {"side": "whole command, all processes", **size, "CPU s": ours}]
        splits = Path(place) / "splits.csv"
        save_splits(splits, cohort, named_splits(cohort, LABEL, "site-stratified", n_splits=wanted)[:users])
        say(f"a user's study with nilearn and scikit-learn: {users} of {wanted} splits")
        theirs, printed = _measured(["-c", USERS, str(folder), str(splits), LABEL], settings.threads)
        auroc = float(pd.read_csv(out / "summary.csv")["auroc"].iloc[0])
    score, start = map(float, printed.split()[-2:])
    theirs = start + (theirs - start) / users * wanted  # libraries and series are loaded once
    sides = [(f"bnt compare {' '.join(models)}", wanted, ours, auroc), ("nilearn + scikit-learn", users, theirs, score)]
    return [
        {
            "side": name,
            **size,
            "measured splits": measured,
            "CPU s": seconds,
            "CPU s per split": seconds / wanted,
            "AUROC": found,
            "times faster": theirs / seconds,
        }
        for name, measured, seconds, found in sides
    ]


def _runs(study: Path, size: dict[str, int]) -> list[dict[str, Any]]:
    """Return the CPU seconds that each run spent itself, and those that earlier runs had spent for it."""
    runs = pd.read_csv(study / "runs.csv")
    columns = runs["variant"], runs["split"], runs["cpu_seconds"], runs["cpu_seconds_shared"]
    return [
        {"side": f"{name}, {split.rpartition(':')[2]}", **size, "CPU s": own, "CPU s of other runs": shared}
        for name, split, own, shared in zip(*columns)
    ]


def _cohort(settings: BenchSettings, place: Path) -> Path:
    """Return a folder with a cohort and without a cache: simulated, or links to the files of the one given."""
    folder = place / "cohort"
    if settings.cohort is None:
        size = ["--subjects", str(settings.subjects or STUDY_SUBJECTS), "--rois", str(settings.rois or STUDY_ROIS)]
        _measured(["-m", "bnt", "simulate", str(folder), *size], settings.threads)
        return folder
    given = load_cohort(settings.cohort).path
    assert given is not None
    folder.mkdir()
    for file in given.resolve().iterdir():
        if file.is_file():
            (folder / file.name).symlink_to(file)
    return folder


def _measured(words: list[str], threads: int) -> tuple[float, str]:
    """Run Python with these words; return the CPU seconds of it and of all that it started, and what it printed."""
    printed, _, seconds = _python(["-m", "bnt.bench._cohorts", *words], threads, "A side").rstrip().rpartition("\n")
    return float(seconds), printed


def _python(words: list[str], threads: int, what: str) -> str:
    """Run Python with these words in a fresh process on so many threads; return what it printed."""
    variables = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, env=os.environ | variables)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it left no message"])[-1]
        raise RuntimeError(f"{what} of the benchmark failed: {last}")
    return done.stdout


def main(words: list[str]) -> int:
    """Carry a command out and print the CPU seconds of all its processes, those that it left behind included."""
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    code = subprocess.run([sys.executable, *words]).returncode
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"\n{spent.ru_utime + spent.ru_stime:.2f}", flush=True)
    return code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
