"""What a classical model reads: edge vectors, sites, time series; and confounds as a design matrix.

A confound is a column of ``participants.tsv``: numbers as they are, words as one column per level but the first. A
missing number counts as the training subjects' mean, a word that training has not seen as the first level.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from bnt.cohort import Cohort
from bnt.cohort._scans import Series
from bnt.errors import BadInput
from bnt.models.classical._subject_matrices import content_of


@dataclass(frozen=True)
class Inputs:
    """Subjects as a classical model sees them.

    Attributes
    ----------
    edges : array, (n, E) float32
        Connectomes in the order of :mod:`bnt.cohort._triangle`.
    kind : str
        What the entries are: a name of :data:`bnt.connectivity.KINDS`, or ``unknown``.
    diagonal : float
        What stands on the diagonal of the square matrices.
    sites : array of str, (n,), or None
    series : Series or None
        Time series of the same subjects.
    people : DataFrame or None
        Their rows of ``participants.tsv``: confounds, and who is of one family.
    atlas : str
    others : mapping
        The same subjects in the other atlases of the cohort, by name; empty unless a model asks for them.
    content : str
        A digest of edges and series, by which the runs of a study find what they share; empty outside one.

    Examples
    --------
    >>> import bnt
    >>> from bnt.models.classical._inputs import Inputs
    >>> cohort = bnt.simulate_cohort(n_subjects=40, n_rois=20, n_sites=2, seed=0)
    >>> inputs = Inputs.of(cohort)
    >>> inputs.take([0, 1, 2]).edges.shape
    (3, 190)
    """

    edges: np.ndarray
    kind: str = "unknown"
    diagonal: float = 1.0
    sites: np.ndarray | None = None
    series: Series | None = None
    people: pd.DataFrame | None = None
    atlas: str = ""
    others: Mapping[str, Inputs] = field(default_factory=dict)
    content: str = ""

    def __post_init__(self) -> None:
        if self.edges.ndim != 2:
            raise BadInput(f"Edges of shape {self.edges.shape} were given: give (subjects, V(V-1)/2).")
        for name, part in (("sites", self.sites), ("series", self.series), ("people", self.people)):
            if part is not None and len(part) != len(self.edges):
                raise BadInput(f"There are {len(self.edges)} connectomes and {len(part)} {name}: give one per subject.")

    def __len__(self) -> int:
        return len(self.edges)

    @classmethod
    def of(cls, cohort: Cohort, rows: Any = None, every_atlas: bool = False) -> Inputs:
        """Return the inputs of a cohort, or of some of its subjects (positions, or a mask)."""
        others = [name for name in cohort.atlases if name != cohort.atlas] if every_atlas else []
        chosen = cohort if rows is None else cohort.select(rows)
        return cls(
            edges=chosen.edges(np.arange(len(chosen))),
            kind=chosen.kind,
            diagonal=chosen.diagonal,
            sites=np.asarray(chosen.sites).astype(str),
            series=chosen.timeseries,
            people=chosen.participants,
            atlas=chosen.atlas,
            others={name: cls.of(chosen.with_atlas(name)) for name in others},
            content=content_of(chosen),
        )

    @property
    def families(self) -> np.ndarray | None:
        """Family of each subject, who stay together in inner folds; None where the table has none."""
        if self.people is None or "family" not in self.people:
            return None
        return self.people["family"].astype(str).to_numpy()

    def by_atlas(self) -> dict[str, Inputs]:
        """Return the inputs of each atlas, the cohort's own first."""
        return {self.atlas: self, **self.others}

    def take(self, rows: Any) -> Inputs:
        """Return some of the subjects: positions, or a boolean mask."""
        rows = np.asarray(rows)
        if rows.dtype == bool:
            rows = np.flatnonzero(rows)
        return Inputs(
            edges=self.edges[rows],
            kind=self.kind,
            diagonal=self.diagonal,
            sites=None if self.sites is None else self.sites[rows],
            series=None if self.series is None else self.series.select(rows),
            people=None if self.people is None else self.people.iloc[rows],
            atlas=self.atlas,
            others={name: other.take(rows) for name, other in self.others.items()},
        )


# -- confounds -----------------------------------------------------------------------------------------


class Confounds:
    """Columns of people as a design matrix.

    Parameters
    ----------
    names : tuple of str
        Columns of ``participants.tsv``.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.facts: dict[str, Any] = {}  # column -> the mean of numbers, or the levels of words

    def fit(self, people: pd.DataFrame | None, weight: np.ndarray) -> Confounds:
        """Learn means and levels from training subjects."""
        for name in self.names:
            column = self._column(people, name)
            numbers = pd.to_numeric(column, errors="coerce")
            known = numbers.notna().to_numpy()
            if (numbers.notna() | column.isna()).all() and (known & (weight > 0)).any():
                self.facts[name] = float(np.average(numbers[known], weights=weight[known]))
                continue
            words = column[column.notna().to_numpy() & (weight > 0)].astype(str)
            if words.empty:
                raise BadInput(f"Column {name!r} of participants.tsv is empty for all training subjects: leave it out.")
            self.facts[name] = sorted(words.unique().tolist())
        return self

    @staticmethod
    def _column(people: pd.DataFrame | None, name: str) -> pd.Series:
        if people is None or name not in people:
            there = "" if people is None else f"; there are {', '.join(map(str, people.columns))}"
            raise BadInput(f"The confound {name!r} is not a column of participants.tsv of these subjects{there}.")
        return people[name].replace("n/a", np.nan)

    def design(self, people: pd.DataFrame | None) -> np.ndarray:
        """Return (n, k): deviations of numbers from the training mean, and one column per level."""
        columns = []
        for name, fact in self.facts.items():
            column = self._column(people, name)
            if isinstance(fact, float):
                columns.append(pd.to_numeric(column, errors="coerce").fillna(fact).to_numpy(dtype=np.float64) - fact)
            else:
                columns += [(column.astype(str) == level).to_numpy(dtype=np.float64) for level in fact[1:]]
        return np.stack(columns, axis=1) if columns else np.zeros((0 if people is None else len(people), 0))
