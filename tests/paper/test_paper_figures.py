"""Figures of the paper's parts from made-up results: nothing is cut off, and what was not run takes no room."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bnt.errors import BadInput
from bnt.paper import _tables as table2
from bnt.paper._cost import draw_complexity
from bnt.paper._figures import draw_figure3a
from bnt.paper._grid import GridResult
from bnt.paper._plan import Plan


@pytest.fixture
def plan(cohort, tmp_path):
    return Plan(cohort=cohort, out=tmp_path / "out")


def result_of(values: dict[str, float]) -> GridResult:
    """Results whose variants have these AUROCs, in per cent, each with an SD of 2."""
    summary = pd.DataFrame([{"variant": v, "auroc": x / 100, "auroc_sd": 0.02} for v, x in values.items()])
    summary = summary.assign(auroc_n=2, n_splits=2)
    return GridResult(pd.DataFrame(), summary, {}, 0.0, Path("out"))


def shown(axes, side=0):
    """All points that a panel shows, with the ends of their bars."""
    ends = [p[:, side] for bars in axes.collections for p in bars.get_segments()]
    return np.concatenate([*(np.asarray(line.get_data()[side], dtype=float) for line in axes.lines), *ends])


def test_table2_shows_every_printed_value_and_ours_on_one_scale(plan):
    names = [v.name for v in table2.variants(plan)]
    figure = table2.draw_readouts(plan, result_of({name: 95.0 if name == "graphormer-sum" else 60.0 for name in names}))
    assert [axes.get_title() for axes in figure.axes] == list(table2.BACKBONES)
    assert len({axes.get_xlim() for axes in figure.axes}) == 1
    low, high = figure.axes[0].get_xlim()
    every = np.concatenate([shown(axes) for axes in figure.axes])
    assert {80.2, 50.1, 95.0} <= set(np.round(every, 6))
    assert low <= every.min()
    assert every.max() <= high


def test_table2_draws_the_backbones_that_were_run(plan):
    names = [v.name for v in table2.variants(plan) if v.model == "vanilla"]
    figure = table2.draw_readouts(plan, result_of(dict.fromkeys(names, 70.0)))
    (axes,) = figure.axes
    assert axes.get_title() == "VanillaTF"
    assert [t.get_text() for t in axes.get_yticklabels()] == list(table2.READOUTS)
    low, high = axes.get_xlim()
    assert low <= shown(axes).min()
    assert shown(axes).max() <= high


def test_figure3a_draws_and_lists_what_was_asked_for(cohort, tmp_path):
    names = ("random-K2", "random-K10", "orthonormal-K10")
    plan = Plan(cohort=cohort, out=tmp_path / "out", only=names)
    result = result_of(dict.fromkeys(names, 70.0))
    (axes,) = draw_figure3a(plan, result).axes
    assert [t.get_text() for t in axes.get_xticklabels()] == ["2", "10"]
    assert axes.get_legend_handles_labels()[1] == ["random", "orthonormal"]
    one = draw_figure3a(plan, result_of({"random-K10": 70.0, "simplex-K10": 71.0})).axes[0]
    low, high = one.get_xlim()
    assert high / low > 1.15  # wide beside the shift between two lines


def test_a_misspelt_row_is_named_beside_right_ones(cohort, tmp_path):
    plan = Plan(cohort=cohort, out=tmp_path / "out", only=("vanilla-mean", "vanila-max"))
    with pytest.raises(BadInput, match="vanila-max.*san-mean"):
        plan.asked(table2.variants(plan))
    assert [v.name for v in Plan(cohort=cohort, out=plan.out, only=("vanilla",)).asked(table2.variants(plan))] == [
        table2.name_of("VanillaTF", row) for row in table2.READOUTS
    ]


def test_guide_lines_of_complexity_are_named_without_markup():
    table = pd.DataFrame({"model": "svm", "n_rois": [20, 40], "step_seconds": [0.1, 0.2], "memory_mb": [1.0, 2.0]})
    assert [[one.get_text() for one in axes.texts] for axes in draw_complexity(table).axes] == [["V²", "V³"], ["V²"]]


@pytest.mark.parametrize("sizes", [[20], [20, 40]])
def test_time_and_memory_of_few_sizes_can_be_read(sizes):
    n = len(sizes)
    values = {"step_seconds": [0.012, 0.019][:n], "memory_mb": [54.0, 81.0][:n]}
    figure = draw_complexity(pd.DataFrame({"model": "svm", "n_rois": sizes, **values}))
    figure.draw_without_rendering()
    for axes in figure.axes:
        low, high = axes.get_ylim()
        shown = [t for t in axes.get_yticks() if low <= t <= high]
        assert len(shown) >= 2
        assert bool(axes.texts) == (n > 1)  # lines to compare the slope with
