"""The split protocols: repeated random splits, folds, leave-one-site-out, and the splitter of the released code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import floor

import numpy as np

from bnt.cohort import Cohort
from bnt.errors import BadInput
from bnt.splits._split import Rows, Split
from bnt.splits._strata import (
    allocate,
    brought_together,
    check_fraction,
    classes_of,
    part_sizes,
    strata_of,
    thinned,
    units_of,
)

FIRST_STAGE_SEED = 42
LARGEST_SEED = 2**32 - 1  # of numpy's legacy generator, which the authors' code draws from


def _at_least_one(name: str, count: int) -> None:
    if count < 1:
        raise BadInput(f"{name} is {count}: ask for at least one.", name)


@dataclass(frozen=True)
class SiteStratifiedSplit:
    """Repeated random splits, stratified by site x label.

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
        Use only this share of the training set; validation and test sets do not change.

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

    def split(self, cohort: Cohort, label: str | np.ndarray | None) -> Iterator[Rows]:
        """Yield ``(train, val, test)`` positions of the cohort, sorted."""
        check_fraction(self.train_fraction)
        _at_least_one("n_splits", self.n_splits)
        classes = classes_of(cohort, label)
        units = units_of(cohort)
        wanted = part_sizes(len(cohort), self.sizes)
        strata = strata_of(cohort.sites, classes) if self.stratify else np.zeros(len(cohort), dtype=np.int64)
        level = classes if self.stratify else strata
        for repeat in range(self.n_splits):
            rng = np.random.default_rng([self.seed, repeat])  # split k is the same however many are asked for
            part = allocate(units, strata, level, wanted, rng)
            train, val, test = (np.flatnonzero(part == p) for p in range(3))
            if self.train_fraction < 1:
                n_keep = floor(len(cohort) * self.sizes[0] * self.train_fraction + 1e-9)
                train = thinned(train, n_keep, units, strata, level, rng)
            yield train, val, test


@dataclass(frozen=True)
class RandomSplit:
    """Repeated random splits without strata; groups stay together and sizes are exact.

    Parameters
    ----------
    n_splits, seed, sizes, train_fraction
        As in :class:`SiteStratifiedSplit`.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.simulate_cohort(n_subjects=40, n_rois=20, n_sites=2, seed=0)
    >>> splits = list(bnt.RandomSplit(n_splits=3, seed=0).split(cohort, "diagnosis"))
    >>> len(splits)
    3
    """

    n_splits: int = 20
    seed: int = 0
    sizes: tuple[float, float, float] = (0.7, 0.1, 0.2)
    train_fraction: float = 1.0

    def split(self, cohort: Cohort, label: str | np.ndarray | None) -> Iterator[Rows]:
        """Yield ``(train, val, test)`` positions of the cohort, sorted."""
        drawn = SiteStratifiedSplit(self.n_splits, self.seed, self.sizes, False, self.train_fraction)
        return drawn.split(cohort, label)


def _with_validation(
    protocol: RepeatedKFold | LeaveOneSiteOut,
    cohort: Cohort,
    rest: np.ndarray,
    classes: np.ndarray,
    units: np.ndarray,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Divide those who are not tested into training and validation, strata in proportion."""
    validation, train_fraction = protocol.validation, protocol.train_fraction
    if not 0 < validation < 1:
        raise BadInput(f"validation is {validation}: give the share of the training subjects, between 0 and 1.")
    check_fraction(train_fraction)
    n_val = max(1, floor(len(rest) * validation + 1e-9))
    if len(rest) <= n_val:
        raise BadInput(f"{len(rest)} subjects are left for training and validation: too few to be divided.")
    strata = np.zeros(len(cohort), dtype=np.int64)
    strata[rest] = strata_of(cohort.sites[rest], classes[rest])
    part = allocate(units[rest], strata[rest], classes[rest], np.array([len(rest) - n_val, n_val]), rng)
    train, val = rest[part == 0], rest[part == 1]
    if len(train) == 0 or len(val) == 0:
        raise BadInput("The groups are too large to leave both a training and a validation set: use fewer folds.")
    if train_fraction < 1:
        train = thinned(train, floor(len(train) * train_fraction + 1e-9), units, strata, classes, rng)
    return train, val


@dataclass(frozen=True)
class RepeatedKFold:
    """Repeated k-fold cross-validation, stratified by site x label; the validation set comes from the training folds.

    Parameters
    ----------
    n_folds : int
    n_repeats : int
    seed : int
    validation : float
        Share of the other folds that becomes validation: 1/8 of four fifths is a tenth of the cohort.
    train_fraction : float
        Keep this share of the training set.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.simulate_cohort(n_subjects=40, n_rois=20, n_sites=2, seed=0)
    >>> splits = list(bnt.RepeatedKFold(n_folds=4, seed=0).split(cohort, "diagnosis"))
    >>> len(splits)
    4
    """

    n_folds: int = 5
    n_repeats: int = 1
    seed: int = 0
    validation: float = 0.125
    train_fraction: float = 1.0

    def split(self, cohort: Cohort, label: str | np.ndarray | None) -> Iterator[Rows]:
        """Yield ``(train, val, test)`` positions of the cohort, fold by fold, repeat by repeat."""
        classes = classes_of(cohort, label)
        units = units_of(cohort)
        n_units = len(np.unique(units))
        if self.n_folds < 2 or self.n_folds > n_units:
            raise BadInput(f"{self.n_folds} folds are asked for: give between 2 and {n_units} (independent subjects).")
        _at_least_one("n_repeats", self.n_repeats)
        strata = strata_of(cohort.sites, classes)
        base, more = divmod(len(cohort), self.n_folds)
        sizes = np.array([base + (fold < more) for fold in range(self.n_folds)])
        for repeat in range(self.n_repeats):
            rng = np.random.default_rng([self.seed, repeat])
            fold_of = allocate(units, strata, classes, sizes, rng)
            for fold in range(self.n_folds):
                test = np.flatnonzero(fold_of == fold)
                if len(test) == 0:
                    raise BadInput(f"The groups are too large for {self.n_folds} folds: use fewer.")
                rng = np.random.default_rng([self.seed, repeat, fold])
                train, val = _with_validation(self, cohort, np.flatnonzero(fold_of != fold), classes, units, rng)
                yield train, val, test


def inner_folds(cohort: Cohort, label: str, outer: Split, n_folds: int = 5) -> list[Split]:
    """Return the inner folds of nested cross-validation: of the training and validation subjects of an outer split.

    Each is scored once (as the test set of its split); the others are trained on, with some held back to select an
    epoch: a :class:`RepeatedKFold` of the cohort without the test subjects of the outer split, of whom nothing is read.
    """
    rest = cohort.select(np.sort(np.concatenate(outer.rows(cohort)[:2])))
    folds = RepeatedKFold(n_folds=n_folds, seed=len(rest)).split(rest, label)
    return [Split.of(rest, rows, f"{outer.name}-inner{k}", outer.protocol) for k, rows in enumerate(folds)]


@dataclass(frozen=True)
class LeaveOneSiteOut:
    """Leave one site out: every site is the test set once; the validation set comes from the other sites, stratified.

    A subject of another site who shares a group or a scan with someone of the tested site is left out of that split.

    Parameters
    ----------
    seed : int
    validation : float
        Share of the other sites' subjects that becomes validation.
    train_fraction : float
        Keep this share of the training set.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.simulate_cohort(n_subjects=40, n_rois=20, n_sites=2, seed=0)
    >>> splits = list(bnt.LeaveOneSiteOut().split(cohort, "diagnosis"))
    >>> len(splits)
    2
    """

    seed: int = 0
    validation: float = 0.125
    train_fraction: float = 1.0

    def split(self, cohort: Cohort, label: str | np.ndarray | None) -> Iterator[Rows]:
        """Yield ``(train, val, test)`` positions of the cohort, sites in alphabetical order."""
        classes = classes_of(cohort, label)
        units = units_of(cohort)
        sites = np.unique(cohort.sites)
        if len(sites) < 2:
            raise BadInput(
                f"All {len(cohort)} subjects are of site {sites[0]!r}: leave-one-site-out needs two sites or more."
            )
        for number, site in enumerate(sites):
            tested = cohort.sites == site
            tied = np.isin(units, units[tested])
            rng = np.random.default_rng([self.seed, number])
            train, val = _with_validation(self, cohort, np.flatnonzero(~tied), classes, units, rng)
            yield train, val, np.flatnonzero(tested)


@dataclass(frozen=True)
class ReleasedSplit:
    """The authors' released splitter: one training set for all repeats, validation and test swapped.

    It differs from the paper's text. The training subjects are the same in every repeat (the first stage is seeded with
    42), and strata are sites only. The two remaining sets are swapped, so models are selected on the larger one (203
    subjects of ABIDE) and tested on the smaller one (100).

    The subjects are exactly those of the authors' two stages after ``numpy.random.seed(seed)``, one repeat after the
    other. There is one exception: if the authors' splitter would divide a family or a duplicated scan, its members are
    brought together by exchanging them with subjects of the same site (and class, if possible). A member without such a
    partner is left out.

    Parameters
    ----------
    n_splits : int
    seed : int
        Seed of the second stage, which divides the subjects outside the training set. The authors set none.
    stratify : bool
        False ignores the sites in both stages, as the authors' code does for ABCD. Each repeat then has its own
        training set, and nothing is swapped (validation is the smaller set, test the larger).
    train_fraction : float
        As released: the training set is drawn smaller, and the set called validation has floor(0.2 n) subjects
        instead of the rest.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.simulate_cohort(n_subjects=40, n_rois=20, n_sites=2, seed=0)
    >>> splits = list(bnt.ReleasedSplit(n_splits=2, seed=0).split(cohort, "diagnosis"))
    >>> len(splits)
    2
    """

    n_splits: int = 5
    seed: int = 0
    stratify: bool = True
    train_fraction: float = 1.0

    def split(self, cohort: Cohort, label: str | np.ndarray | None) -> Iterator[Rows]:
        """Yield ``(train, val, test)`` positions of the cohort, sorted."""
        check_fraction(self.train_fraction)
        _at_least_one("n_splits", self.n_splits)
        if not 0 <= self.seed <= LARGEST_SEED:
            raise BadInput(f"The seed of the released splitter is {self.seed}: give one from 0 to {LARGEST_SEED}.")
        classes, units = classes_of(cohort, label), units_of(cohort)
        n_train, n_small, n_large = released_sizes(len(cohort), self.train_fraction)
        everyone = np.arange(len(cohort))
        drawn = np.random.RandomState(self.seed)  # noqa: NPY002 - as the authors' code, draw for draw

        for _ in range(self.n_splits):
            first = FIRST_STAGE_SEED if self.stratify else drawn
            train, rest = self._stage(cohort, everyone, n_train, n_small + n_large, first)
            train, rest = brought_together(train, rest, cohort.sites, classes, units)
            _refuse_empty(len(cohort), train, rest[n_large:])
            smaller, larger = self._stage(cohort, rest, len(rest) - n_large, n_large, drawn)
            smaller, larger = brought_together(smaller, larger, cohort.sites, classes, units)
            _refuse_empty(len(cohort), train, smaller, larger)
            val, test = (larger, smaller) if self.stratify else (smaller, larger)
            yield np.sort(train), np.sort(val), np.sort(test)

    def _stage(
        self, cohort: Cohort, among: np.ndarray, n_first: int, n_second: int, seed: int | np.random.RandomState
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return two sets in the order they are drawn in, on which the next stage depends."""
        from sklearn.model_selection import ShuffleSplit, StratifiedShuffleSplit

        kind = StratifiedShuffleSplit if self.stratify else ShuffleSplit
        draw = kind(n_splits=1, train_size=n_first, test_size=n_second, random_state=seed)
        try:
            first, second = next(draw.split(among, _large_enough(cohort.sites[among])))
        except ValueError as error:
            raise BadInput(f"The released splitter cannot divide {len(among)} subjects by site: {error}.") from error
        return among[first], among[second]


def _refuse_empty(n: int, *parts: np.ndarray) -> None:
    """Refuse sets of which one lost all its subjects when groups were brought together."""
    if min(map(len, parts)) == 0:
        raise BadInput(f"The groups of {n} subjects are too large for the released splitter: use another protocol.")


def released_sizes(n: int, train_fraction: float = 1.0) -> tuple[int, int, int]:
    """Return the sizes of the training, the smaller and the larger set, truncated as the authors' code does.

    Examples
    --------
    >>> released_sizes(1009)
    (706, 100, 203)
    >>> released_sizes(1009, 0.5)
    (353, 100, 201)
    """
    n_train, n_small = int(n * 0.7 * train_fraction), int(n * 0.1)
    n_large = n - n_train - n_small if train_fraction == 1 else int(n * (1 - 0.1 - 0.7))
    if min(n_train, n_small, n_large) < 1:
        raise BadInput(f"{n} subjects are too few for the released splitter: a set would be empty.")
    return n_train, n_small, n_large


def _large_enough(sites: np.ndarray) -> np.ndarray:
    """Return site codes in which sites of one subject are pooled, with the largest site if need be."""
    _, codes, counts = np.unique(sites, return_inverse=True, return_counts=True)
    alone = counts[codes] < 2
    if alone.sum() == 1:
        return np.where(alone, counts.argmax(), codes)
    return np.where(alone, len(counts), codes)
