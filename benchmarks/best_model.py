"""Is `best` never a bad choice? Paired differences to the better of two models, on cohorts derived from one.

    python benchmarks/best_model.py COHORT SPLITS.csv --cache kernels --out results/abide/best_robust.csv

The cohorts are the given one, half as many ROIs (`merged`), the global signal removed (`global`), the first half of
each scan (`short`), a training part of 200 people (`people200`) and the largest site alone (`one-site`); each with its
series, and connectomes only. Every view of the three models becomes inner products of all subjects once; tangent
spaces have the mean of everyone as their reference here, which no label enters and which is the same for all models.
Then the models' own code fits on training and validation of each split and scores the test part, as recipe `best` does.
`--reference training` makes the products of each split anew, with references of its training part: these are the
numbers of `bnt compare --recipe best`, at eight times the cost. Only development splits, unless others are named.
`--summary` prints the differences of a table that exists.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from derived_cohorts import first_half, merge, pairs, without_global
from sklearn.metrics import roc_auc_score

from bnt.cohort import Cohort, load_cohort
from bnt.cohort._files import write_atomic
from bnt.cohort._scans import Series
from bnt.connectivity import connectomes
from bnt.models.classical import Best, LinearEnsemble, LinearModel, MultiKernel
from bnt.models.classical._best import SERIES, SeriesKernels, stacked_weights
from bnt.models.classical._features import Lagged, ShrunkTangent, TangentFeatures
from bnt.models.classical._inputs import Inputs
from bnt.models.classical._multi_kernel import views_of
from bnt.models.classical._solvers import folds, gram
from bnt.studies._statistics import paired_test

KINDS = ("abide", "merged", "global", "short")
FEWER = ("people200", "one-site")  # of the first kind
REFERENCES = ("linear-ensemble", "multi-kernel")
Products = dict[str, np.ndarray]
Part = tuple[np.ndarray, np.ndarray]


def derived(cohort: Cohort, kind: str) -> Inputs:
    """Return the subjects of a derived cohort; a ROI without a signal stays without one."""
    inputs = Inputs.of(cohort)
    if kind == "abide":
        return inputs
    change = {"merged": lambda: merge(pairs(cohort)), "global": lambda: without_global, "short": lambda: first_half}
    made, series = change[kind](), []
    for one in cohort.timeseries or ():
        found = made(np.asarray(one, dtype=np.float64))
        if found.shape[1] == one.shape[1]:
            found[:, one.std(axis=0) == 0] = 0.0
        series.append(found.astype(np.float32))
    lengths = np.array([len(one) for one in series])
    packed = Series(np.concatenate(series), np.cumsum(lengths) - lengths, lengths)
    return replace(inputs, edges=np.asarray(connectomes(series)), series=packed)


def kept_products(cohort: Cohort, kind: str, file: Path) -> Products:
    """Return the inner products of a derived cohort, with everyone's mean as the reference, kept in a file."""
    if not file.is_file():
        inputs = derived(cohort, kind)
        np.savez(file, **products_of(inputs, np.arange(len(inputs))))
    with np.load(file) as kept:
        return {name: kept[name] for name in kept.files}


def products_of(inputs: Inputs, fitted: np.ndarray) -> Products:
    """Return the inner products of every view of the three models; the views learn from the ``fitted`` rows."""
    n_rois = int((1 + np.sqrt(1 + 8 * inputs.edges.shape[1])) / 2)
    best = Best(n_rois)
    best.make(True)
    views = {**best.views, "filled": ShrunkTangent(n_rois, 0.5)}
    views |= {name: TangentFeatures(n_rois, 0.5, name) for name in ("standardised", "amplitude", "prewhitened")}
    views["lagged"] = Lagged(n_rois)
    found = {}
    for name, view in views.items():
        features = view.fit(inputs.take(fitted), np.ones(len(fitted))).transform(inputs)
        found[name] = gram(features - features[fitted].mean(axis=0))
        print(name, flush=True)
    return found


class Fits:
    """The three models on inner products."""

    def __init__(self, products: Products, y: np.ndarray, sites: np.ndarray) -> None:
        self.products, self.y, self.sites, self.weight = products, y, sites, np.ones(len(y))

    def linear_ensemble(self, has_series: bool, part: Part) -> np.ndarray:
        """Return its decisions for the held-out subjects."""
        views = {"tangent": "standardised" if has_series else "shrunk0.3", "edges": "edges"}
        members = LinearEnsemble(2).members.values()
        return np.mean([self._one(m, views[m.space], part) for m in members], axis=0)

    def multi_kernel(self, has_series: bool, part: Part) -> np.ndarray:
        """Return its decisions for the held-out subjects."""
        renamed = {"shrunk_tangent": "filled", "lagged": "lagged", "edges": "edges"}
        names = [renamed.get(name, name.removesuffix("_tangent")) for name in views_of(2, has_series, 0.5)]
        return self._kernels(MultiKernel(2), names, part)

    def _kernels(self, model: MultiKernel, names: Sequence[str], part: Part) -> np.ndarray:
        some = [self.products[name] for name in names]
        return model.held_out(some, self.sites, self.y, self.weight, *part)[:, 0]

    def best(self, part: Part) -> dict[bool, np.ndarray]:
        """Return its decisions for the held-out subjects, with and without series."""
        fitted = part[0]
        inner = list(folds(self.y[fitted], 2, sites=self.sites[fitted]))  # there are no families in these data
        model = Best(2)
        model.make(True)
        final, held_out = {}, {}
        for name in model.names():
            final[name], held_out[name] = self._member(model, name, part), np.empty(len(fitted))
            for a, b in inner:
                held_out[name][b] = self._member(model, name, (fitted[a], fitted[b]))
        decisions = {}
        for has_series in (True, False):
            model.make(has_series)
            stack = np.stack([held_out[name] for name in model.names()], axis=1)[:, None]
            shares = stacked_weights(stack, self.y[fitted], self.weight[fitted], 2, model.prior())
            decisions[has_series] = np.stack([final[name] for name in model.names()], axis=1) @ shares
        return decisions

    def _member(self, model: Best, name: str, part: Part) -> np.ndarray:
        if name == SERIES:
            return self._kernels(SeriesKernels(2), ("amplitude", "prewhitened", "lagged"), part)
        view, _, kind = name.rpartition(".")
        return self._one(model.members[view][kind], view, part)

    def _one(self, member: LinearModel, view: str, part: Part) -> np.ndarray:
        return member.held_out(self.products[view], self.sites, self.y, self.weight, *part)[:, 0]


def parts_of(table: pd.DataFrame, names: list[str], kind: str, sites: np.ndarray) -> Iterator[tuple[str, Part]]:
    """Yield the rows to fit on and to test on."""
    largest = pd.Series(sites).value_counts().index[0]
    for i, name in enumerate(names):
        train, validation, rest = (np.flatnonzero(table[name] == part) for part in range(3))
        fitted = np.concatenate([train, validation])  # the order of a refit, by which inner folds are dealt out
        if kind == "people200":
            fitted = np.random.default_rng(i).permutation(fitted)[:200]
        if kind == "one-site":
            fitted, rest = fitted[sites[fitted] == largest], rest[sites[rest] == largest]
        yield name, (fitted, rest)


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Return for each cohort the means, and the difference to the better reference with its corrected interval."""
    rows = []
    for (cohort, series), part in table.groupby(["cohort", "series"], sort=False):
        scores = part.pivot(index="split", columns="model", values="auroc")
        better = scores[list(REFERENCES)].mean().idxmax()
        found = paired_test(scores["best"], scores[better], float((part.n_test / part.n_train).mean()))
        means = {name: 100 * scores[name].mean() for name in (*REFERENCES, "best")}
        low, high = 100 * found.low, 100 * found.high
        wins = int((scores["best"] > scores[better]).sum())
        rows.append(
            {"cohort": cohort, "series": series, "splits": len(scores), **means, "difference": 100 * found.difference,
             "low": low, "high": high, "better_in": wins}
        )  # fmt: skip
    return pd.DataFrame(rows)


def main() -> None:
    """Fit and score, cohort by cohort; the table is written after each split and continued if it exists."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cohort", type=Path)
    parser.add_argument("splits", type=Path)
    parser.add_argument("--label", default="diagnosis")
    parser.add_argument("--cache", type=Path, required=True, help="folder for inner products, about 70 MB per cohort")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--kinds", nargs="+", default=[*KINDS, *FEWER], choices=[*KINDS, *FEWER])
    parser.add_argument("--split-names", nargs="+", default=[f"seed{i}" for i in range(20)])
    parser.add_argument("--reference", default="everyone", choices=["everyone", "training"])
    parser.add_argument("--summary", action="store_true")
    options = parser.parse_args()
    rows = pd.read_csv(options.out).to_dict("records") if options.out.is_file() else []
    if not options.summary:
        cohort = load_cohort(options.cohort)
        table = pd.read_csv(options.splits, index_col=0).reindex(cohort.ids)
        y, sites = np.asarray(cohort.labels(options.label)).astype(int), np.asarray(cohort.sites).astype(str)
        options.cache.mkdir(parents=True, exist_ok=True)
        for kind in options.kinds:
            source = kind if kind in KINDS else KINDS[0]
            if options.reference == "everyone":
                fits = Fits(kept_products(cohort, source, options.cache / f"{source}.npz"), y, sites)
            else:
                inputs = derived(cohort, source)
            done = {row["split"] for row in rows if row["cohort"] == kind}
            for name, part in parts_of(table, options.split_names, kind, sites):
                if name in done:
                    continue
                if options.reference == "training":
                    some = np.concatenate(part)
                    fits = Fits(products_of(inputs.take(some), np.arange(len(part[0]))), y[some], sites[some])
                    part = np.arange(len(part[0])), np.arange(len(part[0]), len(some))
                best = fits.best(part)
                for has_series in (True, False):
                    of = {
                        "linear-ensemble": fits.linear_ensemble(has_series, part),
                        "multi-kernel": fits.multi_kernel(has_series, part),
                        "best": best[has_series],
                    }
                    facts = {"cohort": kind, "series": has_series, "split": name}
                    sizes = {"n_train": len(part[0]), "n_test": len(part[1])}
                    truth = fits.y[part[1]]
                    rows += [{**facts, "model": m, "auroc": roc_auc_score(truth, d), **sizes} for m, d in of.items()]
                write_atomic(options.out, pd.DataFrame(rows).to_csv(index=False, float_format="%.7f"))
            print(summary(pd.DataFrame(rows)).round(2).to_string(index=False), flush=True)
    print(summary(pd.DataFrame(rows)).round(2).to_string(index=False))


if __name__ == "__main__":
    main()
