"""Adjustments of models that read every atlas of a cohort, or time series: edges of each atlas, or decisions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logit, softmax
from sklearn.linear_model import LinearRegression

import bnt
from bnt.cohort import Cohort
from bnt.cohort._beside import write_together
from bnt.errors import BadInput
from bnt.models.classical._inputs import Inputs
from bnt.predict import subject_table
from bnt.splits import Split, named_splits
from bnt.training import Adjustments, TrainedRun, describe, find_recipe, train_run
from bnt.training._adjustments import AtlasAdjustment, DecisionAdjustment, EdgeAdjustment

COMBAT = Adjustments(harmonise="combat", keep="age")


@pytest.fixture(scope="module")
def atlases(tmp_path_factory):
    """Sixty people of two sites, with a scanner's shift, in 10 ROIs and in 6 others."""
    whole = bnt.simulate_cohort(n_subjects=60, n_rois=16, n_sites=2, n_modules=4, effect=1.5, seed=0)
    table = whole.participants.drop(columns=["n_volumes", "scan"], errors="ignore")
    move = np.where(whole.sites == whole.sites[0], 0.3, -0.1)[:, None, None]
    squares = np.tanh(np.arctanh(np.clip(whole.square(np.arange(60)), -0.99, 0.99)) + move)
    out = tmp_path_factory.mktemp("atlases") / "cohort"
    rois = {"fine": np.arange(10), "coarse": np.arange(10, 16)}
    parts = {name: Cohort(squares[:, which][:, :, which], table, atlas=name) for name, which in rois.items()}
    write_together(out, {name: one.save for name, one in parts.items()})
    return bnt.load_cohort(out)


@pytest.fixture(scope="module")
def scans(tmp_path_factory):
    """Ninety people with series, whose age goes with the diagnosis; 50 to train on and 25 to select on."""
    cohort = bnt.simulate_cohort(n_subjects=90, n_rois=8, n_sites=2, n_modules=2, effect=1.5, seed=2)
    table = cohort.participants.drop(columns="scan", errors="ignore")
    table["age"] = 30 + 8 * cohort.labels("diagnosis") + np.random.default_rng(0).normal(0, 3, 90)
    cohort = Cohort(np.array(cohort.connectomes), table, timeseries=list(cohort.timeseries))
    cohort = cohort.save(tmp_path_factory.mktemp("scans") / "cohort")
    rows = np.random.default_rng(1).permutation(90)
    return cohort, Split.of(cohort, (rows[:50], rows[50:75], rows[75:]), "one", "table")


def config_of(cohort, split, adjustments, model="meanmlp", options=None, recipe="default", **changes):
    changes = {"epochs": 2, "min_steps": 0} | changes if model == "meanmlp" else changes
    made = find_recipe(recipe, model, **changes)
    return describe(cohort, "diagnosis", split, model=model, options=options, recipe=made, adjustments=adjustments)


# -- every atlas -----------------------------------------------------------------------------------


def test_each_atlas_is_harmonised_as_it_would_be_alone(atlases):
    train, rows = np.arange(0, 60, 2), np.arange(60)
    view = AtlasAdjustment(COMBAT).fit(atlases, train).apply(atlases, rows)
    for name in ("fine", "coarse"):
        alone = bnt.load_cohort(atlases.path, name)
        expected = EdgeAdjustment(COMBAT).fit(alone, train).apply(alone, rows).edges(rows)
        np.testing.assert_array_equal(view.with_atlas(name).edges(rows), expected)
        some = Inputs.of(view, rows[45:50], every_atlas=True).by_atlas()[name]
        np.testing.assert_array_equal(some.edges, expected[45:50])


def test_an_ensemble_over_atlases_is_harmonised_and_kept(atlases, tmp_path):
    (split,) = named_splits(atlases, "diagnosis", "site-stratified", n_splits=1)
    config = config_of(atlases, split, COMBAT, "atlas-ensemble", {"base": "ridge"})
    result = train_run(atlases, split, config, tmp_path / "run")
    told = result.report["site_accuracy"]
    assert told["after"]["accuracy"] < told["before"]["accuracy"]
    test = result.predictions[result.predictions["part"] == "test"]
    again = TrainedRun(tmp_path / "run").table(atlases.select(test["participant_id"].to_numpy(str)))
    np.testing.assert_allclose(again["p_1"], test["p_1"], atol=1e-6)
    plain = config_of(atlases, split, None, "atlas-ensemble", {"base": "ridge"})
    unlike = train_run(atlases, split, plain, tmp_path / "plain").predictions
    assert not np.allclose(unlike["p_1"], result.predictions["p_1"], atol=1e-3)


def test_adapting_centres_a_new_site_in_every_atlas(atlases, tmp_path):
    names, counts = np.unique(atlases.sites, return_counts=True)
    here = np.flatnonzero(atlases.sites == names[counts.argmin()])
    there = np.flatnonzero(atlases.sites != names[counts.argmin()])
    split = Split.of(atlases, (here[:14], here[14:16], here[16:]), "one", "table")
    config = config_of(atlases, split, None, "atlas-ensemble", {"base": "ridge"})
    train_run(atlases, split, config, tmp_path / "run")
    trained = TrainedRun(tmp_path / "run")
    table = subject_table(trained, atlases.select(there), adapt=True)
    moved = {}
    for name in atlases.atlases:
        z = np.arctanh(bnt.load_cohort(atlases.path, name).connectomes.astype(np.float64))
        moved[name] = np.tanh(z[there] + z[here[:14]].mean(axis=0) - z[there].mean(axis=0)).astype(np.float32)
    inputs = Inputs.of(atlases, there, every_atlas=True)
    fine, coarse = (Inputs(moved[name], kind=inputs.kind, people=inputs.people, atlas=name) for name in moved)
    both = Inputs(fine.edges, kind=inputs.kind, people=inputs.people, atlas="fine", others={"coarse": coarse})
    np.testing.assert_allclose(table["p_1"], trained.learner.models[0].predict_proba(both)[:, 1], atol=1e-4)


# -- series ----------------------------------------------------------------------------------------


def test_decisions_lose_what_a_regression_on_the_confounds_explains(scans):
    cohort, split = scans
    val, test = split.rows(cohort)[1:]
    rng = np.random.default_rng(0)
    p = softmax(rng.normal(0, 1, (len(cohort), 2)), axis=1)
    people = cohort.participants
    found = DecisionAdjustment("age+sex", is_score=False).fit(p[val], people.iloc[val])
    levels = sorted(people["sex"].iloc[val].astype(str).unique())
    sex = (people["sex"].astype(str) == levels[1]).astype(float)
    design = np.stack([people["age"] - people["age"].iloc[val].mean(), sex], axis=1)
    oracle = LinearRegression().fit(design[val], logit(p[val, 1]))
    expected = logit(p[test, 1]) - design[test] @ oracle.coef_
    np.testing.assert_allclose(logit(found.apply(p[test], people.iloc[test])[:, 1]), expected, atol=1e-8)


def test_confounds_of_a_network_of_series_leave_its_decisions_and_are_kept(scans, tmp_path):
    cohort, split = scans
    val, test = split.rows(cohort)[1:]
    trained = {}
    for name, around in (("plain", None), ("without", Adjustments(confounds="age"))):
        config = config_of(cohort, split, around, epochs=3, lr=1e-3)
        trained[name] = train_run(cohort, split, config, tmp_path / name).predictions
    age = cohort.participants.set_index("participant_id")["age"]

    def slope(name):
        part = trained[name][trained[name]["part"] == "validation"]
        return np.polyfit(age[part["participant_id"]], logit(part["p_1"]), 1)[0]

    assert abs(slope("plain")) > 1e-5
    assert slope("without") == pytest.approx(0, abs=1e-8)
    again = TrainedRun(tmp_path / "without").table(cohort.select(test))
    mine = trained["without"][trained["without"]["part"] == "test"]
    np.testing.assert_allclose(again["p_1"], mine["p_1"], atol=1e-6)
    oracle = LinearRegression().fit(
        age[cohort.ids[val]].to_numpy()[:, None],
        logit(trained["plain"].loc[trained["plain"]["part"] == "validation", "p_1"]),
    )
    away = age[cohort.ids[test]].to_numpy() - age[cohort.ids[val]].mean()
    expected = logit(trained["plain"].loc[trained["plain"]["part"] == "test", "p_1"]) - away * oracle.coef_[0]
    np.testing.assert_allclose(logit(mine["p_1"]), expected, atol=1e-5)


def test_harmonising_series_is_refused_with_what_to_do_instead(scans):
    with pytest.raises(BadInput, match=r"meanmlp.*time series.*site among the confounds"):
        config_of(*scans, COMBAT)


def test_decisions_need_a_validation_part_that_was_not_learned_from(scans):
    cohort, split = scans
    with pytest.raises(BadInput, match="refitted"):
        config_of(cohort, split, Adjustments(confounds="age"), recipe="best")
    rows = np.arange(90)
    few = Split.of(cohort, (rows[:60], rows[60:70], rows[70:]), "few", "table")
    with pytest.raises(BadInput, match="10 scans"):
        config_of(cohort, few, Adjustments(confounds="age"))
    arrays = bnt.BrainNetworkClassifier("meanmlp", epochs=1, confounds="age", validation_fraction=0.1)
    with pytest.raises(BadInput, match="scans of the 20"):
        arrays.fit(cohort, "diagnosis")
