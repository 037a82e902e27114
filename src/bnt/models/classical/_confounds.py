"""Confounds regressed out of features, by least squares on the training subjects.

A confound is a column of ``participants.tsv``: numbers as they are, words as one column per level but the first. A
missing number counts as the training subjects' mean, a word that training has not seen as the first level.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd

from bnt.errors import BadInput
from bnt.models._inputs import Inputs


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


class Adjusted:
    """A feature map with confounds regressed out of what it gives.

    Parameters
    ----------
    inner : object
        A feature map: ``fit``, ``transform``, ``state``, ``load``.
    names : tuple of str
        Columns of ``participants.tsv``.
    """

    def __init__(self, inner: Any, names: tuple[str, ...]) -> None:
        self.inner, self.confounds = inner, Confounds(names)
        self.slopes: np.ndarray | None = None  # (k, F)

    def fit(self, inputs: Inputs, weight: np.ndarray) -> Adjusted:
        """Fit the feature map, then the regression of its features on the confounds."""
        self.inner.fit(inputs, weight)
        design = self.confounds.fit(inputs.people, weight).design(inputs.people)
        root = np.sqrt(weight)[:, None]
        full = np.concatenate([np.ones((len(design), 1)), design], axis=1)
        solver = np.linalg.pinv(root * full)[1:]  # (k, n): the intercept is fitted and left in
        self.slopes = (solver @ (root * self.inner.transform(inputs))).astype(np.float32)
        return self

    def transform(self, inputs: Inputs) -> np.ndarray:
        """Return (n, F) float32."""
        assert self.slopes is not None
        features = self.inner.transform(inputs)
        return features - self.confounds.design(inputs.people).astype(np.float32) @ self.slopes

    def state(self) -> dict[str, np.ndarray]:
        """Return what was learned."""
        assert self.slopes is not None
        facts = np.frombuffer(json.dumps(self.confounds.facts).encode(), dtype=np.uint8).copy()
        return {**self.inner.state(), "confound_slopes": self.slopes, "confound_facts": facts}

    def load(self, state: dict[str, np.ndarray]) -> None:
        """Take what was learned."""
        self.inner.load(state)
        self.slopes = np.asarray(state["confound_slopes"], dtype=np.float32)
        self.confounds.facts = json.loads(np.asarray(state["confound_facts"]).tobytes())


def adjusted(inner: Any, confounds: str) -> Any:
    """Return a feature map without the named confounds (``age+sex``), or the map itself where none is named."""
    names = tuple(name for name in confounds.split("+") if name)
    return Adjusted(inner, names) if names else inner
