"""What every classical model keeps to: shapes, fold safety, saving, refusals, learning."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bnt.cohort import flat
from bnt.cohort._scans import Series
from bnt.connectivity import connectomes
from bnt.errors import BadInput
from bnt.models import create_model, find_entry, list_models
from bnt.models.classical import _subject_matrices as covariances
from bnt.models.classical._inputs import Inputs

V = 8
CLASSIFIERS = ["svm", "logistic", "ridge", "tangent-logistic", "linear-ensemble", "multi-kernel", "best", "cpm", "krr"]
REGRESSORS = ["svm", "ridge", "linear-ensemble", "multi-kernel", "best", "cpm", "krr"]


def people(n: int, n_classes: int = 2, effect: float = 1.0, seed: int = 0) -> tuple[Inputs, np.ndarray]:
    """Series of unequal lengths in which each class ties another pair of regions together; three shifted sites."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % n_classes)
    site = np.arange(n) % 3
    lengths = rng.integers(60, 80, size=n)
    parts = []
    for i in range(n):
        x = rng.normal(size=(lengths[i], V))
        x += 0.5 * site[i] * rng.normal(size=(lengths[i], 1))  # the site's share of a global signal
        x[:, y[i] + 1] += effect * x[:, y[i]]
        parts.append(x.astype(np.float32))
    series = Series(np.concatenate(parts), np.cumsum(lengths) - lengths, lengths)
    return Inputs(connectomes(parts), "paper", 1.0, np.array(["a", "b", "c"])[site], series), y


def same_state(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[k], other[k]) for k in one)


def test_the_catalogue_lists_them_as_classical():
    assert [name for name in list_models(family="classical") if not find_entry(name).every_atlas] == CLASSIFIERS


@pytest.mark.parametrize("n_classes", [2, 5])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_learns_a_planted_effect_with_probabilities_that_sum_to_one(name: str, n_classes: int):
    train, y = people(40 * n_classes, n_classes)
    test, truth = people(20 * n_classes, n_classes, seed=1)
    model = create_model(name, V, n_classes).fit(train, y)
    p = model.predict_proba(test)
    assert p.shape == (len(test), n_classes)
    np.testing.assert_allclose(p.sum(1), 1.0, atol=1e-12)
    assert np.mean(p.argmax(1) == truth) > 0.8
    assert np.array_equal(model.predict(test), p.argmax(1))


@pytest.mark.parametrize("name", REGRESSORS)
def test_regression_finds_a_target_that_an_edge_holds(name: str):
    train, _ = people(90)
    test, _ = people(60, seed=1)
    edge = np.arctanh(train.edges[:, 0]) * 20 + 40
    predicted = create_model(name, V, 1).fit(train, edge).predict(test)
    assert predicted.shape == (60,)
    assert np.corrcoef(predicted, np.arctanh(test.edges[:, 0]))[0, 1] > 0.7


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_other_subjects_never_change_the_fitted_state(name: str):
    everyone, y = people(45)
    train = np.arange(30)
    before = create_model(name, V, 2).fit(everyone.take(train), y[train])
    state = before.state_dict()
    assert everyone.series is not None
    changed = everyone.series.stacked.copy()
    changed[everyone.series.starts[30] :] *= np.linspace(-5, 5, V, dtype=np.float32) ** 3
    edges = everyone.edges.copy()
    edges[30:] = 0.9
    series = Series(changed, everyone.series.starts, everyone.series.lengths)
    other = replace(everyone, edges=edges, series=series)
    before.predict(other.take(np.arange(30, 45)))  # nor does predicting teach it anything
    assert same_state(state, before.state_dict())
    assert same_state(state, create_model(name, V, 2).fit(other.take(train), y[train]).state_dict())


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_prediction_does_not_depend_on_who_else_is_in_the_batch(name: str):
    train, y = people(40)
    test, _ = people(10, seed=1)
    test = replace(test, sites=np.array(["new"] * 5 + ["a"] * 5))
    model = create_model(name, V, 2).fit(train, y)
    together = model.decision(test)
    alone = [model.decision(test.take([i]))[0] for i in range(10)]
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-6)  # products of other shapes round otherwise


def test_an_unseen_site_and_an_unknown_one_are_treated_alike():
    train, y = people(40)
    test, _ = people(10, seed=1)
    model = create_model("linear-ensemble", V, 2).fit(train, y)
    unseen = model.decision(replace(test, sites=np.array(["new"] * 10)))
    assert np.array_equal(unseen, model.decision(replace(test, sites=None)))
    assert not np.allclose(unseen, model.decision(test))


def test_the_ensemble_is_the_mean_of_its_three_models_fitted_alone():
    train, y = people(40)
    test, _ = people(15, seed=1)
    three = [
        create_model("svm", V, 2, space="tangent"),
        create_model("ridge", V, 2, space="tangent", penalty=0.3, center_sites=True),
        create_model("ridge", V, 2, penalty=1.0, center_sites=True),
    ]
    expected = np.mean([m.fit(train, y).decision(test) for m in three], axis=0)
    np.testing.assert_allclose(create_model("linear-ensemble", V, 2).fit(train, y).decision(test), expected, atol=1e-12)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_constant_regions_give_finite_probabilities(name: str):
    train, y = people(30)
    assert train.series is not None
    stacked = train.series.stacked.copy()
    for i in range(0, 30, 4):
        stacked[train.series.starts[i] : train.series.starts[i] + train.series.lengths[i], 3] = 7.0
    series = Series(stacked, train.series.starts, train.series.lengths)
    holed = replace(train, edges=connectomes(list(series)), series=series)
    for inputs in (holed, replace(holed, series=None)):
        assert np.isfinite(create_model(name, V, 2).fit(inputs, y).predict_proba(inputs)).all()


def test_fisher_z_and_correlations_of_the_same_people_give_one_model():
    train, y = people(40)
    z = replace(train, edges=np.arctanh(train.edges), kind="fisher-z", diagonal=0.0)
    for name in ("svm", "ridge"):
        one = create_model(name, V, 2).fit(train, y).decision(train)
        np.testing.assert_allclose(one, create_model(name, V, 2).fit(z, y).decision(z), atol=1e-5)


def test_an_unknown_kind_is_judged_by_the_training_subjects_only():
    train, y = people(40)
    unknown = replace(train, kind="unknown")
    model = create_model("ridge", V, 2).fit(unknown, y)
    np.testing.assert_allclose(model.decision(unknown), create_model("ridge", V, 2).fit(train, y).decision(train))
    beyond = replace(unknown, edges=np.full_like(unknown.edges, 1.5))
    assert model.features.holds_correlations
    np.testing.assert_allclose(model.features.transform(beyond), np.arctanh(1 - 1e-6), rtol=1e-2)
    large = create_model("ridge", V, 2).fit(replace(unknown, edges=unknown.edges * 3), y)
    assert not large.features.holds_correlations


def test_probabilities_keep_the_order_of_decisions_even_without_any_signal():
    train, y = people(40, effect=0.0)
    model = create_model("svm", V, 2).fit(train, np.random.default_rng(0).permutation(y))
    decision, p = model.decision(train), model.predict_proba(train)[:, 1]
    assert (np.diff(p[np.argsort(decision)]) >= 0).all()


def test_a_matrix_that_is_no_correlation_matrix_still_has_a_tangent_vector():
    edges = np.zeros((6, V * (V - 1) // 2), dtype=np.float32)
    edges[:, :3] = [[0.9, -0.9, 0.9]]  # no three series can have these correlations
    edges += np.random.default_rng(0).normal(scale=0.01, size=edges.shape).astype(np.float32)
    packed = covariances.from_correlations(edges, 0.0, V)
    least = np.linalg.eigvalsh(covariances.unpack(packed, V).astype(np.float64))[:, 0]
    np.testing.assert_allclose(least, covariances.LEAST_EIGENVALUE, atol=1e-5)


def test_covariances_are_computed_once_a_subject_and_known_by_content(monkeypatch: pytest.MonkeyPatch):
    inputs, _ = people(6)
    assert inputs.series is not None
    covariances.forget()
    first = covariances.from_series(inputs.series, V)
    asked: list[int] = []
    compute = covariances._estimated
    monkeypatch.setattr(
        covariances, "_estimated", lambda series, name: asked.append(len(series)) or compute(series, name)
    )
    copied = Series(inputs.series.stacked.copy(), inputs.series.starts, inputs.series.lengths)
    assert np.array_equal(covariances.from_series(copied.select(np.array([4, 1])), V), first[[4, 1]])
    assert asked == []
    copied.stacked[copied.starts[2]] += 1.0
    assert not np.array_equal(covariances.from_series(copied, V)[2], first[2])
    assert asked == [1]


def test_packing_is_undone_by_unpacking():
    matrices = np.random.default_rng(0).normal(size=(3, V, V))
    matrices = matrices + matrices.transpose(0, 2, 1)
    packed = covariances.pack(matrices)
    assert np.array_equal(packed[:, : V * (V - 1) // 2], flat(matrices))
    assert np.array_equal(covariances.unpack(packed, V), matrices)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"edges": np.zeros((30, 10), dtype=np.float32)}, "for 8 ROIs"),
        ({"edges": np.full((30, 28), np.nan, dtype=np.float32)}, "not finite"),
    ],
)
def test_connectomes_that_cannot_be_used_are_refused(change: dict, message: str):
    train, y = people(30)
    with pytest.raises(BadInput, match=message):
        create_model("svm", V, 2).fit(replace(train, **change), y)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.zeros(30), "at least two classes"),
        (np.arange(30), "whole numbers from 0 to 1"),
        (np.zeros(29), "one target per subject"),
    ],
)
def test_targets_that_cannot_be_used_are_refused(y: np.ndarray, message: str):
    with pytest.raises(BadInput, match=message):
        create_model("ridge", V, 2).fit(people(30)[0], y)


def test_a_model_fitted_on_series_asks_for_series():
    train, y = people(30)
    model = create_model("tangent-logistic", V, 2).fit(train, y)
    with pytest.raises(BadInput, match="give their series"):
        model.predict(replace(train, series=None))


def test_a_class_without_training_subjects_is_never_predicted():
    train, y = people(30)
    for name in CLASSIFIERS:
        p = create_model(name, V, 3).fit(train, np.where(y == 1, 2, 0)).predict_proba(train)
        assert (p.argmax(1) != 1).all()


def test_inputs_of_a_cohort_follow_the_rows_asked_for():
    import pandas as pd

    from bnt.cohort import Cohort

    inputs, _ = people(9)
    assert inputs.series is not None
    table = pd.DataFrame({"participant_id": [f"p{i}" for i in range(9)], "site": inputs.sites})
    cohort = Cohort(inputs.edges, table, timeseries=inputs.series)
    some = Inputs.of(cohort, [7, 2])
    assert np.array_equal(some.edges, inputs.edges[[7, 2]])
    assert some.sites is not None
    assert some.sites.tolist() == ["b", "c"]
    assert some.series is not None
    assert np.array_equal(some.series[0], inputs.series[7])
    assert np.array_equal(Inputs.of(cohort).take(np.arange(9) == 2).edges, some.take([1]).edges)
