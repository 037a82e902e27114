"""Theorem 3.2 in numbers: what variance inflation factors say about orthonormal centres, and what they do not.

The theorem regresses assignments on cluster centres and argues: orthonormal centres have the smallest variance
inflation factors, therefore the smallest error, therefore the smallest chance of rejecting a good readout. Each
function here is one link of that chain, as a number.
"""

from __future__ import annotations

import numpy as np


def inflation_factors(x: np.ndarray) -> np.ndarray:
    """Return the variance inflation factor of each column of a design (n, r); infinite where it is collinear.

    It is the diagonal of the inverse of the columns' correlation matrix, equal to ``1 / (1 - R_p^2)``.
    """
    centred = x - x.mean(axis=0)
    if np.linalg.matrix_rank(centred) < x.shape[1]:
        return np.full(x.shape[1], np.inf)
    correlation = np.corrcoef(centred, rowvar=False).reshape(x.shape[1], x.shape[1])
    return np.diag(np.linalg.inv(correlation))


def printed_mean(factors: np.ndarray) -> float:
    """Return the paper's average: the sum over r variables divided by r - 1."""
    return float(factors.sum() / (len(factors) - 1))


def orthogonal_design(n: int, r: int, rng: np.random.Generator) -> np.ndarray:
    """Return a design (n, r) whose columns have mean zero, unit variance and no correlation."""
    draw = rng.standard_normal((n, r))
    q, _ = np.linalg.qr(draw - draw.mean(axis=0))
    return q * np.sqrt(n)


def mixing(r: int, correlation: float) -> np.ndarray:
    """Return A such that ``X A`` has the same correlation between all columns where those of X have none."""
    wanted = np.full((r, r), correlation) + (1 - correlation) * np.eye(r)
    return np.linalg.cholesky(wanted).T


def fit(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float, float]:
    """Return coefficients (without intercept), R^2 and mean squared error of least squares with an intercept."""
    design = np.column_stack([np.ones(len(x)), x])
    beta, *_ = np.linalg.lstsq(design, y, rcond=None)
    residual = y - design @ beta
    return beta[1:], float(1 - residual @ residual / ((y - y.mean()) ** 2).sum()), float(np.mean(residual**2))


def same_fit(n: int = 200, r: int = 5, correlation: float = 0.95, seed: int = 0) -> dict[str, float]:
    """Regress the same outcome on uncorrelated columns and on strongly correlated ones that span the same space.

    Returns
    -------
    dict
        Mean inflation factor, R^2 and mean squared error of both fits.
    """
    rng = np.random.default_rng(seed)
    x = orthogonal_design(n, r, rng)
    y = x @ rng.standard_normal(r) + rng.standard_normal(n)
    z = x @ mixing(r, correlation)
    _, r2_plain, mse_plain = fit(x, y)
    _, r2_mixed, mse_mixed = fit(z, y)
    return {
        "vif_orthogonal": float(inflation_factors(x).mean()),
        "vif_correlated": float(inflation_factors(z).mean()),
        "r2_orthogonal": r2_plain,
        "r2_correlated": r2_mixed,
        "mse_orthogonal": mse_plain,
        "mse_correlated": mse_mixed,
    }


def coefficient_inflation(
    n: int = 100, r: int = 3, correlation: float = 0.9, repeats: int = 4000, seed: int = 0
) -> dict[str, float]:
    """Return how much wider correlated columns make a coefficient's variance, observed and as the factor says."""
    rng = np.random.default_rng(seed)
    x = orthogonal_design(n, r, rng)
    z = x @ mixing(r, correlation)
    noise = rng.standard_normal((n, repeats))
    variances = []
    for design in (x, z):
        full = np.column_stack([np.ones(n), design])
        beta = np.linalg.lstsq(full, noise, rcond=None)[0]  # (r + 1, repeats); the true coefficients are zero
        variances.append(beta[1:].var(axis=1).mean())
    return {"observed": float(variances[1] / variances[0]), "factor": float(inflation_factors(z).mean())}


def centre_design(n_clusters: int, n_rois: int, seed: int = 0) -> dict[str, float]:
    """Return facts about K orthonormal centres taken as K samples of V regressors, as the theorem takes them.

    Returns
    -------
    dict
        Largest correlation between rows of E E^T off the diagonal (zero), largest correlation between two of the V
        columns, rank of the centred design, and whether its inflation factors exist.
    """
    rng = np.random.default_rng(seed)
    q, _ = np.linalg.qr(rng.standard_normal((n_rois, n_clusters)))
    e = q.T  # (K, V), orthonormal rows
    centred = e - e.mean(axis=0)
    columns = np.corrcoef(centred, rowvar=False)
    gram = e @ e.T
    return {
        "row_product": float(np.abs(gram - np.eye(n_clusters)).max()),
        "column_correlation": float(np.abs(columns[np.triu_indices(n_rois, 1)]).max()),
        "rank": int(np.linalg.matrix_rank(centred)),
        "regressors": n_rois,
        "defined": float(np.isfinite(inflation_factors(e)).all()),
    }


def tail_counterexample(distance: float = 2.0) -> dict[str, float]:
    """Return a tail probability that breaks the Vysochanskij-Petunin bound for want of a single mode.

    Mass ``1 / (2 d^2)`` at both ``-d`` and ``d`` and the rest at 0 has variance 1, and ``P(|x| >= d) = 1 / d^2``, the
    most that Chebyshev allows; the bound for unimodal variables is ``4 / (9 d^2)``.
    """
    return {"probability": 1 / distance**2, "bound": 4 / (9 * distance**2)}


def exact_hits(n: int = 50, repeats: int = 10_000, seed: int = 0) -> int:
    """Return how many of many unbiased estimates equal the true value exactly: the paper's acceptance region."""
    estimates = np.random.default_rng(seed).standard_normal((repeats, n)).mean(axis=1)
    return int((estimates == 0.0).sum())
