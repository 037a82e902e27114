"""Figure 4: soft assignments of ROIs to K = 4 clusters, for both classes and two starts of the centres."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bnt.paper._assignment_runs import STARTS, mean_assignments, run_both
from bnt.paper._plan import Plan
from bnt.paper._printed import DIFFERENCE
from bnt.paper._texts import circumstances, rows, skipped
from bnt.plotting._style import styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOTES = """
P is averaged over the test subjects of each class and over splits; all centres have unit length, so that no cluster is
favoured. d is the difference score of the averaged P shown here; `difference` has it for every split. "Grouped" is the
mean over ROIs of the largest P; 0.25 means that ROIs form no groups.
"""


def make(plan: Plan) -> tuple[pd.DataFrame, str, Figure]:
    """Train with both starts, average P, and return table, Markdown and figure."""
    outcome = run_both(plan)
    mean = mean_assignments(plan, outcome)
    classes = np.unique(plan.cohort.labels(plan.label)).tolist()
    table = pd.DataFrame(
        [
            {"centres": start, "class": name, "roi": roi + 1, "cluster": k + 1, "p": float(p[c, roi, k])}
            for start, p in mean.items()
            for c, name in enumerate(classes)
            for roi in range(p.shape[1])
            for k in range(p.shape[2])
        ]
    )
    printed = DIFFERENCE[plan.dataset]
    body = [
        [start, f"{printed[start][0]:.3f}", f"{np.abs(p[0] - p[1]).mean():.3f}", f"{p.max(axis=2).mean():.3f}"]
        for start, p in mean.items()
    ]
    text = (
        f"# Figure 4: assignments to 4 clusters by `{plan.model}`\n\n"
        + rows(["centres", "d paper", "d ours", "grouped (ours)"], body)
        + circumstances(plan, outcome)
        + NOTES
        + skipped(outcome)
    )
    return table, text, draw(mean, [plan.class_name(name) for name in classes])


@styled
def draw(mean: dict[str, np.ndarray], classes: list[str]) -> Figure:
    """Draw clusters x ROIs for each start and class, ROIs in the same order throughout a start."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.8, 3.6), layout="constrained")
    panels = figure.subplots(2, len(STARTS), squeeze=False)
    top = max(float(p.max()) for p in mean.values())
    image = None
    for column, (start, p) in enumerate(mean.items()):
        pooled = p.mean(axis=0)  # (V, K)
        order = np.lexsort((-pooled.max(axis=1), pooled.argmax(axis=1)))
        for row, name in enumerate(classes):
            axes = panels[row][column]
            image = axes.imshow(
                p[row][order].T, aspect="auto", cmap="viridis", vmin=0, vmax=top, interpolation="nearest"
            )
            axes.set_yticks(range(p.shape[2]), [str(k + 1) for k in range(p.shape[2])])
            axes.set_xticks([])
            axes.tick_params(length=0)
            if row == 0:
                axes.set_title(f"{start} centres", fontsize=8)
            if column == 0:
                axes.set_ylabel(f"{name}\ncluster")
        panels[1][column].set_xlabel("ROIs, in the order of their cluster")
    if image is not None:
        figure.colorbar(image, ax=panels.ravel().tolist(), label="P, mean over test subjects", shrink=0.8)
    return figure
