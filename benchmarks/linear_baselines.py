"""Score the linear models on given splits of a cohort, and beside published scores where there are any.

    OMP_NUM_THREADS=1 python benchmarks/linear_baselines.py COHORT SPLITS.csv --out results/abide/linear_baselines.csv

SPLITS.csv has a column of participant ids and one column a split: 0 training, 1 validation, 2 test. Every model is
fitted on training alone, and again on training and validation; the test part is scored once. Accuracy is at decision
value 0. CPU seconds are those of fitting and predicting, the tangent projection of the split included; the covariances
of single subjects belong to no split, so that they are computed once, before, and their time is printed. The table is
written after every split, and splits that are in it already are not done again.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import pandas as pd

from bnt.cohort import load_cohort
from bnt.cohort._files import write_atomic
from bnt.models import create_model
from bnt.models.classical._features import TangentFeatures, from_series
from bnt.models.classical._inputs import Inputs

MODELS = {
    "pearson-svm": ("svm", {}),
    "tangent-svm": ("svm", {"space": "tangent"}),
    "tangent-ridge": ("ridge", {"space": "tangent", "penalty": 0.3}),
    "tangent-logistic": ("tangent-logistic", {}),
    "linear-ensemble": ("linear-ensemble", {}),
}


class SharedTangent(TangentFeatures):
    """The tangent features of one split, computed once for all models; each is charged the seconds they took."""

    def __init__(self, n_rois: int) -> None:
        super().__init__(n_rois, shrinkage=0.3)
        self.fitted_on: Inputs | None = None
        self.known: dict[int, np.ndarray] = {}
        self.seconds = 0.0

    def fit(self, inputs: Inputs, weight: np.ndarray) -> SharedTangent:
        """Fit the reference once."""
        if self.fitted_on is not inputs:
            start = time.process_time()
            super().fit(inputs, weight)
            self.fitted_on, self.known = inputs, {}
            self.seconds = time.process_time() - start
        return self

    def transform(self, inputs: Inputs) -> np.ndarray:
        """Transform the same subjects once."""
        if id(inputs) not in self.known:
            start = time.process_time()
            self.known[id(inputs)] = super().transform(inputs)
            self.seconds += time.process_time() - start
        return self.known[id(inputs)]


def score(name: str, train: Inputs, y: np.ndarray, test: Inputs, truth: np.ndarray, shared: SharedTangent) -> dict:
    """Fit one model and score the test part."""
    from sklearn.metrics import roc_auc_score

    kind, options = MODELS[name]
    model = create_model(kind, shared.n_rois, 2, **options)
    tangent = [m for m in getattr(model, "members", {"only": model}).values() if m.space == "tangent"]
    for member in tangent:
        member.features = shared
    before = shared.seconds
    start = time.process_time()
    decision = model.fit(train, y).decision(test)
    seconds = time.process_time() - start
    if tangent and shared.seconds == before:  # computed for another model
        seconds += shared.seconds
    return {
        "auroc": round(roc_auc_score(truth, decision), 4),
        "accuracy": round(float(np.mean((decision > 0) == (truth == 1))), 4),
        "cpu_seconds": round(seconds, 2),
    }


def compare(table: pd.DataFrame, path: Path) -> None:
    """Print how far the scores are from published ones (columns seed, model, refit_on_train_and_val, auroc)."""
    published = pd.read_csv(path).rename(columns={"refit_on_train_and_val": "refit"})
    published["split"] = "seed" + published["seed"].astype(str)
    published["refit"] = published["refit"].astype(str) == "True"
    both = table.merge(published, on=["split", "model", "refit"], suffixes=("", "_published"))
    both["difference"] = (both["auroc"] - both["auroc_published"]).abs()
    both["accuracy_difference"] = (both["accuracy"] - both["accuracy_published"]).abs()
    columns = ["auroc", "auroc_published", "accuracy", "accuracy_published"]
    means = both.groupby(["model", "refit"])[columns].mean()
    means["largest_auroc_difference"] = both.groupby(["model", "refit"])["difference"].max()
    means["largest_accuracy_difference"] = both.groupby(["model", "refit"])["accuracy_difference"].max()
    print(means.round(4).to_string())


def main() -> None:
    """Parse the command line and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cohort", type=Path)
    parser.add_argument("splits", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--label", default="diagnosis")
    parser.add_argument("--first", default="seed100", help="first split column")
    parser.add_argument("--last", default="seed119", help="last split column")
    parser.add_argument("--published", type=Path, help="table of published scores to compare with")
    options = parser.parse_args()

    splits = pd.read_csv(options.splits, index_col=0)
    cohort = load_cohort(options.cohort).select(splits.index.to_numpy(dtype=object))
    y = cohort.labels(options.label).astype(int)
    inputs = Inputs.of(cohort)
    if inputs.series is not None:
        start = time.process_time()
        from_series(inputs.series, cohort.n_rois)
        print(f"covariances of {len(cohort)} subjects: {time.process_time() - start:.1f} CPU seconds, once")
    rows = pd.read_csv(options.out).to_dict("records") if options.out.exists() else []
    done = {row["split"] for row in rows}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    for split in splits.loc[:, options.first : options.last]:
        if split in done:
            continue
        part = splits[split].to_numpy()
        test = np.flatnonzero(part == 2)
        for refit in (False, True):
            fitted = np.flatnonzero(part <= int(refit))
            train, tested, shared = inputs.take(fitted), inputs.take(test), SharedTangent(cohort.n_rois)
            for name in MODELS:
                result = score(name, train, y[fitted], tested, y[test], shared)
                rows.append({"split": split, "model": name, "refit": refit, **result})
        print(split, {r["model"]: r["auroc"] for r in rows[-len(MODELS) :]}, flush=True)
        write_atomic(options.out, pd.DataFrame(rows).to_csv(index=False))
    table = pd.DataFrame(rows)
    print(table.groupby(["model", "refit"])[["auroc", "accuracy", "cpu_seconds"]].mean().round(4).to_string())
    if options.published:
        compare(table, options.published)


if __name__ == "__main__":
    main()
