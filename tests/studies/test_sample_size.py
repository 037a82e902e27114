"""Learning curves: the fit finds a planted law, smaller training parts are nested, and the command writes its files."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import bnt
from bnt.cli._main import main
from bnt.errors import BadInput
from bnt.studies import PowerLaw, _sample_size, fit_power_law
from bnt.studies._sample_size import fewer_sites, people_needed, thinned_splits

SIZES = np.array([50, 100, 200, 400, 800])


@pytest.mark.parametrize(("a", "b", "c"), [(0.8, 1.0, 0.5), (0.75, 3.0, 0.9), (0.95, 0.8, 0.2)])
def test_the_fit_finds_the_law_that_made_the_scores(a, b, c):
    law = fit_power_law(SIZES, a - b * SIZES**-c)
    assert (law.limit, law.scale, law.exponent) == pytest.approx((a, b, c), rel=1e-3)
    assert law.people_for(law.score(np.array(300.0))) == pytest.approx(300, rel=1e-6)


def test_a_target_above_the_limit_needs_infinitely_many_people():
    assert PowerLaw(0.8, 1.0, 0.5).people_for(0.8) == float("inf")


def test_the_interval_of_the_people_needed_holds_the_truth(monkeypatch):
    monkeypatch.setattr(_sample_size, "DRAWS", 100)
    rng = np.random.default_rng(0)
    rows = [
        {"split": f"random:0:split{k}+{n}pc", "n_train": n, "auroc": 0.8 - n**-0.5 + rng.normal(scale=0.005)}
        for k in range(10)
        for n in SIZES
    ]
    n, low, high = people_needed(pd.DataFrame(rows), "auroc", 0.75)
    assert low <= n <= high
    assert low <= 400 <= high


def test_three_sizes_are_too_few():
    with pytest.raises(BadInput, match="4 sizes"):
        fit_power_law([10, 20, 30], [0.5, 0.6, 0.7])


def test_smaller_training_parts_are_of_the_same_split():
    cohort = bnt.simulate_cohort(n_subjects=60, n_rois=16, n_sites=2, seed=0, series=False)
    half, whole = thinned_splits(cohort, "diagnosis", "paper", (0.5, 1.0), n_splits=1)
    assert set(half.train) < set(whole.train)
    assert (half.validation, half.test) == (whole.validation, whole.test)
    with pytest.raises(BadInput, match="kfold"):
        thinned_splits(cohort, "diagnosis", "kfold", (0.5,), n_splits=1)


def test_the_command_writes_the_curve(cohort_folder, tmp_path, capsys):
    words = ["--model", "ridge", "--splits", "1", "--fractions", "0.4", "0.6", "0.8", "1.0", "--aim", "0.9"]
    assert main(["learning-curve", str(cohort_folder), "--out", str(tmp_path / "curve"), "--jobs", "1", *words]) == 0
    assert "needs" in capsys.readouterr().out
    table = pd.read_csv(tmp_path / "curve" / "curve.csv")
    assert table["n_train"].is_monotonic_increasing
    assert (tmp_path / "curve" / "curve.pdf").is_file()


def test_the_command_says_first_what_it_leaves_out(tmp_path, capsys):
    bnt.simulate_cohort(n_subjects=40, n_rois=10, n_sites=2, n_modules=3, seed=0, series=False, out=tmp_path / "c")
    start = ["learning-curve", str(tmp_path / "c"), "--model", "*mlp", "ridge", "--splits", "1", "--out"]
    words = ["--fractions", "0.04", "0.5", "1", "--jobs", "1"]
    assert main([*start, str(tmp_path / "aim"), *words, "--aim", "0.9"]) == 2
    said = capsys.readouterr().err
    assert "Skipped: meanmlp, brainnetmlp: the cohort has no time series." in said
    assert "Left out: 4 % (1 subject), where a training set lacks a class." in said
    assert "there are 2: aim cannot be estimated; give more fractions (--fractions)." in said
    assert not (tmp_path / "aim").exists()
    assert main([*start, str(tmp_path / "curve"), *words]) == 0
    assert pd.read_csv(tmp_path / "curve" / "curve.csv")["fraction"].tolist() == [0.5, 1.0]


def test_fewer_training_sites_are_nested_and_never_the_left_out_one():
    cohort = bnt.simulate_cohort(n_subjects=80, n_rois=16, n_sites=4, seed=0, series=False)
    site_of = dict(zip(cohort.ids.tolist(), cohort.sites.tolist()))
    splits = fewer_sites(cohort, "diagnosis", (1, 3))
    assert len(splits) == 8
    for few, many in zip(splits[::2], splits[1::2]):
        sites = [{site_of[name] for name in split.train + split.validation} for split in (few, many)]
        left_out = {site_of[name] for name in many.test}
        assert [len(found) for found in (*sites, left_out)] == [1, 3, 1]
        assert sites[0] < sites[1]
        assert not left_out & sites[1]
        assert few.test == many.test
    with pytest.raises(BadInput, match="1 to 3"):
        fewer_sites(cohort, "diagnosis", (4,))


def test_the_command_counts_sites(cohort_folder, tmp_path):  # of two sites
    words = ["--model", "ridge", "--sites", "1", "--jobs", "1"]
    assert main(["learning-curve", str(cohort_folder), "--out", str(tmp_path / "curve"), *words]) == 0
    (row,) = pd.read_csv(tmp_path / "curve" / "curve.csv").to_dict("records")
    assert (row["sites"], row["n_splits"]) == (1, 2)
