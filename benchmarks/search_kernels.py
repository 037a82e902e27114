"""Screen ways to describe connectivity by kernel ridge regression, on development splits only.

    OMP_NUM_THREADS=1 python benchmarks/search_kernels.py COHORT SPLITS.csv --out results/abide/search_kernels.csv

Every description becomes a kernel once for all subjects; tangent spaces have the mean of everyone as their reference
here, which no label enters, and which the models themselves never do. On each split the kernel is centred and
normalised on training and validation, and the test part is scored. ``gain`` is over ``linear-ensemble``, fitted in the
same way, paired over splits; ``added`` is the gain when the description's decision is averaged with the three of
``linear-ensemble``. Sets are the plain mean of their kernels.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.metrics import roc_auc_score

from bnt.cohort import flat, load_cohort, square
from bnt.cohort._files import write_atomic
from bnt.connectivity import TangentSpace
from bnt.models.classical import LinearEnsemble
from bnt.models.classical import _solvers as solvers
from bnt.models.classical._features import ShrunkTangent
from bnt.models.classical._inputs import Inputs
from bnt.models.classical._solvers import Centring
from bnt.models.classical._subject_matrices import from_series, pack, unpack

DEVELOPMENT = [f"seed{i}" for i in range(20)]
PENALTIES = (0.1, 0.2, 0.3, 0.5, 1.0)
SETS = {
    "multi-kernel (five views)": ("shrunk 0.5", "tangent", "amplitude tangent", "prewhitened tangent", "lag 1"),
    "four views, without tangent": ("shrunk 0.5", "amplitude tangent", "prewhitened tangent", "lag 1"),
    "eight views": (
        *("shrunk 0.5", "tangent", "amplitude tangent", "prewhitened tangent"),
        *("lag 1", "Fisher z", "global signal removed", "amplitude"),
    ),
}
Series = Sequence[np.ndarray]


def standardise(x: np.ndarray) -> np.ndarray:
    """Return columns of mean 0 and variance 1; a constant column is 0."""
    x = np.asarray(x, dtype=np.float64)
    x = x - x.mean(0)
    sd = x.std(0)
    return x / np.where(sd > 1e-8, sd, np.inf)


def tangent(packed: np.ndarray, n_rois: int) -> np.ndarray:
    """Return tangent vectors at the mean of everyone."""
    matrices = unpack(packed.astype(np.float64), n_rois)
    return pack(TangentSpace("arithmetic").fit(matrices).transform(matrices))


def of_series(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Inputs, int], np.ndarray]:
    """Return the tangent description of changed series."""
    return lambda inputs, v: tangent(from_series([change(x).astype(np.float32) for x in series_of(inputs)], v), v)


def series_of(inputs: Inputs) -> Series:
    """Return the series."""
    assert inputs.series is not None
    return inputs.series


def shrunk(share: float) -> Callable[[Inputs, int], np.ndarray]:
    """Return the tangent space of correlations with a share of the identity."""
    return lambda inputs, v: ShrunkTangent(v, share).fit(inputs, np.ones(len(inputs))).transform(inputs)


def estimated(name: str) -> Callable[[Inputs, int], np.ndarray]:
    """Return the tangent space of an estimate of the models."""
    return lambda inputs, v: tangent(from_series(series_of(inputs), v, name), v)


def log_euclidean(inputs: Inputs, n_rois: int) -> np.ndarray:
    """Return matrix logarithms of Ledoit-Wolf covariances."""
    values, vectors = torch.linalg.eigh(torch.from_numpy(unpack(from_series(series_of(inputs), n_rois), n_rois)))
    return pack(((vectors * values.clamp_min(1e-8).log().unsqueeze(1)) @ vectors.mT).numpy())


def lagged(lag: int, direction: int) -> Callable[[Inputs, int], np.ndarray]:
    """Return correlations ``lag`` volumes apart, the sum (+1) or the difference (-1) of both directions."""

    def describe(inputs: Inputs, n_rois: int) -> np.ndarray:
        out = []
        for one in series_of(inputs):
            x = standardise(one)
            product = x[lag:].T @ x[:-lag] / (len(x) - lag)
            out.append(flat((product + direction * product.T)[None])[0])
        return np.array(out)

    return describe


def remove_global(x: np.ndarray) -> np.ndarray:
    """Regress the mean of all regions out."""
    x = standardise(x)
    mean = x.mean(1, keepdims=True)
    return x - mean @ (mean.T @ x) / (mean**2).sum()


def steady(x: np.ndarray, share: float = 0.85) -> np.ndarray:
    """Leave out the volumes around the largest jumps."""
    x = standardise(x)
    jump = np.r_[0.0, np.sqrt((np.diff(x, axis=0) ** 2).mean(1))]
    jump = np.maximum(jump, np.r_[jump[1:], 0.0])
    return x[jump <= np.quantile(jump, share)]


def band(low: float, high: float) -> Callable[[np.ndarray], np.ndarray]:
    """Return a filter that keeps the frequencies between two shares of a subject's power."""

    def keep(x: np.ndarray) -> np.ndarray:
        spectrum = np.fft.rfft(standardise(x), axis=0)
        power = (np.abs(spectrum) ** 2).sum(1)
        share = np.cumsum(power) / power.sum()
        return np.fft.irfft(spectrum * ((share > low) & (share <= high + 1e-9))[:, None], len(x), axis=0)

    return keep


def amplitudes(inputs: Inputs, n_rois: int) -> np.ndarray:
    """Return the logarithm of each region's spread beside the subject's."""
    found = [np.asarray(x, dtype=np.float64).std(0) for x in series_of(inputs)]
    return np.array([np.log(sd / np.sqrt((sd**2).mean()) + 1e-3) for sd in found])


def memory(inputs: Inputs, n_rois: int) -> np.ndarray:
    """Return autocorrelations of each region."""
    out = []
    for one in series_of(inputs):
        x = standardise(one)
        out.append(np.concatenate([(x[k:] * x[:-k]).mean(0) for k in (1, 2, 3, 4, 6)]))
    return np.array(out)


DESCRIPTIONS: dict[str, Callable[[Inputs, int], np.ndarray]] = {
    "Fisher z": lambda inputs, v: np.arctanh(np.clip(inputs.edges, -0.999, 0.999)),
    "tangent": estimated("standardised"),
    "amplitude tangent": estimated("amplitude"),
    "prewhitened tangent": estimated("prewhitened"),
    "log-Euclidean": log_euclidean,
    **{f"shrunk {share}": shrunk(share) for share in (0.1, 0.3, 0.5, 0.7, 0.85)},
    "global signal removed": of_series(remove_global),
    "differences": of_series(lambda x: np.diff(x, axis=0)),
    "jumps removed": of_series(steady),
    "clipped": of_series(lambda x: np.tanh(standardise(x) / 1.5)),
    "slow half": of_series(band(-1.0, 0.5)),
    "fast half": of_series(band(0.5, 1.0)),
    **{f"lag {lag}": lagged(lag, 1) for lag in (1, 2, 3)},
    **{f"lag {lag}, direction": lagged(lag, -1) for lag in (1, 2, 3)},
    "amplitude": amplitudes,
    "autocorrelation": memory,
    "two steps": lambda inputs, v: pack(np.matmul(m := square(inputs.edges, 1.0), m)),
}


def normalised(
    products: np.ndarray, sites: np.ndarray | None, fitted: np.ndarray, rest: np.ndarray
) -> list[np.ndarray]:
    """Return the centred kernel over lengths: among the fitted, and of the rest with them."""
    centring = Centring.fit(None if sites is None else sites[fitted], np.ones(len(fitted)))
    groups = [centring.groups(None if sites is None else sites[rows], len(rows)) for rows in (fitted, rest)]
    among, of = products[np.ix_(fitted, fitted)], products[np.ix_(rest, fitted)]
    means = np.einsum("gn,gn->g", centring.averaging @ among, centring.averaging)
    squares = np.diagonal(products)[rest] - 2 * (of @ centring.averaging.T)[np.arange(len(rest)), groups[1]]
    kernels = [centring.kernel(a, among, g, groups[0]) for a, g in ((among, groups[0]), (of, groups[1]))]
    lengths = np.sqrt(np.diagonal(kernels[0]))
    theirs = np.sqrt(np.maximum(squares + means[groups[1]], 1e-12))
    return [kernels[0] / np.outer(lengths, lengths), kernels[1] / np.outer(theirs, lengths)]


class Screen:
    """The development splits, the linear ensemble's decisions there, and what a kernel scores beside them."""

    def __init__(self, inputs: Inputs, y: np.ndarray, parts: pd.DataFrame) -> None:
        self.y, self.sites = y, inputs.sites
        self.splits = [(np.flatnonzero(parts[s].isin([0, 1])), np.flatnonzero(parts[s] == 2)) for s in DEVELOPMENT]
        v = int((1 + np.sqrt(1 + 8 * inputs.edges.shape[1])) / 2)
        self.linear = [
            LinearEnsemble(v, 2).fit(inputs.take(a), y[a]).decisions(inputs.take(b))[:, 0] for a, b in self.splits
        ]
        self.base = np.array([roc_auc_score(y[b], d) for (_, b), d in zip(self.splits, self.linear)])

    def row(self, name: str, kernels: list[tuple[np.ndarray, bool]]) -> list[dict[str, object]]:
        """Return one row a penalty for the mean of kernels, each with or without site centring."""
        scores = {penalty: ([], []) for penalty in PENALTIES}
        for (fitted, rest), linear in zip(self.splits, self.linear):
            parts = [normalised(k, self.sites if by_site else None, fitted, rest) for k, by_site in kernels]
            among, of = (np.mean([p[i] for p in parts], axis=0) for i in (0, 1))
            for penalty, (alone, added) in scores.items():
                dual, mean = solvers.ridge(among, self.y[fitted], np.ones(len(fitted)), 2, penalty)
                decision = (of @ dual + mean)[:, 0]
                alone.append(roc_auc_score(self.y[rest], decision))
                added.append(roc_auc_score(self.y[rest], 3 * linear + decision))
        how = {(True,): "site", (False,): "all", (False, True): "both"}[tuple(sorted({s for _, s in kernels}))]
        rows = []
        for penalty, (alone, added) in scores.items():
            gain = np.array(alone) - self.base
            rows.append(
                {
                    "candidate": name,
                    "centred_on": how,
                    "penalty": penalty,
                    "auroc": np.mean(alone),
                    "gain": gain.mean(),
                    "gain_se": gain.std(ddof=1) / np.sqrt(len(gain)),
                    "added": np.mean(added) - self.base.mean(),
                }
            )
        return rows


def main() -> None:
    """Screen every description and set, and write the table after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cohort", type=Path)
    parser.add_argument("splits", type=Path)
    parser.add_argument("--label", default="diagnosis")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    cohort = load_cohort(options.cohort)
    parts = pd.read_csv(options.splits, index_col=0).reindex(cohort.ids)
    inputs = Inputs.of(cohort)
    screen = Screen(inputs, np.asarray(cohort.labels(options.label)).astype(int), parts)
    rows: list[dict[str, object]] = [{"candidate": "linear-ensemble", "auroc": screen.base.mean(), "gain": 0.0}]
    products = {}
    for name, describe in DESCRIPTIONS.items():
        features = describe(inputs, cohort.n_rois).astype(np.float32)
        features -= features.mean(0)
        products[name] = (features @ features.T).astype(np.float64)
        rows += screen.row(name, [(products[name], False)]) + screen.row(name, [(products[name], True)])
        write_atomic(options.out, pd.DataFrame(rows).to_csv(index=False, float_format="%.5f"))
        print(f"{name}: {max(float(r['auroc']) for r in rows if r['candidate'] == name):.4f}", flush=True)
    for name, members in SETS.items():
        rows += screen.row(name, [(products[m], s) for m in members for s in (False, True)])
        write_atomic(options.out, pd.DataFrame(rows).to_csv(index=False, float_format="%.5f"))
        print(f"{name}: {max(float(r['auroc']) for r in rows if r['candidate'] == name):.4f}", flush=True)


if __name__ == "__main__":
    main()
