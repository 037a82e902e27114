"""Centred kernels: with far more edges than subjects, n x n matrices hold all that a linear model needs.

Every kernel is centred on the training subjects (on each site's, where sites are centred) and divided by the mean of
its diagonal over them. Penalties then mean the same whatever the number of ROIs and the spread of the features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

COLUMNS_AT_ONCE = 8192


def gram(features: np.ndarray) -> np.ndarray:
    """Return all inner products in double precision: (n, F) float32 -> (n, n) float64."""
    total = np.zeros((len(features), len(features)))
    for start in range(0, features.shape[1], COLUMNS_AT_ONCE):
        part = features[:, start : start + COLUMNS_AT_ONCE].astype(np.float64)
        total += part @ part.T
    return total


def combine(features: np.ndarray, dual: np.ndarray) -> np.ndarray:
    """Return the weights that a combination of subjects stands for: (n, F), (n, k) -> (k, F) float64."""
    out = np.empty((dual.shape[1], features.shape[1]))
    for start in range(0, features.shape[1], COLUMNS_AT_ONCE):
        part = slice(start, start + COLUMNS_AT_ONCE)
        out[:, part] = dual.T @ features[:, part].astype(np.float64)
    return out


def project(features: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return inner products with weights, in double precision: (n, F), (k, F) -> (n, k)."""
    total = np.zeros((len(features), len(weights)))
    for start in range(0, features.shape[1], COLUMNS_AT_ONCE):
        part = slice(start, start + COLUMNS_AT_ONCE)
        total += features[:, part].astype(np.float64) @ weights[:, part].T
    return total


@dataclass(frozen=True)
class Centring:
    """Whose mean is subtracted from whom.

    Group 0 is everyone in training; group ``1 + s`` is site ``s``. A subject of a site that training has not seen
    belongs to group 0: the mean of all training subjects is subtracted. No mean is ever taken over new subjects,
    so that a prediction does not depend on who else is in the batch.

    Attributes
    ----------
    names : tuple of str
        Sites seen in training; empty where sites are not centred.
    averaging : array, (1 + sites, n)
        Row g averages the training subjects of group g.
    """

    names: tuple[str, ...]
    averaging: np.ndarray

    @classmethod
    def fit(cls, sites: np.ndarray | None, weight: np.ndarray) -> Centring:
        """Fit on the training subjects' sites (None: one mean for all) and weights."""
        names = () if sites is None else tuple(np.unique(sites[weight > 0]).tolist())
        rows = [weight] + [weight * (sites == name) for name in names]
        return cls(names, np.stack([row / row.sum() for row in rows]))

    def groups(self, sites: np.ndarray | None, n: int) -> np.ndarray:
        """Return the group of each of ``n`` subjects."""
        return site_groups(self.names, sites, n)

    def kernel(self, of: np.ndarray, among: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Return the centred kernel of any subjects with the training subjects.

        Parameters
        ----------
        of : array, (m, n)
            Inner products of the subjects with the training subjects.
        among : array, (n, n)
            Those among the training subjects.
        rows, columns : array of int, (m,) and (n,)
            Groups of the subjects and of the training subjects.
        """
        means = self.averaging @ among  # (groups, n)
        between = means @ self.averaging.T  # (groups, groups)
        return of - means[rows] - (of @ self.averaging.T)[:, columns] + between[np.ix_(rows, columns)]

    def spread(self, dual: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Return the combination of raw features that equals a combination ``dual`` of centred ones, (n, k)."""
        per_group = np.zeros((len(self.averaging), dual.shape[1]))
        np.add.at(per_group, columns, dual)
        return dual - self.averaging.T @ per_group


def site_groups(names: tuple[str, ...], sites: np.ndarray | None, n: int) -> np.ndarray:
    """Return 1 + the position of each subject's site among ``names``; 0 where it is not there or not known."""
    if sites is None or not names:
        return np.zeros(n, dtype=np.int64)
    position = {name: 1 + i for i, name in enumerate(names)}
    return np.array([position.get(str(site), 0) for site in sites], dtype=np.int64)
