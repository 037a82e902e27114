"""The splitter of the paper's released code, kept by name for comparison.

What it does differently from the paper's text: the training subjects are the same in every repeat (its first
stage is seeded with 42), strata are sites only, and the two remaining parts are swapped, so that models are selected
on the larger one (203 subjects of ABIDE) and tested on the smaller (100).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import floor

import numpy as np

from bnt.cohort import Cohort
from bnt.errors import BadInput
from bnt.splits.shuffle import Split, check_fraction, part_sizes
from bnt.splits.strata import classes_of, units_of

FIRST_STAGE_SEED = 42


@dataclass(frozen=True)
class ReleasedSplit:
    """The authors' released splitter: one training set for all repeats, validation and test swapped.

    Two things are ours. The second stage is seeded, so that it can be repeated. A group or scan that the authors'
    splitter would tear apart is brought together by exchanging its stray members with subjects of the same site
    (and class, where there is one); a stray for whom there is no partner is left out.

    Parameters
    ----------
    n_splits : int
    seed : int
        Of the second stage, which divides the subjects who are not trained on.
    stratify : bool
        False draws both stages without regard to the sites.
    train_fraction : float
        As released: the training set is drawn smaller, and the part called validation has floor(0.2 n) subjects
        instead of the rest.
    """

    n_splits: int = 5
    seed: int = 0
    stratify: bool = True
    train_fraction: float = 1.0

    def split(self, cohort: Cohort, label: str | np.ndarray | None) -> Iterator[Split]:
        """Yield ``(train, val, test)`` positions of the cohort, sorted."""
        check_fraction(self.train_fraction)
        if self.n_splits < 1:
            raise BadInput(f"n_splits is {self.n_splits}: ask for at least one split.")
        classes, units = classes_of(cohort, label), units_of(cohort)
        n = len(cohort)
        n_train, n_small, n_large = part_sizes(n, (0.7, 0.1, 0.2)).tolist()
        if self.train_fraction < 1:
            n_train = floor(n * 0.7 * self.train_fraction + 1e-9)
            n_large = floor(n * 0.2 + 1e-9)
        everyone = np.arange(n)
        train, rest = self._stage(cohort, everyone, n_train, n_small + n_large, FIRST_STAGE_SEED)
        train, rest = brought_together(train, rest, cohort.sites, classes, units)
        for repeat in range(self.n_splits):
            second = int(np.random.default_rng([self.seed, repeat]).integers(2**31))
            smaller, larger = self._stage(cohort, rest, len(rest) - n_large, n_large, second)
            smaller, larger = brought_together(smaller, larger, cohort.sites, classes, units)
            yield train, larger, smaller

    def _stage(
        self, cohort: Cohort, among: np.ndarray, n_first: int, n_second: int, seed: int
    ) -> tuple[np.ndarray, np.ndarray]:
        from sklearn.model_selection import ShuffleSplit, StratifiedShuffleSplit

        kind = StratifiedShuffleSplit if self.stratify else ShuffleSplit
        draw = kind(n_splits=1, train_size=n_first, test_size=n_second, random_state=seed)
        try:
            first, second = next(draw.split(among, _large_enough(cohort.sites[among])))
        except ValueError as error:
            raise BadInput(f"The released splitter cannot divide {len(among)} subjects by site: {error}.") from error
        return np.sort(among[first]), np.sort(among[second])


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
    """Return two parts of which no unit is in both, by as few exchanges of subjects as are needed."""
    side = dict.fromkeys(first.tolist(), 0) | dict.fromkeys(second.tolist(), 1)
    names, counts = np.unique(units, return_counts=True)
    alone = np.isin(units, names[counts == 1])
    for unit in names[counts > 1]:
        members = [i for i in np.flatnonzero(units == unit).tolist() if i in side]
        if len({side[i] for i in members}) < 2:
            continue
        home = round(sum(side[i] for i in members) / len(members) - 1e-9)  # the majority's side, else the first
        for stray in [i for i in members if side[i] != home]:
            partners = [j for j, s in side.items() if s == home and alone[j] and sites[j] == sites[stray]]
            if partners:
                same_class = [j for j in partners if classes[j] == classes[stray]]
                partner = min(same_class or partners)
                side[stray], side[partner] = home, 1 - home
                alone[partner] = False  # moved once is enough
            else:
                del side[stray]
    parts = [np.array(sorted(i for i, s in side.items() if s == p), dtype=np.int64) for p in (0, 1)]
    return parts[0], parts[1]
