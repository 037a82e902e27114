"""Connectivity against nilearn's ConnectivityMeasure: the same series, threads and run."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from nilearn.connectome import ConnectivityMeasure
from sklearn.covariance import EmpiricalCovariance
from threadpoolctl import threadpool_limits

from bnt.bench import BenchSettings
from bnt.cohort import load_cohort
from bnt.connectivity import TangentSpace, connectomes, covariances
from bnt.errors import BadInput

SUBJECTS, ROIS = 1009, 200
TANGENT_SUBJECTS = 200  # nilearn's geometric mean takes minutes for all


def run(settings: BenchSettings) -> list[dict[str, Any]]:
    """Return one row per kind: seconds of both, their ratio, and how far the results differ."""
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
                    "ours s": seconds["ours"],
                    "nilearn s": seconds["theirs"],
                    "times faster": seconds["theirs"] / seconds["ours"],
                    "largest difference": float(np.nanmax(np.abs(a - b))),
                }
            )
    return rows


def _best(so_far: float, function: Callable, series: list[np.ndarray]) -> tuple[float, np.ndarray]:
    started = time.perf_counter()
    result = function(series)
    return min(so_far, time.perf_counter() - started), result


def load_series(settings: BenchSettings) -> list[np.ndarray]:
    """Return the series of the cohort, or random ones of ABIDE's size and lengths, as float64 in memory.

    float64 is what nilearn's maskers and text files give.
    """
    if settings.cohort is not None:
        cohort = load_cohort(settings.cohort)
        if cohort.timeseries is None:
            raise BadInput(f"{settings.cohort} holds no time series: choose a cohort that does.", parameter="cohort")
        chosen = cohort.timeseries[: settings.subjects]
        return [np.array(one, dtype=np.float64) for one in chosen]
    rng = np.random.default_rng(0)
    n_rois = settings.rois or ROIS
    lengths = rng.choice([116, 146, 176, 196, 236, 296], size=settings.subjects or SUBJECTS)
    mixing = rng.normal(size=(20, n_rois))
    return [rng.normal(size=(t, 20)) @ mixing + rng.normal(scale=3.0, size=(t, n_rois)) for t in lengths]
