"""Outputs of a finished run's networks batch by batch, and their attention averaged over subjects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from bnt.cohort import Cohort, load_cohort
from bnt.cohort._triangle import Networks
from bnt.errors import BadInput
from bnt.models import find_entry
from bnt.models.classical._inputs import Inputs
from bnt.nn import Output
from bnt.splits import read_splits
from bnt.splits._split import PARTS
from bnt.training._config import RunConfig
from bnt.training._learner import Learner
from bnt.training._trained import is_shared

BATCH = 16  # attention of a batch is (16, heads, V, V): 40 MB at V = 400
PATTERNS_INSTEAD = "bnt explain --method pattern maps its edges"  # said by bnt predict too, which has no --method


class FittedRun(Protocol):
    """A configuration and its fitted learner; :class:`bnt.training.TrainedRun` is one."""

    config: RunConfig
    learner: Learner


@dataclass
class Fitted:
    """A fitted run that was never written to disk."""

    config: RunConfig
    learner: Learner


def is_network(run: FittedRun) -> bool:
    """Return whether a run's model is a neural network (and not a linear model)."""
    return find_entry(run.config.model).trains_in_epochs


def outputs(
    run: FittedRun, network: nn.Module, cohort: Cohort, rows: np.ndarray, batch_size: int = BATCH
) -> Iterator[tuple[slice, Output]]:
    """Yield the positions within ``rows`` and the network's output of one batch after the other."""
    # Nothing is kept from batch to batch: all matrices of a large cohort would not fit into memory.
    batches = run.learner.batches(cohort, np.asarray(rows), resident_bytes=0)
    start = 0
    for batch in batches.in_order(batch_size):
        with torch.no_grad():
            output = network(batch.x, **batch.of_series, explain=True)
        yield slice(start, start + len(batch.x)), output
        start += len(batch.x)


def keeps_no_subjects(folder: Path) -> bool:
    """Whether this is a saved estimator or an exported model: weights without the subjects they were learned from."""
    return (folder / "estimator.json").is_file() or is_shared(folder)


def part_ids(folder: Path, part: str) -> np.ndarray:
    """Return the participants of one part of a run's split."""
    return np.array(read_splits(folder / "splits.csv")[0].parts[part], dtype=str)


def part_rows(folder: Path, cohort: Cohort, part: str) -> np.ndarray:
    """Return the positions in a cohort of one part of a run's split; those it does not hold are left out."""
    position = {name: i for i, name in enumerate(cohort.ids.tolist())}
    return np.array([position[name] for name in part_ids(folder, part) if name in position], dtype=np.int64)


def training_part(folder: Path, config: RunConfig, cohort: Cohort | None = None) -> tuple[Cohort, np.ndarray] | None:
    """Return where a run's training subjects are: in the cohort given, or in the one it was trained on.

    None where neither holds them all any more, and of a saved or exported model, which does not know their names. A
    refitted run was trained on its validation part too.
    """
    if keeps_no_subjects(folder):
        return None
    parts = PARTS[:2] if config.recipe.refit else PARTS[:1]
    wanted = sum(len(part_ids(folder, part)) for part in parts)
    candidates = [cohort] if cohort is not None else []
    if config.cohort and (Path(config.cohort) / "cohort.json").is_file():
        candidates.append(load_cohort(config.cohort))
    for one in candidates:
        rows = np.concatenate([part_rows(folder, one, part) for part in parts])
        if wanted and len(rows) == wanted and one.n_rois == config.n_rois:
            return one, rows
    return None


def true_labels(config: RunConfig, cohort: Cohort, rows: np.ndarray) -> np.ndarray | None:
    """Return the labels of some subjects as codes (or standardised scores); None where they have none."""
    if config.label not in cohort.participants:
        return None
    some = cohort.select(rows)
    if some.participants[config.label].isna().any():
        return None
    values = some.labels(config.label)
    if config.task.kind == "classification" and not set(values.tolist()) <= set(config.task.classes):
        return None
    return config.task.encode(values)


def margin_of(logits: Tensor, column: int) -> Tensor:
    """Return the logit of a class less the mean of the others', (B,); the output itself where there is one."""
    if logits.shape[1] == 1:
        return logits[:, 0]
    others = (logits.sum(dim=1) - logits[:, column]) / (logits.shape[1] - 1)
    return logits[:, column] - others


def decision_of(decisions: np.ndarray, n_classes: int, column: int) -> np.ndarray:
    """Return a linear model's decision for a class from its columns; two classes share one, of either sign."""
    if n_classes <= 2:
        return decisions[:, 0] * (-1.0 if n_classes == 2 and column == 0 else 1.0)
    return decisions[:, column]


def margins(run: FittedRun, cohort: Cohort, rows: np.ndarray, column: int) -> np.ndarray:
    """Return the margin of a class for some subjects, the members' mean, (n,)."""
    if not is_network(run):
        model: Any = run.learner.models[0]
        found = model.decisions(Inputs.of(run.learner.prepared(cohort, rows), rows, bounded=True))
        return decision_of(found, run.config.task.n_outputs, column)
    total = np.zeros(len(rows))
    for model in run.learner.networks():
        for part, output in outputs(run, model, cohort, rows, batch_size=64):
            total[part] += margin_of(output.logits.double(), column).cpu().numpy()
    return total / run.learner.n_members


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
    from scipy.stats import false_discovery_control

    inside = networks.assigned
    matrices = matrices[None] if matrices.ndim == 2 else matrices
    if n_permutations < 1:
        raise BadInput(f"n_permutations is {n_permutations}: give at least 1.", parameter="n_permutations")
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
