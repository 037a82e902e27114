"""Curves and tables of test predictions, against closed forms and scikit-learn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sklearn.metrics as sk
from scipy.stats import linregress

from bnt._words import heading, shown, spoken
from bnt.cohort import Cohort
from bnt.cohort._triangle import Networks
from bnt.plotting import _predicted as curves
from bnt.plotting._brain import edge_matrix, spread
from bnt.plotting._style import wrapped
from bnt.report._paper import write_paper
from bnt.report._tested import of_subjects

GORDON = [
    "Auditory",
    "CinguloOperc",
    "CinguloParietal",
    "Default",
    "DorsalAttn",
    "FrontoParietal",
    "RetrosplenialTemporal",
    "Salience",
    "SMhand",
    "SMmouth",
    "VentralAttn",
    "Visual",
    "None",
]
FOURS = [
    "VisCent",
    "VisPeri",
    "SomMotA",
    "SomMotB",
    "DorsAttnA",
    "DorsAttnB",
    "SalVentAttnA",
    "SalVentAttnB",
    "LimbicA",
    "LimbicB",
    "ContA",
    "ContB",
    "ContC",
    "DefaultA",
    "DefaultB",
    "DefaultC",
    "TempPar",
    "Cerebellum",
    "Subcortical",
    "Thalamus",
]


def test_net_benefit_is_the_closed_form_of_a_small_example():
    """Ten people, four of them positive; at 0.25 six are treated, three of them positive."""
    positive = np.array([1, 1, 1, 1, 0, 0, 0, 0, 0, 0], dtype=bool)
    probability = np.array([0.9, 0.6, 0.3, 0.1, 0.8, 0.4, 0.3, 0.2, 0.1, 0.05])
    found = curves.net_benefit(positive, probability, np.array([0.25, 0.5]))
    assert found == pytest.approx([3 / 10 - 3 / 10 * 1 / 3, 2 / 10 - 1 / 10])
    table = curves.decision_table({"m": (positive, probability)}).set_index("threshold")
    assert table.loc[0.25, "treat all"] == pytest.approx(0.4 - 0.6 / 3)
    assert table.loc[0.4, "treat all"] == pytest.approx(0.0, abs=1e-12)  # at the share of positives
    assert (table["treat none"] == 0).all()


def test_equal_probabilities_are_one_group_whatever_their_order():
    positive = np.arange(60) < 30
    for order in (np.arange(60), np.arange(60)[::-1]):
        found = curves.calibration_bins(positive[order], np.full(60, 0.4))
        assert found[["probability", "share", "n"]].to_numpy().tolist() == [[pytest.approx(0.4), 0.5, 60]]


def test_calibration_of_close_probabilities_is_not_one_dot():
    rng = np.random.default_rng(0)
    figure = curves.calibration_curves({"svm": (rng.random(80) < 0.5, 0.5 + 0.01 * rng.normal(size=80))})
    low, high = figure.axes[0].get_xlim()
    assert high - low < 0.1
    assert len(curves.calibration_bins(rng.random(80) < 0.5, rng.random(80))) == 8


def test_the_line_of_scores_and_its_interval_are_those_of_scipy():
    rng = np.random.default_rng(0)
    y = rng.normal(size=40)
    z = 0.5 * y + rng.normal(size=40)
    line, low, high = curves.fitted_line(y, z, np.array([0.0, 1.0]))
    found = linregress(y, z)
    assert line == pytest.approx([found.intercept, found.intercept + found.slope])
    half = 2.0243941645751367 * found.intercept_stderr  # t of 38 degrees of freedom, at 0.975
    assert (low[0], high[0]) == pytest.approx((found.intercept - half, found.intercept + half))


def test_confusion_recall_and_auroc_of_each_class_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    names = ["a", "b", "c", "d"]
    codes, p = rng.integers(0, 4, 80), rng.dirichlet(np.ones(4), 80)
    table = pd.DataFrame(p, columns=[f"p_{n}" for n in names]).assign(label=np.array(names)[codes], site="s")
    found = of_subjects({"svm": table}, ["svm"], ["svm"], "subtype", str)
    full = found["recalls_full"].set_index("class")
    called = p.argmax(axis=1)
    counts = found["confusion"].data.pivot(index="true", columns="predicted", values="people").to_numpy()
    assert (counts == sk.confusion_matrix(codes, called)).all()
    assert full["recall"].to_numpy() == pytest.approx(sk.recall_score(codes, called, average=None))
    each = [sk.roc_auc_score(codes == k, p[:, k]) for k in range(4)]
    assert full["auroc"].to_numpy() == pytest.approx(each)
    assert found["roc"] is None


def test_per_cent_where_people_read():
    assert (heading("auroc"), heading("brier"), heading("medae")) == (
        "AUROC (%)",
        "Brier score",
        "median absolute error",
    )
    assert (shown(0.7534, "auroc"), spoken(0.5, "accuracy"), shown(-2e-17, "auroc", "+")) == ("75.3", "50.0 %", "+0.0")


@pytest.mark.parametrize("names", [GORDON, FOURS])
def test_every_network_has_its_own_colour(names: list[str]):
    networks = Networks.from_labels(np.repeat(names, 3))
    assert len(set(networks.colours.values())) == len(names)


def test_forty_networks_still_differ():
    networks = Networks.from_labels(np.array([f"network {i:02d}" for i in range(40)]))
    assert len(set(networks.colours.values())) == 40


def test_places_of_names_keep_their_distance_and_order():
    found = spread(np.array([1.0, 1.5, 2.0, 50.0, 99.0]), 10.0, 0.0, 100.0)
    assert np.diff(found).min() >= 10.0 - 1e-9
    assert (found[0], found[-1]) == (0.0, pytest.approx(99.0))
    assert spread(np.array([10.0, 50.0]), 10.0, 0.0, 100.0).tolist() == [10.0, 50.0]


@pytest.mark.parametrize("names", [GORDON, FOURS])
def test_names_of_networks_neither_overlap_nor_leave_the_figure(names: list[str]):
    """400 ROIs, most of them in the last network: the others are thin."""
    labels = np.array(names[:-1] * 2 + [names[-1]] * (400 - 2 * len(names[:-1])))
    figure = edge_matrix(np.random.default_rng(0).normal(size=400 * 399 // 2), Networks.from_labels(labels), "x")
    figure.draw_without_rendering()
    boxes = sorted((t.get_window_extent() for t in figure.axes[0].get_yticklabels()), key=lambda box: box.y0)
    assert len(boxes) == len(names)
    assert all(above.y0 >= below.y1 - 1 for below, above in zip(boxes, boxes[1:]))
    assert min(box.x0 for box in boxes) >= 0
    assert boxes[-1].y1 <= figure.bbox.y1


def test_a_long_name_is_broken_into_lines():
    name = "a_model_with_a_name_of_forty_characters_"
    assert max(map(len, wrapped(name).split("\n"))) <= 20
    assert wrapped(name).replace("\n", "") == name
    assert max(map(len, wrapped("x" * 40).split("\n"))) <= 36


@pytest.mark.usefixtures("undrawn")
def test_pages_of_several_classes_and_of_a_score(tmp_path: Path):
    from bnt.report import write_report
    from bnt.splits import named_splits
    from bnt.studies import Study, Variant
    from bnt.studies._summary import write_tables

    rng = np.random.default_rng(0)
    x = np.tanh(rng.normal(0.2, 0.3, size=(80, 28))).astype(np.float32)
    table = pd.DataFrame({"participant_id": [f"s{i}" for i in range(80)], "site": ["A", "B"] * 40})
    table["subtype"] = np.array(["one", "two", "three", "four"])[
        np.digitize(x[:, 0], np.quantile(x[:, 0], [0.25, 0.5, 0.75]))
    ]
    table["severity"] = np.round(20 + 30 * x[:, 0] + rng.normal(size=80), 2)
    Cohort(x, table).save(tmp_path / "cohort")
    from bnt.cohort import load_cohort

    cohort = load_cohort(tmp_path / "cohort")
    pages = {}
    for label in ("subtype", "severity"):
        splits = named_splits(cohort, label, "site-stratified", n_splits=2)
        study = Study(tmp_path / label, cohort, label, [Variant("ridge", "ridge")], splits, protocol="site-stratified")
        assert study.run() == {}
        write_tables(tmp_path / label)
        run = next((tmp_path / label / "runs").iterdir())
        pages[label] = [write_report(one, tmp_path / f"{one.name}.html").read_text() for one in (tmp_path / label, run)]
    write_paper(tmp_path / "subtype", tmp_path / "paper")
    assert "recall (%)" in (tmp_path / "paper" / "classes.md").read_text()
    for page in pages["subtype"]:
        assert "Confusion matrix" in page
        assert "one against the rest" in page
        assert "macro" in page
    for page in pages["severity"]:
        assert "AUROC" not in page.replace("(AUROC: DeLong", "")
        assert "median absolute error" in page
        assert "R²" in page
        assert "solid line is fitted" in page
