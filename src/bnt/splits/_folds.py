"""Splits in which every subject, or every site, is tested once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import floor

import numpy as np

from bnt.cohort import Cohort
from bnt.errors import BadInput
from bnt.splits._shuffle import allocate, check_fraction, thinned
from bnt.splits._split import Rows
from bnt.splits._strata import classes_of, strata_of, units_of


def _with_validation(
    cohort: Cohort,
    rest: np.ndarray,
    classes: np.ndarray,
    units: np.ndarray,
    *,
    validation: float,
    train_fraction: float,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Divide those who are not tested into training and validation, strata in proportion."""
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
        raise BadInput("The groups are too large to leave both a training and a validation part: use fewer folds.")
    if train_fraction < 1:
        train = thinned(train, floor(len(train) * train_fraction + 1e-9), units, strata, classes, rng)
    return train, val


@dataclass(frozen=True)
class RepeatedKFold:
    """k folds, each tested once per repeat, stratified by site x label; validation comes from the other folds.

    Parameters
    ----------
    n_folds : int
    n_repeats : int
    seed : int
    validation : float
        Share of the other folds that becomes validation: 1/8 of four fifths is a tenth of the cohort.
    train_fraction : float
        Keep this share of the training part.

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
        if self.n_repeats < 1:
            raise BadInput(f"n_repeats is {self.n_repeats}: ask for at least one.")
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
                train, val = _with_validation(
                    cohort,
                    np.flatnonzero(fold_of != fold),
                    classes,
                    units,
                    validation=self.validation,
                    train_fraction=self.train_fraction,
                    rng=np.random.default_rng([self.seed, repeat, fold]),
                )
                yield train, val, test


@dataclass(frozen=True)
class LeaveOneSiteOut:
    """Every site tested once by models that never saw it; validation comes from the other sites, stratified.

    A subject of another site who shares a group or a scan with someone of the tested site is left out of that split.

    Parameters
    ----------
    seed : int
    validation : float
        Share of the other sites' subjects that becomes validation.
    train_fraction : float
        Keep this share of the training part.

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
            raise BadInput(f"All {len(cohort)} subjects are of site {sites[0]!r}: one cannot be left out.")
        for number, site in enumerate(sites):
            tested = cohort.sites == site
            tied = np.isin(units, units[tested])
            train, val = _with_validation(
                cohort,
                np.flatnonzero(~tied),
                classes,
                units,
                validation=self.validation,
                train_fraction=self.train_fraction,
                rng=np.random.default_rng([self.seed, number]),
            )
            yield train, val, np.flatnonzero(tested)
