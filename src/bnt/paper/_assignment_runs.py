"""The runs behind Figure 4 and the difference score: K = 4 clusters, random and orthonormal centres."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from bnt.explain._clusters import class_means, difference_score, member_assignments
from bnt.explain._opening import part_rows
from bnt.paper._plan import Outcome, Plan, run_grid
from bnt.paper._printed import FIGURE4_CLUSTERS
from bnt.training._trained import TrainedRun

STARTS = ("random", "orthonormal")
N_PERMUTATIONS = 200


def run_both(plan: Plan) -> Outcome:
    """Train with both starts; as parts of ``all`` the figure and the score share their runs."""
    variants = [
        # All centres of unit length: the released first centre would favour its cluster with one start only.
        plan.variant(start, plan.model, centres=start, n_clusters=FIGURE4_CLUSTERS, normalise_first=True)
        for start in STARTS
    ]
    folder = plan.out.parent / "figure4" if plan.together else plan.out
    return run_grid(plan, variants, reference="random", folder=folder)


def tested_assignments(plan: Plan, outcome: Outcome, run: str) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return who was tested in a run, as positions, and their assignments by each of its networks, (n, V, K)."""
    folder = outcome.folder / "runs" / run
    rows = part_rows(folder, plan.cohort, "test")
    return rows, member_assignments(TrainedRun(folder), plan.cohort, rows)


def mean_assignments(plan: Plan, outcome: Outcome) -> dict[str, np.ndarray]:
    """Return, for each start, the mean P of the test subjects of each class over splits, (2, V, K).

    Clusters have no order of their own, but the frozen centres of one seed are the same in every split: one
    seed and its first network are averaged.
    """
    y = plan.cohort.labels(plan.label)
    found = {}
    for start in STARTS:
        chosen = outcome.runs[(outcome.runs["variant"] == start) & (outcome.runs["seed"] == plan.seeds[0])]
        each = []
        for run in chosen["run"]:
            rows, members = tested_assignments(plan, outcome, run)
            each.append(class_means(members[0], y[rows]))
        if each:
            found[start] = np.mean(each, axis=0)
    return found


def difference_table(plan: Plan, outcome: Outcome) -> pd.DataFrame:
    """Return one row a split: the score of each start, and what it would be for classes permuted within sites."""
    y = plan.cohort.labels(plan.label)
    found: dict[str, dict[str, Any]] = {}
    for run in outcome.runs[outcome.runs["variant"].isin(STARTS)].itertuples():
        rows, members = tested_assignments(plan, outcome, str(run.run))
        scores = [difference_score(p, y[rows], plan.cohort.sites[rows], n_permutations=N_PERMUTATIONS) for p in members]
        row = found.setdefault(f"{run.split}/{run.seed}", {"split": run.split, "seed": run.seed})
        row[str(run.variant)] = float(np.mean([s.d for s in scores]))
        row[f"{run.variant}_chance"] = float(np.mean([s.null_mean for s in scores]))
    columns = ["split", "seed", *STARTS, *(f"{start}_chance" for start in STARTS)]
    return pd.DataFrame(list(found.values())).reindex(columns=columns)
