"""What is done around any model: harmonisation, confounds, class weights and thresholds, learned in training only."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

import bnt
from bnt.errors import BadInput
from bnt.splits import named_splits
from bnt.training import Adjustments, TrainedRun, describe, find_recipe, train_run
from bnt.training._adjustments import ENOUGH, EdgeAdjustment, site_accuracy
from bnt.training._task import best_threshold

COMBAT = Adjustments(harmonise="combat", keep="age+sex")


@pytest.fixture(scope="module")
def shifted(tmp_path_factory):
    """Return a cohort of three sites on disk, each with a shift of its own on the Fisher scale, and one split."""
    cohort = bnt.simulate_cohort(n_subjects=120, n_rois=12, n_sites=3, n_modules=3, seed=1)
    rng = np.random.default_rng(0)
    move = {site: rng.normal(0, 0.25, cohort.shape[1]) for site in np.unique(cohort.sites)}
    z = np.arctanh(cohort.connectomes) + np.stack([move[site] for site in cohort.sites])
    folder = tmp_path_factory.mktemp("shifted") / "cohort"
    made = bnt.Cohort(np.tanh(z).astype(np.float32), cohort.participants.drop(columns="scan", errors="ignore")).save(
        folder
    )
    (split,) = named_splits(made, "diagnosis", "site-stratified", n_splits=1)
    return made, split


def config_of(cohort, split, model="ridge", options=None, adjustments=COMBAT, **changes):
    recipe = find_recipe("default", model, **changes)
    return describe(cohort, "diagnosis", split, model=model, options=options, recipe=recipe, adjustments=adjustments)


SMALL = {"ridge": (None, {}), "vanilla": ({"n_layers": 1}, {"epochs": 1})}


@pytest.mark.parametrize("model", SMALL)
def test_a_saved_run_predicts_with_the_transformation_that_it_was_trained_with(shifted, model, tmp_path):
    cohort, split = shifted
    options, changes = SMALL[model]
    result = train_run(cohort, split, config_of(cohort, split, model, options, **changes), tmp_path / "run")
    test = result.predictions[result.predictions["part"] == "test"]
    again = TrainedRun(tmp_path / "run").table(cohort.select(test["participant_id"].to_numpy(str)))
    np.testing.assert_allclose(again["p_1"], test["p_1"], atol=1e-6)
    assert TrainedRun(tmp_path / "run").config.adjustments == COMBAT
    assert "ComBat, keeping age, sex" in (tmp_path / "run" / "model_card.md").read_text()


def test_harmonising_makes_sites_hard_to_tell_on_test_people(shifted, tmp_path):
    cohort, split = shifted
    told = train_run(cohort, split, config_of(cohort, split), tmp_path / "run").report["site_accuracy"]
    assert told["before"]["accuracy"] > 0.9
    assert told["after"]["accuracy"] < told["before"]["accuracy"] - 0.3


def test_test_people_change_nothing_that_is_learned(shifted):
    cohort, split = shifted
    train, _, test = split.rows(cohort)
    edges = np.array(cohort.connectomes)
    edges[test] = 0.9
    people = cohort.participants.drop(columns="scan", errors="ignore")
    people.loc[test, "age"] = 99.0
    other = bnt.Cohort(edges, people)
    settings = replace(COMBAT, confounds="mean_fd")
    one, two = (EdgeAdjustment(settings).fit(c, train).state() for c in (cohort, other))
    assert one.keys() == two.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], two[name])


def test_confounds_leave_the_edges_of_training_people_as_residuals_of_a_regression(shifted):
    cohort, split = shifted
    train = split.rows(cohort)[0]
    view = EdgeAdjustment(Adjustments(confounds="age+sex")).fit(cohort, train).apply(cohort)
    people = cohort.participants.iloc[train]
    design = np.stack([people["age"], (people["sex"] == sorted(people["sex"].unique())[1]).astype(float)], axis=1)
    z = np.arctanh(cohort.edges(train).astype(float))
    fitted = LinearRegression().fit(design, z)
    centred = design - [people["age"].mean(), 0]
    np.testing.assert_allclose(np.arctanh(view.edges(train).astype(float)), z - centred @ fitted.coef_.T, atol=1e-5)


def test_confounds_of_a_linear_model_are_its_own_option_with_the_same_numbers(shifted):
    cohort, split = shifted
    given = config_of(cohort, split, adjustments=Adjustments(confounds="age+sex"))
    assert given == config_of(cohort, split, options={"confounds": "age+sex"}, adjustments=None)


def test_without_adjustments_the_configuration_is_as_before(shifted):
    cohort, split = shifted
    assert "adjustments" not in config_of(cohort, split, adjustments=None).to_dict()


@pytest.mark.parametrize(("n", "corrected"), [(ENOUGH, True), (ENOUGH - 1, False)])
def test_a_new_site_is_estimated_from_enough_scans_and_said(shifted, n, corrected):
    cohort, split = shifted
    sites = cohort.sites
    train = np.flatnonzero(sites != sites[0])
    adjustment = EdgeAdjustment(Adjustments(harmonise="combat")).fit(cohort, train)
    rows = np.flatnonzero(sites == sites[0])[:n]
    said = adjustment.notes(cohort, rows)[sites[0]]
    assert f"{n} scans" in said
    assert ("not harmonised" not in said) == corrected
    moved = np.abs(adjustment.apply(cohort, rows).edges(rows) - cohort.edges(rows)).max()
    assert (moved > 0.01) == corrected


def test_edges_of_a_region_without_a_signal_stay_zero(shifted):
    cohort, split = shifted
    edges = np.array(cohort.connectomes)
    edges[:5, 3] = 0
    other = bnt.Cohort(edges, cohort.participants.drop(columns="scan", errors="ignore"))
    view = EdgeAdjustment(COMBAT).fit(other, split.rows(cohort)[0]).apply(other)
    np.testing.assert_array_equal(view.edges(np.arange(5))[:, 3], 0)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"harmonise": "combat", "keep": "diagnosis"}, "diagnosis"),
        ({"confounds": "diagnosis"}, "diagnosis"),
        ({"harmonise": "combat", "keep": "height"}, "height"),
        ({"confounds": "height"}, "height"),
    ],
)
def test_the_label_and_columns_that_are_not_there_are_refused(shifted, settings, named):
    with pytest.raises(BadInput, match=named):
        config_of(*shifted, model="vanilla", adjustments=Adjustments(**settings))


def test_keeping_without_harmonising_is_refused():
    with pytest.raises(BadInput, match="age"):
        Adjustments(keep="age")


@pytest.mark.parametrize("model", ["logistic", "vanilla"])
def test_balanced_classes_raise_the_probability_of_the_rare_class(shifted, model):
    from bnt.training import make_learner

    cohort, split = shifted
    train, val, test = split.rows(cohort)
    y = cohort.labels("diagnosis")
    rare = np.concatenate([train[y[train] == 0], train[y[train] == 1][:8]])
    options, changes = ({"n_layers": 1}, {"epochs": 3, "lr": 1e-3}) if model == "vanilla" else (None, {})
    means = []
    for adjustments in (None, Adjustments(class_weight="balanced")):
        config = config_of(cohort, split, model, options, adjustments, **changes)
        learner = make_learner(config)
        learner.fit(cohort, y, rare, val)
        means.append(learner.predict(cohort, test)[:, 1].mean())
    assert means[1] > means[0] + 0.02


def test_the_threshold_is_the_best_of_all_by_balanced_accuracy():
    rng = np.random.default_rng(0)
    positive, p = rng.random(40) < 0.3, rng.random(40).round(2)

    def balanced(cut):
        return (p[positive] > cut).mean() + (p[~positive] <= cut).mean()

    assert balanced(best_threshold(positive, p)) == max(balanced(cut) for cut in np.linspace(-0.005, 1.005, 203))


def test_a_threshold_of_validation_is_kept_and_used_by_predictions(shifted, tmp_path):
    cohort, split = shifted
    config = config_of(cohort, split, adjustments=Adjustments(threshold="validation"))
    result = train_run(cohort, split, config, tmp_path / "run")
    validation = result.predictions[result.predictions["part"] == "validation"]
    expected = best_threshold((validation["label"] == 1).to_numpy(), validation["p_1"].to_numpy())
    trained = TrainedRun(tmp_path / "run")
    assert trained.threshold == result.report["threshold"] == pytest.approx(expected)
    table = trained.table(cohort)
    assert (table["predicted"] == (table["p_1"] > expected).astype(int)).all()


def test_a_class_that_is_never_predicted_is_named(shifted, tmp_path):
    cohort, split = shifted
    config = config_of(cohort, split, "logistic", {"C": 1e-9}, None)
    report = train_run(cohort, split, config, tmp_path / "run").report
    assert len(report["never_predicted"]) == 1


def test_sites_without_effect_are_told_at_chance():
    rng = np.random.default_rng(0)
    people = pd.DataFrame({"participant_id": [f"s{i}" for i in range(200)], "site": ["A", "B"] * 100})
    cohort = bnt.Cohort(rng.uniform(-0.5, 0.5, (200, 45)).astype(np.float32), people)
    found = site_accuracy(cohort, np.arange(100), np.arange(100, 200))
    assert found["chance"] == 0.5
    assert abs(found["accuracy"] - 0.5) < 0.15


def test_arrays_given_to_an_estimator_are_harmonised_as_a_cohort_is(shifted):
    cohort, _ = shifted
    settings = {"harmonise": "combat", "harmonise_keep": "age", "confounds": "mean_fd", "random_state": 0}
    y, people = cohort.labels("diagnosis"), cohort.participants[["age", "mean_fd"]]
    one = bnt.BrainNetworkClassifier("ridge", **settings).fit(cohort, "diagnosis").predict_proba(cohort)
    arrays = bnt.BrainNetworkClassifier("ridge", kind="pearson", **settings)
    arrays.fit(cohort.connectomes, y, sites=cohort.sites, participants=people)
    two = arrays.predict_proba(cohort.connectomes, sites=cohort.sites, participants=people)
    plain = bnt.BrainNetworkClassifier("ridge", random_state=0).fit(cohort, "diagnosis").predict_proba(cohort)
    np.testing.assert_allclose(one, two, atol=1e-9)
    assert np.abs(one - plain).max() > 0.01


def test_people_whose_site_is_not_known_are_not_harmonised_as_one(shifted):
    cohort, split = shifted
    train = split.rows(cohort)[0]
    people = cohort.participants.drop(columns="scan", errors="ignore")
    people.loc[train[:4], "site"] = None
    gaps = bnt.Cohort(np.array(cohort.connectomes), people)
    adjustment = EdgeAdjustment(COMBAT).fit(gaps, train)
    rest = EdgeAdjustment(COMBAT).fit(gaps, train[4:])
    for name in ("mean", "sd", "shift", "scale"):
        np.testing.assert_allclose(getattr(adjustment.combat, name), getattr(rest.combat, name), atol=0.05)
    assert "unknown" not in adjustment.combat.sites
    np.testing.assert_allclose(adjustment.apply(gaps).edges(train[:4]), gaps.edges(train[:4]), atol=1e-6)
    assert "4 scans): not harmonised" in adjustment.notes(gaps, train)["unknown"]
