"""People from elsewhere: estimates against oracles, coverage, a planted shift, refusals, and what is written."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, logit
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression

import bnt
from bnt.cli._main import main
from bnt.errors import BadInput
from bnt.models.classical._inputs import Inputs
from bnt.predict import _transport as transport
from bnt.predict import subject_table, validate_run
from bnt.report import write_validation
from bnt.report._tested import lead, shown_groups
from bnt.splits import named_splits
from bnt.training import Adjustments, TrainedRun, describe, export_run, find_recipe, train_run
from bnt.training._task import auroc_interval


def planted(seed, n=120, n_sites=2, effect=1.6, move=0.0, prefix="a"):
    """Return people whose class is in many edges; a site's scanner may move all edges."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    z = rng.normal(0.2, 0.2, (n, 45)) + effect * 0.1 * (y[:, None] - 0.5) + move
    people = {
        "participant_id": [f"{prefix}{i:03d}" for i in range(n)],
        "site": [f"{prefix}-{i % n_sites}" for i in range(n)],
        "diagnosis": y,
        "sex": np.where(rng.random(n) < 0.5, "F", "M"),
        "age": rng.integers(8, 40, n),
        "mean_fd": rng.gamma(2, 0.05, n),
        "score": 10 + 4 * y + rng.normal(0, 2, n),
    }
    return bnt.Cohort(np.tanh(z).astype(np.float32), pd.DataFrame(people))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return a ridge run on 120 people of two sites, and its folder."""
    folder = tmp_path_factory.mktemp("trained")
    cohort = planted(0).save(folder / "cohort")
    (split,) = named_splits(cohort, "diagnosis", "site-stratified", n_splits=1)
    config = describe(cohort, "diagnosis", split, model="ridge", recipe=find_recipe("default"))
    train_run(cohort, split, config, folder / "run")
    return TrainedRun(folder / "run")


def test_calibration_slope_is_that_of_a_logistic_regression_on_the_logit():
    rng = np.random.default_rng(0)
    p = expit(rng.normal(0, 1.5, 300))
    positive = rng.random(300) < expit(0.6 * logit(p) + 0.4)
    slope, large = transport.calibration(positive, p)
    oracle = LogisticRegression(C=np.inf, tol=1e-10).fit(logit(p)[:, None], positive)
    assert slope.value == pytest.approx(oracle.coef_[0, 0], abs=1e-4)
    assert expit(logit(p) + large.value).mean() == pytest.approx(positive.mean(), abs=1e-8)
    assert slope.low < slope.value < slope.high < 1


def test_a_slope_interval_ends_where_the_likelihood_ratio_test_does():
    from scipy.optimize import minimize_scalar

    rng = np.random.default_rng(1)
    p = expit(rng.normal(0, 1.5, 200))
    positive = rng.random(200) < p
    slope, _ = transport.calibration(positive, p)

    def deviance(a):
        def loss(b):
            return (np.logaddexp(0, a * logit(p) + b) - positive * (a * logit(p) + b)).sum()

        return 2 * minimize_scalar(loss, tol=1e-12).fun

    for end in (slope.low, slope.high):
        assert deviance(end) - deviance(slope.value) == pytest.approx(3.841459, abs=1e-3)


def test_intervals_hold_the_truth_in_95_per_cent_of_samples(monkeypatch):
    file = Path(__file__).parents[2] / "benchmarks" / "validation_coverage.py"
    spec = importlib.util.spec_from_file_location("validation_coverage", file)
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    monkeypatch.setattr(benchmark, "PEOPLE", 100_000)  # the truth to a thousandth; a sample's interval is 0.1 wide
    table = benchmark.coverage("scores", 100, 2.0, 0.6, draws=300)
    few = benchmark.coverage("classes", 150, 0.7, 1.0, draws=40)
    assert (np.abs(table["coverage"] - 0.95) < 3.5 * 0.0126).all()
    assert (few["coverage"] > 0.95 - 3.5 * 0.0345).all()


def test_a_sample_of_the_stated_size_finds_the_smallest_auroc_in_80_per_cent():
    n, area = 60, transport.detectable_auroc(60, 60)
    rng = np.random.default_rng(0)
    positive = np.arange(2 * n) < n
    apart = norm.ppf(area) * np.sqrt(2)
    found = []
    for _ in range(100):
        low, high = auroc_interval(positive, expit(rng.normal(0, 1, 2 * n) + apart * positive))
        found.append(not low <= 0.5 <= high)
    assert 0.66 < np.mean(found) < 0.92


def test_people_like_those_of_training_are_predicted_and_nothing_is_wrong(trained):
    found = validate_run(trained, planted(5, prefix="b"))
    assert found.metrics["auroc"].low > 0.6
    assert found.facts["people_checked_by"] == "ids and scans"
    assert set(found.subgroups["by"]) == {"site", "sex", "age", "motion (mean FD)"}
    assert found.subgroups.groupby("by")["n"].sum().eq(120).all()


def test_a_planted_shift_is_found(trained):
    found = validate_run(trained, planted(5, prefix="b", move=0.15))
    assert found.metrics["calibration_intercept"].excludes(0)
    assert any("too" in sentence and "calibration intercept" in sentence for sentence in found.findings)


def test_adapting_undoes_a_shift_and_says_so(trained):
    shifted = planted(5, prefix="b", n_sites=1, move=0.15)
    found = validate_run(trained, shifted, adapt=True)
    plain = validate_run(trained, shifted)
    away = [abs(one.metrics["calibration_intercept"].value) for one in (found, plain)]
    assert away[0] < away[1] / 2
    assert "b-0" in found.facts["new_sites"][0]
    assert "120" in found.facts["new_sites"][0]
    table = subject_table(trained, shifted, adapt=True)
    assert table["new_site"].str.contains("Adapted").all()
    assert "new_site" not in subject_table(trained, shifted)


def test_few_scans_of_a_new_site_are_not_adapted(trained):
    few = planted(5, n=12, prefix="b", n_sites=1, move=0.15)
    table = subject_table(trained, few, adapt=True)
    assert table["new_site"].str.contains("Not adapted").all()
    np.testing.assert_array_equal(table["p_1"], subject_table(trained, few)["p_1"])


def test_best_with_series_is_adapted_by_its_decisions(tmp_path):
    everyone = bnt.simulate_cohort(n_subjects=84, n_rois=16, n_sites=3, n_volumes=40, seed=1)
    last = everyone.sites == np.unique(everyone.sites)[-1]
    cohort = everyone.select(~last).save(tmp_path / "cohort")
    elsewhere = everyone.select(last)
    (split,) = named_splits(cohort, "diagnosis", "site-stratified", n_splits=1)
    config = describe(cohort, "diagnosis", split, model="best", recipe=find_recipe("default"))
    train_run(cohort, split, config, tmp_path / "run")
    trained = TrainedRun(tmp_path / "run")
    before = trained.learner.model.decisions(Inputs.of(elsewhere))
    plain, moved = (subject_table(trained, elsewhere, adapt=adapt) for adapt in (False, True))
    assert moved["new_site"].str.contains("Adapted").all()
    assert not np.allclose(moved["p_1"], plain["p_1"])
    np.testing.assert_array_equal(np.argsort(moved["p_1"]), np.argsort(plain["p_1"]))
    np.testing.assert_array_equal(trained.learner.model.decisions(Inputs.of(elsewhere)), before)  # the run stays


def test_scans_that_were_trained_on_are_refused_under_any_name(trained):
    old = planted(0)
    people = old.participants.drop(columns="scan", errors="ignore").assign(
        participant_id=[f"new{i}" for i in range(len(old))]
    )
    with pytest.raises(BadInput, match="new"):
        validate_run(trained, bnt.Cohort(np.array(old.connectomes), people), allow_same_ids=True)


def test_ids_that_were_trained_on_are_refused_unless_allowed(trained):
    other = planted(9)
    with pytest.raises(BadInput, match="ids") as caught:
        validate_run(trained, other)
    assert caught.value.parameter == "allow_same_ids"
    assert validate_run(trained, other, allow_same_ids=True).facts["n"] == 120


def test_a_label_that_the_run_does_not_know_is_refused(trained):
    people = planted(5, prefix="b").participants.drop(columns="scan", errors="ignore").assign(diagnosis=7)
    with pytest.raises(BadInput, match="7"):
        validate_run(trained, bnt.Cohort(np.array(planted(5).connectomes), people))


def test_the_command_writes_json_tables_and_a_page(trained, tmp_path, capsys):
    planted(5, prefix="b").save(tmp_path / "elsewhere")
    arguments = ["validate", str(trained.folder), str(tmp_path / "elsewhere"), "--out", str(tmp_path / "out")]
    assert main(arguments) == 0
    assert "calibration slope" in capsys.readouterr().out
    facts = json.loads((tmp_path / "out" / "validation.json").read_text())
    assert 0 < facts["metrics"]["auroc"]["low"] < facts["metrics"]["auroc"]["high"] <= 1
    assert 0.5 < facts["power"]["smallest_auroc_above_chance"] < 0.7
    page = (tmp_path / "out" / "validation.html").read_text()
    assert "Unlike the training data" in page
    assert 'src="http' not in page
    assert main(arguments) == 2


def test_a_score_has_r2_error_and_calibration(tmp_path):
    cohort = planted(0, effect=3).save(tmp_path / "cohort")
    (split,) = named_splits(cohort, "score", "site-stratified", n_splits=1)
    adjustments = Adjustments(harmonise="combat", keep="age")
    recipe = find_recipe("default")
    config = describe(cohort, "score", split, model="ridge", recipe=recipe, adjustments=adjustments)
    train_run(cohort, split, config, tmp_path / "run")
    found = validate_run(TrainedRun(tmp_path / "run"), planted(5, effect=3, prefix="b"))
    assert found.metrics["r2"].low < found.metrics["r2"].value < found.metrics["r2"].high
    assert found.metrics["mae"].value == pytest.approx(np.abs(found.people["label"] - found.people["predicted"]).mean())
    assert all("harmonised" in sentence for sentence in found.facts["new_sites"])


def test_of_several_classes_the_page_shows_who_was_confused_and_accuracy_by_subgroup(tmp_path):
    def grouped(seed, prefix):
        people = planted(seed, n=150, prefix=prefix)
        group = np.array(["a", "b", "c"])[np.arange(150) % 3]
        return bnt.Cohort(people.edges(range(150)), people.participants.assign(group=group))

    cohort = grouped(0, "a").save(tmp_path / "cohort")
    (split,) = named_splits(cohort, "group", "site-stratified", n_splits=1)
    config = describe(cohort, "group", split, model="ridge", recipe=find_recipe("default"))
    train_run(cohort, split, config, tmp_path / "run")
    found = validate_run(TrainedRun(tmp_path / "run"), grouped(5, "b"))
    page = write_validation(found, tmp_path / "out").read_text()
    assert 'id="confusion"' in page
    assert "Recall (Wilson)" in page
    assert "calibration slope" not in page
    assert shown_groups(found.subgroups)["accuracy (%)"].str.contains(r"\[").all()
    assert shown_groups(found.subgroups)["AUROC (%)"].str.len().gt(0).all()


def test_a_shared_model_keeps_no_people_so_nothing_is_said_about_who_was_seen(trained, tmp_path):
    shared = TrainedRun(export_run(trained.folder, tmp_path / "shared"))
    found = validate_run(shared, planted(3, prefix="b"))
    assert any("could not be checked: the run keeps no list of its training people." in said for said in found.findings)
    assert "has not seen" not in lead(found)
    assert "has not seen" in lead(validate_run(trained, planted(3, prefix="b")))
