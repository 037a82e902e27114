"""Tangent space: covariances as deviations from a reference that is fitted on training subjects only.

Varoquaux et al. (2010), "Detection of brain functional-connectivity difference in post-stroke patients using
group-level covariance modeling". With reference G and a subject's covariance C, the deviation is log(G^-1/2 C G^-1/2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch

from bnt.connectivity._estimate import SUBJECTS_AT_ONCE, centred_batches, check_series, gram, ledoit_wolf_covariance
from bnt.connectivity._logarithm import logarithms
from bnt.errors import BadInput

REFERENCES = ("geometric", "log-euclidean", "arithmetic")
MOST_STEPS = 30
TOLERANCE = 1e-8  # of the gradient's norm divided by the number of entries; nilearn stops at 1e-7
WITHOUT_VECTORS_FROM = 64  # ROIs from which a logarithm without eigenvectors is faster
FIRST_STEP = 0.7  # the distance's curvature lies between 1 and about 2


def covariances(
    series: Sequence[np.ndarray],
    *,
    shrunk: bool = True,
    dtype: str = "float64",
    device: str | torch.device = "cpu",
) -> np.ndarray:
    """Return the covariance matrices of subjects whose series may differ in length.

    Parameters
    ----------
    series : sequence of (T_i, V) arrays
    shrunk : bool
        Shrink as Ledoit and Wolf (2004), which makes every matrix positive definite; otherwise the
        maximum-likelihood covariance.
    dtype : {"float64", "float32"}
        Of the result; the computation is in float64.
    device : str or torch.device

    Returns
    -------
    array, (n, V, V)
        The unit is that of the series. Regions without a signal have covariance 0 with all others.

    Examples
    --------
    >>> import numpy as np
    >>> from bnt.connectivity import covariances
    >>> series = np.random.default_rng(0).normal(size=(2, 50, 4))  # subjects x volumes x ROIs
    >>> covariances(list(series)).shape
    (2, 4, 4)
    """
    n_rois = check_series(series)
    out = np.empty((len(series), n_rois, n_rois), dtype=dtype)
    for rows, centred in centred_batches([np.asarray(one) for one in series], torch.float64, device):
        matrices = ledoit_wolf_covariance(centred) if shrunk else gram(centred) / centred.shape[1]
        out[rows] = matrices.cpu().numpy()
    return out


class TangentSpace:
    """Deviations of covariances from a reference.

    Parameters
    ----------
    reference : {"geometric", "log-euclidean", "arithmetic"}
        The mean of the training covariances: the geometric one (nilearn's; many passes over the subjects), its
        log-Euclidean approximation (one pass), or the arithmetic mean (no decomposition at all).
    device : str or torch.device
        Where to compute.

    Attributes
    ----------
    reference_ : array, (V, V)
    whitening_ : array, (V, V)
        Inverse square root of the reference.
    converged_ : bool
        Whether the geometric mean reached its tolerance.

    Examples
    --------
    >>> import numpy as np
    >>> from bnt.connectivity import TangentSpace, covariances
    >>> rng = np.random.default_rng(0)
    >>> train = covariances([rng.normal(size=(50, 5)) for _ in range(8)])
    >>> space = TangentSpace().fit(train)
    >>> space.transform(train[0]).shape, space.vectors(train).shape
    ((5, 5), (8, 15))
    """

    def __init__(self, reference: str = "geometric", *, device: str | torch.device = "cpu") -> None:
        if reference not in REFERENCES:
            raise BadInput(f"Unknown reference {reference!r}: choose one of {', '.join(REFERENCES)}.")
        self.reference, self.device = reference, device

    def fit(self, covs: np.ndarray) -> TangentSpace:
        """Fit the reference on training covariances, (n, V, V) positive definite, and return self."""
        covs = np.asarray(covs)
        if covs.ndim != 3 or covs.shape[1] != covs.shape[2] or len(covs) == 0:
            raise BadInput(f"Covariances of shape {covs.shape} cannot be a reference: give (subjects, V, V).")
        self.converged_ = True
        if self.reference == "arithmetic":
            mean = self._mean(covs)
        elif self.reference == "log-euclidean":
            mean = self._log_euclidean_mean(covs)
        else:
            mean = self._geometric_mean(covs)
        self._whitening = _map(mean, torch.rsqrt)
        self.reference_, self.whitening_ = mean.cpu().numpy(), self._whitening.cpu().numpy()
        return self

    def transform(self, covs: np.ndarray) -> np.ndarray:
        """Return the deviations of one covariance (V, V) or of many (n, V, V), float32."""
        if not hasattr(self, "_whitening"):
            raise BadInput("The tangent space has no reference yet: call fit with the training covariances.")
        many = np.asarray(covs)
        if many.ndim == 2:
            return self.transform(many[None])[0]
        if many.shape[1:] != self.reference_.shape:
            raise BadInput(f"Covariances of shape {many.shape} do not fit a reference of {self.reference_.shape}.")
        out = np.empty(many.shape, dtype=np.float32)
        for start, c in self._chunks(many):
            out[start : start + len(c)] = self._deviations(c, start)
        return out

    def _deviations(self, covs: torch.Tensor, first: int) -> np.ndarray:
        """Return the deviations of a few covariances; ``first`` is the number of the first."""
        if covs.device.type != "cpu" or covs.shape[-1] < WITHOUT_VECTORS_FROM:
            return _map(self._whitening @ covs @ self._whitening, torch.log, first).cpu().numpy()
        half, white = covs.numpy() @ self.whitening_, np.zeros(covs.shape)
        cut = covs.shape[-1] // 2  # what is left of it below the diagonal is not read
        np.matmul(self.whitening_[:cut], half, out=white[:, :cut])
        np.matmul(self.whitening_[cut:], half[..., cut:], out=white[:, cut:, cut:])
        found, right = logarithms(white)
        for i in np.flatnonzero(~right):
            found[i] = _map(self._whitening @ covs[i] @ self._whitening, torch.log, first + int(i)).numpy()
        return found

    def vectors(self, covs: np.ndarray) -> np.ndarray:
        """Return the deviations as vectors, (n, V(V+1)/2), whose norm is that of the matrices.

        The order is the lower triangle row by row with the diagonal divided by sqrt(2), as nilearn's.
        """
        deviations = self.transform(np.asarray(covs))
        low, high = np.tril_indices(deviations.shape[-1])
        return deviations[..., low, high] * np.where(low == high, 0.5**0.5, 1.0).astype(np.float32)

    def _geometric_mean(self, covs: np.ndarray) -> torch.Tensor:
        """Return the Frechet mean by gradient descent along geodesics.

        From the log-Euclidean mean, with steps below 1, it takes about a third of the passes that it takes from the
        arithmetic mean with steps of 1. Single precision finds the way while it can.
        """
        precision, smallest, step = torch.float32, np.inf, FIRST_STEP
        mean = self._log_euclidean_mean(covs)
        for _ in range(MOST_STEPS):
            values, vectors = torch.linalg.eigh(mean)
            root, inverse_root = _form(values.sqrt(), vectors), _form(values.rsqrt(), vectors)
            try:
                gradient = self._mean_log(covs, inverse_root, precision)
            except BadInput:
                if precision == torch.float64:
                    raise
                precision = torch.float64  # positive, but for the rounding of single precision
                gradient = self._mean_log(covs, inverse_root, precision)
            norm = float(torch.linalg.matrix_norm(gradient))
            mean = root @ _map(gradient * step, torch.exp) @ root
            mean = (mean + mean.mT) / 2
            if norm / mean.numel() < TOLERANCE:
                return mean
            if norm > 0.9 * smallest:
                if precision == torch.float64:
                    step /= 2
                precision = torch.float64
            smallest = min(norm, smallest)
        self.converged_ = False
        return mean

    def _mean_log(self, covs: np.ndarray, whitening: torch.Tensor, precision: torch.dtype) -> torch.Tensor:
        """Return the mean over subjects of log(W C W), (V, V) float64."""
        narrow = whitening.to(precision)
        total = self._zeros(covs)
        for start, c in self._chunks(covs, precision):
            total += _map(narrow @ c @ narrow, torch.log, start).sum(0, dtype=torch.float64)
        return total / len(covs)

    def _log_euclidean_mean(self, covs: np.ndarray) -> torch.Tensor:
        logs = self._zeros(covs)
        for start, c in self._chunks(covs):
            logs += _map(c, torch.log, start).sum(0)
        return _map(logs / len(covs), torch.exp)

    def _mean(self, covs: np.ndarray) -> torch.Tensor:
        return sum((c.sum(0) for _, c in self._chunks(covs)), self._zeros(covs)) / len(covs)

    def _zeros(self, covs: np.ndarray) -> torch.Tensor:
        return torch.zeros(covs.shape[1:], dtype=torch.float64, device=self.device)

    def _chunks(self, covs: np.ndarray, dtype: torch.dtype = torch.float64) -> Iterator[tuple[int, torch.Tensor]]:
        for start in range(0, len(covs), SUBJECTS_AT_ONCE):
            yield start, torch.from_numpy(covs[start : start + SUBJECTS_AT_ONCE]).to(self.device, dtype)


def _form(values: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
    """Return the symmetric matrices with these eigenvalues and eigenvectors."""
    return (vectors * values.unsqueeze(-2)) @ vectors.mT


def _map(matrices: torch.Tensor, function: Callable[[torch.Tensor], torch.Tensor], first: int = 0) -> torch.Tensor:
    """Apply a function to the eigenvalues of symmetric matrices; all but exp need them positive."""
    values, vectors = torch.linalg.eigh(matrices)
    if function is not torch.exp:
        bad = (values[..., 0] <= 0).reshape(-1)
        if bad.any():
            subject = first + int(bad.nonzero()[0])
            raise BadInput(
                f"The covariance of subject {subject} is not positive definite (smallest eigenvalue "
                f"{float(values[..., 0].reshape(-1)[bad][0]):.3g}): use shrunk covariances."
            )
    return _form(function(values), vectors)
