"""Appendix B: what a node of VanillaTF knows of itself: its profile, its identity, its place in eigenvectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bnt.experiments.paper.drawing import beside_figure
from bnt.experiments.paper.plan import Plan, run_grid
from bnt.experiments.paper.printed import FEATURES, show
from bnt.experiments.paper.texts import circumstances, rows, skipped

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = {
    "profile": "connection profile",
    "identity": "profile + identity",
    "eigen": "profile + eigenvectors",
}


def make(plan: Plan) -> tuple[pd.DataFrame, str, Figure]:
    """Run the three kinds of features and return table, Markdown and figure."""
    variants = [plan.variant(kind, "vanilla", node_features=kind) for kind in KINDS]
    outcome = run_grid(plan, variants, reference="profile")
    printed = FEATURES[plan.dataset]
    table = pd.DataFrame(
        [
            {
                "node_features": kind,
                "auroc": outcome.value(kind)[0],
                "auroc_sd": outcome.value(kind)[1],
                "n_splits": outcome.n_splits(kind),
                "printed_auroc": printed[kind][0],
                "printed_auroc_sd": printed[kind][1],
                "missing": outcome.missing.get(kind, ""),
            }
            for kind in KINDS
        ]
    )
    text = (
        "# Node features of VanillaTF, AUROC (%)\n\n"
        + rows(
            ["node features", "paper", "ours"],
            [[words, show(printed[kind]), outcome.shown(kind)] for kind, words in KINDS.items()],
        )
        + circumstances(plan, outcome)
        + "\nThe number of eigenvectors is not printed; ours is about 32, so that the heads divide the width.\n"
        + skipped(outcome)
    )
    figure = beside_figure(
        list(KINDS.values()),
        np.array([outcome.value(kind) for kind in KINDS]),
        np.array([printed[kind] for kind in KINDS]),
        "test AUROC (%)",
    )
    return table, text, figure
