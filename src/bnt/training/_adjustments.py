"""What is done around any model: sites harmonised, confounds regressed out, classes weighted, a threshold chosen.

Edges are changed on the scale of Fisher z, where they are nearly normal, and given back on the scale of the cohort: no
correlation leaves (-1, 1). First ComBat (:mod:`bnt.connectivity._combat`), then least squares on the confounds. Both
are learned from the training part of a split, without its labels, and kept with the weights.

Subjects of a site that training has not seen: with 20 scans or more, its shift and scale are estimated from these
scans, without labels; with fewer, or where the site is not known, their edges stay as they are. Either is said, see
:meth:`EdgeAdjustment.notes`. An edge of exactly 0 is one of a region without a signal, and stays 0.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args, get_type_hints

import numpy as np
import pandas as pd

from bnt.cohort import Cohort
from bnt.connectivity._combat import Combat
from bnt.errors import BadInput
from bnt.models.classical._features import CORRELATIONS, FISHER_Z, LARGEST
from bnt.models.classical._inputs import Confounds

ENOUGH = 20  # scans of a new site whose shift and scale are estimated: its mean is then known to about 0.2 SD
AT_ONCE = 256
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Adjustments:
    """What is done around a model, as plain data; the defaults do nothing.

    Attributes
    ----------
    harmonise
        ``combat`` harmonises the edges of sites.
    keep
        Columns of ``participants.tsv`` whose effects ComBat keeps, joined by ``+``. The label is refused: it is not
        known of new subjects.
    confounds
        Columns regressed out of the edges, joined by ``+``. Linear models regress them out of their features; of
        networks that read series they are regressed out of the decisions (:mod:`bnt.training._adjusting`).
    class_weight
        ``balanced`` weights each class by the inverse of its share of the training part.
    threshold
        ``validation`` chooses the probability above which the positive class is predicted, for the highest balanced
        accuracy of the validation part; 0.5 without it.

    Examples
    --------
    >>> from bnt.training import Adjustments
    >>> Adjustments(harmonise="combat", keep="age+sex").columns
    ('age', 'sex')
    """

    harmonise: Literal["combat"] | None = None
    keep: str = ""
    confounds: str = ""
    class_weight: Literal["balanced"] | None = None
    threshold: Literal["validation"] | None = None

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(type(self)).items():
            words = [word for part in get_args(kind) for word in get_args(part)]
            value = getattr(self, name)
            if words and value is not None and value not in words:
                raise BadInput(f"{name} is {value!r}, it must be {' or '.join(words)}, or left out.", name)
        if self.keep and self.harmonise is None:
            raise BadInput(
                f"{self.keep!r} is to be kept and nothing is harmonised: add harmonise combat.", "harmonise_keep"
            )

    @classmethod
    def from_dict(cls, data: dict[str, Any] | None) -> Adjustments:
        """Undo :meth:`to_dict`."""
        return cls(**(data or {}))

    def to_dict(self) -> dict[str, Any]:
        """Return what is set."""
        return {name: value for name, value in asdict(self).items() if value}

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of ``participants.tsv`` that are read."""
        return tuple(dict.fromkeys([*names_of(self.keep), *names_of(self.confounds)]))

    @property
    def changes_edges(self) -> bool:
        """Whether edges are changed before a model reads them."""
        return bool(self.harmonise or self.confounds)

    def described(self) -> list[str]:
        """Return what is done, in phrases."""
        kept = f", keeping {', '.join(names_of(self.keep))}" if self.keep else ""
        found = [f"sites harmonised by ComBat{kept}"] if self.harmonise else []
        found += [f"{', '.join(names_of(self.confounds))} regressed out"] if self.confounds else []
        found += ["classes weighted to balance"] if self.class_weight else []
        return found + (["threshold chosen on validation"] if self.threshold else [])


FIELDS = tuple(field.name for field in fields(Adjustments))


def names_of(text: str) -> tuple[str, ...]:
    """Return the columns of ``age+sex``."""
    return tuple(name for name in text.split("+") if name)


# -- classes ---------------------------------------------------------------------------------------


def balanced_weights(y: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Return a weight per subject, n / (classes x subjects of the class) of the training part, as scikit-learn's."""
    classes, counts = np.unique(y[train], return_counts=True)
    weight = {c: len(train) / (len(classes) * n) for c, n in zip(classes.tolist(), counts.tolist())}
    return np.array([weight.get(value, 1.0) for value in y.tolist()])


def best_threshold(positive: np.ndarray, probability: np.ndarray) -> float:
    """Return the threshold of the highest balanced accuracy; of several, the nearest to 0.5.

    Thresholds lie halfway between neighbouring probabilities; positive is what is above. 0.5 where a class is absent.
    """
    positive = np.asarray(positive, dtype=bool)
    if positive.all() or not positive.any():
        return 0.5
    values = np.unique(probability)
    cuts = np.append((values[1:] + values[:-1]) / 2, 0.5)
    called = probability[None] > cuts[:, None]
    balanced = called[:, positive].mean(axis=1) + (~called[:, ~positive]).mean(axis=1)
    best = np.flatnonzero(balanced > balanced.max() - 1e-12)
    return float(cuts[best[np.argmin(np.abs(cuts[best] - 0.5))]])


def check_decisions(n_val: int, refit: bool = False) -> None:
    """Refuse a validation part that decisions cannot be regressed on confounds in."""
    if refit or n_val < ENOUGH:
        why = "is refitted on" if refit else f"has {n_val} scans of the {ENOUGH} that it takes"
        raise BadInput(
            "Confounds are regressed out of the decisions of a model of series on the validation part, which "
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
    """ComBat and confounds, fitted on training subjects and applied to any cohort.

    Parameters
    ----------
    settings : Adjustments
    """

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
        cohort : Cohort
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
        state = {"facts": np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8).copy()}
        if self.slopes is not None:
            state["slopes"] = self.slopes
        if self.combat is not None:
            state |= {f"combat_{name}": getattr(self.combat, name) for name in COMBAT}
        return state

    def load(self, state: dict[str, np.ndarray]) -> None:
        """Take what :meth:`state` gave."""
        facts = json.loads(np.asarray(state["facts"]).tobytes())
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
    whose site is not known, are left out. None where two sites or more are not in both parts.

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
