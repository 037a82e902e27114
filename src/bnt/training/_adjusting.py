"""Which adjustment a model gets: of the edges it reads, of the edges of every atlas it reads, or of its decisions.

Networks that read time series get the last. A volume of one scan has no counterpart in another, so that neither ComBat
nor a regression over people can be done on series; what such a network says of people can be regressed on their
confounds, as the decision of a linear model is when its features are (Dinga et al. 2020). The slopes are learned from
the validation part, without labels: a network has seen the training part, and its decisions there are nearly the
labels.
"""

from __future__ import annotations

import json

import numpy as np
import pandas as pd

from bnt.cohort import Cohort
from bnt.models import find_entry
from bnt.models.classical._inputs import Confounds
from bnt.training._adjustments import Adjustments, EdgeAdjustment, names_of
from bnt.training._config import RunConfig

SMALLEST = 1e-12  # probabilities of 0 have no logarithm


def edge_adjustment(config: RunConfig) -> EdgeAdjustment | AtlasAdjustment | None:
    """Return what changes the edges that a run's model reads; None where nothing does."""
    entry = find_entry(config.model)
    if not config.adjustments.changes_edges or entry.needs_series:
        return None
    return (AtlasAdjustment if entry.every_atlas else EdgeAdjustment)(config.adjustments)


def decision_adjustment(config: RunConfig) -> DecisionAdjustment | None:
    """Return what changes the decisions of a run's model; None where nothing does."""
    if not config.adjustments.confounds or not find_entry(config.model).needs_series:
        return None
    return DecisionAdjustment(config.adjustments.confounds, is_score=config.task.kind == "regression")


class AtlasAdjustment:
    """An :class:`EdgeAdjustment` of each atlas of a cohort, for a model that reads all of them.

    Parameters
    ----------
    settings : Adjustments
    """

    def __init__(self, settings: Adjustments) -> None:
        self.settings = settings
        self.each: dict[str, EdgeAdjustment] = {}

    def fit(self, cohort: Cohort, rows: np.ndarray) -> AtlasAdjustment:
        """Learn from training subjects, in every atlas."""
        self.each = {name: EdgeAdjustment(self.settings).fit(cohort.with_atlas(name), rows) for name in cohort.atlases}
        return self

    def notes(self, cohort: Cohort, rows: np.ndarray | None = None) -> dict[str, str]:
        """Return what is done with sites that training has not seen, which is the same in every atlas."""
        return next(iter(self.each.values())).notes(cohort, rows)

    def apply(self, cohort: Cohort, rows: np.ndarray | None = None) -> Cohort:
        """Return a view of the cohort with adjusted edges in every atlas; what was adjusted stays as it is."""
        names = [name for name in cohort.atlases if name in self.each]
        views = {name: self.each[name].apply(cohort.with_atlas(name), rows) for name in names}
        if cohort.atlas not in views or views[cohort.atlas] is cohort:
            return cohort
        return cohort.with_edges_of({name: view.edge_changes[-1] for name, view in views.items()})

    def state(self) -> dict[str, np.ndarray]:
        """Return what was learned as arrays, each atlas' under its number."""
        names = np.frombuffer(json.dumps(list(self.each)).encode(), dtype=np.uint8).copy()
        parts = (one.state() for one in self.each.values())
        return {"atlases": names} | {f"{i}.{key}": value for i, part in enumerate(parts) for key, value in part.items()}

    def load(self, state: dict[str, np.ndarray]) -> None:
        """Take what :meth:`state` gave."""
        names = json.loads(np.asarray(state["atlases"]).tobytes())
        self.each = {name: EdgeAdjustment(self.settings) for name in names}
        for i, one in enumerate(self.each.values()):
            head = f"{i}."
            one.load({k.removeprefix(head): v for k, v in state.items() if k.startswith(head)})


class DecisionAdjustment:
    """Confounds regressed out of decisions: of the logarithms of probabilities less their mean, or of a score.

    Parameters
    ----------
    confounds : str
        Columns of ``participants.tsv``, joined by ``+``.
    is_score : bool
        Whether decisions are scores and not probabilities.
    """

    def __init__(self, confounds: str, *, is_score: bool) -> None:
        self.confounds, self.is_score = Confounds(names_of(confounds)), is_score
        self.slopes = np.zeros((0, 0))  # (k, C)

    def fit(self, predicted: np.ndarray, people: pd.DataFrame) -> DecisionAdjustment:
        """Learn from predictions, (n, C), of people whom the model has not learned from."""
        design = self.confounds.fit(people, np.ones(len(people))).design(people)
        full = np.concatenate([np.ones((len(design), 1)), design], axis=1)
        self.slopes = np.linalg.pinv(full)[1:] @ self._there(predicted)
        return self

    def _there(self, predicted: np.ndarray) -> np.ndarray:
        if self.is_score:
            return predicted
        z = np.log(np.maximum(predicted, SMALLEST))
        return z - z.mean(axis=-1, keepdims=True)

    def apply(self, predicted: np.ndarray, people: pd.DataFrame) -> np.ndarray:
        """Return predictions, (..., n, C), without what the confounds of these people add to them."""
        z = self._there(predicted) - self.confounds.design(people) @ self.slopes
        if self.is_score:
            return z
        p = np.exp(z - z.max(axis=-1, keepdims=True))
        return p / p.sum(axis=-1, keepdims=True)

    def state(self) -> dict[str, np.ndarray]:
        """Return what was learned as arrays."""
        facts = np.frombuffer(json.dumps(self.confounds.facts).encode(), dtype=np.uint8).copy()
        return {"decision_facts": facts, "decision_slopes": self.slopes}

    def load(self, state: dict[str, np.ndarray]) -> None:
        """Take what :meth:`state` gave."""
        self.confounds.facts = json.loads(np.asarray(state["decision_facts"]).tobytes())
        self.slopes = np.asarray(state["decision_slopes"])
