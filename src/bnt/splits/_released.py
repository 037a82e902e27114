"""The splitter of the paper's released code, kept by name for comparison.

What it does differently from the paper's text: the training subjects are the same in every repeat (its first
stage is seeded with 42), strata are sites only, and the two remaining parts are swapped, so that models are selected
on the larger one (203 subjects of ABIDE) and tested on the smaller (100).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bnt.cohort import Cohort
from bnt.errors import BadInput
from bnt.splits._shuffle import check_fraction
from bnt.splits._split import Rows
from bnt.splits._strata import classes_of, units_of

FIRST_STAGE_SEED = 42
LARGEST_SEED = 2**32 - 1  # of numpy's legacy generator, which the authors' code draws from


@dataclass(frozen=True)
class ReleasedSplit:
    """The authors' released splitter: one training set for all repeats, validation and test swapped.

    Subject for subject it is what the authors' two stages give after ``numpy.random.seed(seed)``, one repeat after
    the other. One thing is ours: a group or scan that the authors' splitter would tear apart is brought together by
    exchanging its stray members with subjects of the same site (and class, where there is one); a stray for whom
    there is no partner is left out.

    Parameters
    ----------
    n_splits : int
    seed : int
        Of the second stage, which divides the subjects who are not trained on. The authors set none.
    stratify : bool
        False draws both stages without regard to the sites, each repeat with a training set of its own.
    train_fraction : float
        As released: the training set is drawn smaller, and the part called validation has floor(0.2 n) subjects
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
        if self.n_splits < 1:
            raise BadInput(f"n_splits is {self.n_splits}: ask for at least one split.")
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
            smaller, larger = self._stage(cohort, rest, len(rest) - n_large, n_large, drawn)
            smaller, larger = brought_together(smaller, larger, cohort.sites, classes, units)
            yield np.sort(train), np.sort(larger), np.sort(smaller)

    def _stage(
        self, cohort: Cohort, among: np.ndarray, n_first: int, n_second: int, seed: int | np.random.RandomState
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return two parts in the order they are drawn in, on which the next stage depends."""
        from sklearn.model_selection import ShuffleSplit, StratifiedShuffleSplit

        kind = StratifiedShuffleSplit if self.stratify else ShuffleSplit
        draw = kind(n_splits=1, train_size=n_first, test_size=n_second, random_state=seed)
        try:
            first, second = next(draw.split(among, _large_enough(cohort.sites[among])))
        except ValueError as error:
            raise BadInput(f"The released splitter cannot divide {len(among)} subjects by site: {error}.") from error
        return among[first], among[second]


def released_sizes(n: int, train_fraction: float = 1.0) -> tuple[int, int, int]:
    """Return the sizes of the training, the smaller and the larger part, truncated as the authors' code does.

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
        raise BadInput(f"{n} subjects are too few for the released splitter: a part would be empty.")
    return n_train, n_small, n_large


def _large_enough(sites: np.ndarray) -> np.ndarray:
    """Return site codes in which sites of one subject are pooled, with the largest site if need be."""
    _, codes, counts = np.unique(sites, return_inverse=True, return_counts=True)
    alone = counts[codes] < 2
    if alone.sum() == 1:
        return np.where(alone, counts.argmax(), codes)
    return np.where(alone, len(counts), codes)


def brought_together(
    first: np.ndarray, second: np.ndarray, sites: np.ndarray, classes: np.ndarray, units: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return two parts of which no unit is in both, by as few exchanges of subjects as are needed.

    Subjects who are exchanged take each other's places; everyone else stays where they are.
    """
    places = np.concatenate([first, second]).astype(np.int64)
    side = np.repeat([0, 1], [len(first), len(second)])  # of each place
    names, counts = np.unique(units, return_counts=True)
    alone = np.isin(units, names[counts == 1])
    for unit in names[counts > 1]:
        mine = np.flatnonzero((units[places] == unit) & (places >= 0))
        if len(set(side[mine])) < 2:
            continue
        home = round(side[mine].mean() - 1e-9)  # the majority's side, else the first
        for stray in mine[side[mine] != home]:
            subject = places[stray]
            partners = np.flatnonzero(
                (side == home) & alone[places] & (sites[places] == sites[subject]) & (places >= 0)
            )
            if partners.size:
                same_class = partners[classes[places[partners]] == classes[subject]]
                among = same_class if same_class.size else partners
                partner = among[places[among].argmin()]
                alone[places[partner]] = False  # moved once is enough
                places[stray], places[partner] = places[partner], subject
            else:
                places[stray] = -1
    return places[(side == 0) & (places >= 0)], places[(side == 1) & (places >= 0)]
