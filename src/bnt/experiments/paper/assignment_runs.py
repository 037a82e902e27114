"""The runs behind Figure 4 and the difference score: K = 4 clusters, random and orthonormal centres."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bnt.experiments.paper.looking import assignments, mean_over, tested_rows
from bnt.experiments.paper.plan import Outcome, Plan, run_grid
from bnt.experiments.paper.printed import FIGURE4_CLUSTERS

STARTS = ("random", "orthonormal")


def run_both(plan: Plan) -> Outcome:
    """Train with both starts; as parts of ``all`` the figure and the score share their runs."""
    variants = [
        # All centres of unit length: the released first centre would favour its cluster with one start only.
        plan.variant(start, plan.model, centres=start, n_clusters=FIGURE4_CLUSTERS, normalise_first=True)
        for start in STARTS
    ]
    folder = plan.out.parent / "figure4" if plan.together else plan.out
    return run_grid(plan, variants, reference="random", folder=folder)


def class_names(plan: Plan) -> tuple[object, object]:
    """Return the two classes, the positive one last."""
    first, last = np.unique(plan.cohort.labels(plan.label)).tolist()
    return first, last


def mean_assignments(plan: Plan, outcome: Outcome) -> dict[str, dict[str, np.ndarray]]:
    """Return, for each start and split, the mean P of the test subjects of each class, (2, V, K)."""
    y = plan.cohort.labels(plan.label)
    found: dict[str, dict[str, np.ndarray]] = {}
    for start in STARTS:
        found[start] = {}
        for run in outcome.runs[outcome.runs["variant"] == start].itertuples():
            folder = outcome.folder / "runs" / str(run.run)
            tested = tested_rows(folder, plan.cohort)
            classes = [y[tested] == name for name in class_names(plan)]
            found[start][f"{run.split}/{run.seed}"] = mean_over(folder, plan.cohort, tested, assignments, classes)
    return found


def difference_score(p: np.ndarray) -> float:
    """Return d, the mean absolute difference of two classes' mean assignments, from (2, V, K)."""
    return float(np.abs(p[0] - p[1]).mean())


def difference_table(found: dict[str, dict[str, np.ndarray]]) -> pd.DataFrame:
    """Return one row a split with the score of each start."""
    splits = list(dict.fromkeys(name for each in found.values() for name in each))
    return pd.DataFrame(
        [
            {"split": s, **{k: difference_score(each[s]) if s in each else np.nan for k, each in found.items()}}
            for s in splits
        ]
    )
