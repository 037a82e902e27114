"""Appendix B: what a node of VanillaTF knows of itself: its profile, its identity, its place in eigenvectors.

Beside the paper's three rows: the profile without the diagonal, which section 3.1 calls a position (with CONCAT, and
with MEAN, which cannot tell ROIs apart by their place), and attention that uses edge weights, which it says hurts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bnt.paper._grid import run_grid
from bnt.paper._output import beside_figure, circumstances, rows, skipped
from bnt.paper._plan import Plan
from bnt.paper._printed import FEATURES, NOTHING, show

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Row -> words and options of `vanilla`. The paper prints those of its Appendix B.
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "profile": ("connection profile", {}),
    "identity": ("profile + identity", {"node_features": "identity"}),
    "eigen": ("profile + eigenvectors", {"node_features": "eigen"}),
    "no-diagonal": ("profile without its diagonal", {"node_features": "no-diagonal"}),
    "profile-mean": ("connection profile, MEAN", {"readout": "mean"}),
    "no-diagonal-mean": (
        "profile without its diagonal, MEAN",
        {"node_features": "no-diagonal", "readout": "mean"},
    ),
    "edge-bias": ("edge weights added to attention scores", {"edge_weights": "bias"}),
    "edge-factor": ("edge weights multiplied with attention", {"edge_weights": "factor"}),
}
NOTES = """
The number of eigenvectors is not printed; ours is about 32, so that the heads divide the width. The readout is CONCAT
where no other is named. The diagonal is a position if rows without it are worse: CONCAT knows each ROI by its place and
does not need one, MEAN does. The paper cites another study for edge weights in attention and prints no number; here
they are added to the scores of every head before the softmax, or multiplied with the weights after it.
"""
ZERO = "\nThe diagonal of this cohort's connectomes is zero: rows with and without it are the same model.\n"


def features(plan: Plan) -> tuple[pd.DataFrame, str, Figure]:
    """Run all kinds of features and return table, Markdown and figure."""
    variants = [plan.variant(kind, "vanilla", **options) for kind, (_, options) in KINDS.items()]
    zero = plan.cohort.diagonal == 0
    if zero:
        plan.say(ZERO.strip())
    result = run_grid(plan, variants, reference="profile")
    printed = {kind: FEATURES[plan.dataset].get(kind, NOTHING) for kind in KINDS}
    asked = [v.name for v in plan.asked(variants)]
    table = pd.DataFrame(
        [
            {
                "node_features": kind,
                "auroc": result.value(kind)[0],
                "auroc_sd": result.value(kind)[1],
                "n_splits": result.n_splits(kind),
                "printed_auroc": printed[kind][0],
                "printed_auroc_sd": printed[kind][1],
                "missing": result.missing.get(kind, ""),
            }
            for kind in asked
        ]
    )
    text = (
        "# Node features of VanillaTF, AUROC (%)\n\n"
        + rows(
            ["node features", "paper", "ours"],
            [[KINDS[kind][0], show(printed[kind]), result.shown(kind)] for kind in asked],
        )
        + circumstances(plan, result)
        + NOTES
        + (ZERO if zero else "")
        + skipped(result)
    )
    figure = beside_figure(
        [KINDS[kind][0] for kind in asked],
        np.array([result.value(kind) for kind in asked]),
        np.array([printed[kind] for kind in asked]),
        "test AUROC (%)",
    )
    return table, text, figure
