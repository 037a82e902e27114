"""Is attention stronger within functional networks than chance would have it?

Network labels are permuted over ROIs, which keeps the sizes of the networks and everything about the matrix. The
statistic is the mean within networks less the mean between them, an ROI's attention to itself left out. ROIs of one
network are neighbours and so alike in many ways: a small p-value says that attention follows the atlas, not that it
follows function rather than distance. The input's own row in a table says how much of it the connectome had already.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from bnt.errors import BadInput
from bnt.explain.rois import Networks


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
        The labels as they are count as one more, so that p is never 0.
    seed : int
    keys : DataFrame, optional
        M rows that say what each matrix is; they come first in the table.

    Returns
    -------
    DataFrame
        For each matrix a row for all networks and one for each of two ROIs or more: means within and between, their
        ratio, z and one-sided p under permutation, and q, Benjamini and Hochberg's over all rows of the same kind.
    """
    from scipy.stats import false_discovery_control

    inside = networks.assigned
    matrices = matrices[None] if matrices.ndim == 2 else matrices
    if n_permutations < 1:
        raise BadInput(f"There are {n_permutations} permutations: give at least 1, for example 1000.")
    hot = networks.one_hot()[inside]
    names = [name for name, size in zip(networks.names, hot.sum(axis=0)) if size > 0]
    hot = hot[:, hot.sum(axis=0) > 0]
    if len(names) < 2:
        raise BadInput(f"The atlas has {len(names)} named network: enrichment needs two or more.")
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
