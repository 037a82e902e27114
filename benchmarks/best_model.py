"""Is `best` never a bad choice? Paired differences to the best of other models, on cohorts derived from one.

    python benchmarks/best_model.py COHORT SPLITS.csv --cache kernels --out results/abide/best_robust.csv

The cohorts are the given one, half as many ROIs (`merged`), the global signal removed (`global`), the first half of
each scan (`short`), a training part of 200 or 100 people (`people200`, `people100`) and the largest site alone
(`one-site`); each with its series, and connectomes only. Every view of the models becomes inner products of all
subjects once; tangent spaces have the mean of everyone as their reference here, which no label enters and which is the
same for all models.
Then the models' own code fits on training and validation of each split and scores the test part, as recipe `best` does.
`--reference training` makes the products of each split anew, with references of its training part: these are the
numbers of `bnt compare --recipe best`, at eight times the cost. Only development splits, unless others are named.
`--score age` predicts a score, by those who have it; `--label diagnosis sex` every combination of two columns as a
class.
`--summary` prints the differences of a table that exists.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from best_small import scores_of
from derived_cohorts import first_half, merge, pairs, without_global

from bnt.cohort import Cohort, load_cohort
from bnt.cohort._files import write_atomic
from bnt.cohort._scans import Series
from bnt.connectivity import connectomes
from bnt.models.classical import Best, LinearEnsemble, LinearModel, MultiKernel, Ridge
from bnt.models.classical._best import KERNELS, SERIES, SeriesKernels, line, stacked_weights
from bnt.models.classical._features import Lagged, ShrunkTangent, TangentFeatures
from bnt.models.classical._inputs import Inputs
from bnt.models.classical._multi_kernel import views_of
from bnt.models.classical._solvers import folds, gram
from bnt.studies._statistics import paired_test

KINDS = ("abide", "merged", "global", "short")
FEWER = ("people200", "people100", "one-site")  # of the first kind
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
    """The models on inner products; 1 class is a score."""

    def __init__(self, products: Products, y: np.ndarray, sites: np.ndarray, n_classes: int) -> None:
        self.products, self.y, self.sites, self.weight = products, y, sites, np.ones(len(y))
        self.n_classes = n_classes

    def ridge(self, part: Part) -> np.ndarray:
        """Return its decisions for the held-out subjects, (m, k)."""
        return self._one(Ridge(2, self.n_classes), "edges", part)

    def linear_ensemble(self, has_series: bool, part: Part) -> np.ndarray:
        """Return its decisions for the held-out subjects."""
        views = {"tangent": "standardised" if has_series else "shrunk0.3", "edges": "edges"}
        members = LinearEnsemble(2, self.n_classes).members.values()
        return np.mean([self._one(m, views[m.space], part) for m in members], axis=0)

    def multi_kernel(self, has_series: bool, part: Part) -> np.ndarray:
        """Return its decisions for the held-out subjects."""
        renamed = {"shrunk_tangent": "filled", "lagged": "lagged", "edges": "edges"}
        names = [renamed.get(name, name.removesuffix("_tangent")) for name in views_of(2, has_series, 0.5)]
        return self._kernels(MultiKernel(2, self.n_classes), names, part)

    def _kernels(self, model: MultiKernel, names: Sequence[str], part: Part) -> np.ndarray:
        some = [self.products[name] for name in names]
        return model.held_out(some, self.sites, self.y, self.weight, *part)

    def best(self, part: Part) -> dict[bool, np.ndarray]:
        """Return its decisions for the held-out subjects, with and without series."""
        fitted = part[0]
        y, weight = self.y[fitted], self.weight[fitted]
        inner = list(folds(y, self.n_classes, sites=self.sites[fitted]))  # there are no families in these data
        final: dict[str, np.ndarray] = {}
        held_out: dict[str, np.ndarray] = {}
        decisions = {}
        for has_series in (True, False):
            model = Best(2, self.n_classes)
            model.make(has_series)
            names = model.names()
            for name in set(names) - set(final):
                final[name] = self._member(model, name, part)
                held_out[name] = np.empty((len(fitted), final[name].shape[1]))
                for a, b in inner:
                    held_out[name][b] = self._member(model, name, (fitted[a], fitted[b]))
            stack = np.stack([held_out[name] for name in names], axis=2)
            shares = stacked_weights(stack, y, weight, self.n_classes, model.prior())
            found = np.stack([final[name] for name in names], axis=2) @ shares
            if self.n_classes == 1:
                slope, shift = line((stack @ shares)[:, 0], y, weight)
                found = shift + slope * found
            decisions[has_series] = found
        return decisions

    def _member(self, model: Best, name: str, part: Part) -> np.ndarray:
        if name == SERIES:
            return self._kernels(SeriesKernels(2, self.n_classes), ("amplitude", "prewhitened", "lagged"), part)
        if name == KERNELS:
            return self.multi_kernel(False, part)
        view, _, kind = name.rpartition(".")
        return self._one(model.members[view][kind], view, part)

    def _one(self, member: LinearModel, view: str, part: Part) -> np.ndarray:
        return member.held_out(self.products[view], self.sites, self.y, self.weight, *part)


def parts_of(table: pd.DataFrame, names: list[str], kind: str, sites: np.ndarray) -> Iterator[tuple[str, Part]]:
    """Yield the rows to fit on and to test on."""
    largest = pd.Series(sites).value_counts().index[0]
    for i, name in enumerate(names):
        train, validation, rest = (np.flatnonzero(table[name] == part) for part in range(3))
        fitted = np.concatenate([train, validation])  # the order of a refit, by which inner folds are dealt out
        if kind.startswith("people"):
            fitted = np.random.default_rng(i).permutation(fitted)[: int(kind.removeprefix("people"))]
        if kind == "one-site":
            fitted, rest = fitted[sites[fitted] == largest], rest[sites[rest] == largest]
        yield name, (fitted, rest)


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Return for each cohort the means, and the difference to the best other model with its corrected interval."""
    rows = []
    groups = table.groupby(["label", "cohort", "series"], sort=False)
    for (label, cohort, series), part in groups:
        for name in ("auroc", "r", "r2", "mae"):
            if name in part and part[name].notna().all():
                facts = {"label": label, "cohort": cohort, "series": series, "score": name}
                rows.append({**facts, **_difference(part, name)})
    return pd.DataFrame(rows)


def _difference(part: pd.DataFrame, name: str) -> dict[str, float]:
    scores = part.pivot(index="split", columns="model", values=name)
    others = scores.drop(columns="best").mean()
    better = others.idxmin() if name == "mae" else others.idxmax()
    found = paired_test(scores["best"], scores[better], float((part.n_test / part.n_train).mean()))
    unit = 100 if name == "auroc" else 1
    wins = int(((scores["best"] > scores[better]) != (name == "mae")).sum())
    means = (unit * scores.mean()).to_dict()
    interval = {"difference": unit * found.difference, "low": unit * found.low, "high": unit * found.high}
    return {"splits": len(scores), **means, **interval, "better_in": wins}


def target_of(cohort: Cohort, labels: list[str], score: str | None) -> tuple[np.ndarray, int]:
    """Return the class codes and their number, or a score (NaN for those without it) and 1."""
    if score is not None:
        return pd.to_numeric(cohort.participants[score], errors="coerce").to_numpy(dtype=np.float64), 1
    if len(labels) == 1:
        codes = np.asarray(cohort.labels(labels[0])).astype(int)
    else:
        codes = cohort.participants.groupby(labels).ngroup().to_numpy()
    return codes, int(codes.max()) + 1


def main() -> None:
    """Fit and score, cohort by cohort; the table is written after each split and continued if it exists."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cohort", type=Path)
    parser.add_argument("splits", type=Path)
    parser.add_argument("--label", nargs="+", default=["diagnosis"])
    parser.add_argument("--score", help="predict this column in place of a class")
    parser.add_argument("--cache", type=Path, required=True, help="folder for inner products, about 70 MB per cohort")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--kinds", nargs="+", default=[*KINDS, *FEWER], choices=[*KINDS, *FEWER])
    parser.add_argument("--split-names", nargs="+", default=[f"seed{i}" for i in range(20)])
    parser.add_argument("--reference", default="everyone", choices=["everyone", "training"])
    parser.add_argument("--summary", action="store_true")
    options = parser.parse_args()
    label = options.score or " and ".join(options.label)
    rows = pd.read_csv(options.out).to_dict("records") if options.out.is_file() else []
    rows = [{"label": "diagnosis", **row} for row in rows]  # a table of before there were others
    if not options.summary:
        cohort = load_cohort(options.cohort)
        table = pd.read_csv(options.splits, index_col=0).reindex(cohort.ids)
        (y, n_classes), sites = target_of(cohort, options.label, options.score), np.asarray(cohort.sites).astype(str)
        table = table[np.isfinite(y)].reindex(table.index)  # who has no score is in no part
        options.cache.mkdir(parents=True, exist_ok=True)
        for kind in options.kinds:
            source = kind if kind in KINDS else KINDS[0]
            if options.reference == "everyone":
                fits = Fits(kept_products(cohort, source, options.cache / f"{source}.npz"), y, sites, n_classes)
            else:
                inputs = derived(cohort, source)
            done = {row["split"] for row in rows if (row["label"], row["cohort"]) == (label, kind)}
            for name, part in parts_of(table, options.split_names, kind, sites):
                if name in done:
                    continue
                if options.reference == "training":
                    some = np.concatenate(part)
                    products = products_of(inputs.take(some), np.arange(len(part[0])))
                    fits = Fits(products, y[some], sites[some], n_classes)
                    part = np.arange(len(part[0])), np.arange(len(part[0]), len(some))
                best, ridge = fits.best(part), fits.ridge(part)
                for has_series in (True, False):
                    of = {
                        "ridge": ridge,
                        "linear-ensemble": fits.linear_ensemble(has_series, part),
                        "multi-kernel": fits.multi_kernel(has_series, part),
                        "best": best[has_series],
                    }
                    facts = {"label": label, "cohort": kind, "series": has_series, "split": name}
                    sizes = {"n_train": len(part[0]), "n_test": len(part[1])}
                    truth = fits.y[part[1]]
                    rows += [{**facts, "model": m, **scores_of(truth, d, n_classes), **sizes} for m, d in of.items()]
                write_atomic(options.out, pd.DataFrame(rows).to_csv(index=False, float_format="%.7f"))
            print(summary(pd.DataFrame(rows)).round(2).to_string(index=False), flush=True)
    print(summary(pd.DataFrame(rows)).round(2).to_string(index=False))


if __name__ == "__main__":
    main()
