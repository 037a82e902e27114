"""The tools of scikit-learn, used as people use them on connectomes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_predict, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import bnt
from bnt import BrainNetworkClassifier, BrainNetworkRegressor


def test_grid_search_with_groups_finds_options_and_fields_of_the_recipe(cohort, y, tiny):
    grid = {"options": [tiny["options"], tiny["options"] | {"n_clusters": np.int64(2)}], "lr": np.array([1e-3, 1e-2])}
    search = GridSearchCV(BrainNetworkClassifier(**tiny), grid, cv=GroupKFold(2), scoring="roc_auc")
    search.fit(cohort.connectomes, y, groups=cohort.sites)
    assert len(search.cv_results_["params"]) == 4
    assert search.best_estimator_.config_.recipe.lr in (1e-3, 1e-2)


def test_cross_val_predict_and_score_on_matrices(cohort, y, tiny):
    X = cohort.square(np.arange(60))
    clf = BrainNetworkClassifier(**tiny)
    assert cross_val_predict(clf, X, y, groups=cohort.sites, cv=GroupKFold(3), method="predict_proba").shape == (60, 2)
    assert cross_val_score(clf, X, y, groups=cohort.sites, cv=GroupKFold(3)).shape == (3,)


def test_metadata_is_routed_to_fit_and_predict(cohort, y):
    """Sites reach a model that centres them: the routed score is that of a hand-made loop."""
    X, sites = cohort.connectomes, cohort.sites
    cv = GroupKFold(3)
    by_hand = []
    for train, test in cv.split(X, y, sites):
        clf = BrainNetworkClassifier("linear-ensemble").fit(X[train], y[train], sites=sites[train])
        by_hand.append(clf.score(X[test], y[test], sites=sites[test]))
    with sklearn.config_context(enable_metadata_routing=True):
        clf = BrainNetworkClassifier("linear-ensemble").set_fit_request(sites=True, groups=False, sample_weight=False)
        clf = clf.set_score_request(sites=True)
        pipe = make_pipeline(FunctionTransformer(), clf)
        found = cross_validate(pipe, X, y, params={"sites": sites, "groups": sites}, cv=cv)["test_score"]
    np.testing.assert_array_equal(found, by_hand)


def test_sites_change_a_model_that_centres_them(cohort, y):
    X = cohort.connectomes
    with_sites = BrainNetworkClassifier("linear-ensemble").fit(X, y, sites=cohort.sites)
    without = BrainNetworkClassifier("linear-ensemble").fit(X, y)
    assert not np.allclose(with_sites.predict_proba(X, sites=cohort.sites), without.predict_proba(X))


@pytest.mark.parametrize("model", ["bnt", "ridge"])
def test_weight_zero_is_leaving_out(cohort, y, tiny, model):
    settings = tiny if model == "bnt" else {"model": model}
    weight = np.ones(60)
    weight[::4] = 0
    X, keep = cohort.connectomes, weight > 0
    weighted = BrainNetworkClassifier(**settings).fit(X, y, sample_weight=weight)
    without = BrainNetworkClassifier(**settings).fit(X[keep], y[keep])
    np.testing.assert_array_equal(weighted.predict_proba(X), without.predict_proba(X))


def test_weights_move_predictions_towards_the_heavy_class(cohort, y, tiny):
    X = cohort.connectomes
    even = BrainNetworkClassifier(**tiny).fit(X, y).predict_proba(X)[:, 1].mean()
    heavy = BrainNetworkClassifier(**tiny).fit(X, y, np.where(y == 1, 20.0, 1.0)).predict_proba(X)[:, 1].mean()
    assert heavy > even + 0.02


def test_the_scale_of_weights_does_not_matter_to_a_network(cohort, y, tiny):
    X = cohort.connectomes
    same = [BrainNetworkClassifier(**tiny).fit(X, y, w).predict_proba(X) for w in (None, np.full(60, 4.0))]
    np.testing.assert_allclose(*same, atol=1e-6)


@pytest.mark.parametrize(
    "named",
    [
        lambda y: pd.Series(np.where(y == 1, "ASD", "control"), index=np.arange(60)[::-1]),
        lambda y: pd.Categorical(np.where(y == 1, "ASD", "control")),
        lambda y: np.where(y == 1, "ASD", "control").astype(object),
        lambda y: y.astype(bool),
        lambda y: y * 2 - 1,
    ],
    ids=["series", "categorical", "object", "bool", "plus-minus"],
)
def test_labels_of_any_type_come_back(cohort, y, named, tiny):
    labels = named(y)
    clf = BrainNetworkClassifier(**tiny).fit(cohort.connectomes, labels)
    np.testing.assert_array_equal(clf.classes_, np.unique(np.asarray(labels)))
    assert set(clf.predict(cohort.connectomes)) <= set(np.asarray(labels))


@pytest.mark.parametrize("model", ["bnt", "svm", "logistic"])
def test_many_classes(cohort, tiny, model):
    y = np.array([f"class {i % 12}" for i in range(60)])
    settings = tiny if model == "bnt" else {"model": model}
    clf = BrainNetworkClassifier(**settings).fit(cohort.connectomes, y)
    probabilities = clf.predict_proba(cohort.connectomes)
    assert probabilities.shape == (60, 12)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    np.testing.assert_array_equal(clf.predict(cohort), clf.classes_[clf.decision_function(cohort).argmax(axis=1)])


def test_decision_function_is_the_log_odds(cohort, y, tiny):
    clf = BrainNetworkClassifier(**tiny, n_members=2).fit(cohort, y)
    p = clf.predict_proba(cohort)[:, 1]
    np.testing.assert_allclose(clf.decision_function(cohort), np.log(p / (1 - p)))
    np.testing.assert_array_equal(clf.predict(cohort), (p > 0.5).astype(int))


def test_regression_is_in_the_scores_own_units(cohort):
    X = cohort.connectomes
    target = 1000 + 50 * X[:, :5].sum(axis=1)
    reg = BrainNetworkRegressor("ridge", {"penalty": 0.01}).fit(X, target)
    assert reg.score(X, target) > 0.9
    assert abs(reg.predict(X).mean() - target.mean()) < 5


def test_a_network_learns_a_planted_effect(cohort, tiny):
    """With an effect of three standard deviations a network must be far better than chance."""
    settings = tiny | {"epochs": 20, "lr": 3e-3}
    scores = cross_val_score(
        BrainNetworkClassifier(**settings), cohort.connectomes, cohort.labels("diagnosis"), cv=3, scoring="roc_auc"
    )
    assert scores.mean() > 0.8


# One of each way of reading a cohort; models/test_contract.py trains every model through the same learner.
READERS = {
    "bnt": "connectomes",
    "com-braintf": "connectomes, with the networks of ROIs",
    "bolt": "series",
    "braingnn-released": "partial correlations of series",
    "dual-path": "connectomes and series",
    "dgm": "connectomes, with a loss of its own",
    "logistic": "edges",
    "tangent-logistic": "covariances of series",
    "atlas-ensemble": "every atlas",
    "best": "edges and people",
    "kernel-transformer": "edges, in a hybrid of members",
}


@pytest.mark.parametrize("name", READERS)
def test_a_model_of_each_kind_fits_and_predicts(cohort, y, name):
    small = {"ffn": 16, "n_clusters": 3, "n_layers": 1, "n_heads": 2, "min_steps": 5}
    allowed = bnt.models.model_options(name)
    options = {k: v for k, v in small.items() if k in allowed}
    clf = clone(BrainNetworkClassifier(name, options, epochs=1, random_state=0))
    probabilities = clf.fit(cohort, y).predict_proba(cohort)
    assert probabilities.shape == (60, 2)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-6)
