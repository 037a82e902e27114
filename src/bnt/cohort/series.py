"""The time series of a cohort: one (volumes, ROIs) array a subject, kept end to end in one array."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256

import numpy as np


class Series(Sequence[np.ndarray]):
    """Time series of different lengths, each a view of one (sum of volumes, V) array.

    Parameters
    ----------
    stacked : array, (sum of volumes, V)
    starts : array of int, (subjects,)
        Row at which each subject's series begins.
    lengths : array of int, (subjects,)
        Number of volumes of each subject.
    """

    def __init__(self, stacked: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> None:
        self.stacked = stacked
        self.starts = starts
        self.lengths = lengths

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, i):
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        start = int(self.starts[i])
        return self.stacked[start : start + int(self.lengths[i])]

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[i] for i in range(len(self)))

    def select(self, rows: np.ndarray) -> Series:
        """Return the series of some subjects; nothing is copied."""
        return Series(self.stacked, self.starts[rows], self.lengths[rows])

    def digest(self) -> str:
        """Return a digest of the lengths and of everyone's first and last volume: cheap, and changed by
        other preprocessing, though not by an edit of a volume between them.
        """
        found = sha256(np.asarray(self.lengths, dtype=np.int64).tobytes())
        for one in self:
            found.update(np.ascontiguousarray(one[[0, -1]] if len(one) else one, dtype=np.float32).tobytes())
        return found.hexdigest()

    def __repr__(self) -> str:
        span = f"{self.lengths.min()}-{self.lengths.max()}" if len(self) else "no"
        return f"Series({len(self)} subjects, {span} volumes, {self.stacked.shape[1]} ROIs)"
