"""Figures are functions that return a Figure for a paper: one column wide, readable, vector."""

from __future__ import annotations

import json
import re
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from bnt.cohort._triangle import Networks
from bnt.plotting import _brain as brain
from bnt.plotting import _charts as figures
from bnt.plotting import _predicted as curves
from bnt.plotting._style import canvas, figure_bytes, inline_svg, line, lines, look, save_figure, styled

RNG = np.random.default_rng(0)
POSITIVE = np.arange(80) % 2 == 0
BINARY = {"bnt": (POSITIVE, RNG.random(80)), "svm": (POSITIVE, RNG.random(80))}
TWO_SCORES = {"bnt": (RNG.random(9), RNG.random(9)), "svm": (RNG.random(9), RNG.random(9))}
LINES = [{"stage": "a", "epoch": e, "loss": 1 / e, "val_score": 0.5 + e / 20} for e in range(1, 5)]
SITES = pd.DataFrame({"site": ["A", "B"], "n": [20, 9], "auroc": [0.7, 0.6], "low": [0.5, 0.2], "high": [0.8, 0.9]})
SCORES = pd.DataFrame({"bnt": [0.7, 0.8], "svm": [0.75, np.nan]}, index=["s0", "s1"])
COMPARISONS = pd.DataFrame(
    {"variant": ["svm"], "reference": ["bnt"], "difference": [0.02], "low": [-0.1], "high": [0.14]}
)
SUMMARY = pd.DataFrame({"variant": ["bnt", "svm"], "auroc": [0.7, 0.75], "cpu_seconds": [20.0, 0.0]})
CURVES = pd.DataFrame({"variant": "bnt", "run": "r", "stage": "a", "epoch": [1, 2], "val_score": [0.5, 0.6]})

MAKERS = {
    "learning_curves": lambda: figures.learning_curves(LINES),
    "loss_curve": lambda: figures.loss_curve(LINES),
    "score_curve": lambda: figures.score_curve(LINES),
    "validation_curves": lambda: figures.validation_curves(CURVES),
    "roc_curves": lambda: curves.roc_curves(BINARY),
    "calibration_curves": lambda: curves.calibration_curves(BINARY),
    "paired_plot": lambda: figures.paired_plot(SCORES),
    "forest_plot": lambda: figures.forest_plot(COMPARISONS),
    "per_site_plot": lambda: figures.per_site_plot({"bnt": SITES, "svm": SITES}),
    "cost_plot": lambda: figures.cost_plot(SUMMARY),
    "decision_curves": lambda: curves.decision_curves(BINARY),
    "predicted_scores": lambda: curves.predicted_scores(TWO_SCORES, "age"),
}
NOT_IN_A_PAPER = {"learning_curves", "loss_curve", "score_curve", "predicted_scores"}  # the others: test_paper.py


@pytest.mark.parametrize("name", MAKERS)
def test_a_figure_is_a_vector_pdf_with_letters_of_a_paper(name: str, tmp_path: Path):
    before = dict(mpl.rcParams)
    figure = MAKERS[name]()
    assert isinstance(figure, Figure)
    sizes = {t.get_fontsize() for t in figure.findobj(mpl.text.Text) if t.get_text()}
    assert sizes <= {7.0, 8.0}
    if name in NOT_IN_A_PAPER:
        save_figure(figure, tmp_path / "figure.pdf")
        data = (tmp_path / "figure.pdf").read_bytes()
        assert data.startswith(b"%PDF")
        assert b"/Subtype /Image" not in data
    assert dict(mpl.rcParams) == before


def test_dollars_in_names_are_dollars():
    from bnt.plotting._brain import network_matrix

    name = r"$5 and $\frac$"
    sites = SITES.assign(site=[name, "B"])
    drawn = [
        figures.per_site_plot({name: sites, "svm": SITES}),
        curves.roc_curves({name: BINARY["bnt"]}),
        figures.cost_plot(SUMMARY.assign(variant=[name, "svm"])),
        figures.paired_plot(SCORES.rename(columns={"bnt": name})),
        curves.predicted_scores({name: TWO_SCORES["bnt"]}, name),
        network_matrix(np.eye(2), [name, "B"], name, name),
    ]
    for figure in drawn:
        figure_bytes(figure, "svg")
        texts = [text for text in figure.findobj(mpl.text.Text) if name in text.get_text()]
        assert texts
        assert not any(text.get_parse_math() for text in texts)


def test_powers_of_ten_stay_formulas_on_a_logarithmic_axis():
    @styled
    def draw() -> Figure:
        figure, (axes,) = canvas()
        axes.set(xscale="log", xlim=(1, 1e6))
        return figure

    figure = draw()
    figure_bytes(figure, "svg")
    assert all(tick.label1.get_parse_math() for tick in figure.axes[0].xaxis.get_major_ticks())


def test_every_member_of_every_run_has_its_line(tmp_path: Path):
    from bnt.report._evidence import curve_table

    rows = [
        {"stage": f"member{m}-{part}", "epoch": e, "loss": 1.0, "val_score": None if part == "refit" else 0.1 * m}
        for m in range(12)
        for part in ("selected", "refit")
        for e in (1, 2, 3)
    ]
    for run in ("one", "two"):
        (tmp_path / "runs" / run).mkdir(parents=True)
        (tmp_path / "runs" / run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = curve_table(tmp_path, [("bnt", "one"), ("bnt", "two"), ("svm", "three")])
    lines = figures.validation_curves(table).axes[0].lines
    assert [list(line.get_xdata()) for line in lines] == [[1, 2, 3]] * 24
    assert [line.get_ydata()[0] for line in lines] == pytest.approx([0.1 * m for m in range(12)] * 2)


def test_a_model_has_one_colour_in_the_figures_of_a_study_and_no_two_of_25_are_drawn_alike():
    assert len({tuple(line(i).values()) for i in range(25)}) == 25
    assert len({tuple(look(i).values()) for i in range(25)}) == 25
    (drawn,) = figures.validation_curves(CURVES[:1], order=["svm", "bnt"]).axes[0].lines
    assert drawn.get_color() == look(1)["color"]
    assert drawn.get_marker() == "o"  # a line of one epoch is not seen


def test_axes_of_validation_scores_are_in_per_cent_with_no_needless_decimals():
    figure = figures.score_curve([{"stage": "a", "epoch": e, "loss": 1.0, "val_score": 0.5 + e / 10} for e in (1, 2)])
    (axes,) = figure.axes
    assert axes.get_ylabel() == "validation AUROC (%)"
    assert "60" in [text.get_text() for text in axes.get_yticklabels()]
    assert {text.get_text() for text in axes.get_xticklabels()} <= {"0", "1", "2", "3"}  # whole epochs
    (axes,) = figures.score_curve(LINES, "validation squared error").axes
    assert axes.get_ylabel() == "validation squared error"


def test_names_of_networks_stay_left_of_their_lines_and_inside_the_figure():
    names = tuple(f"RetrosplenialTemporal {k}" for k in range(13))
    networks = Networks(names, np.repeat(np.arange(13), 2))
    maps = brain.assignment_maps(RNG.random((2, 26, 10)), ["control", "patient"], networks)
    score = RNG.normal(size=26 * 25 // 2)
    tiny = brain.edge_matrix(1e-5 * score, networks, "change of margin per SD of the edge")
    assert tiny.axes[1].get_ylabel() == "change of margin per SD of the edge,\n× 10⁻⁵"
    for figure in (maps, brain.edge_matrix(score, networks, "score"), tiny):
        figure.draw_without_rendering()
        axes = figure.axes[0]
        ends = [one.get_window_extent().x0 for one in axes.lines if not one.get_clip_on()]
        boxes = [text.get_window_extent() for text in axes.get_yticklabels()]
        assert len(ends) == len(boxes) == 13
        assert max(box.x1 for box in boxes) <= min(ends)
        assert min(box.x0 for box in boxes) >= 0


def test_equal_figures_give_equal_text_and_two_share_no_id():
    one, again = (inline_svg(curves.roc_curves(BINARY), "a", "x") for _ in range(2))
    assert one == again

    other = inline_svg(curves.roc_curves(BINARY), "b", "x")
    assert not set(re.findall(r'id="([^"]+)"', one)) & set(re.findall(r'id="([^"]+)"', other))


def test_ink_follows_the_page():
    svg = inline_svg(figures.paired_plot(SCORES), "a", "x")
    assert "#000000" not in svg
    assert "currentColor" in svg


def test_the_strongest_edges_are_kept_with_their_signs():
    matrix = np.zeros((4, 4))
    matrix[0, 1] = matrix[1, 0] = -3.0
    matrix[2, 3] = matrix[3, 2] = 2.0
    matrix[0, 3] = matrix[3, 0] = 1.0
    kept = brain.strongest(matrix, 2)
    assert kept[0, 1] == kept[1, 0] == -3.0
    assert kept[2, 3] == 2.0
    assert np.count_nonzero(kept) == 4


def test_no_place_unknown_no_brain():
    rois = pd.DataFrame({"x": [1.0, np.nan], "y": [0.0, 0.0], "z": [0.0, 0.0]})
    assert brain.coordinates(rois) is None
    assert brain.coordinates(None) is None


def test_classes_are_not_counted_by_themselves():
    from bnt.report._evidence import CohortFacts, class_counts

    people = pd.DataFrame({"participant_id": ["a", "b"], "site": ["A", "B"], "sex": ["F", "M"]})
    assert class_counts(people, "site", CohortFacts(""), "site") is None
    counts = class_counts(people, "site", CohortFacts(""), "sex")
    assert counts is not None
    assert counts["total"].tolist() == [1, 1]


@pytest.mark.parametrize("x", [list(range(10, 101, 10)), [2, 3, 4, 5, 10, 50, 100], [998, 999, 1000, 4000], [5]])
def test_names_of_ticks_on_a_logarithmic_axis_do_not_touch(x):
    figure, (axes,) = canvas(width=4.6, height=2.8)
    lines(axes, x, {"model": (np.linspace(60, 70, len(x)), np.ones(len(x)))})
    figure.draw_without_rendering()
    boxes = [one.get_window_extent() for one in axes.get_xticklabels() if one.get_text()]
    assert all(one.x1 < other.x0 for one, other in zip(boxes, boxes[1:]))
    assert axes.get_xticklabels()[-1].get_text() == str(x[-1])
