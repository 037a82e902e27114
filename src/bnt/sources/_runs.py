"""From the scans of one participant to a row of the cohort: grouped, combined, with the columns that all share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from bnt.cohort import flat
from bnt.connectivity import Kind, connectomes
from bnt.errors import BadInput
from bnt.sources._people import SESSION
from bnt.sources._quality import COLUMNS
from bnt.sources._scan import Scan, named

RUNS = ("average", "first", "separate", "sessions", "concatenate")


@dataclass(frozen=True)
class Run:
    """One run after its checks: its edges where the file is a matrix, its series where it has one."""

    scan: Scan
    missing: np.ndarray  # (V,) bool
    edges: np.ndarray | None = None  # (V(V-1)/2,)
    series: np.ndarray | None = None  # (T, V)


@dataclass(frozen=True)
class Person:
    """What enters the cohort as one row."""

    edges: np.ndarray
    series: np.ndarray | None
    n_missing: int


def group_scans(scans: Sequence[Scan], runs: str) -> dict[str, list[Scan]]:
    """Return the scans of each row of the cohort, by its participant id.

    ``separate`` gives each run a row of its own, named ``sub-01_ses-1_run-2``; ``sessions`` each session,
    ``sub-01_ses-1``.
    """
    if runs not in RUNS:
        raise BadInput(f"runs is {runs!r}: choose one of {', '.join(RUNS)}.", "runs")
    groups: dict[str, list[Scan]] = {}
    for scan in scans:
        part = {"separate": scan.run, "sessions": f"ses-{scan.session}" if scan.session else ""}.get(runs, "")
        name = f"{scan.participant}_{part}" if part else scan.participant
        groups.setdefault(name, []).append(scan)
    repeated = next((name for name, of in groups.items() if len({s.run for s in of}) < len(of)), None)
    if repeated is not None:
        raise BadInput(f"{groups[repeated][0].file} names participant {repeated!r} twice: give each scan its own id.")
    return {name: of[:1] for name, of in groups.items()} if runs == "first" else groups


def combine_runs(runs: Sequence[Run], mode: str, kind: Kind) -> Person:
    """Return one row from the runs of one participant.

    ``average`` takes the mean of the runs' connectomes over those runs that have both ROIs, through
    Fisher's z where they are correlations. ``concatenate`` computes one connectome from the joined
    series. The series kept are the joined ones in both cases (see :func:`join_series`).
    """
    if len(runs) == 1:
        run = runs[0]
        return Person(_edges(run, kind), run.series, int(run.missing.sum()))
    series = join_series(runs)
    if mode == "concatenate":
        if series is None or runs[0].edges is not None:
            raise BadInput(
                f"{runs[0].scan} is a matrix, which cannot be joined to another: use runs='average'.", "runs"
            )
        missing = np.any([run.missing for run in runs], axis=0)
        return Person(connectomes([series], kind.name)[0], series, int(missing.sum()))
    edges = np.stack([_edges(run, kind) for run in runs]).astype(np.float64)  # (runs, E)
    there = np.stack([flat(~(run.missing[:, None] | run.missing[None, :])) for run in runs])
    if not kind.fisher:
        edges = np.arctanh(np.clip(edges, -1 + 1e-7, 1 - 1e-7))
    mean = np.where(there, edges, 0.0).sum(axis=0) / np.maximum(there.sum(axis=0), 1)
    mean = mean if kind.fisher else np.tanh(mean)
    n_missing = int(np.all([run.missing for run in runs], axis=0).sum())
    return Person(mean.astype(np.float32), series, n_missing)


def _edges(run: Run, kind: Kind) -> np.ndarray:
    if run.edges is not None:
        return run.edges
    if run.series is None:
        raise BadInput(f"{run.scan} holds no numbers: leave it out.")
    with named(run.scan):
        return connectomes([run.series], kind.name)[0]


def join_series(runs: Sequence[Run]) -> np.ndarray | None:
    """Return the series of the runs end to end, or None where one has none.

    Runs differ in level and scale, which would pass for correlation. Each later run is therefore moved and
    scaled, ROI by ROI, to the mean and standard deviation of the first. An ROI missing in one run is 0 in all.
    """
    parts = [run.series for run in runs if run.series is not None]
    if len(parts) < len(runs):
        return None
    mean, spread = parts[0].mean(axis=0), parts[0].std(axis=0)
    joined = [parts[0]]
    for part in parts[1:]:
        own = part.std(axis=0)
        joined.append((part - part.mean(axis=0)) / np.where(own > 0, own, 1) * spread + mean)
    out = np.concatenate(joined).astype(np.float32)
    out[:, np.any([run.missing for run in runs], axis=0)] = 0.0
    return out


def combined_columns(scans: list[Scan]) -> tuple[dict[str, Any], list[str]]:
    """Return the columns of a row made of several scans, and the names of those that differ between its sessions.

    What differs is left empty, since no one value is true of all; quality measures are combined instead
    (:func:`combined_quality`).
    """
    first = dict(scans[0].columns)
    differ = [
        name
        for name in first
        if len({str(scan.columns.get(name)) for scan in scans if not pd.isna(scan.columns.get(name))}) > 1
    ]
    if SESSION in differ:
        first.pop(SESSION)
        differ.remove(SESSION)
    return {**first, **dict.fromkeys(differ, None)}, differ


def combined_quality(scans: Iterable[Scan]) -> dict[str, Any]:
    """Return the quality of a row made of several scans: the mean FD and coverage, the sum of volumes."""
    table = pd.DataFrame([{c: scan.columns.get(c) for c in COLUMNS} for scan in scans]).apply(
        pd.to_numeric, errors="coerce"
    )
    found: dict[str, Any] = {c: float(table[c].mean()) for c in ("mean_fd", "coverage") if table[c].notna().any()}
    if table["n_retained"].notna().all():
        found["n_retained"] = int(table["n_retained"].sum())
    return found
