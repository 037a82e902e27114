"""Figure 3a: the number of clusters and how their centres start, with the simplex beside the paper's three."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bnt.paper._drawing import lines
from bnt.paper._plan import Outcome, Plan, run_grid
from bnt.paper._texts import circumstances, rows, skipped
from bnt.plotting._style import canvas, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CENTRES = ("random", "learnable", "orthonormal", "simplex")
# All centres of unit length: the released first orthonormal centre is longer, which would favour its cluster.
UNIT = {"orthonormal": {"normalise_first": True}}
NOTES = """
All centres have unit length, the first orthonormal one too, which the released code leaves longer than the others.
The paper shows these values as a picture only: it says that orthonormal centres rise from K = 2 to 10, fall to 100, and
are better than the others at small K. Random unit vectors in 200 dimensions have cosines of about 0.07, so they are
nearly orthonormal already; the simplex is the set that maximises what Theorem 3.1 is about (`bnt theory`).
"""


def name_of(centres: str, k: int) -> str:
    """Return a variant's name."""
    return f"{centres}-K{k}"


def make(plan: Plan) -> tuple[pd.DataFrame, str, Figure]:
    """Run K x centres and return table, Markdown and figure."""
    variants = [
        plan.variant(name_of(c, k), plan.model, centres=c, n_clusters=k, **UNIT.get(c, {}))
        for k in plan.clusters
        for c in CENTRES
    ]
    outcome = run_grid(plan, variants, reference=name_of("orthonormal", 10))
    table = pd.DataFrame(
        [
            {
                "centres": c,
                "n_clusters": k,
                "auroc": outcome.value(name_of(c, k))[0],
                "auroc_sd": outcome.value(name_of(c, k))[1],
                "n_splits": outcome.n_splits(name_of(c, k)),
                "missing": outcome.missing.get(name_of(c, k), ""),
            }
            for c in CENTRES
            for k in plan.clusters
        ]
    )
    return table, markdown(plan, outcome), draw(plan, outcome)


def markdown(plan: Plan, outcome: Outcome) -> str:
    """Return AUROC by K and centres, those that were asked for."""
    centres = [c for c in CENTRES if any(plan.asks_for(name_of(c, k), plan.model) for k in plan.clusters)]
    clusters = [k for k in plan.clusters if any(plan.asks_for(name_of(c, k), plan.model) for c in CENTRES)]
    body = [[str(k)] + [outcome.shown(name_of(c, k)) for c in centres] for k in clusters]
    return (
        f"# Figure 3a: cluster centres, AUROC (%) of `{plan.model}`\n\n"
        + rows(["K", *(f"{c} (ours)" if c == "simplex" else c for c in centres)], body)
        + circumstances(plan, outcome, printed=False)
        + NOTES
        + skipped(outcome)
    )


@styled
def draw(plan: Plan, outcome: Outcome) -> Figure:
    """Draw AUROC against K, one line a kind of centres; what was not run takes no room."""
    figure, (axes,) = canvas(width=4.6, height=2.8)
    scores = np.array([[outcome.value(name_of(c, k)) for k in plan.clusters] for c in CENTRES])  # (centres, K, 2)
    known = np.isfinite(scores[:, :, 0])
    there = known.any(axis=0)
    groups = {c: (scores[i, there, 0], scores[i, there, 1]) for i, c in enumerate(CENTRES) if known[i].any()}
    lines(axes, [k for k, one in zip(plan.clusters, there) if one], groups)
    axes.set(xlabel="number of clusters K", ylabel="test AUROC (%)")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure
