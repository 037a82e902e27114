"""A scan: one file, or one slice of a stack, of one participant; read, checked, and combined to a row of a cohort."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bnt.cohort import flat
from bnt.connectivity import Kind, connectomes
from bnt.connectivity._estimate import rois_without_signal
from bnt.errors import BadInput

CONTENTS = ("auto", "series", "matrix")
SYMMETRY_TOLERANCE = 1e-4
"""Rounding of printed numbers makes a matrix this much asymmetric; it is averaged away."""
RANGE_TOLERANCE = 1e-4
SPARSE = 0.1  # share of zeros that no correlation matrix has
RUNS = ("average", "first", "separate", "concatenate")


@dataclass(frozen=True)
class Content:
    """What a scan holds.

    Parameters
    ----------
    series : array, (T, V), optional
    matrix : array, (V, V), optional
        When both are there, the connectome is the matrix and the series are kept beside it.
    labels : tuple of str
        Names of the ROIs, where the file gives them.
    """

    series: np.ndarray | None = None
    matrix: np.ndarray | None = None
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scan:
    """One run of one participant.

    Parameters
    ----------
    participant : str
        Such as ``sub-01``.
    file : path
        Where it comes from; every error names it.
    load : callable
        Reads the content. Nothing is read before :meth:`read`, so memory holds one scan at a time.
    run : str
        What tells the runs of one participant apart, such as ``ses-1_run-2``.
    columns : mapping
        What the file itself says about the participant, such as the site.
    """

    participant: str
    file: Path
    load: Callable[[], Content]
    run: str = ""
    columns: Mapping[str, Any] = field(default_factory=dict)

    def read(self) -> Content:
        """Return the content."""
        return self.load()

    def __str__(self) -> str:
        return f"{self.participant}{'_' + self.run if self.run else ''} ({self.file})"


@contextmanager
def named(scan: Scan) -> Iterator[None]:
    """Put the scan's name before an error about its numbers."""
    try:
        yield
    except BadInput as error:
        raise BadInput(f"{scan}: {error}", error.parameter) from error


def as_numbers(values: np.ndarray, file: Path) -> np.ndarray:
    """Return real numbers as they are, and refuse everything else."""
    if values.dtype.kind not in "biuf":
        raise BadInput(f"{file} holds values of type {values.dtype}: give real numbers.")
    return values


def is_symmetric(matrix: np.ndarray) -> bool:
    """Tell whether a square array equals its transpose off the diagonal, missing entries included."""
    both = np.array(matrix, dtype=np.float64)
    np.fill_diagonal(both, 0.0)
    return bool(np.allclose(both, both.T, rtol=0, atol=SYMMETRY_TOLERANCE, equal_nan=True))


def looks_like_matrix(values: np.ndarray) -> bool:
    """Tell whether a 2-D array is a connectome.

    It is when it is square and symmetric, or square with a diagonal of ones, of zeros or of
    missing values (then it is a matrix that is not symmetric, which a check reports later).
    """
    if values.shape[0] != values.shape[1]:
        return False
    if is_symmetric(values):
        return True
    diagonal = np.diagonal(values).astype(np.float64)
    return any(np.allclose(diagonal, c, rtol=0, atol=1e-6, equal_nan=True) for c in (0.0, 1.0, np.nan, np.inf))


def content_of(values: np.ndarray, file: Path, content: str = "auto", labels: tuple[str, ...] = ()) -> Content:
    """Return a 2-D array as series or matrix.

    Parameters
    ----------
    values : array, (T, V) or (V, V)
    file : path
        Named in errors.
    content : {"auto", "series", "matrix"}
        ``auto`` follows :func:`looks_like_matrix`: what is not a connectome is a time series,
        volumes in rows and ROIs in columns.
    labels : tuple of str
        Names of the columns.
    """
    values = as_numbers(values, file)
    if values.ndim != 2 or min(values.shape) < 2:
        raise BadInput(
            f"{file} holds an array of shape {values.shape}: give (volumes, ROIs) or (ROIs, ROIs), two or more of each."
        )
    if content == "matrix" and values.shape[0] != values.shape[1]:
        raise BadInput(f"{file} holds an array of shape {values.shape}, which is not a square matrix of ROIs.")
    if content == "matrix" or (content == "auto" and looks_like_matrix(values)):
        return Content(matrix=values, labels=labels)
    return Content(series=values, labels=labels)


# -- checks ----------------------------------------------------------------------------------------------


def check_series(scan: Scan, series: np.ndarray, min_volumes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the series as float32 with missing ROIs at 0, and which ROIs are missing.

    An ROI is missing if it has no value in any volume, or no signal
    (:func:`~bnt.connectivity._estimate.rois_without_signal`). A gap inside an ROI's series, or an infinite value, is
    refused.
    """
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite and is refused below
        values = np.array(series, dtype=np.float32)  # (T, V)
    if len(values) < min_volumes:
        raise BadInput(
            f"{scan} has {len(values)} volumes, fewer than min_volumes={min_volumes}: leave it out with drop_short, or "
            "lower min_volumes.",
            "min_volumes",
        )
    unknown = np.isnan(values)
    values[:, unknown.all(axis=0)] = 0.0
    if not np.isfinite(values).all():
        row, column = np.argwhere(~np.isfinite(values))[0]
        what = "a missing value" if unknown[row, column] else "an infinite value"
        raise BadInput(
            f"{scan} has {what} in volume {row + 1}, ROI {column + 1}, though that ROI has other values: "
            "fix it, or leave the scan out."
        )
    with named(scan):
        missing = rois_without_signal(values)
    _refuse_nothing(scan, missing)
    values[:, missing] = 0.0
    return values, missing


def check_matrix(
    scan: Scan, matrix: np.ndarray, kind: Kind, allow_asymmetric: bool
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the off-diagonal entries with those of missing ROIs at 0, which ROIs are missing, and the asymmetry.

    The diagonal is not used: it may be 1, 0, missing or, after Fisher's z, infinite. An ROI without any value
    off the diagonal is missing. Other missing or infinite values, numbers beyond [-1, 1] in correlations, and the
    diagonal of a covariance are refused.
    """
    values = np.array(matrix, dtype=np.float64)  # (V, V)
    diagonal = np.diagonal(values).copy()
    np.fill_diagonal(values, np.nan)
    missing = np.asarray(np.isnan(values).all(axis=0) & np.isnan(values).all(axis=1))
    _refuse_nothing(scan, missing)
    values[missing, :] = values[:, missing] = 0.0
    np.fill_diagonal(values, 0.0)
    if not np.isfinite(values).all():
        row, column = np.argwhere(~np.isfinite(values))[0]
        what = "a missing value" if np.isnan(values[row, column]) else "an infinite value"
        raise BadInput(
            f"{scan} has {what} between ROIs {row + 1} and {column + 1}, though both have other values: "
            "fix it, or leave the scan out."
        )
    asymmetry = float(np.abs(values - values.T).max())
    if asymmetry > SYMMETRY_TOLERANCE and not allow_asymmetric:
        raise BadInput(
            f"{scan} is not symmetric (its entries differ by up to {asymmetry:.3g}): fix it, or average "
            "both halves with allow_asymmetric.",
            "allow_asymmetric",
        )
    values = (values + values.T) / 2
    if not kind.fisher:
        _check_correlations(scan, values, diagonal[~missing], kind)
        values = np.clip(values, -1.0, 1.0)
    with np.errstate(over="ignore"):
        edges = flat(values).astype(np.float32)
    if not np.isfinite(edges).all():
        raise BadInput(f"{scan} has values too large for float32: fix it, or leave the scan out.")
    return edges, missing, asymmetry


def _refuse_nothing(scan: Scan, missing: np.ndarray) -> None:
    if missing.all():
        raise BadInput(f"{scan} has no value in any ROI: leave it out.")


def _check_correlations(scan: Scan, values: np.ndarray, diagonal: np.ndarray, kind: Kind) -> None:
    largest = float(np.abs(values).max())
    scale = diagonal[np.isfinite(diagonal)]
    if scale.size and not (np.abs(np.abs(scale) - 1) < 1e-3).all() and not (scale == 0).all():
        raise BadInput(
            f"{scan} has {scale[np.argmax(np.abs(np.abs(scale) - 1))]:.3g} on its diagonal, where correlations have "
            "1: if these are covariances, divide them by the standard deviations."
        )
    if largest > 1 + RANGE_TOLERANCE and values.min() >= 0 and (flat(values) == 0).mean() > SPARSE:
        raise BadInput(
            f"{scan} has no negative value, many zeros, and values up to {largest:.3g}: these look like a structural "
            "connectome (streamlines); take their logarithm and divide by each scan's largest, so that weights are in "
            "[0, 1] (docs/cohorts.md)."
        )
    if largest > 1 + RANGE_TOLERANCE:
        raise BadInput(
            f"{scan} has the value {largest:.3g}, beyond [-1, 1] for kind {kind.name!r}: these look like Fisher z; "
            "if so, use kind fisher-z.",
            "kind",
        )


class SameRegions:
    """Remembers the first scan's ROIs and form, and refuses a scan with others."""

    def __init__(self) -> None:
        self.first: Scan | None = None
        self.n_rois = 0
        self.labels: tuple[str, ...] = ()
        self.form = ""

    def check(self, scan: Scan, content: Content) -> None:
        """Refuse another number of ROIs, or other names, or the same names in another order."""
        values = content.matrix if content.matrix is not None else content.series
        if values is None:
            raise BadInput(f"{scan} holds no numbers: leave it out.")
        n_rois, labels = values.shape[1], content.labels
        form = "a matrix" if content.matrix is not None else "a series"
        if labels and len(labels) != n_rois:
            raise BadInput(f"{scan} names {len(labels)} ROIs and has {n_rois}: make it again.")
        if self.first is None:
            self.first, self.n_rois, self.labels, self.form = scan, n_rois, labels, form
            return
        if form != self.form:
            raise BadInput(
                f"{scan} is {form} of shape {values.shape}, {self.first} is {self.form}: "
                "choose with content or pattern.",
                "content",
            )
        if n_rois != self.n_rois:
            raise BadInput(
                f"{scan} has {n_rois} ROIs, {self.first} has {self.n_rois}: give scans of one atlas "
                "(atlas or pattern chooses).",
                "atlas",
            )
        if labels != self.labels:
            if not (labels and self.labels):
                raise BadInput(
                    f"One of {scan} and {self.first} names its ROIs, the other does not: give scans of one source."
                )
            i = next(i for i, (a, b) in enumerate(zip(labels, self.labels)) if a != b)
            raise BadInput(
                f"{scan} has {labels[i]!r} as ROI {i + 1}, {self.first} has {self.labels[i]!r}: "
                "give scans of one atlas in one order."
            )


# -- from runs to a row ------------------------------------------------------------------------------------


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

    ``separate`` gives each run a row of its own, named ``sub-01_ses-1_run-2``.
    """
    if runs not in RUNS:
        raise BadInput(f"runs is {runs!r}: choose one of {', '.join(RUNS)}.", "runs")
    groups: dict[str, list[Scan]] = {}
    for scan in scans:
        name = f"{scan.participant}_{scan.run}" if runs == "separate" and scan.run else scan.participant
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
