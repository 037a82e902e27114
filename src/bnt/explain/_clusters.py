"""Clusters of a pooling readout: soft assignments by class, their difference, and their agreement with an atlas.

Every member draws its own centres, so that cluster 1 of one has nothing to do with cluster 1 of another: members are
never averaged here, and are compared by which ROIs lie together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations

import numpy as np
import pandas as pd

from bnt.cohort import Cohort
from bnt.cohort._triangle import Networks
from bnt.errors import BadInput
from bnt.explain._inside import FittedRun, outputs


def member_assignments(run: FittedRun, cohort: Cohort, rows: np.ndarray) -> list[np.ndarray]:
    """Return the soft assignments P of some subjects for each member, (n, V, K) float32 each.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.load_cohort("cohort")
    >>> from bnt.training import TrainedRun
    >>> trained = TrainedRun("run")  # a folder made by bnt train
    >>> from bnt.explain import member_assignments
    >>> [p.shape for p in member_assignments(trained, cohort, rows=[0, 1])]
    [(2, 20, 4)]
    """
    found = []
    for model in run.learner.networks():
        parts = []
        for _, output in outputs(run, model, cohort, rows, batch_size=64):
            if output.assignments is None or output.assignments.shape[-1] < 2:
                raise BadInput(
                    f"Model {run.config.model!r} assigns ROIs to no clusters: train one with OCRead or diffpool."
                )
            parts.append(output.assignments.float().cpu().numpy())
        found.append(np.concatenate(parts))
    return found


@dataclass(frozen=True)
class DifferenceScore:
    """The paper's d with its permutation test.

    Attributes
    ----------
    d : float
        Mean absolute difference of the classes' mean assignments, over ROIs and clusters.
    null_mean, null_sd : float
        Of d under permuted classes: two classes of the same kind differ by chance too.
    z, p : float
        One-sided.
    """

    d: float
    null_mean: float
    null_sd: float
    z: float
    p: float


def class_means(assignments: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Return the mean assignments of each class: (n, V, K), (n,) -> (C, V, K)."""
    return np.stack([assignments[codes == c].mean(axis=0, dtype=np.float64) for c in np.unique(codes)])


def difference_score(
    assignments: np.ndarray,
    codes: np.ndarray,
    sites: np.ndarray | None = None,
    n_permutations: int = 1000,
    seed: int = 0,
) -> DifferenceScore:
    """Return d = mean |mean P of class a - mean P of class b| and test it against permuted classes.

    Parameters
    ----------
    assignments : array, (n, V, K)
    codes : array, (n,)
        Class of each subject; with more than two classes, d is the mean over their pairs.
    sites : array, (n,), optional
        Classes are permuted within sites, so that a difference between sites is not mistaken for one between classes.
    n_permutations : int
    seed : int

    Examples
    --------
    >>> import numpy as np
    >>> from bnt.explain import difference_score
    >>> p = np.full((4, 3, 2), 0.5)  # subjects x ROIs x clusters
    >>> difference_score(p, codes=np.array([0, 0, 1, 1]), n_permutations=20).d
    0.0
    """
    flat = np.asarray(assignments, dtype=np.float32).reshape(len(assignments), -1)  # (n, VK)
    classes = np.unique(codes)
    if len(classes) < 2:
        raise BadInput("All subjects are of one class: the difference score needs two.")
    pairs = list(combinations(range(len(classes)), 2))
    groups = [np.arange(len(codes))] if sites is None else [np.flatnonzero(sites == s) for s in np.unique(sites)]
    rng = np.random.default_rng(seed)

    def score(order: np.ndarray) -> float:
        share = (order[None, :] == classes[:, None]).astype(np.float32)  # (C, n)
        means = (share / share.sum(axis=1, keepdims=True)) @ flat  # (C, VK)
        return float(np.mean([np.abs(means[a] - means[b]).mean(dtype=np.float64) for a, b in pairs]))

    d = score(codes)
    null = np.empty(n_permutations)
    for i in range(n_permutations):
        order = np.array(codes)
        for group in groups:
            order[group] = rng.permutation(order[group])
        null[i] = score(order)
    p = (1 + int((null >= d - 1e-12).sum())) / (1 + n_permutations)
    sd = float(null.std())
    return DifferenceScore(d, float(null.mean()), sd, (d - float(null.mean())) / sd if sd > 0 else float("nan"), p)


def hard_clusters(assignments: np.ndarray) -> np.ndarray:
    """Return each ROI's likeliest cluster by its mean assignment: (n, V, K) -> (V,)."""
    return assignments.mean(axis=0, dtype=np.float64).argmax(axis=1)


def agreement(
    clusters: np.ndarray, networks: Networks, n_permutations: int = 1000, seed: int = 0
) -> dict[str, dict[str, float]]:
    """Compare hard clusters with the atlas' networks: adjusted Rand index and NMI, each against permuted ROIs.

    ROIs without a network are left out. The permutations also give the chance level of the unadjusted NMI.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.load_cohort("cohort")
    >>> from bnt.explain import Networks, agreement
    >>> networks = Networks.of(cohort)
    >>> found = agreement(networks.codes, networks, n_permutations=20)
    """
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    inside = networks.assigned
    mine, theirs = clusters[inside], networks.codes[inside]
    rng = np.random.default_rng(seed)
    orders = [rng.permutation(mine) for _ in range(n_permutations)]
    found = {}
    for name, measure in (("ari", adjusted_rand_score), ("nmi", normalized_mutual_info_score)):
        value = float(measure(theirs, mine))
        null = np.array([measure(theirs, order) for order in orders])
        sd = float(null.std())
        found[name] = {
            "value": value,
            "chance": float(null.mean()),
            "z": (value - float(null.mean())) / sd if sd > 0 else float("nan"),
            "p": (1 + int((null >= value - 1e-12).sum())) / (1 + n_permutations),
        }
    return found


def clustering_stability(partitions: Sequence[np.ndarray]) -> dict[str, float]:
    """Return the mean adjusted Rand index and NMI over all pairs of hard clusterings (members, seeds or splits).

    Examples
    --------
    >>> import numpy as np
    >>> from bnt.explain import clustering_stability
    >>> found = clustering_stability([np.array([0, 0, 1, 1]), np.array([1, 1, 0, 0])])
    """
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    pairs = list(combinations(partitions, 2))
    if not pairs:
        return {"n": len(partitions), "ari": float("nan"), "nmi": float("nan")}
    return {
        "n": len(partitions),
        "ari": float(np.mean([adjusted_rand_score(a, b) for a, b in pairs])),
        "nmi": float(np.mean([normalized_mutual_info_score(a, b) for a, b in pairs])),
    }


def cluster_table(means: np.ndarray, classes: Sequence[object], rois: pd.DataFrame, member: int) -> pd.DataFrame:
    """Return one row per class and ROI: the mean assignment to each cluster and the likeliest."""
    parts = []
    for name, p in zip(classes, means):
        part = rois[["roi", "label", "network"]].copy()
        part.insert(0, "member", member)
        part.insert(1, "class", str(name))
        part["cluster"] = p.argmax(axis=1) + 1
        each = pd.DataFrame(p, columns=[f"p{k + 1}" for k in range(p.shape[1])], index=part.index)
        parts.append(pd.concat([part, each], axis=1))
    return pd.concat(parts, ignore_index=True)


def score_row(member: int, score: DifferenceScore) -> dict[str, float]:
    """Return a difference score as a row of a table."""
    return {"member": member, **asdict(score)}
