"""Checks of an edge map: simulated effects that it finds, stability over runs, and models of shuffled labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from bnt.cohort import Cohort
from bnt.cohort._triangle import Networks, flat
from bnt.errors import BadInput
from bnt.explain._decisions import Fitted, baseline_edges
from bnt.explain._edges import edge_map
from bnt.training._config import RunConfig
from bnt.training._learner import make_learner


@dataclass(frozen=True)
class Precision:
    """How well a map finds the planted edges.

    Attributes
    ----------
    top : float
        Share of planted edges among as many top edges as there are planted ones.
    chance : float
        Share of planted edges among all.
    auroc : float
        Probability that a planted edge ranks above another.
    pairs_found, n_pairs : int
        Planted pairs of networks among as many top pairs, by mean magnitude.
    """

    top: float
    chance: float
    auroc: float
    pairs_found: int
    n_pairs: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


PLANTED = {"diagnosis": ("effect_pairs", "effect"), "sex": ("sex_pairs", "sex_effect")}  # label: where, how strong


def planted_pairs(cohort: Cohort, label: str = "diagnosis") -> list[tuple[str, str]] | None:
    """Return the pairs of networks that differ between the classes of a label of a simulated cohort.

    None where nothing is planted: in a real cohort, for a label without an effect of its own, with an effect of 0, and
    where the networks have other names than those that it was planted in.
    """
    where, strength = PLANTED.get(label, ("", ""))
    pairs = cohort.source.get(where)
    if not pairs or cohort.source.get(strength) == 0:
        return None
    found = [(str(a), str(b)) for a, b, *_ in pairs]
    networks = Networks.of(cohort)
    renamed = networks is not None and not {name for pair in found for name in pair} <= set(networks.names)
    return None if renamed else found


def planted_edges(cohort: Cohort, label: str = "diagnosis") -> np.ndarray:
    """Return which edges have a simulated effect of a label, (E,) bool.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.load_cohort("cohort")
    >>> from bnt.explain import planted_edges
    >>> planted_edges(cohort).shape
    (190,)
    """
    pairs, networks = planted_pairs(cohort, label), Networks.of(cohort)
    if pairs is None or networks is None:
        raise BadInput(
            f"There is no simulated effect of {label!r} in this cohort: only simulated cohorts have known effects."
        )
    wanted = {tuple(sorted((networks.names.index(a), networks.names.index(b)))) for a, b in pairs}
    return np.array([tuple(pair) in wanted for pair in networks.edge_pairs().tolist()])


def precision(score: np.ndarray, cohort: Cohort, label: str = "diagnosis") -> Precision:
    """Return how well the magnitude of a map ranks the edges with a simulated effect.

    Parameters
    ----------
    score : array, (E,) or (V, V)
        An edge map, or a matrix such as attention, of which both directions are averaged.
    cohort : Cohort
        A simulated one.
    label : {"diagnosis", "sex"}
        The label that the model predicts, whose effect is looked for.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.load_cohort("cohort")
    >>> from bnt.explain import planted_edges, precision
    >>> precision(planted_edges(cohort).astype(float), cohort).auroc
    1.0
    """
    from sklearn.metrics import roc_auc_score

    if score.ndim == 2:
        score = flat((score + score.T) / 2)
    magnitude = np.abs(score)
    planted = planted_edges(cohort, label)
    networks = Networks.of(cohort)
    assert networks is not None
    k = int(planted.sum())
    first = np.argsort(-magnitude, kind="stable")[:k]
    table = networks.by_pair(magnitude=magnitude, planted=planted.astype(float))
    ranked = table.sort_values("magnitude", ascending=False, kind="stable")["planted"].to_numpy()
    n_pairs = int(ranked.sum())
    return Precision(
        top=float(planted[first].mean()),
        chance=float(planted.mean()),
        auroc=float(roc_auc_score(planted, magnitude)),
        pairs_found=int(ranked[:n_pairs].sum()),
        n_pairs=n_pairs,
    )


TOP = 0.05


@dataclass(frozen=True)
class Stability:
    """How much maps agree: means over all pairs.

    Attributes
    ----------
    n_maps : int
    rank_correlation : float
        Spearman's, of the signed maps; 0 is chance.
    sign_agreement : float
        Share of edges of the same sign; 0.5 is chance.
    jaccard, jaccard_chance : float
        Overlap of the edges of largest magnitude, and what random choices of as many would have.
    top : float
        Share of edges that counts as the top.
    """

    n_maps: int
    rank_correlation: float
    sign_agreement: float
    jaccard: float
    jaccard_chance: float
    top: float

    def to_dict(self) -> dict[str, float]:
        """Return plain data."""
        return asdict(self)


def map_stability(maps: Sequence[np.ndarray] | np.ndarray, top: float = TOP) -> Stability:
    """Compare maps of the same edges.

    Parameters
    ----------
    maps : array, (R, E)
        Signed maps of R runs.
    top : float
        Share of edges, the largest in magnitude, whose overlap is measured.

    Examples
    --------
    >>> import numpy as np
    >>> from bnt.explain import map_stability
    >>> edges = np.arange(10.0)
    >>> round(map_stability([edges, edges]).rank_correlation, 3)
    1.0
    """
    from scipy.stats import rankdata

    maps = np.asarray(maps, dtype=np.float64)
    if len(maps) < 2:
        raise BadInput(f"Stability compares maps and {len(maps)} was given: give two or more runs.")
    n = maps.shape[1]
    k = max(1, round(top * n))
    ranks = np.stack([rankdata(one) for one in maps])
    rho = np.corrcoef(ranks)
    chosen = [set(np.argsort(-np.abs(one), kind="stable")[:k].tolist()) for one in maps]
    pairs = list(combinations(range(len(maps)), 2))
    shared = k * k / n  # of two random choices
    return Stability(
        n_maps=len(maps),
        rank_correlation=float(np.mean([rho[a, b] for a, b in pairs])),
        sign_agreement=float(np.mean([np.mean(np.sign(maps[a]) == np.sign(maps[b])) for a, b in pairs])),
        jaccard=float(np.mean([len(chosen[a] & chosen[b]) / len(chosen[a] | chosen[b]) for a, b in pairs])),
        jaccard_chance=shared / (2 * k - shared),
        top=top,
    )


def refit(config: RunConfig, cohort: Cohort, y: np.ndarray, train: np.ndarray, val: np.ndarray) -> Fitted:
    """Fit a run's model on other subjects or other labels; nothing is written."""
    learner = make_learner(config)
    learner.fit(cohort, y, train, val)
    return Fitted(config, learner)


def shuffled_within(y: np.ndarray, sites: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return labels permuted within sites, so that a site keeps its share of each class."""
    out = np.array(y)
    for site in np.unique(sites):
        rows = np.flatnonzero(sites == site)
        out[rows] = y[rng.permutation(rows)]
    return out


def resampled_maps(
    config: RunConfig,
    cohort: Cohort,
    train: np.ndarray,
    val: np.ndarray,
    rows: np.ndarray,
    *,
    n: int,
    shuffle: bool,
    method: str | None = None,
    share: float = 0.8,
    seed: int = 0,
) -> np.ndarray:
    """Refit a run's model on random samples of its training subjects and return the maps, (n, E).

    Parameters
    ----------
    train, val, rows : array of int
        Training subjects, validation subjects, and those whose predictions are explained.
    n : int
        Refits, each from a seed of its own.
    shuffle : bool
        Permute the labels within sites, anew for each refit. What is stable then comes from the data's variance
        and the model's build, not from what it learned.
    method : str, optional
        See :func:`bnt.explain._edges.edge_map`.
    share : float
        Of the training subjects in each refit. The samples overlap, which makes true maps look more stable than those
        of new cohorts would be.
    """
    y = cohort.labels(config.label)
    maps = []
    for i in range(n):
        rng = np.random.default_rng([seed, i])
        part = np.sort(rng.choice(train, max(4, round(share * len(train))), replace=False))
        labels = shuffled_within(y, cohort.sites, rng) if shuffle else y
        fitted = refit(replace(config, seed=config.seed + 1 + i), cohort, labels, part, val)
        training = (cohort, part)
        found = edge_map(fitted, cohort, rows, baseline_edges(fitted, training), method, training=training)
        maps.append(found.score)
    return np.stack(maps)


@dataclass(frozen=True)
class SanityCheck:
    """Stability of maps with true and with shuffled labels, from the same resampling."""

    true: Stability
    shuffled: Stability

    @property
    def passed(self) -> bool:
        """Whether shuffled labels give no stable map, and true labels a more stable one."""
        return (
            self.shuffled.rank_correlation < 0.2 and self.true.rank_correlation > self.shuffled.rank_correlation + 0.1
        )

    def to_dict(self) -> dict[str, object]:
        """Return plain data."""
        return {"true": self.true.to_dict(), "shuffled": self.shuffled.to_dict(), "passed": self.passed}


def sanity_check(
    config: RunConfig,
    cohort: Cohort,
    train: np.ndarray,
    val: np.ndarray,
    rows: np.ndarray,
    n: int = 5,
    method: str | None = None,
    seed: int = 0,
) -> SanityCheck:
    """Compare the stability of maps with that of models trained on shuffled labels; see :func:`resampled_maps`.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.load_cohort("cohort")
    >>> from bnt.training import TrainedRun
    >>> trained = TrainedRun("study/runs/ridge--split0--seed0")  # a run of a study
    >>> import numpy as np
    >>> from bnt.explain import sanity_check
    >>> train, val, test = np.split(np.arange(40), [28, 32])
    >>> check = sanity_check(trained.config, cohort, train, val, test, n=2)
    >>> check.passed in (True, False)
    True
    """
    true, shuffled = (
        map_stability(resampled_maps(config, cohort, train, val, rows, n=n, shuffle=shuffle, method=method, seed=seed))
        for shuffle in (False, True)
    )
    return SanityCheck(true, shuffled)
