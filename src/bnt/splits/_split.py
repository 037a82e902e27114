"""One split: its name and the subjects of its three parts, from the protocol to the report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

import numpy as np

from bnt.cohort import Cohort
from bnt.errors import BadInput

PARTS = ("train", "validation", "test")  # in files and tables
SPOKEN = {"train": "training", "validation": "validation", "test": "test"}  # in sentences
Rows = tuple[np.ndarray, np.ndarray, np.ndarray]


class SplitName(NamedTuple):
    """What the name of a split says.

    Parameters
    ----------
    source : str
        A protocol, or the file name of a table.
    seed : int or None
        Of the protocol; a table has none.
    short : str
        The split within it: ``split0``, a site, a column of the table.
    """

    source: str
    seed: int | None
    short: str

    @classmethod
    def parse(cls, text: str) -> SplitName:
        """Read a name as configurations and study tables keep it.

        Examples
        --------
        >>> SplitName.parse("leave-one-site-out:0:NYU")
        SplitName(source='leave-one-site-out', seed=0, short='NYU')
        >>> SplitName.parse("splits.csv:seed100")
        SplitName(source='splits.csv', seed=None, short='seed100')
        """
        head, _, short = text.rpartition(":")
        source, _, seed = head.rpartition(":")
        return cls(source, int(seed), short) if source and seed.isdigit() else cls(head, None, short)

    def __str__(self) -> str:
        """Return the name as it is kept."""
        return ":".join(str(word) for word in self if word not in (None, ""))


@dataclass(frozen=True)
class Split:
    """Who is trained on, selected on and tested on, by participant id.

    Parameters
    ----------
    name : str
        Where it comes from: ``site-stratified:0:split3``, ``splits.csv:seed100`` (see :class:`SplitName`).
    train, validation, test : tuple of str
        Participant ids.
    protocol : str
        The protocol that made it, or the path of its table.

    Examples
    --------
    >>> from bnt import Split
    >>> split = Split("mine", train=("sub-01", "sub-02"), validation=("sub-03",), test=("sub-04",))
    >>> split.sizes
    (2, 1, 1)
    """

    name: str
    train: tuple[str, ...]
    validation: tuple[str, ...]
    test: tuple[str, ...]
    protocol: str = ""

    @classmethod
    def of(cls, cohort: Cohort, rows: Sequence[np.ndarray], name: str = "", protocol: str = "") -> Split:
        """Return the split of three arrays of positions in a cohort, as splitters yield them."""
        train, validation, test = (tuple(cohort.ids[np.asarray(part, dtype=np.int64)].tolist()) for part in rows)
        return cls(name, train, validation, test, protocol)

    @property
    def parts(self) -> dict[str, tuple[str, ...]]:
        """The three parts under their names."""
        return dict(zip(PARTS, (self.train, self.validation, self.test)))

    @property
    def sizes(self) -> tuple[int, int, int]:
        """How many subjects are in the training, validation and test part."""
        return len(self.train), len(self.validation), len(self.test)

    @property
    def short(self) -> str:
        """The last word of the name: the column of a table, and a word of a run's folder."""
        return SplitName.parse(self.name).short

    def rows(self, cohort: Cohort) -> Rows:
        """Return the positions in a cohort of training, validation and test subjects, in their order.

        Raises
        ------
        BadInput
            The cohort lacks a subject, whom the message names.
        """
        position = {name: i for i, name in enumerate(cohort.ids.tolist())}
        for name in (*self.train, *self.validation, *self.test):
            if name not in position:
                where = cohort.path or "The cohort"
                raise BadInput(f"{where} has no participant {name!r}, whom split {self.name or 'given'} names.")
        train, validation, test = (np.array([position[n] for n in p], dtype=np.int64) for p in self.parts.values())
        return train, validation, test

    def digest(self) -> str:
        """Return the sha256 of the three lists of ids, which a run keeps as ``split_sha256``."""
        return sha256(json.dumps(list(self.parts.values())).encode()).hexdigest()
