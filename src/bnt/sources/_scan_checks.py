"""What a scan must be before it enters a cohort: finite, symmetric, of the right range, of the same ROIs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bnt.cohort._triangle import flat
from bnt.connectivity import Kind
from bnt.errors import BadInput
from bnt.sources._scan import SYMMETRY_TOLERANCE, Content, Scan

RANGE_TOLERANCE = 1e-4
SPARSE = 0.1  # share of zeros that no correlation matrix has


@dataclass(frozen=True)
class Asymmetry:
    """A matrix that was averaged with its transpose though they differ by ``value``."""

    participant: str
    value: float


def check_series(scan: Scan, series: np.ndarray, min_volumes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the series as float32 with missing ROIs at 0, and which ROIs are missing.

    An ROI without any value, or with the same one in every volume, is missing. A gap inside an ROI's
    series, or an infinite value, is refused.
    """
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite and is refused below
        values = np.array(series, dtype=np.float32)  # (T, V)
    if len(values) < min_volumes:
        raise BadInput(
            f"{scan} has {len(values)} volumes, fewer than --min-volumes {min_volumes}: "
            "leave it out with --drop-short, or ask for fewer."
        )
    unknown = np.isnan(values)
    missing = np.asarray(unknown.all(axis=0) | (values == values[:1]).all(axis=0))
    _refuse_nothing(scan, missing)
    values[:, missing] = 0.0
    if not np.isfinite(values).all():
        row, column = np.argwhere(~np.isfinite(values))[0]
        what = "a missing value" if unknown[row, column] else "an infinite value"
        raise BadInput(
            f"{scan} has {what} in volume {row + 1}, ROI {column + 1}, though that ROI has other values: "
            "mend it, or leave the scan out."
        )
    return values, missing


def check_matrix(
    scan: Scan, matrix: np.ndarray, kind: Kind, allow_asymmetric: bool
) -> tuple[np.ndarray, np.ndarray, Asymmetry | None]:
    """Return the off-diagonal entries with those of missing ROIs at 0, which ROIs are missing, and any asymmetry.

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
            "mend it, or leave the scan out."
        )
    asymmetry = float(np.abs(values - values.T).max())
    if asymmetry > SYMMETRY_TOLERANCE and not allow_asymmetric:
        raise BadInput(
            f"{scan} is not symmetric (its entries differ by up to {asymmetry:.3g}): mend it, or pass "
            "--allow-asymmetric to average both halves."
        )
    values = (values + values.T) / 2
    if not kind.fisher:
        _check_correlations(scan, values, diagonal[~missing], kind)
        values = np.clip(values, -1.0, 1.0)
    with np.errstate(over="ignore"):
        edges = flat(values).astype(np.float32)
    if not np.isfinite(edges).all():
        raise BadInput(f"{scan} has values too large for float32: mend it, or leave the scan out.")
    found = Asymmetry(scan.participant, asymmetry) if asymmetry > SYMMETRY_TOLERANCE else None
    return edges, missing, found


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
            f"{scan} has the value {largest:.3g}, beyond [-1, 1] for kind {kind.name!r}: these look like Fisher z, "
            "pass --kind fisher-z."
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
                "choose with --content or --pattern."
            )
        if n_rois != self.n_rois:
            raise BadInput(
                f"{scan} has {n_rois} ROIs, {self.first} has {self.n_rois}: give scans of one atlas "
                "(--atlas or --pattern chooses)."
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
