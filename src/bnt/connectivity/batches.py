"""Series of different lengths as batches of equal length, cleaned by one rule.

The rule for regions without a signal, in every kind: a region with a value that is not finite, or
whose series does not vary, has no connections. Its edges are 0 and its diagonal is what the kind says.
A subject in whom no region varies is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from bnt.errors import BadInput

SUBJECTS_AT_ONCE = 16  # the matrices of a batch at V = 200 stay in the cache: faster than 64 or 256

# A region whose spread is below this share of the subject's largest value holds rounding noise only, such
# as a constant that went through a filter.
NO_VARIATION = 1e-10


def check_series(series: Sequence[np.ndarray]) -> int:
    """Return the number of regions that all series share, or say which subject differs."""
    if len(series) == 0:
        raise BadInput("There are no time series: give at least one (volumes, ROIs) array.")
    n_rois = np.shape(series[0])[-1] if np.ndim(series[0]) else 0
    for i, one in enumerate(series):
        if np.ndim(one) != 2:
            raise BadInput(f"Series {i} has shape {np.shape(one)}: give a (volumes, ROIs) array for each subject.")
        volumes, regions = np.shape(one)
        if regions != n_rois:
            raise BadInput(f"Series {i} has {regions} ROIs, series 0 has {n_rois}: all must come from one atlas.")
        if regions < 2:
            raise BadInput(f"Series {i} has {regions} ROI: a connectome needs two or more.")
        if volumes < 3:
            raise BadInput(f"Series {i} has {volumes} volumes: a correlation needs at least three.")
    return n_rois


def centred_batches(
    series: Sequence[np.ndarray], dtype: torch.dtype, device: str | torch.device
) -> Iterator[tuple[np.ndarray, torch.Tensor]]:
    """Yield subjects of the same length together: their positions and centred series.

    Parameters
    ----------
    series : sequence of (T_i, V) arrays
    dtype : torch.dtype
        Of the tensors; the means are taken so that a large offset costs no precision.
    device : str or torch.device

    Yields
    ------
    rows : array of int, (B,)
    centred : tensor, (B, T, V)
        Mean 0 over time; regions without a signal are 0 throughout.
    """
    lengths = np.array([len(one) for one in series])
    for length in np.unique(lengths):
        same = np.flatnonzero(lengths == length)
        for start in range(0, len(same), SUBJECTS_AT_ONCE):
            rows = same[start : start + SUBJECTS_AT_ONCE]
            yield rows, _centred(series, rows, dtype, device)


def _centred(
    series: Sequence[np.ndarray], rows: np.ndarray, dtype: torch.dtype, device: str | torch.device
) -> torch.Tensor:
    # The first volume is taken off in the series' own precision: a constant region becomes 0 exactly, and a large
    # offset costs nothing when the difference is rounded to ``dtype``.
    n_volumes, n_rois = series[rows[0]].shape
    differences = np.empty((len(rows), n_volumes, n_rois), dtype=np.float64 if dtype == torch.float64 else np.float32)
    first_volumes = np.stack([series[i][0] for i in rows]).astype(differences.dtype, copy=False)
    with np.errstate(invalid="ignore", over="ignore"):  # infinite values are found below
        for k, i in enumerate(rows):
            one = series[i]
            kind = np.result_type(one.dtype, np.float32)
            np.subtract(one, one[0], out=differences[k], dtype=kind, casting="same_kind")
    x = torch.from_numpy(differences).to(device)  # (B, T, V)
    first = torch.from_numpy(first_volumes).to(device).unsqueeze(1)  # (B, 1, V)
    total = x.sum(1, keepdim=True)  # (B, 1, V); infinite and missing values survive the sum
    missing = ~torch.isfinite(total)
    if missing.any():
        x.masked_fill_(missing, 0.0)
        total.masked_fill_(missing, 0.0)
        first.masked_fill_(missing, 0.0)
    x.sub_(total.div_(x.shape[1]))
    spread = x.square().sum(1, keepdim=True).sqrt_()  # (B, 1, V)
    scale = torch.maximum(first.abs(), spread).amax(2, keepdim=True)  # (B, 1, 1)
    if not torch.isfinite(scale).all():  # squares beyond the range of float32, or of float64
        raise BadInput(
            f"Series {int(rows[int((~torch.isfinite(scale)).flatten().nonzero()[0])])} holds values too large to be "
            "squared: give it in another unit."
        )
    still = spread <= NO_VARIATION * scale
    dead = still.all(2).flatten()
    if dead.any():
        subject = int(rows[int(dead.nonzero()[0])])
        raise BadInput(
            f"Series {subject} has no ROI that varies (all are constant or hold missing values): leave the subject out."
        )
    if still.any():
        x.masked_fill_(still, 0.0)
    return x
