"""Training, validation and test parts drawn at random, again and again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import floor

import numpy as np

from bnt.cohort import Cohort
from bnt.errors import BadInput
from bnt.splits.allocate import allocate
from bnt.splits.strata import classes_of, strata_of, units_of

Split = tuple[np.ndarray, np.ndarray, np.ndarray]


def part_sizes(n: int, shares: tuple[float, float, float]) -> np.ndarray:
    """Return the number of training, validation and test subjects: shares rounded down, the rest is test.

    Examples
    --------
    >>> part_sizes(1009, (0.7, 0.1, 0.2)).tolist()
    [706, 100, 203]
    """
    if len(shares) != 3 or min(shares) <= 0 or abs(sum(shares) - 1) > 1e-6:
        raise BadInput(f"Part sizes {tuple(shares)} are not three positive shares that sum to 1.")
    train, val = floor(n * shares[0] + 1e-9), floor(n * shares[1] + 1e-9)
    sizes = np.array([train, val, n - train - val])
    if sizes.min() < 1:
        raise BadInput(f"{n} subjects are too few to be split into shares of {tuple(shares)}: a part would be empty.")
    return sizes


def check_fraction(train_fraction: float) -> None:
    """Refuse a share of the training part outside (0, 1]."""
    if not 0 < train_fraction <= 1:
        raise BadInput(f"train_fraction is {train_fraction}: give a share of the training part in (0, 1].")


def thinned(
    train: np.ndarray,
    n_keep: int,
    units: np.ndarray,
    strata: np.ndarray,
    classes: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """Return ``n_keep`` of the training subjects, strata in proportion, for learning curves."""
    if n_keep < 1:
        raise BadInput(f"The fraction leaves no one of {len(train)} training subjects: choose a larger one.")
    if n_keep >= len(train):
        return train
    sizes = np.array([n_keep, len(train) - n_keep])
    pooled = np.unique(strata[train], return_inverse=True)[1]
    part = allocate(units[train], pooled, classes[train], sizes, rng)
    return train[part == 0]


def _shuffled(
    cohort: Cohort,
    label: str | np.ndarray | None,
    *,
    n_splits: int,
    seed: int,
    sizes: tuple[float, float, float],
    stratify: bool,
    train_fraction: float,
) -> Iterator[Split]:
    check_fraction(train_fraction)
    if n_splits < 1:
        raise BadInput(f"n_splits is {n_splits}: ask for at least one split.")
    classes = classes_of(cohort, label)
    units = units_of(cohort)
    wanted = part_sizes(len(cohort), sizes)
    strata = strata_of(cohort.sites, classes) if stratify else np.zeros(len(cohort), dtype=np.int64)
    level = classes if stratify else strata
    for repeat in range(n_splits):
        rng = np.random.default_rng([seed, repeat])  # split k is the same however many are asked for
        part = allocate(units, strata, level, wanted, rng)
        train, val, test = (np.flatnonzero(part == p) for p in range(3))
        if train_fraction < 1:
            n_keep = floor(len(cohort) * sizes[0] * train_fraction + 1e-9)
            train = thinned(train, n_keep, units, strata, level, rng)
        yield train, val, test


@dataclass(frozen=True)
class SiteStratifiedSplit:
    """Repeated random splits in which every site x label stratum is shared out evenly.

    The sizes are exact (706 / 100 / 203 for the 1,009 subjects of ABIDE) and each stratum is within one subject
    of its quota. Strata with fewer than three subjects are pooled over sites, class by class. Subjects who share
    a group or a scan stay together. Scores are cut into five quantiles.

    Parameters
    ----------
    n_splits : int
    seed : int
        Split k depends on the seed and k only.
    sizes : tuple of float
        Shares of training, validation and test; rounded down, the rest is test.
    stratify : bool
        False ignores sites and labels, as :class:`RandomSplit` does.
    train_fraction : float
        Keep this share of the training part; validation and test stay as they are.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.simulate_cohort(n_subjects=40, n_rois=20, n_sites=2, seed=0)
    >>> train, val, test = next(bnt.SiteStratifiedSplit(n_splits=1, seed=0).split(cohort, "diagnosis"))
    >>> len(train), len(val), len(test)
    (28, 4, 8)
    """

    n_splits: int = 20
    seed: int = 0
    sizes: tuple[float, float, float] = (0.7, 0.1, 0.2)
    stratify: bool = True
    train_fraction: float = 1.0

    def split(self, cohort: Cohort, label: str | np.ndarray | None) -> Iterator[Split]:
        """Yield ``(train, val, test)`` positions of the cohort, sorted."""
        return _shuffled(
            cohort,
            label,
            n_splits=self.n_splits,
            seed=self.seed,
            sizes=self.sizes,
            stratify=self.stratify,
            train_fraction=self.train_fraction,
        )


@dataclass(frozen=True)
class RandomSplit:
    """Repeated random splits without strata; groups stay together and sizes are exact.

    Parameters
    ----------
    n_splits, seed, sizes, train_fraction
        As in :class:`SiteStratifiedSplit`.
    """

    n_splits: int = 20
    seed: int = 0
    sizes: tuple[float, float, float] = (0.7, 0.1, 0.2)
    train_fraction: float = 1.0

    def split(self, cohort: Cohort, label: str | np.ndarray | None) -> Iterator[Split]:
        """Yield ``(train, val, test)`` positions of the cohort, sorted."""
        return _shuffled(
            cohort,
            label,
            n_splits=self.n_splits,
            seed=self.seed,
            sizes=self.sizes,
            stratify=False,
            train_fraction=self.train_fraction,
        )
