"""Tables of a study from scores that are undefined, constant or of several classes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from bnt.studies import _results as results
from bnt.studies._results import comparison_table, overlap, summary_table
from bnt.studies._statistics import paired_test
from bnt.studies._summary import markdown_table, notes


def runs_of(scores: dict[str, list[float]], metric: str = "auroc", **columns: object) -> pd.DataFrame:
    """Finished runs with these scores, one a split."""
    rows = [
        {"variant": name, "split": f"loso:{k}", "seed": 0, metric: value, "run": f"{name}--{k}--seed0"}
        for name, values in scores.items()
        for k, value in enumerate(values)
    ]
    more = {"n_train": 70, "n_test": 20, "n_parameters": 1, "cpu_seconds": 1.0, "peak_memory_mb": 1.0}
    return pd.DataFrame(rows).assign(**more, **columns)


@pytest.fixture(autouse=True)
def no_predictions(monkeypatch):
    """Tests on subjects need files of runs; these tables are of scores only."""
    monkeypatch.setattr(results, "pooled_predictions", lambda *_: pd.DataFrame({"participant_id": []}))
    monkeypatch.setattr(results, "_on_subjects", lambda *_: {})


def test_a_constant_difference_has_a_dash_and_a_sentence_in_place_of_a_p(tmp_path):
    runs = runs_of({"bnt": [0.5, 0.6], "svm": [0.6, 0.7]})
    comparisons = comparison_table(tmp_path, runs, "bnt")
    row = markdown_table(summary_table(runs), comparisons).splitlines()[-1]
    assert "| +10.0 [–] | – |" in row
    [note] = notes(runs, comparisons)
    assert note.startswith("svm differs from bnt by the same amount")


def test_an_undefined_auroc_is_said_with_the_number_of_splits_behind_the_mean(tmp_path):
    runs = runs_of({"bnt": [0.5, np.nan, 0.8], "svm": [0.6, np.nan, 0.7]}, accuracy=0.5, sensitivity=0.5)
    summary, comparisons = summary_table(runs), comparison_table(tmp_path, runs, "bnt")
    assert summary["n_splits"].tolist() == [3, 3]
    assert summary["auroc_n"].tolist() == comparisons["n_splits"].tolist() * 2 == [2, 2]
    table = markdown_table(summary, comparisons)
    assert table.count("(n = 2)") == 2  # accuracy is over all three
    assert "AUROC is undefined on split loso:1 (one class in its test set)" in notes(runs, comparisons)[0]


def test_a_metric_that_no_split_has_is_a_dash(tmp_path):
    runs = runs_of({"bnt": [np.nan, np.nan], "svm": [np.nan, np.nan]}, accuracy=0.5)
    comparisons = comparison_table(tmp_path, runs, "bnt")
    assert "nan" not in markdown_table(summary_table(runs), comparisons)
    assert "splits loso:0, loso:1 (a class is missing" in notes(runs, comparisons)[0]


def test_the_brier_score_of_several_classes_may_pass_one():
    runs = runs_of({"svm": [1.2, 1.4, 1.6]}, "brier")
    assert summary_table(runs)["brier_high"].iloc[0] > 1.6
    assert summary_table(runs.assign(sensitivity=0.5))["brier_high"].iloc[0] == 1


def test_the_authors_splitter_is_corrected_by_the_people_its_test_parts_are_drawn_from():
    """One training set; 100 of the 303 beside it are tested: under no difference, 5 % of intervals leave out zero."""
    runs = runs_of({"bnt": [0.5, 0.6]}, n_val=203).assign(n_train=706, n_test=100)
    released = runs.assign(split="released:0:" + runs["split"])
    rng = np.random.default_rng(0)
    n_trials, ratios = 400, {"released": overlap(released), "loso": overlap(runs)}
    left_out = dict.fromkeys(ratios, 0)
    for _ in range(n_trials):
        gain = 0.1 * rng.standard_normal(303)  # of each person, on average none
        drawn = [gain[rng.permutation(303)[:100]].mean() for _ in range(20)]
        for protocol, ratio in ratios.items():
            found = paired_test(drawn, [0.0] * 20, ratio)
            left_out[protocol] += not found.low <= 0 <= found.high
    assert left_out["released"] / n_trials == pytest.approx(0.05, abs=0.03)
    assert left_out["loso"] / n_trials > 0.15  # n_test / n_train is not the overlap there
    assert "one training set" in notes(released, pd.DataFrame())[0]


def test_whose_recall_is_meant_stands_below_the_table():
    runs = runs_of({"bnt": [0.5, 0.6]}, positive_class="diagnosis = 1")
    [note] = notes(runs, pd.DataFrame())
    assert "recall of diagnosis = 1" in note
