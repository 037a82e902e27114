"""A simulated cohort knows where its effect is: how many of a map's top edges lie there?"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bnt.cohort import Cohort
from bnt.cohort.triangle import flat
from bnt.errors import BadInput
from bnt.explain.rois import Networks


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

    None where nothing is planted: in a real cohort, for a label without an effect of its own, and with an effect of 0.
    """
    where, strength = PLANTED.get(label, ("", ""))
    pairs = cohort.source.get(where)
    if not pairs or cohort.source.get(strength) == 0:
        return None
    return [(str(a), str(b)) for a, b, *_ in pairs]


def planted_edges(cohort: Cohort, label: str = "diagnosis") -> np.ndarray:
    """Return which edges carry the planted effect of a label, (E,) bool."""
    pairs, networks = planted_pairs(cohort, label), Networks.of(cohort)
    if pairs is None or networks is None:
        raise BadInput(f"Nothing is planted for {label!r} in this cohort: only simulated ones know where an effect is.")
    wanted = {tuple(sorted((networks.names.index(a), networks.names.index(b)))) for a, b in pairs}
    return np.array([tuple(pair) in wanted for pair in networks.edge_pairs().tolist()])


def precision(score: np.ndarray, cohort: Cohort, label: str = "diagnosis") -> Precision:
    """Return how well a map ranks the planted edges; only the magnitude of the map counts.

    Parameters
    ----------
    score : array, (E,) or (V, V)
        An edge map, or a matrix such as attention, of which both directions are averaged.
    cohort : Cohort
        A simulated one.
    label : {"diagnosis", "sex"}
        Whose effect is looked for: what the model predicts.
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
