"""Appendix H: how much the mean assignments of the two classes differ, with random and orthonormal centres."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bnt.paper._assignment_runs import STARTS, difference_table, run_both
from bnt.paper._drawing import beside_figure
from bnt.paper._plan import Plan
from bnt.paper._printed import DIFFERENCE, show
from bnt.paper._texts import circumstances, p_words, rows, skipped
from bnt.studies._results import overlap
from bnt.studies._statistics import paired_test, summarise

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOTES = """
d is the mean over ROIs and clusters of |mean P of one class - mean P of the other| on the test part. Two groups of the
same kind differ by chance too: that level is d after the classes were permuted within sites, and the paper does not
give it. A larger d with a larger chance level is no better told apart.
"""


def make(plan: Plan) -> tuple[pd.DataFrame, str, Figure]:
    """Score both starts on every split and return table, Markdown and figure."""
    outcome = run_both(plan)
    table = difference_table(plan, outcome)
    printed = DIFFERENCE[plan.dataset]
    each = table.groupby("split", sort=False).mean(numeric_only=True)  # over seeds
    ours = {}
    for column in (*STARTS, *(f"{start}_chance" for start in STARTS)):
        found = summarise(each[column].tolist())
        ours[column] = (found.mean, found.sd)
    pairs = each[list(STARTS)].dropna()
    orthonormal, random = pairs["orthonormal"].tolist(), pairs["random"].tolist()
    corrected = paired_test(orthonormal, random, overlap(outcome.runs))
    plain = paired_test(orthonormal, random)
    verdict = f"\nOrthonormal - random: {corrected.difference:+.4f} over {corrected.n} splits"
    if corrected.n > 1:
        verdict += (
            f", 95 % interval {corrected.low:+.4f} to {corrected.high:+.4f}, {p_words(corrected.p)} (Nadeau-Bengio); "
            f"the paper's plain t-test would give {p_words(plain.p)}"
        )
    text = (
        f"# Difference score of the assignments of `{plan.model}`, K = 4\n\n"
        + rows(
            ["centres", "paper", "ours", "ours by chance"],
            [[s, show(printed[s], 3), show(ours[s], 3), show(ours[f"{s}_chance"], 3)] for s in STARTS],
        )
        + verdict
        + ".\n"
        + circumstances(plan, outcome)
        + NOTES
        + skipped(outcome)
    )
    figure = beside_figure(
        list(STARTS),
        np.array([ours[s] for s in STARTS]),
        np.array([printed[s] for s in STARTS]),
        "difference score d, mean and SD",
    )
    return table, text, figure
