"""Steps around any model: site harmonisation and confound regression, of edges or of decisions.

Edges are changed on the scale of Fisher z, where they are nearly normal, and given back on the scale of the cohort: no
correlation leaves (-1, 1). First ComBat (:mod:`bnt.connectivity._combat`), then least squares on the confounds. Both
are learned from the training set of a split, without its labels, and kept with the weights.

Subjects of a site that training has not seen: with 20 scans or more, its shift and scale are estimated from these
scans, without labels; with fewer, or where the site is not known, their edges stay as they are. Either is said, see
:meth:`EdgeAdjustment.notes`. An edge of exactly 0 is one of a region without a signal, and stays 0.

Of networks that read time series the decisions are adjusted. A volume of one scan has no counterpart in another, so
that neither ComBat nor a regression over people can be done on series; what such a network says of people can be
regressed on their confounds, as the decision of a linear model is when its features are (Dinga et al. 2020). The slopes
are learned from the validation set, without labels: a network has seen the training set, and its decisions there are
nearly the labels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bnt.cohort import Cohort
from bnt.connectivity._combat import Combat
from bnt.errors import BadInput
from bnt.models import find_entry
from bnt.models.classical._features import CORRELATIONS, FISHER_Z, LARGEST
from bnt.models.classical._inputs import Confounds, array_to_words, words_to_array
from bnt.training._recipe import Adjustments, names_of

if TYPE_CHECKING:
    from bnt.training._config import RunConfig

ENOUGH = 20  # scans of a new site whose shift and scale are estimated: its mean is then known to about 0.2 SD
AT_ONCE = 256
UNKNOWN = "unknown"
SMALLEST = 1e-12  # probabilities of 0 have no logarithm


def check_decisions(n_val: int, refit: bool = False) -> None:
    """Refuse a validation set that decisions cannot be regressed on confounds in."""
    if refit or n_val < ENOUGH:
        why = "is refitted on" if refit else f"has {n_val} scans of the {ENOUGH} that it takes"
        raise BadInput(
            "Confounds are regressed out of the decisions of a model of series on the validation set, which "
            f"{why}: leave confounds out, or use another {'recipe' if refit else 'split'}.",
            "confounds",
        )


# -- edges -----------------------------------------------------------------------------------------


class FisherScale:
    """Edges to the scale on which they are adjusted, and back.

    Correlations go through arctanh; other kinds stay as they are. An unknown kind is taken for correlations if no
    training subject has a value beyond 1.
    """

    def __init__(self, is_correlation: bool) -> None:
        self.is_correlation = is_correlation

    @classmethod
    def of(cls, cohort: Cohort, rows: np.ndarray) -> FisherScale:
        """Decide for a cohort by its kind, or by the edges of some subjects."""
        if cohort.kind in (*CORRELATIONS, *FISHER_Z):
            return cls(cohort.kind in CORRELATIONS)
        parts = (cohort.edges(rows[i : i + AT_ONCE]) for i in range(0, len(rows), AT_ONCE))
        return cls(all(bool((np.abs(part) <= 1).all()) for part in parts))

    def there(self, edges: np.ndarray) -> np.ndarray:
        """Return float64 edges to adjust."""
        edges = np.asarray(edges, dtype=np.float64)
        return np.arctanh(np.clip(edges, -LARGEST, LARGEST)) if self.is_correlation else edges

    def back(self, edges: np.ndarray) -> np.ndarray:
        """Return float32 edges as the cohort has them."""
        return (np.tanh(edges) if self.is_correlation else edges).astype(np.float32)


class EdgeAdjustment:
    """ComBat and confounds, fitted on training subjects and applied to any cohort."""

    def __init__(self, settings: Adjustments) -> None:
        self.settings = settings
        self.scale = FisherScale(True)
        self.kept, self.confounds = Confounds(names_of(settings.keep)), Confounds(names_of(settings.confounds))
        self.combat: Combat | None = None
        self.slopes: np.ndarray | None = None  # (k, E), of the confounds

    def fit(self, cohort: Cohort, rows: np.ndarray) -> EdgeAdjustment:
        """Learn from training subjects; their labels are not read."""
        rows = np.asarray(rows)
        people, weight = cohort.select(rows).participants, np.ones(len(rows))
        self.scale = FisherScale.of(cohort, rows)
        if self.settings.harmonise:
            kept = self.kept.fit(people, weight).design(people)
            sites = people["site"].astype(str).replace(UNKNOWN, "").to_numpy(str)  # those may be of any scanner
            self.combat = Combat.fit(self._source(cohort, rows), sites, kept)
        if self.settings.confounds:
            design = self.confounds.fit(people, weight).design(people)
            full = np.concatenate([np.ones((len(design), 1)), design], axis=1)
            solver = np.linalg.pinv(full)[1:]  # (k, n): the intercept is fitted and left in
            source = self._source(cohort, rows)
            self.slopes = np.asarray(
                sum(solver[:, some] @ self._harmonised(z, people.iloc[some], {}) for some, z in source())
            )
        return self

    def _source(self, cohort: Cohort, rows: np.ndarray) -> Callable[[], Any]:
        def batches() -> Any:
            for start in range(0, len(rows), AT_ONCE):
                part = np.arange(start, min(start + AT_ONCE, len(rows)))
                yield part, self.scale.there(cohort.edges(rows[part]))

        return batches

    def _harmonised(self, z: np.ndarray, people: pd.DataFrame, more: dict[str, Any]) -> np.ndarray:
        if self.combat is None:
            return z
        return self.combat.transform(z, people["site"].to_numpy(str), self.kept.design(people), more)

    def new_sites(self, cohort: Cohort, rows: np.ndarray | None = None) -> dict[str, int]:
        """Return the sites among some subjects that ComBat has not learned, and how many scans each has."""
        if self.combat is None:
            return {}
        sites = cohort.sites if rows is None else cohort.sites[rows]
        names, counts = np.unique(sites.astype(str), return_counts=True)
        return {n: int(c) for n, c in zip(names.tolist(), counts) if n not in self.combat.sites}

    def notes(self, cohort: Cohort, rows: np.ndarray | None = None) -> dict[str, str]:
        """Return what is done with the subjects of each site that training has not seen, in a sentence."""
        found = {}
        for site, n in self.new_sites(cohort, rows).items():
            which = "Subjects without a site" if site == UNKNOWN else f"Site {site}"
            scans = f"{n} scan{'s' * (n != 1)}"
            if site != UNKNOWN and n >= ENOUGH:
                how = f"harmonised with a shift and scale from its {scans}, unlabelled"
                found[site] = f"{which} is not in training: {how}."
            else:
                why = "" if site == UNKNOWN else f", fewer than {ENOUGH}): not in training, so"
                found[site] = f"{which} ({scans}{why or '):'} not harmonised."
        return found

    def apply(self, cohort: Cohort, rows: np.ndarray | None = None) -> Cohort:
        """Return a view of the cohort with adjusted edges, without series; a cohort that was adjusted stays as it is.

        Parameters
        ----------
        rows : array of int, optional
            The subjects who will be read: sites that training has not seen are estimated from these.
        """
        if any(isinstance(change, EdgesOf) and change.adjustment is self for change in cohort.edge_changes):
            return cohort
        rows = np.arange(len(cohort)) if rows is None else np.asarray(rows)
        more = {}
        for site, n in self.new_sites(cohort, rows).items():
            if site != UNKNOWN and n >= ENOUGH:
                assert self.combat is not None
                mine = rows[cohort.sites[rows].astype(str) == site]
                design = self.kept.design(cohort.select(mine).participants)
                more[site] = self.combat.estimate(self._source(cohort, mine), design)

        return cohort.with_edges(EdgesOf(self, more))

    # -- keeping -----------------------------------------------------------------------------------

    def state(self) -> dict[str, np.ndarray]:
        """Return what was learned as arrays; words are the bytes of JSON."""
        facts = {
            "is_correlation": self.scale.is_correlation,
            "kept": self.kept.facts,
            "confounds": self.confounds.facts,
            "sites": [] if self.combat is None else list(self.combat.sites),
        }
        state = {"facts": words_to_array(facts)}
        if self.slopes is not None:
            state["slopes"] = self.slopes
        if self.combat is not None:
            state |= {f"combat_{name}": getattr(self.combat, name) for name in COMBAT}
        return state

    def load(self, state: dict[str, np.ndarray]) -> None:
        """Take what :meth:`state` gave."""
        facts = array_to_words(state["facts"])
        self.scale = FisherScale(facts["is_correlation"])
        self.kept.facts, self.confounds.facts = facts["kept"], facts["confounds"]
        self.slopes = state.get("slopes")
        if "combat_mean" in state:
            self.combat = Combat(tuple(facts["sites"]), *(state[f"combat_{name}"] for name in COMBAT))


@dataclass(frozen=True)
class EdgesOf:
    """What an adjustment does to the edges of some subjects, with the estimates of sites that training has not seen."""

    adjustment: EdgeAdjustment
    more: dict[str, tuple[np.ndarray, np.ndarray]]

    def __call__(self, edges: np.ndarray, people: pd.DataFrame) -> np.ndarray:
        """Return adjusted edges, (n, E) float32."""
        mine = self.adjustment
        z = mine._harmonised(mine.scale.there(edges), people, self.more)
        if mine.slopes is not None:
            z = z - mine.confounds.design(people) @ mine.slopes
        return np.where(edges == 0, np.float32(0), mine.scale.back(z))


COMBAT = ("mean", "sd", "slopes", "shift", "scale")


# -- how well sites can be told --------------------------------------------------------------------


def site_accuracy(cohort: Cohort, train: np.ndarray, test: np.ndarray) -> dict[str, Any] | None:
    """Return how well a linear classifier tells the site of test subjects from their edges.

    Ridge on Fisher z, one site against the rest, fitted on training subjects; test subjects of other sites, and those
    whose site is not known, are left out. None where two sites or more are not in both sets.

    Returns
    -------
    dict
        ``accuracy``, ``balanced_accuracy``, ``n`` subjects, ``n_sites``, and ``chance``: the share of the largest site.
    """
    from bnt.models.classical._solvers import gram, ridge

    sites = np.asarray(cohort.sites).astype(str)
    train = train[sites[train] != UNKNOWN]
    names = np.unique(sites[train])
    test = test[np.isin(sites[test], names)]
    if len(names) < 2 or len(np.unique(sites[test])) < 2:
        return None
    scale = FisherScale.of(cohort, train)
    both = np.concatenate([train, test])
    features = np.empty((len(both), cohort.shape[1]), dtype=np.float32)
    for start in range(0, len(both), AT_ONCE):
        features[start : start + AT_ONCE] = scale.there(cohort.edges(both[start : start + AT_ONCE]))
    features -= features[: len(train)].mean(axis=0)
    products, n = gram(features), len(train)
    size = float(np.trace(products[:n, :n])) / n or 1.0
    codes = np.searchsorted(names, sites[both])
    dual, intercept = ridge(products[:n, :n] / size, codes[:n], np.ones(n), max(len(names), 3), 1.0)
    found = (products[n:, :n] / size @ dual + intercept)[:, : len(names)].argmax(axis=1)
    right = found == codes[n:]
    shares = [float(right[codes[n:] == c].mean()) for c in np.unique(codes[n:])]
    largest = np.unique(codes[n:], return_counts=True)[1].max()
    return {
        "accuracy": float(right.mean()),
        "balanced_accuracy": float(np.mean(shares)),
        "chance": float(largest / len(right)),
        "n": len(right),
        "n_sites": len(shares),
    }


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
    """An :class:`EdgeAdjustment` of each atlas of a cohort, for a model that reads all of them."""

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
        names = words_to_array(list(self.each))
        parts = (one.state() for one in self.each.values())
        return {"atlases": names} | {f"{i}.{key}": value for i, part in enumerate(parts) for key, value in part.items()}

    def load(self, state: dict[str, np.ndarray]) -> None:
        """Take what :meth:`state` gave."""
        names = array_to_words(state["atlases"])
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
        facts = words_to_array(self.confounds.facts)
        return {"decision_facts": facts, "decision_slopes": self.slopes}

    def load(self, state: dict[str, np.ndarray]) -> None:
        """Take what :meth:`state` gave."""
        self.confounds.facts = array_to_words(state["decision_facts"])
        self.slopes = np.asarray(state["decision_slopes"])
