"""Take ``kernel-transformer`` apart on development splits: each network alone, their mean, and every share of it.

    OMP_NUM_THREADS=1 python benchmarks/search_networks.py COHORT SPLITS.csv --splits seed1 seed3 seed5 \
        --out results/abide/search_networks.csv

Fitted on training and validation, scored on the test part of development splits. ``gain`` is over ``linear-ensemble``,
fitted in the same way, paired over splits. Splits that are in the table already are not done again.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from bnt.cohort import load_cohort
from bnt.cohort._files import write_atomic
from bnt.models import create_model
from bnt.models._kernel_transformer import member_decisions
from bnt.models.classical._inputs import Inputs

SHARES = (0.2, 0.4, 0.5, 0.6, 0.7, 0.8)


def take_apart(train: Inputs, y: np.ndarray, test: Inputs, truth: np.ndarray, members: int) -> list[dict[str, object]]:
    """Return the score of every part on one split."""
    base = create_model("linear-ensemble", train_rois(train), 2).fit(train, y).decision(test)
    started = time.process_time()
    model = create_model("kernel-transformer", train_rois(train), 2, n_members=members).fit(train, y)
    seconds = time.process_time() - started
    features = model.linear.features_of(test)
    decisions = {"linear-ensemble": base, "multi-kernel": model.linear.decisions_of(features)[:, 0]}
    trained = {}
    for name, network in model.networks.items():
        matrices = model._matrices(name.rpartition(".")[0], features[name.rpartition(".")[0]])
        trained[name] = member_decisions(network, matrices, 2)[:, 0]
    mean = np.mean(list(trained.values()), axis=0)
    decisions |= {f"network {name}": d for name, d in trained.items()} | {"networks": mean}
    for share in SHARES:
        decisions[f"networks {share} + multi-kernel"] = share * mean + (1 - share) * decisions["multi-kernel"]
    return [
        {"part": part, "auroc": roc_auc_score(truth, d), "cpu_seconds": round(seconds, 1)}
        for part, d in decisions.items()
    ]


def train_rois(inputs: Inputs) -> int:
    """Return the number of ROIs."""
    return int((1 + np.sqrt(1 + 8 * inputs.edges.shape[1])) / 2)


def main() -> None:
    """Score every part on every split and print the means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cohort", type=Path)
    parser.add_argument("splits_table", type=Path)
    parser.add_argument("--splits", nargs="+", required=True)
    parser.add_argument("--members", type=int, default=1)
    parser.add_argument("--label", default="diagnosis")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    cohort = load_cohort(options.cohort)
    parts = pd.read_csv(options.splits_table, index_col=0).reindex(cohort.ids)
    y = np.asarray(cohort.labels(options.label)).astype(int)
    rows = pd.read_csv(options.out).to_dict("records") if options.out.exists() else []
    done = {row["split"] for row in rows}
    for split in options.splits:
        if split in done:
            continue
        train, test = (np.flatnonzero(parts[split].isin(codes)) for codes in ([0, 1], [2]))
        found = take_apart(Inputs.of(cohort, train), y[train], Inputs.of(cohort, test), y[test], options.members)
        rows += [{"split": split, "members": options.members, **row} for row in found]
        write_atomic(options.out, pd.DataFrame(rows).to_csv(index=False, float_format="%.5f"))
    table = pd.DataFrame(rows).pivot(index="split", columns="part", values="auroc")
    gain = table.sub(table["linear-ensemble"], axis=0)
    shown = pd.DataFrame({"auroc": table.mean(), "gain": gain.mean(), "gain_se": gain.sem()})
    print(shown.sort_values("auroc").round(4).to_string())


if __name__ == "__main__":
    main()
