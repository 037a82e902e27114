"""Theorem 3.1 in numbers: how far soft assignments are from uniform, averaged over a ball of node features.

The theorem looks at ``F(E) = mean over |z| <= r of sum_k (P_k - 1/K)^2`` with ``P = softmax(score(z, E))``, and says
that it is largest when the centres E are orthonormal. The score is ``z.e`` in the paper (``linear``) and
``(z.e)^2 / |e|`` in the released code (``squared``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

SCORES = ("linear", "squared")
RADII = (0.5, 1.0, 2.0, 5.0, 10.0, 50.0)
ANGLES = (0, 1 / 21, 1 / 6, 1 / 3, 1 / 2, 2 / 3, 5 / 6, 1)  # phi / pi; pi/21 is the paper's misprint of pi/2
N_RADIAL, N_ANGULAR = 200, 720
N_POINTS = 1 << 16


def scores(z: np.ndarray, centres: np.ndarray, score: str) -> np.ndarray:
    """Return what the softmax is taken of, (n, K), for features (n, V) and centres (K, V)."""
    projected = z @ centres.T
    if score == "linear":
        return projected
    return projected**2 / np.linalg.norm(centres, axis=1)


def spread(logits: np.ndarray) -> np.ndarray:
    """Return ``sum_k (P_k - 1/K)^2`` of the softmax of each row, (n,)."""
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    return ((p - 1 / p.shape[1]) ** 2).sum(axis=1)


def two_centres(phi: float) -> np.ndarray:
    """Return two unit centres in the plane at an angle ``phi``."""
    return np.array([[1.0, 0.0], [np.cos(phi), np.sin(phi)]])


def by_quadrature(
    centres: np.ndarray, r: float, score: str = "linear", *, n_radial: int = N_RADIAL, n_angular: int = N_ANGULAR
) -> float:
    """Return F of centres in the plane, (K, 2), by Gauss-Legendre in the radius and trapezoids in the angle.

    Trapezoids converge faster than any power for a smooth periodic integrand, so the digits are those of the
    radial rule.

    Examples
    --------
    >>> round(by_quadrature(two_centres(np.pi / 2), r=1.0), 5)
    0.05364
    """
    nodes, weights = np.polynomial.legendre.leggauss(n_radial)
    rho = r * (nodes + 1) / 2  # (R,)
    theta = np.arange(n_angular) * 2 * np.pi / n_angular  # (T,)
    z = np.stack([np.outer(rho, np.cos(theta)), np.outer(rho, np.sin(theta))], axis=-1)  # (R, T, 2)
    values = spread(scores(z.reshape(-1, 2), centres, score)).reshape(n_radial, n_angular)
    return float((weights * rho * values.mean(axis=1)).sum() / r)  # the factor rho is the Jacobian


def angle_table(radii: Sequence[float] = RADII, angles: Sequence[float] = ANGLES, score: str = "linear") -> np.ndarray:
    """Return F for two unit centres in the plane, radii x angles (in units of pi)."""
    return np.array([[by_quadrature(two_centres(a * np.pi), r, score) for a in angles] for r in radii])


def ball_points(n_rois: int, n: int = N_POINTS, seed: int = 0) -> np.ndarray:
    """Return points of the unit ball of R^V, (n, V): a scrambled Sobol sequence and its mirror image.

    The mirror image makes odd functions average to zero exactly; Sobol points leave a tenth of the error
    of independent ones at these sizes.
    """
    from scipy.stats import norm, qmc

    half = qmc.Sobol(n_rois + 1, seed=seed).random(n // 2)
    half = np.clip(half, 1e-12, 1 - 1e-12)
    direction = norm.ppf(half[:, :-1])
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    z = direction * half[:, -1:] ** (1 / n_rois)
    return np.concatenate([z, -z])


def by_sampling(centres: np.ndarray, r: float, score: str = "linear", *, points: np.ndarray | None = None) -> float:
    """Return F of centres (K, V) by Monte-Carlo over the ball; ``points`` lets several sets share their points."""
    z = ball_points(centres.shape[1]) if points is None else points
    return float(spread(scores(r * z, centres, score)).mean())


def orthonormal(n_clusters: int, n_rois: int) -> np.ndarray:
    """Return K orthonormal centres in R^V; by symmetry of the ball it does not matter which."""
    return np.eye(n_clusters, n_rois)


def simplex(n_clusters: int, n_rois: int) -> np.ndarray:
    """Return K unit centres in R^V with all pairwise cosines -1/(K-1)."""
    return simplex_of(orthonormal(n_clusters, n_rois))


def simplex_of(frame: np.ndarray) -> np.ndarray:
    """Return the simplex whose vertices point to K orthonormal rows as seen from their mean."""
    vertices = frame - frame.mean(axis=0)
    return vertices / np.linalg.norm(vertices, axis=1, keepdims=True)


def nearest_orthonormal(centres: np.ndarray) -> np.ndarray:
    """Return the orthonormal rows closest to some centres (their polar factor)."""
    left, _, right = np.linalg.svd(centres, full_matrices=False)
    return left @ right


def random_centres(n_clusters: int, n_rois: int, rng: np.random.Generator) -> np.ndarray:
    """Return K unit centres drawn uniformly from the sphere."""
    draw = rng.standard_normal((n_clusters, n_rois))
    return draw / np.linalg.norm(draw, axis=1, keepdims=True)


def cosines(centres: np.ndarray) -> np.ndarray:
    """Return the K(K-1)/2 pairwise inner products."""
    return (centres @ centres.T)[np.triu_indices(len(centres), 1)]


def small_radius(centres: np.ndarray, r: float) -> float:
    """Return the leading term of F as r goes to 0, for unit centres and the linear score.

    ``r^2 / ((V + 2) K^2) * (K - 1 - (2/K) * sum_{i<j} cos_ij)``: only the sum of the cosines matters, so orthonormal
    centres beat exactly those whose mean cosine is positive.
    """
    k, v = centres.shape
    return r**2 / ((v + 2) * k**2) * (k - 1 - 2 / k * float(cosines(centres).sum()))


def best_centres(
    n_clusters: int, n_rois: int, r: float, score: str = "linear", *, steps: int = 300, n: int = 1 << 13, seed: int = 0
) -> tuple[np.ndarray, float]:
    """Return unit centres that gradient ascent finds from a random start, and their F."""
    import torch

    z = torch.from_numpy(r * ball_points(n_rois, n, seed))
    free = torch.from_numpy(random_centres(n_clusters, n_rois, np.random.default_rng(seed))).requires_grad_()
    optimiser = torch.optim.Adam([free], lr=0.05)
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = 0.05 * (1 + np.cos(np.pi * step / steps)) / 2
        centres = torch.nn.functional.normalize(free, dim=1)
        logits = z @ centres.T if score == "linear" else (z @ centres.T).square()
        value = (logits.softmax(1) - 1 / n_clusters).square().sum(1).mean()
        optimiser.zero_grad()
        (-value).backward()
        optimiser.step()
    found = torch.nn.functional.normalize(free.detach(), dim=1).numpy()
    return found, by_sampling(found, r, score)


def contest(
    n_clusters: int, n_rois: int, r: float, score: str = "linear", *, sets: int = 200, n: int = 1 << 12, seed: int = 0
) -> dict[str, int]:
    """Let random unit centres compete with orthonormal ones on the same points.

    A set that wins is measured again on 32 times as many other points, and counted only if it wins there too:
    at a large radius the integrand is close to a step function and a few thousand points are noisy.

    Returns
    -------
    dict
        ``sets`` and how many of them beat orthonormal centres (``beat``); how many have a mean cosine of at least
        zero (``allowed``), and how many of these beat orthonormal centres all the same (``allowed_beat``).
    """
    rng = np.random.default_rng(seed)
    first, second = ball_points(n_rois, n, seed), ball_points(n_rois, 32 * n, seed + 1)
    base = orthonormal(n_clusters, n_rois)
    bar, high_bar = (by_sampling(base, r, score, points=points) for points in (first, second))
    beat = allowed = allowed_beat = 0
    for _ in range(sets):
        centres = random_centres(n_clusters, n_rois, rng)
        wins = by_sampling(centres, r, score, points=first) > bar
        wins = wins and by_sampling(centres, r, score, points=second) > high_bar
        fine = bool(cosines(centres).mean() >= 0)
        beat, allowed, allowed_beat = beat + wins, allowed + fine, allowed_beat + (wins and fine)
    return {"sets": sets, "beat": beat, "allowed": allowed, "allowed_beat": allowed_beat}


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
