"""A scan of one participant (a file, or a slice of a stack): reading, checks, and combination into a cohort row."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bnt.cohort import flat
from bnt.connectivity import Kind
from bnt.connectivity._estimate import rois_without_signal
from bnt.errors import BadInput

CONTENTS = ("auto", "series", "matrix")
SYMMETRY_TOLERANCE = 1e-4
"""Rounding of printed numbers makes a matrix this much asymmetric; it is averaged away."""
RANGE_TOLERANCE = 1e-4
SPARSE = 0.1  # share of zeros that no correlation matrix has


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

    @property
    def session(self) -> str:
        """The session without ``ses-``, or nothing."""
        found = re.search(r"(?:^|_)ses-([A-Za-z0-9]+)", self.run)
        return found.group(1) if found else ""

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
    _refuse_ramp(scan, values)
    values[:, missing] = 0.0
    return values, missing


STEP_TOLERANCE = 0.1  # of the steps of a ramp, which float32 and few decimals round: times of 0.72 s are 0.7, 1.4, 2.2


def _refuse_ramp(scan: Scan, series: np.ndarray) -> None:
    """Refuse a column that rises by the same step in every volume: it is a time or an index, and no ROI."""
    if len(series) < FEWEST_TO_TELL:
        return
    whole = (series[-1] - series[0]) / (len(series) - 1)  # (V,)
    straight = series[0] + whole * np.arange(len(series), dtype=np.float32)[:, None]
    off = np.abs(series - straight).max(axis=0)
    ramps = np.flatnonzero((whole != 0) & (off <= STEP_TOLERANCE * np.abs(whole)))
    if ramps.size:
        raise BadInput(
            f"{scan} has a column, ROI {ramps[0] + 1}, that changes by {whole[ramps[0]]:.6g} from each volume to the "
            "next: it looks like a time or an index and not like a signal; remove this column from the files."
        )


ONE_IN_Z = 3.79  # Fisher z of 0.999: programs that cannot write infinity put 3.8 to 18.7 on the diagonal
FEWEST_TO_TELL = 20  # volumes and ROIs: with fewer, autocorrelations are chance
TIME = 0.4  # smallest lag-1 autocorrelation that is taken for time
LEAD = 0.3  # by how much it must exceed that of the other axis


def looks_transposed(series: np.ndarray) -> bool:
    """Tell whether time runs along the columns: neighbours there are alike, and those along the rows are not.

    Row and column means are removed first, since ROIs differ in level and volumes in global signal.
    """
    values = np.nan_to_num(np.asarray(series, dtype=np.float64))
    if min(values.shape) < FEWEST_TO_TELL:
        return False
    values = values - values.mean(axis=0) - values.mean(axis=1, keepdims=True) + values.mean()
    total = np.square(values).sum()
    if not total > 0:
        return False
    down = (values[1:] * values[:-1]).sum() / total
    across = (values[:, 1:] * values[:, :-1]).sum() / total
    return bool(across > TIME and across > down + LEAD)


def refuse_transposed(scan: Scan, series: np.ndarray) -> None:
    """Refuse series whose ROIs are in the rows, where no names of ROIs tell that they are not."""
    if looks_transposed(series):
        raise BadInput(
            f"{scan} has {series.shape[0]} rows and {series.shape[1]} columns, and time seems to run along the "
            "columns, where ROIs belong: use transpose, or content series if the columns are ROIs.",
            "transpose",
        )


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
    infinite = np.isposinf(diagonal).any()
    if infinite or (scale.size and (scale > ONE_IN_Z).all() and np.ptp(scale) < 1e-3):
        other = "" if infinite else " if they are that, or divide other matrices so that their diagonal is 1"
        raise BadInput(
            f"{scan} has {np.nanmax(diagonal):.3g} on its diagonal, as Fisher z of correlations have: use kind "
            f"fisher-z{other}.",
            "kind",
        )
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
