"""The kinds of connectome by name, and how they are computed from time series, in batches.

The shrinkage is that of Ledoit and Wolf (2004), "A well-conditioned estimator for large-dimensional
covariance matrices", in the form scikit-learn's ``LedoitWolf`` computes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.linalg import get_lapack_funcs

from bnt.cohort._store import canonical_kind
from bnt.cohort._triangle import endpoints, n_edges
from bnt.errors import BadInput

SUBJECTS_AT_ONCE = 16  # the matrices of a batch at V = 200 stay in the cache: faster than 64 or 256
INVERTED_AT_ONCE = 4  # in double precision, and each goes through the cache several times

# An ROI whose spread is below this share of the subject's largest value holds rounding noise only, such
# as a constant that went through a filter.
NO_VARIATION = 1e-10


@dataclass(frozen=True)
class Kind:
    """One kind of connectome.

    Parameters
    ----------
    name : str
    diagonal : float
        Value on the diagonal of its square matrices.
    shrunk : bool
        Whether the covariance is shrunk (Ledoit and Wolf 2004).
    fisher : bool
        Whether ``arctanh`` is taken of the correlations.
    partial : bool
        Whether the correlations are partial ones.
    description : str

    Examples
    --------
    >>> from bnt.connectivity import KINDS
    >>> KINDS["pearson"].diagonal
    1.0
    """

    name: str
    diagonal: float
    shrunk: bool
    fisher: bool
    partial: bool
    description: str


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("pearson", 1.0, False, False, False, "Pearson correlation, unit diagonal"),
        Kind("shrunk-z", 0.0, True, True, False, "Ledoit-Wolf correlation, arctanh, zero diagonal"),
        Kind("fisher-z", 0.0, False, True, False, "arctanh of Pearson correlation, zero diagonal"),
        Kind("ledoit-wolf", 1.0, True, False, False, "Ledoit-Wolf correlation, unit diagonal"),
        Kind("partial", 1.0, True, False, True, "partial correlation of the Ledoit-Wolf covariance, unit diagonal"),
    )
}


def kind_of(name: str) -> Kind:
    """Return the kind with this name or alias; an unknown name raises BadInput with the list of names.

    Parameters
    ----------
    name : str
        For example ``"pearson"`` or ``"partial"``; the names of bnt 0.1.0, ``paper`` and ``released``, are read too.

    Examples
    --------
    >>> from bnt.connectivity import kind_of
    >>> kind_of("paper").name  # the name of version 0.1.0
    'pearson'
    """
    kind = KINDS.get(canonical_kind(str(name)))
    if kind is None:
        raise BadInput(f"kind is {str(name)!r}: choose one of {', '.join(KINDS)}.", "kind")
    return kind


def connectomes(
    series: Sequence[np.ndarray], kind: str = "pearson", *, device: str | torch.device = "cpu"
) -> np.ndarray:
    """Return the connectomes of subjects whose series may differ in length.

    The edges of a region that is constant or has a missing value are 0.

    Parameters
    ----------
    series : sequence of (T_i, V) arrays
    kind : str
        A name of :data:`bnt.connectivity.KINDS`.
    device : str or torch.device
        Where to compute.

    Returns
    -------
    array, (n, V(V-1)/2) float32
        Off-diagonal entries in the order of :mod:`bnt.cohort._triangle`. The diagonal is
        ``KINDS[kind].diagonal``.

    Examples
    --------
    >>> import numpy as np
    >>> from bnt.connectivity import connectomes
    >>> rng = np.random.default_rng(0)
    >>> connectomes([rng.normal(size=(120, 10)), rng.normal(size=(90, 10))]).shape
    (2, 45)
    """
    chosen = kind_of(kind)
    n_rois = check_series(series)
    low, high = endpoints(n_rois)
    positions = torch.from_numpy(high * n_rois + low).to(device)
    # arctanh stretches what lies near 1 and an inverse stretches small eigenvalues: both need float64.
    exact = chosen.fisher or chosen.partial
    series = [np.asarray(one) for one in series]
    out = np.empty((len(series), n_edges(n_rois)), dtype=np.float32)
    dtype, at_once = torch.float64 if exact else torch.float32, INVERTED_AT_ONCE if chosen.partial else SUBJECTS_AT_ONCE
    for rows, centred in centred_batches(series, dtype, device, at_once):
        matrices = _matrices(centred, chosen)  # (B, V, V)
        edges = matrices.reshape(len(rows), -1).index_select(1, positions)  # (B, V(V-1)/2)
        out[rows] = edges.to(torch.float32).cpu().numpy()
    return out


def _matrices(centred: torch.Tensor, kind: Kind) -> torch.Tensor:
    """Return (B, V, V) matrices of one kind, of which what stands below the diagonal is read."""
    if kind.partial:
        matrices = partial_correlation(ledoit_wolf_covariance(centred))
    elif kind.shrunk:
        matrices = ledoit_wolf_correlation(centred)
    else:
        matrices = pearson(centred)
    return fisher_z(matrices) if kind.fisher else matrices


def unit_columns(centred: torch.Tensor) -> torch.Tensor:
    """Scale each region's centred series to norm 1; a region without a signal stays 0: (B, T, V) -> same."""
    norm = centred.square().sum(1, keepdim=True).sqrt_()  # several times faster than vector_norm over dim 1
    return centred / torch.where(norm > 0, norm, torch.ones_like(norm))


def gram(x: torch.Tensor) -> torch.Tensor:
    """Return the inner products of the columns: (B, T, V) -> (B, V, V).

    On a CPU the product is left to numpy, which sees that it is symmetric and computes half of it.
    """
    if x.device.type == "cpu":
        array = x.numpy()
        return torch.from_numpy(np.matmul(array.transpose(0, 2, 1), array))
    return torch.bmm(x.transpose(1, 2), x)


def volume_power(x: torch.Tensor) -> torch.Tensor:
    """Return the sum of squares of each volume: (B, T, V) -> (B, T)."""
    return torch.linalg.vector_norm(x, dim=2).square_()


def shrinkage(power: torch.Tensor, covariance: torch.Tensor) -> torch.Tensor:
    """Return the Ledoit-Wolf shrinkage of each subject, (B,) float64, between 0 and 1.

    Parameters
    ----------
    power : tensor, (B, T)
        Sum of squares of each volume of the centred series x.
    covariance : tensor, (B, V, V)
        Their maximum-likelihood covariance, ``x' x / T``.
    """
    volumes, regions = power.shape[1], covariance.shape[1]
    trace = covariance.diagonal(dim1=1, dim2=2).sum(1, dtype=torch.float64)  # (B,)
    mean_variance = trace / regions
    squares = covariance.square().sum((1, 2)).to(torch.float64)  # (B,)
    fourth = power.to(torch.float64).square().sum(1)  # (B,)
    spread = (fourth / volumes - squares) / (regions * volumes)
    distance = (squares - regions * mean_variance.square()) / regions
    spread = torch.minimum(spread, distance)
    safe = torch.where(distance > 0, distance, torch.ones_like(distance))
    return torch.where((spread > 0) & (distance > 0), spread / safe, torch.zeros_like(spread))


def ledoit_wolf_covariance(centred: torch.Tensor) -> torch.Tensor:
    """Return the shrunk covariance: (1 - s) C + s mean(diag C) I, (B, T, V) -> (B, V, V)."""
    covariance = gram(centred).div_(centred.shape[1])
    s = shrinkage(volume_power(centred), covariance).to(covariance.dtype).view(-1, 1)
    diagonal = covariance.diagonal(dim1=1, dim2=2)
    target = diagonal.mean(1, keepdim=True) * s  # (B, 1)
    covariance *= (1 - s).unsqueeze(2)
    diagonal += target  # a view: the matrix changes with it
    return covariance


def pearson(centred: torch.Tensor) -> torch.Tensor:
    """Return Pearson correlations, diagonal not set: (B, T, V) -> (B, V, V)."""
    return gram(unit_columns(centred)).clamp_(-1.0, 1.0)


def ledoit_wolf_correlation(centred: torch.Tensor) -> torch.Tensor:
    """Return correlations of the shrunk covariance of the standardised series, diagonal not set.

    Every region with a signal has variance 1 after standardising, so that shrinking multiplies each
    correlation by one factor, (1 - s) / (1 - s + s m), m being the share of regions with a signal.
    """
    z = unit_columns(centred)
    correlation = gram(z)
    s = shrinkage(volume_power(z) * z.shape[1], correlation)  # of z sqrt(T), whose covariance is the correlation
    share = correlation.diagonal(dim1=1, dim2=2).mean(1).to(torch.float64)
    factor = (1 - s) / (1 - s + s * share)
    return correlation.mul_(factor.to(correlation.dtype).view(-1, 1, 1)).clamp_(-1.0, 1.0)


def positive_inverse(matrices: torch.Tensor) -> torch.Tensor:
    """Return the lower triangle, with the diagonal, of the inverse of positive definite matrices: (B, V, V) -> same.

    What stands above the diagonal means nothing. On a CPU the matrices are overwritten, one after the other in its
    cache, by LAPACK's two steps: torch takes 1.7 times as long.
    """
    if matrices.device.type != "cpu":
        return torch.cholesky_inverse(torch.linalg.cholesky(matrices))
    array = matrices.numpy()
    factorise, invert = get_lapack_funcs(("potrf", "potri"), (array,))
    for one in array:  # LAPACK's columns are our rows: its upper triangle is our lower one
        factor, failed = factorise(one.T, lower=0, clean=0, overwrite_a=1)
        if not failed:
            found, failed = invert(factor, lower=0, overwrite_c=1)
        if failed:
            raise torch.linalg.LinAlgError("a covariance is not positive definite")
        if not np.shares_memory(found, one):
            one[...] = found.T
    return matrices


def partial_correlation(covariance: torch.Tensor) -> torch.Tensor:
    """Return partial correlations of positive definite covariances below the diagonal: (B, V, V) -> same.

    The diagonal is not set, and what stands above it means nothing. The covariances may be overwritten.
    """
    precision = positive_inverse(covariance)
    scale = precision.diagonal(dim1=1, dim2=2).rsqrt()
    return precision.mul_(scale.unsqueeze(1)).mul_(-scale.unsqueeze(2))


def fisher_z(correlation: torch.Tensor, largest: float = 1.0 - 1e-6) -> torch.Tensor:
    """Return ``arctanh`` of correlations; those beyond ``largest`` are set to it, so that none is infinite."""
    return correlation.clamp(-largest, largest).arctanh()


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
    series: Sequence[np.ndarray],
    dtype: torch.dtype,
    device: str | torch.device,
    at_once: int = SUBJECTS_AT_ONCE,
) -> Iterator[tuple[np.ndarray, torch.Tensor]]:
    """Yield subjects of the same length together: their positions and centred series.

    Parameters
    ----------
    series : sequence of (T_i, V) arrays
    dtype : torch.dtype
        Of the tensors; the means are taken so that a large offset costs no precision.
    at_once : int
        Largest B.

    Yields
    ------
    rows : array of int, (B,)
    centred : tensor, (B, T, V)
        Mean 0 over time; regions without a signal are 0 throughout.
    """
    lengths = np.array([len(one) for one in series])
    for length in np.unique(lengths):
        same = np.flatnonzero(lengths == length)
        for start in range(0, len(same), at_once):
            rows = same[start : start + at_once]
            centred, silent = _centred(series, rows, dtype, device)
            varying = (~silent).sum(1)
            if int(varying.min()) < 2:
                first = int(varying.argmin())
                raise BadInput(
                    f"Series {rows[first]} has {'one' if int(varying[first]) else 'no'} ROI that varies (the others "
                    "are constant beside it or hold missing values): leave the subject out."
                )
            yield rows, centred


def rois_without_signal(series: np.ndarray) -> np.ndarray:
    """Return which ROIs of one series, (T, V), have no signal: constant, but for rounding, or with missing values.

    Their edges are 0 in every kind of connectome.
    """
    return _centred([np.asarray(series)], np.zeros(1, dtype=int), torch.float64, "cpu")[1][0].numpy()


def _centred(
    series: Sequence[np.ndarray], rows: np.ndarray, dtype: torch.dtype, device: str | torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the series of some subjects, of one length, centred (B, T, V), and which ROIs have no signal (B, V)."""
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
    if still.any():
        x.masked_fill_(still, 0.0)
    return x, still.squeeze(1)
