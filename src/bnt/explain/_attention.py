"""Attention by network, and clusters of a pooling readout: soft assignments by class and agreement with an atlas.

Every member draws its own centres, so that cluster 1 of one has nothing to do with cluster 1 of another: in what is
about clusters, members are never averaged, and are compared by which ROIs lie together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd
from scipy.stats import false_discovery_control
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from bnt.cohort import Cohort
from bnt.cohort._triangle import Networks
from bnt.errors import BadInput
from bnt.explain._decisions import BATCH, FittedRun, outputs

EVERYONE = "all"


@dataclass(frozen=True)
class MeanAttention:
    """Mean attention of each group of subjects.

    Attributes
    ----------
    groups : tuple of str
        ``all`` first, then the groups asked for.
    counts : tuple of int
        Subjects in each.
    layers : tuple of array, (groups, heads, V, V)
        Row i of a matrix says where ROI i looks.
    """

    groups: tuple[str, ...]
    counts: tuple[int, ...]
    layers: tuple[np.ndarray, ...]

    def matrix(self, layer: int = 0, head: int | None = None, group: str = EVERYONE) -> np.ndarray:
        """Return one (V, V) matrix: of a layer (from 0) and a head, or the mean of the layer's heads."""
        if not 0 <= layer < len(self.layers):
            raise BadInput(f"layer is {layer}; the model has layers 0 to {len(self.layers) - 1}.")
        if group not in self.groups:
            raise BadInput(f"group is {group!r}; choose from {', '.join(self.groups)}.")
        heads = self.layers[layer][self.groups.index(group)]
        return heads.mean(axis=0) if head is None else heads[head]

    def maps(self) -> tuple[pd.DataFrame, np.ndarray]:
        """Return all matrices, (M, V, V), and which group, layer and head each is of; ``mean`` is over heads."""
        keys, found = [], []
        for g, group in enumerate(self.groups):
            for i, layer in enumerate(self.layers):
                keys.append({"group": group, "layer": i + 1, "head": "mean"})
                found.append(layer[g].mean(axis=0))
                for h in range(layer.shape[1] if layer.shape[1] > 1 else 0):
                    keys.append({"group": group, "layer": i + 1, "head": str(h + 1)})
                    found.append(layer[g, h])
        return pd.DataFrame(keys), np.stack(found)


def mean_attention(
    run: FittedRun,
    cohort: Cohort,
    rows: np.ndarray | None = None,
    groups: Sequence[object] | np.ndarray | None = None,
    batch_size: int = BATCH,
) -> MeanAttention:
    """Average attention over subjects, and over a run's members; no more than a batch is in memory.

    Parameters
    ----------
    run : TrainedRun
        Its networks are set to evaluation mode, because dropout would affect the attention weights.
    cohort : Cohort
    rows : array of int, optional
        Positions of the subjects; all by default.
    groups : sequence, optional
        The group of each of ``rows``, for example its class. Each group gets its own mean.
    batch_size : int

    Notes
    -----
    Heads have no common order between members. With several members, only the mean over heads is meaningful.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.load_cohort("cohort")
    >>> from bnt.training import TrainedRun
    >>> trained = TrainedRun("run")  # a folder made by bnt train
    >>> from bnt.explain import mean_attention
    >>> mean_attention(trained, cohort).matrix(layer=0).shape
    (20, 20)
    """
    rows = np.arange(len(cohort)) if rows is None else np.asarray(rows)
    if not len(rows):
        raise BadInput("rows is empty: attention is a mean over at least one subject.")
    named = np.array([EVERYONE] * len(rows)) if groups is None else np.array([str(g) for g in groups])
    if len(named) != len(rows):
        raise BadInput(f"There are {len(rows)} subjects and {len(named)} groups: give one group per subject.")
    names = sorted(set(named.tolist()) - {EVERYONE})
    inside = np.stack([named == name for name in names]) if names else np.zeros((0, len(rows)), dtype=bool)
    inside = np.concatenate([np.ones((1, len(rows)), dtype=bool), inside])  # (G, n)
    totals: list[np.ndarray] = []
    for model in run.learner.networks():
        for part, output in outputs(run, model, cohort, rows, batch_size):
            if not output.attention:
                raise BadInput(f"Model {run.config.model!r} has no attention: explain its edges instead.")
            if not totals:
                totals = [np.zeros((len(inside), *layer.shape[1:])) for layer in output.attention]
            for total, layer in zip(totals, output.attention):
                values = layer.cpu().numpy()  # (B, H, V, V)
                for g, members in enumerate(inside[:, part]):
                    total[g] += values[members].sum(axis=0, dtype=np.float64)
    counts = inside.sum(axis=1)
    n = (counts * run.learner.n_members).reshape(-1, 1, 1, 1)
    return MeanAttention((EVERYONE, *names), tuple(counts.tolist()), tuple(total / n for total in totals))


def attention_by_network(attention: MeanAttention, networks: Networks) -> pd.DataFrame:
    """Return the mean attention from each network to each network, one row per pair, without the attention of an ROI to
    itself.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.load_cohort("cohort")
    >>> from bnt.training import TrainedRun
    >>> trained = TrainedRun("run")  # a folder made by bnt train
    >>> from bnt.explain import Networks, attention_by_network, mean_attention
    >>> table = attention_by_network(mean_attention(trained, cohort), Networks.of(cohort))
    """
    keys, matrices = attention.maps()
    means = networks.block_means(matrices)  # (M, N, N)
    size = len(networks.names)
    table = keys.loc[keys.index.repeat(size * size)].reset_index(drop=True)
    table["from_network"] = np.tile(np.repeat(networks.names, size), len(keys))
    table["to_network"] = np.tile(networks.names, size * len(keys))
    table["attention"] = means.ravel()
    uniform = matrices.sum(axis=-1).mean(axis=-1) / matrices.shape[-1]  # 1 / V where rows sum to one
    table["times_uniform"] = (means / uniform[:, None, None]).ravel()
    return table


def _statistics(matrices: np.ndarray, hot: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return means within and between networks, (1 + N, M) each: all networks first, then each one's rows."""
    sizes = hot.sum(axis=0)  # (N,)
    reached = matrices @ hot  # (M, V, N)
    own = np.einsum("mvn,vn->nm", reached, hot)  # (N, M): sums of attention of a network to itself
    all_of = np.einsum("mv,vn->nm", matrices.sum(axis=2), hot)
    n_own, n_other = sizes * (sizes - 1), sizes * (len(hot) - sizes)
    within = np.concatenate([own.sum(axis=0)[None] / n_own.sum(), _over(own, n_own)])
    between = np.concatenate([(all_of - own).sum(axis=0)[None] / n_other.sum(), _over(all_of - own, n_other)])
    return within, between


def _over(sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
    counts = np.broadcast_to(counts[:, None], sums.shape)
    return np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)


def network_enrichment(
    matrices: np.ndarray,
    networks: Networks,
    n_permutations: int = 1000,
    seed: int = 0,
    keys: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Test whether matrices are stronger within networks than under permuted labels.

    Parameters
    ----------
    matrices : array, (M, V, V) or (V, V)
    networks : Networks
        ROIs without a network are left out.
    n_permutations : int
        The observed labels count as one more permutation, so p is never 0.
    seed : int
    keys : DataFrame, optional
        M rows that describe the matrices; they become the first columns of the table.

    Returns
    -------
    DataFrame
        For each matrix, one row for all networks and one per network with at least two ROIs: means within and between
        networks, their ratio, z and one-sided p under permutation, and Benjamini and Hochberg's q over all rows of the
        same kind.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.load_cohort("cohort")
    >>> from bnt.explain import Networks, network_enrichment
    >>> table = network_enrichment(cohort.batch([0]).numpy(), Networks.of(cohort), n_permutations=20)
    """
    inside = networks.assigned
    matrices = matrices[None] if matrices.ndim == 2 else matrices
    if n_permutations < 1:
        raise BadInput(f"n_permutations is {n_permutations}: give at least 1.", "n_permutations")
    hot = networks.one_hot()[inside]
    names = [name for name, size in zip(networks.names, hot.sum(axis=0)) if size > 0]
    hot = hot[:, hot.sum(axis=0) > 0]
    if len(names) < 2:
        raise BadInput(f"The atlas has {len(names)} named networks: enrichment needs two or more.")
    block = np.array(matrices[:, inside][:, :, inside], dtype=np.float64)
    block[:, np.arange(len(hot)), np.arange(len(hot))] = 0
    within, between = _statistics(block, hot)
    observed = within - between  # (1 + N, M)
    rng = np.random.default_rng(seed)
    null = np.empty((n_permutations, *observed.shape))
    for i in range(n_permutations):
        shuffled = _statistics(block, hot[rng.permutation(len(hot))])
        null[i] = shuffled[0] - shuffled[1]
    p = (1 + (null >= observed - 1e-12 * np.abs(observed)).sum(axis=0)) / (1 + n_permutations)
    sd = null.std(axis=0)
    z = np.divide(observed - null.mean(axis=0), sd, out=np.full_like(observed, np.nan), where=sd > 0)
    parts = []
    for k, name in enumerate(["all", *names]):
        if np.isnan(within[k]).any():
            continue
        columns = {"network": name, "within": within[k], "between": between[k]}
        part = pd.DataFrame(columns | {"ratio": within[k] / between[k], "z": z[k], "p": p[k]})
        parts.append(part if keys is None else pd.concat([keys.reset_index(drop=True), part], axis=1))
    table = pd.concat(parts, ignore_index=True)
    whole = (table["network"] == "all").to_numpy()
    q_values = np.empty(len(table))
    for kind in (whole, ~whole):
        if kind.any():
            q_values[kind] = false_discovery_control(table.loc[kind, "p"].to_numpy())
    return table.assign(q=q_values)


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
                raise BadInput(f"Model {run.config.model!r} has no clusters: train a model with OCRead or diffpool.")
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
    return DifferenceScore(d, float(null.mean()), float(null.std()), *_z_and_p(d, null))


def _z_and_p(value: float, null: np.ndarray) -> tuple[float, float]:
    """Return z, and the one-sided p, of a value under permutation; it counts as one more permutation itself."""
    sd = float(null.std())
    z = (value - float(null.mean())) / sd if sd > 0 else float("nan")
    return z, (1 + int((null >= value - 1e-12).sum())) / (1 + len(null))


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
    inside = networks.assigned
    mine, theirs = clusters[inside], networks.codes[inside]
    rng = np.random.default_rng(seed)
    orders = [rng.permutation(mine) for _ in range(n_permutations)]
    found = {}
    for name, measure in (("ari", adjusted_rand_score), ("nmi", normalized_mutual_info_score)):
        value = float(measure(theirs, mine))
        null = np.array([measure(theirs, order) for order in orders])
        z, p = _z_and_p(value, null)
        found[name] = {"value": value, "chance": float(null.mean()), "z": z, "p": p}
    return found


def clustering_stability(partitions: Sequence[np.ndarray]) -> dict[str, float]:
    """Return the mean adjusted Rand index and NMI over all pairs of hard clusterings (members, seeds or splits).

    Examples
    --------
    >>> import numpy as np
    >>> from bnt.explain import clustering_stability
    >>> found = clustering_stability([np.array([0, 0, 1, 1]), np.array([1, 1, 0, 0])])
    """
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
