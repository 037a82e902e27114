"""ComBat: harmonises the mean and variance of every edge between sites by empirical Bayes, and preserves covariates.

Johnson, Li and Rabinovic (2007), "Adjusting batch effects in microarray expression data using empirical Bayes methods";
of connectomes, Yu et al. (2018). An edge z of subject j of site i is modelled as

    z_ij = mean + x_ij slopes + sd (gamma_i + sqrt(delta_i) noise_ij)

with the mean over sites (weighted by their size), covariates x, the pooled SD of the residuals, and a shift gamma_i and
a scale delta_i of the site. Both are shrunk towards what the site's other edges say: gamma_i ~ N(gamma_bar_i, t2_i),
delta_i ~ inverse gamma(a_i, b_i), with hyperparameters by the method of moments. The harmonised edge is

    mean + x_ij slopes + sd (s_ij - gamma_i*) / sqrt(delta_i*),   s_ij = (z_ij - mean - x_ij slopes) / sd

Everything is learned from moments of the subjects given to :meth:`Combat.fit`, read a batch at a time, and applied to
anybody later. On the subjects it was fitted to, the numbers are those of neuroHarmonize to 1e-6 (tests). Written here
because no package fits: neuroHarmonize needs statsmodels and neuroCombat, loops over edges, keeps its models as pickles
and fails on a cohort of one new site; combatlearn takes its priors over sites instead of over edges (other numbers than
the paper's), needs all subjects in memory, and brings plotly, seaborn and umap-learn with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from bnt.errors import BadInput

Source = Callable[
    [], Iterable[tuple[np.ndarray, np.ndarray]]
]  # gives (positions, edges (n, E)) of all, as often as asked
CONVERGED = 1e-4  # relative change that ends the iteration, as in the authors' code
MOST_STEPS = 500
FEWEST = 2  # subjects of a site with a variance


@dataclass
class Combat:
    """What harmonises edges: learned from some subjects, applied to any.

    Attributes
    ----------
    sites : tuple of str
        Sites with a shift and a scale of their own.
    mean, sd : array, (E,)
    slopes : array, (k, E)
        Of the covariates that are kept.
    shift, scale : array, (sites, E)
        gamma* and sqrt(delta*), in units of ``sd``.
    """

    sites: tuple[str, ...]
    mean: np.ndarray
    sd: np.ndarray
    slopes: np.ndarray
    shift: np.ndarray
    scale: np.ndarray

    @classmethod
    def fit(cls, source: Source, sites: np.ndarray, covariates: np.ndarray) -> Combat:
        """Learn from subjects of two sites or more.

        Parameters
        ----------
        source : callable
            Returns an iterable of positions and the edges of these subjects, in any order.
        sites : array of str, (n,)
            A site of a single subject has no variance: the subject is left out, and the site is as one not seen. So
            are subjects whose site is not known, an empty text.
        covariates : array, (n, k)
            What to keep, numbers only.
        """
        sites = np.asarray(sites).astype(str)
        names, counts = np.unique(sites, return_counts=True)
        enough = (counts >= FEWEST) & (names != "")
        names, counts = names[enough], counts[enough].astype(float)
        if len(names) < 2:
            raise BadInput(
                f"ComBat compares sites and the training subjects have {len(names)} with two subjects or more: "
                "leave harmonisation out.",
                "harmonise",
            )
        code = {name: i for i, name in enumerate(names.tolist())}
        group = np.array([code.get(site, -1) for site in sites.tolist()])
        used = group >= 0
        design = np.concatenate([np.eye(len(names))[group], covariates], axis=1) * used[:, None]  # (n, sites + k)
        solver = np.linalg.pinv(design)  # (sites + k, n)
        fitted = sum(solver[:, rows] @ _double(edges) for rows, edges in source())  # (sites + k, E)
        assert isinstance(fitted, np.ndarray)
        by_site, slopes = fitted[: len(names)], fitted[len(names) :]
        mean = counts @ by_site / counts.sum()
        first, second = _sums(source, group, len(names), lambda rows, z: z - mean - covariates[rows] @ slopes)
        away = by_site - mean
        rest = second - 2 * away * first + counts[:, None] * away**2  # squares about the site's own fit
        variance = np.maximum(rest.sum(axis=0), 0) / counts.sum()
        size = np.maximum(np.abs(mean), np.sqrt(second.sum(axis=0) / counts.sum()))
        sd = np.where(variance > (1e-9 * size) ** 2, np.sqrt(variance), np.inf)  # an edge that never varies stays
        parts = [_shrunk(first[i] / sd, second[i] / sd**2, counts[i], np.isfinite(sd)) for i in range(len(names))]
        shift, scale = (np.stack([part[i] for part in parts]) for i in (0, 1))
        return cls(tuple(names.tolist()), mean, sd, slopes, shift, scale)

    def estimate(self, source: Source, covariates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return shift and scale of a site that :meth:`fit` has not seen, from its subjects alone; (E,) each."""
        n = len(covariates)
        first, second = _sums(
            source, np.zeros(n, dtype=int), 1, lambda rows, z: z - self.mean - covariates[rows] @ self.slopes
        )
        return _shrunk(first[0] / self.sd, second[0] / self.sd**2, float(n), np.isfinite(self.sd))

    def transform(
        self,
        edges: np.ndarray,
        sites: np.ndarray,
        covariates: np.ndarray,
        more: dict[str, tuple[np.ndarray, np.ndarray]] | None = None,
    ) -> np.ndarray:
        """Return harmonised edges, (n, E) float64; subjects of a site that is not known keep theirs.

        Parameters
        ----------
        edges : array, (n, E)
        sites : array of str, (n,)
        covariates : array, (n, k)
        more : dict, optional
            Shift and scale of further sites, from :meth:`estimate`.
        """
        out = _double(edges).copy()
        known = {name: (self.shift[i], self.scale[i]) for i, name in enumerate(self.sites)} | (more or {})
        free = np.isfinite(self.sd)
        for site in np.unique(np.asarray(sites).astype(str)).tolist():
            if site not in known:
                continue
            rows = np.flatnonzero(np.asarray(sites).astype(str) == site)
            shift, scale = known[site]
            expected = self.mean[free] + covariates[rows] @ self.slopes[:, free]
            away = (out[np.ix_(rows, free)] - expected) / self.sd[free]
            out[np.ix_(rows, free)] = expected + self.sd[free] * (away - shift[free]) / scale[free]
        return out


def _double(edges: np.ndarray) -> np.ndarray:
    return np.asarray(edges, dtype=np.float64)


def _sums(
    source: Source, group: np.ndarray, n_groups: int, centre: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Return sums and sums of squares of centred edges by group, (groups, E) each; group -1 is left out."""
    totals: list[np.ndarray] = []
    for rows, edges in source():
        centred = centre(rows, _double(edges))
        if not totals:
            totals = [np.zeros((n_groups, centred.shape[1])) for _ in range(2)]
        for i in range(n_groups):
            mine = centred[group[rows] == i]
            totals[0][i] += mine.sum(axis=0)
            totals[1][i] += (mine**2).sum(axis=0)
    return totals[0], totals[1]


def _shrunk(first: np.ndarray, second: np.ndarray, n: float, free: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return gamma* and sqrt(delta*) of one site from the sums of its standardised edges.

    The two posteriors depend on each other and are iterated in turn. The change is relative to the signed shift, as in
    the authors' code, so that the iteration ends where theirs does.
    """
    shift, scale = np.zeros_like(first), np.ones_like(first)
    if not free.any():
        return shift, scale
    gamma = first[free] / n
    delta = np.maximum(second[free] - n * gamma**2, 0) / (n - 1)
    delta[delta == 0] = 1.0
    centre, spread = gamma.mean(), gamma.var(ddof=1) if len(gamma) > 1 else 0.0
    m, v = delta.mean(), delta.var(ddof=1) if len(delta) > 1 else 0.0
    if not (spread > 0 and v > 0):  # one edge, or all alike: nothing to borrow from
        shift[free], scale[free] = gamma, np.sqrt(delta)
        return shift, scale
    a, b = (2 * v + m**2) / v, (m * v + m**3) / v
    old_gamma, old_delta = gamma, delta
    for _ in range(MOST_STEPS):
        new_gamma = (spread * n * gamma + old_delta * centre) / (spread * n + old_delta)
        squares = second[free] - 2 * new_gamma * first[free] + n * new_gamma**2
        new_delta = (0.5 * squares + b) / (n / 2 + a - 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            changes = [np.abs(new_gamma - old_gamma) / old_gamma, np.abs(new_delta - old_delta) / old_delta]
        old_gamma, old_delta = new_gamma, new_delta
        if not max(float(np.nanmax(change, initial=0.0)) for change in changes) > CONVERGED:
            break
    shift[free], scale[free] = old_gamma, np.sqrt(old_delta)
    return shift, scale
