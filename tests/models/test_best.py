"""The averaged model: its weights against scipy, its decision against its members, folds, unseen sites."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

import bnt
from bnt.errors import BadInput
from bnt.models import create_model
from bnt.models.classical._best import line, stacked_weights
from bnt.models.classical._inputs import Inputs
from bnt.models.classical._solvers import folds

V = 16


def equal(n: int) -> np.ndarray:
    return np.full(n, 1.0 / n)


@pytest.fixture(scope="module")
def inputs() -> Inputs:
    return Inputs.of(bnt.simulate_cohort(n_subjects=60, n_rois=V, n_sites=3, n_volumes=50, seed=0))


Y = np.arange(60) % 2


def held_out(n: int, quality: list[float], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Decisions of members that know the class more or less well, (n, 1, members)."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % 2)
    return np.stack([q * (2 * y - 1) + rng.normal(size=n) for q in quality], axis=1)[:, None], y


def test_weights_are_the_minimum_that_a_general_optimiser_finds():
    decisions, y = held_out(120, [1.0, 0.4, 0.1])
    weight, prior = np.ones(120), np.array([0.2, 0.2, 0.6])
    t = 2.0 * y - 1.0 - np.mean(2.0 * y - 1.0)
    d = decisions[:, 0] - decisions[:, 0].mean(axis=0)
    average = d @ prior
    d = d * (average @ t) / (average @ average)

    def loss(w: np.ndarray) -> float:
        return float(np.mean((t - d @ w) ** 2) / np.mean(t**2) + 400 / 120 * np.sum((w - prior) ** 2))

    # the target's variance is the unit of both terms, so the data term is divided by it and the scaled d is as given
    found = minimize(loss, prior, bounds=[(0, None)] * 3, tol=1e-12).x
    np.testing.assert_allclose(stacked_weights(decisions, y, weight, 2, prior), found / found.sum(), atol=1e-4)


def test_few_subjects_get_nearly_equal_weights_and_many_prefer_the_better_member():
    few, many = (stacked_weights(*held_out(n, [1.0, 0.1]), np.ones(n), 2, equal(2)) for n in (30, 5000))
    assert abs(few[0] - 0.5) < 0.1
    assert many[0] > 0.75
    np.testing.assert_allclose([few.sum(), many.sum()], 1.0)


def test_members_that_know_nothing_get_equal_weights():
    decisions, y = held_out(40, [-1.0, -1.0])  # worse than chance
    np.testing.assert_allclose(stacked_weights(decisions, y, np.ones(40), 2, equal(2)), 0.5)


def test_a_subject_of_weight_two_counts_as_two():
    decisions, y = held_out(50, [1.0, 0.3, 0.3])
    twice = np.arange(50) < 20
    rows = np.r_[np.arange(50), np.flatnonzero(twice)]
    # the same mean squares; the prior knows the effective number of subjects, so that is set apart here
    by_weight = stacked_weights(decisions, y, 1.0 + twice, 2, equal(3))
    by_copy = stacked_weights(decisions[rows], y[rows], np.ones(70), 2, equal(3))
    np.testing.assert_allclose(by_weight, by_copy, atol=0.03)


@pytest.mark.parametrize("has_series", [True, False])
def test_the_decision_is_the_weighted_average_of_its_members(inputs: Inputs, has_series: bool):
    given = inputs if has_series else replace(inputs, series=None)
    model = create_model("best", V, 2).fit(given, Y)
    assert set(model.members) >= {"shrunk0.3", "shrunk0.5", "shrunk0.7", "edges"}
    assert (model.kernels is not None) == has_series
    total = 0.0
    for name, pair in model.members.items():
        for kind, member in pair.items():
            total = total + model.shares[f"{name}.{kind}"] * member.decisions(given)
    if model.kernels is not None:
        total = total + model.shares["series"] * model.kernels.decisions(given)
    np.testing.assert_allclose(model.decisions(given), total, atol=1e-10)
    assert sum(model.shares.values()) == pytest.approx(1.0)


def test_a_member_is_the_model_of_its_name_fitted_alone(inputs: Inputs):
    given = replace(inputs, series=None)
    model = create_model("best", V, 2).fit(given, Y)
    alone = create_model("svm", V, 2, space="tangent", shrinkage=0.3).fit(given, Y)
    np.testing.assert_allclose(model.members["shrunk0.3"]["raw"].decisions(given), alone.decisions(given), atol=1e-10)
    alone = create_model("ridge", V, 2, center_sites=True).fit(given, Y)
    np.testing.assert_allclose(model.members["edges"]["centred"].decisions(given), alone.decisions(given), atol=1e-10)


def test_probabilities_are_calibrated_on_decisions_that_have_not_seen_the_subject(inputs: Inputs):
    shuffled = np.random.default_rng(1).permutation(Y)  # no effect
    p = create_model("best", V, 2).fit(inputs, shuffled).predict_proba(inputs)[:, 1]
    assert np.abs(p - 0.5).mean() < 0.2  # decisions for the same subjects separate them fully


def test_folds_balance_class_and_site_and_keep_groups_together():
    rng = np.random.default_rng(0)
    sites = np.repeat(["a", "b", "c", "d"], 20)
    y = rng.permutation(np.arange(80) % 2)
    for _, rest in folds(y, 2, sites=sites):
        counts = pd.crosstab(sites[rest], y[rest]).to_numpy()
        expected = pd.crosstab(sites, y).to_numpy() / 5
        assert np.abs(counts - expected).max() <= 1.0
    groups = np.arange(80) // 2
    seen = []
    for fitted, rest in folds(y, 2, sites=sites, groups=groups):
        assert not set(groups[fitted]) & set(groups[rest])
        seen.append(rest)
    np.testing.assert_array_equal(np.sort(np.concatenate(seen)), np.arange(80))


def test_families_of_the_table_of_people_stay_together_in_the_folds(inputs: Inputs, monkeypatch: pytest.MonkeyPatch):
    from bnt.models.classical import _best

    given = []

    def watched(*args: object, **options: np.ndarray) -> object:
        given.append(options["groups"])
        return folds(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(_best, "folds", watched)
    people = pd.DataFrame({"family": np.arange(60) // 3, "group": Y})  # a BIDS table calls the diagnosis "group"
    create_model("best", V, 2).fit(replace(inputs, series=None, people=people), Y)
    np.testing.assert_array_equal(given[0], (np.arange(60) // 3).astype(str))


def at(inputs: Inputs, rows: np.ndarray, site: str) -> Inputs:
    """Some of the subjects, scanned elsewhere."""
    return replace(inputs.take(rows), sites=np.array([site] * len(rows)))


@pytest.mark.parametrize("has_series", [True, False])
def test_a_new_site_is_centred_by_its_own_scans_only_on_request(inputs: Inputs, has_series: bool):
    given = inputs if has_series else replace(inputs, series=None)
    train, new = given.take(np.arange(40)), at(given, np.arange(40, 60), "elsewhere")
    model = create_model("best", V, 2).fit(train, Y[:40])
    plain, known = model.decisions(new), model.decisions(train)
    model.new_sites = "centred"
    np.testing.assert_array_equal(model.decisions(train), known)  # a site of training stays as it is
    # The mean decision of the training subjects, but that a normalised kernel need not be centred.
    centre = sum(
        model.shares[name] * (model.kernels.intercept if name == "series" else part.decisions(train).mean(axis=0))
        for name, part in model.parts().items()
    )
    with_ten_more = (plain.sum(axis=0) + 10 * centre) / 30  # ten scans at the training mean
    np.testing.assert_allclose(model.decisions(new), plain - with_ten_more + centre, atol=1e-10)


def test_each_of_two_new_sites_is_centred_by_itself_and_by_name_on_request(inputs: Inputs):
    given = replace(inputs, series=None)
    model = create_model("best", V, 2).fit(given.take(np.arange(30)), Y[:30])
    one, two = at(given, np.arange(30, 45), "one"), at(given, np.arange(45, 60), "two")
    both = replace(given.take(np.arange(30, 60)), sites=np.concatenate([one.sites, two.sites]))
    plain = model.decisions(both)
    model.centred_sites = ("two",)
    np.testing.assert_array_equal(model.decisions(both)[:15], plain[:15])
    alone = model.decisions(two)
    np.testing.assert_allclose(model.decisions(both)[15:], alone, atol=1e-12)
    model.new_sites = "centred"
    np.testing.assert_allclose(model.decisions(both)[15:], alone, atol=1e-12)
    assert not np.allclose(model.decisions(both)[:15], plain[:15])
    nowhere = at(given, np.arange(30, 60), "unknown")  # people without a site are no site
    np.testing.assert_allclose(model.decisions(nowhere), plain, atol=1e-12)


def test_one_new_scan_keeps_most_of_its_deviation(inputs: Inputs):
    train, one = inputs.take(np.arange(40)), inputs.take([45])
    one = replace(one, sites=np.array(["elsewhere"]))
    plain, centred = (
        create_model("best", V, 2, new_sites=how).fit(train, Y[:40]).decision(one)[0] for how in ("global", "centred")
    )
    assert plain != centred
    assert np.sign(plain) == np.sign(centred)


def test_a_score_is_predicted_in_its_own_unit(inputs: Inputs):
    score = 100 + 30 * inputs.edges[:, 0]
    model = create_model("best", V, 1).fit(inputs, score)
    assert np.corrcoef(model.predict(inputs), score)[0, 1] > 0.8
    assert abs(model.predict(inputs).mean() - score.mean()) < 2


@pytest.mark.parametrize("has_series", [True, False])
def test_a_score_that_differs_between_sites_is_seen(has_series: bool):
    # Site-centred members cannot see it: an average near equal weights explains 23 % of it, 48 % with series.
    given = Inputs.of(bnt.simulate_cohort(n_subjects=180, n_rois=V, n_sites=4, n_volumes=50, seed=3))
    given = given if has_series else replace(given, series=None)
    assert given.sites is not None
    rng = np.random.default_rng(0)
    score = 10 * np.unique(given.sites, return_inverse=True)[1] + rng.normal(size=180)
    order = rng.permutation(180)
    train, test = order[:120], order[120:]
    predicted = create_model("best", V, 1).fit(given.take(train), score[train]).predict(given.take(test))
    assert 1 - np.mean((predicted - score[test]) ** 2) / np.var(score[test]) > 0.55


def test_the_line_of_a_score_is_the_minimum_that_a_general_optimiser_finds():
    rng = np.random.default_rng(0)
    prediction = rng.normal(50, 1, 80)
    score = 20 + 1.6 * prediction + rng.normal(size=80)
    slope, shift = line(prediction, score, np.ones(80))
    assert 1.1 < slope < 1.6
    p, t = prediction - prediction.mean(), score - score.mean()
    found = minimize(lambda b: np.sum((t - b[0] * p) ** 2) / np.var(t) + (b[0] - 1) ** 2 / 0.4**2, [1.0]).x[0]
    assert slope == pytest.approx(found, abs=1e-5)
    assert np.mean(shift + slope * prediction) == pytest.approx(score.mean())
    assert 0 < line(-prediction, score, np.ones(80))[0] < 0.1  # never reverses the order of subjects
    np.testing.assert_allclose(line(prediction, score, np.full(80, 7.0)), (slope, shift))


@pytest.mark.parametrize("has_series", [True, False])
def test_a_kept_score_model_predicts_the_same(inputs: Inputs, has_series: bool):
    given = inputs if has_series else replace(inputs, series=None)
    score = 100 + 30 * inputs.edges[:, 0]
    model = create_model("best", V, 1).fit(given, score)
    assert model.slope != 1.0
    again = create_model("best", V, 1)
    again.load_state_dict(model.state_dict())
    np.testing.assert_array_equal(again.predict(given), model.predict(given))


@pytest.mark.parametrize("n_classes", [2, 1])
@pytest.mark.parametrize("has_series", [True, False])
def test_from_500_rois_on_one_tangent_space_has_the_prior_weight_of_three(n_classes: int, has_series: bool):
    small, large = create_model("best", 499, n_classes), create_model("best", 500, n_classes)
    of_tangents = []
    for model in (small, large):
        model.make(has_series)
        prior = dict(zip(model.names(), model.prior()))
        assert sum(prior.values()) == pytest.approx(1.0)
        of_tangents.append({k: sum(p for m, p in prior.items() if m.endswith(k) and m[0] == "s") for k in ("raw", "d")})
        assert of_tangents[-1]["raw"] == pytest.approx(3 * prior["edges.centred"])
    assert of_tangents[0] == pytest.approx(of_tangents[1])
    assert (len(small.views), len(large.views)) == (4, 2)


def test_another_word_for_new_sites_is_refused():
    with pytest.raises(BadInput, match="new_sites"):
        create_model("best", V, 2, new_sites="local")
