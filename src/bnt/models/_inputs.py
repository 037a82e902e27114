"""What a classical model reads: edge vectors, and where there are any, sites and time series."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from bnt.cohort import Cohort
from bnt.cohort._store import Series
from bnt.errors import BadInput


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
        Their rows of ``participants.tsv``; read only by models that regress confounds out.

    Examples
    --------
    >>> import bnt
    >>> from bnt.models._inputs import Inputs
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

    def __post_init__(self) -> None:
        if self.edges.ndim != 2:
            raise BadInput(f"Edges of shape {self.edges.shape} were given: give (subjects, V(V-1)/2).")
        for name, part in (("sites", self.sites), ("series", self.series), ("people", self.people)):
            if part is not None and len(part) != len(self.edges):
                raise BadInput(f"There are {len(self.edges)} connectomes and {len(part)} {name}: give one per subject.")

    def __len__(self) -> int:
        return len(self.edges)

    @classmethod
    def of(cls, cohort: Cohort, rows: Any = None) -> Inputs:
        """Return the inputs of a cohort, or of some of its subjects (positions, or a mask)."""
        chosen = cohort if rows is None else cohort.select(rows)
        return cls(
            edges=chosen.edges(np.arange(len(chosen))),
            kind=chosen.kind,
            diagonal=chosen.diagonal,
            sites=np.asarray(chosen.sites).astype(str),
            series=chosen.timeseries,
            people=chosen.participants,
        )

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
        )
