"""Attention of a run's networks, averaged over subjects batch by batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from bnt.cohort import Cohort
from bnt.errors import BadInput
from bnt.explain.opening import BATCH, Weights, member_networks, outputs
from bnt.explain.rois import Networks

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
            raise BadInput(f"Layer {layer} was asked for; the model has layers 0 to {len(self.layers) - 1}.")
        if group not in self.groups:
            raise BadInput(f"There is no group {group!r}; there are {', '.join(self.groups)}.")
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
    weights: Weights,
    cohort: Cohort,
    rows: np.ndarray | None = None,
    groups: Sequence[object] | np.ndarray | None = None,
    batch_size: int = BATCH,
) -> MeanAttention:
    """Average attention over subjects, and over a run's members; no more than a batch is in memory.

    Parameters
    ----------
    weights : TrainedRun
        Its networks are put in evaluation mode: in training, dropout would be in the weights.
    cohort : Cohort
    rows : array of int, optional
        Subjects, as positions; everyone without it.
    groups : sequence, optional
        For each of ``rows`` the group, for example its class, that gets a mean of its own.
    batch_size : int

    Notes
    -----
    Heads have no common order over members: with several members, the mean over heads is what means something.
    """
    rows = np.arange(len(cohort)) if rows is None else np.asarray(rows)
    if not len(rows):
        raise BadInput("No subject was chosen: attention is a mean over at least one.")
    named = np.array([EVERYONE] * len(rows)) if groups is None else np.array([str(g) for g in groups])
    if len(named) != len(rows):
        raise BadInput(f"There are {len(rows)} subjects and {len(named)} groups: give one a subject.")
    names = sorted(set(named.tolist()) - {EVERYONE})
    inside = np.stack([named == name for name in names]) if names else np.zeros((0, len(rows)), dtype=bool)
    inside = np.concatenate([np.ones((1, len(rows)), dtype=bool), inside])  # (G, n)
    totals: list[np.ndarray] = []
    for model in member_networks(weights):
        for part, output in outputs(weights, model, cohort, rows, batch_size):
            if not output.attention:
                raise BadInput(f"Model {weights.config.model!r} has no attention: explain its edges instead.")
            if not totals:
                totals = [np.zeros((len(inside), *layer.shape[1:])) for layer in output.attention]
            for total, layer in zip(totals, output.attention):
                values = layer.cpu().numpy()  # (B, H, V, V)
                for g, members in enumerate(inside[:, part]):
                    total[g] += values[members].sum(axis=0, dtype=np.float64)
    counts = inside.sum(axis=1)
    n = (counts * len(weights.members)).reshape(-1, 1, 1, 1)
    return MeanAttention((EVERYONE, *names), tuple(counts.tolist()), tuple(total / n for total in totals))


def attention_by_network(attention: MeanAttention, networks: Networks) -> pd.DataFrame:
    """Return the mean attention from each network to each, one row a pair; an ROI's own is left out."""
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
