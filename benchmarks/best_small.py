"""Is `best` never a bad choice on small cohorts? Simulated ones, fitted and scored by the models' own code.

    python benchmarks/best_small.py --cohorts 12 --out results/simulated/best_small.csv

Each kind of cohort is simulated anew from each seed: 50 ROIs, four sites, 140 people to fit on and 280 to test on, but
for what its name says; connectomes only unless it says "with series". A quarter of the people are women. Scores are age
(which differs between sites and weakens every network a little), or made of Fisher z edges less their site's mean, with
noise that leaves 30 % of the variance: five edges, or all with random weights. "site" adds an effect of each site as
large as the noise. `best` is compared with the best of the three others on average over cohorts, by a paired t
interval: cohorts are independent.
The table is continued if it exists; `--summary` prints the differences of one.

    python benchmarks/best_small.py --time 40 1000

prints CPU seconds and the largest memory of one fit on random correlations of 40 people and 1,000 ROIs.
"""

from __future__ import annotations

import argparse
import resource
import time
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

import bnt
from bnt.cohort import Cohort
from bnt.cohort._files import write_atomic
from bnt.models import create_model
from bnt.models.classical._inputs import Inputs
from bnt.studies._statistics import paired_test
from bnt.training._task import calibration_error

MODELS = ("ridge", "linear-ensemble", "multi-kernel", "best")
KINDS = {  # name: target, people to fit on, sites
    "two classes": ("diagnosis", 140, 4),
    "two classes, with series": ("diagnosis", 140, 4),
    "two classes, 100 people": ("diagnosis", 100, 4),
    "two classes, one site": ("diagnosis", 140, 1),
    "four classes": ("diagnosis and sex", 140, 4),
    "four classes, 100 people": ("diagnosis and sex", 100, 4),
    "age": ("age", 140, 4),
    "age, with series": ("age", 140, 4),
    "age, 100 people": ("age", 100, 4),
    "age, one site": ("age", 140, 1),
    "five edges": ("five", 140, 4),
    "five edges, one site": ("five", 140, 1),
    "all edges": ("all", 140, 4),
    "all edges, with series": ("all", 140, 4),
    "all edges and site": ("all and site", 140, 4),
    "site alone": ("site", 140, 4),
}
N_TRAIN, N_TEST = 140, 280


simulated = lru_cache(maxsize=2)(bnt.simulate_cohort)  # the kinds share cohorts


def target_of(cohort: Cohort, name: str, seed: int) -> np.ndarray:
    """Return class codes, or a score."""
    people = cohort.participants
    if name == "age":
        return people["age"].to_numpy(dtype=np.float64)
    diagnosis = people["diagnosis"].to_numpy(dtype=np.int64)
    if name.startswith("diagnosis"):
        return diagnosis + (2 * (people["sex"] == "F").to_numpy() if name.endswith("sex") else 0)
    rng = np.random.default_rng(seed)
    sites, at = np.unique(np.asarray(cohort.sites), return_inverse=True)
    edges = np.arctanh(np.clip(cohort.edges(np.arange(len(cohort))), -0.999, 0.999)).astype(np.float64)
    for site in range(len(sites)):
        edges[at == site] -= edges[at == site].mean(axis=0)
    n_edges = edges.shape[1]
    weights = np.zeros(n_edges)
    if name.startswith("five"):
        weights[rng.choice(n_edges, 5, replace=False)] = 1.0
    elif name.startswith("all"):
        weights = rng.standard_normal(n_edges)
    signal = edges @ weights
    signal = np.sqrt(0.3) * signal / signal.std() if weights.any() else signal
    effects = np.sqrt(0.7) * rng.standard_normal(len(sites)) if name.endswith("site") else np.zeros(len(sites))
    return signal + effects[at] + np.sqrt(0.7) * rng.standard_normal(len(signal))


def scores_of(truth: np.ndarray, found: np.ndarray, n_classes: int) -> dict[str, float]:
    """Return the AUROC of decisions or probabilities (n, k), classes against the rest; or correlation, R2 and MAE."""
    if n_classes == 1:
        error, spread = truth - found[:, 0], found.std()
        r = float(np.corrcoef(truth, found[:, 0])[0, 1]) if spread > 0 else 0.0
        return {"r": r, "r2": 1 - float(np.mean(error**2) / truth.var()), "mae": float(np.abs(error).mean())}
    wanted = [1] if n_classes == 2 else range(n_classes)
    each = [roc_auc_score(truth == c, column) for c, column in zip(wanted, found.T[-len(wanted) :])]
    return {"auroc": float(np.mean(each))}


def calibration_of(truth: np.ndarray, probability: np.ndarray) -> dict[str, float]:
    """Return Brier score and expected calibration error, means over classes, each against the rest."""
    each = [(truth == c, column) for c, column in enumerate(probability.T)]
    each = each[1:] if len(each) == 2 else each
    return {
        "brier": float(np.mean([np.mean((q - positive) ** 2) for positive, q in each])),
        "ece": float(np.mean([calibration_error(positive, q) for positive, q in each])),
    }


def one_cohort(kind: str, seed: int) -> list[dict[str, Any]]:
    """Simulate a cohort, fit the models and score them."""
    target, n_train, n_sites = KINDS[kind]
    cohort = simulated(n_subjects=N_TRAIN + N_TEST, n_rois=50, n_sites=n_sites, seed=seed, male_share=0.75)
    y, inputs = target_of(cohort, target, seed), Inputs.of(cohort)
    inputs = inputs if kind.endswith("with series") else replace(inputs, series=None)
    n_classes = len(np.unique(y)) if target.startswith("diagnosis") else 1
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = order[:n_train], order[N_TRAIN:]
    rows = []
    for name in MODELS:
        start = time.process_time()
        model = create_model(name, 50, n_classes).fit(inputs.take(train), y[train])
        there = inputs.take(test)
        if n_classes == 1:
            found = scores_of(y[test], model.predict(there)[:, None], 1)
        else:
            p = model.predict_proba(there)
            found = {**scores_of(y[test], p, n_classes), **calibration_of(y[test], p)}
        cpu = time.process_time() - start
        rows.append({"cohort": kind, "seed": seed, "model": name, **found, "cpu_s": cpu})
    return rows


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Return for each kind and score the means, and the difference of `best` to the best of the others."""
    rows = []
    for kind, part in table.groupby("cohort", sort=False):
        for score in ("auroc", "brier", "ece", "r", "r2", "mae"):
            found = part.pivot(index="seed", columns="model", values=score) if score in part else pd.DataFrame()
            if not len(found) or found.isna().to_numpy().any():
                continue
            sign = 1.0 if score in ("auroc", "r", "r2") else -1.0
            means = found[list(MODELS)].mean()
            other = (sign * means.drop("best")).idxmax()
            test = paired_test(found["best"], found[other])
            rows.append(
                {"cohort": kind, "score": score, "cohorts": len(found), **means.to_dict(), "other": other,
                 "difference": test.difference, "low": test.low, "high": test.high}
            )  # fmt: skip
    return pd.DataFrame(rows)


def time_fit(n: int, n_rois: int) -> None:
    """Print what one fit on random correlations takes."""
    rng = np.random.default_rng(0)
    maps, upper = 0.5 * rng.standard_normal((10, n_rois)), np.triu_indices(n_rois, 1)
    edges = np.empty((n, len(upper[0])), dtype=np.float32)
    for row in edges:
        series = rng.standard_normal((150, n_rois)) + rng.standard_normal((150, 10)) @ maps
        row[:] = np.corrcoef(series.T)[upper]
    inputs = Inputs(edges, kind="pearson", sites=np.resize(["a", "b"], n))
    start = time.process_time()
    create_model("best", n_rois, 2).fit(inputs, np.arange(n) // 2 % 2)
    gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"{n} people, {n_rois} ROIs: {time.process_time() - start:.1f} CPU seconds, {gb:.2f} GB")


def main() -> None:
    """Run what is missing; the table is written after each cohort."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--time", type=int, nargs=2, metavar=("PEOPLE", "ROIS"))
    parser.add_argument("--cohorts", type=int, default=12)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--summary", action="store_true")
    options = parser.parse_args()
    if options.time:
        time_fit(*options.time)
        return
    if options.out is None:
        parser.error("give --out, or --time")
    rows = pd.read_csv(options.out).to_dict("records") if options.out.is_file() else []
    done = {(row["cohort"], row["seed"]) for row in rows}
    for seed in range(options.first_seed, options.first_seed + options.cohorts):
        for kind in options.kinds:
            if options.summary or (kind, seed) in done:
                continue
            rows += one_cohort(kind, seed)
            options.out.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(options.out, pd.DataFrame(rows).to_csv(index=False, float_format="%.6f"))
    print(summary(pd.DataFrame(rows)).round(4).to_string(index=False))


if __name__ == "__main__":
    main()
