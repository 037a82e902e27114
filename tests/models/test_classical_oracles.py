"""The kernel solutions against scikit-learn in primal space, and against loops written out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import logm, sqrtm
from sklearn.covariance import ledoit_wolf
from sklearn.linear_model import LogisticRegression
from sklearn.linear_model import Ridge as SklearnRidge
from sklearn.svm import SVC, SVR

from bnt.cohort import flat, square
from bnt.cohort._scans import Series
from bnt.models import create_model
from bnt.models.classical._inputs import Inputs
from bnt.models.classical._solvers import Centring, platt

V = 6


def correlated(n: int, seed: int = 0, volumes: int = 60) -> tuple[Inputs, list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    parts = [(rng.normal(size=(volumes, V)) @ rng.normal(size=(V, V))).astype(np.float32) for _ in range(n)]
    edges = np.stack([flat(np.corrcoef(p.T)) for p in parts]).astype(np.float32)
    lengths = np.full(n, volumes)
    series = Series(np.concatenate(parts), np.cumsum(lengths) - lengths, lengths)
    sites = np.array(["a", "b", "c"])[np.arange(n) % 3]
    return Inputs(edges, "paper", 1.0, sites, series), parts


def codes(n: int, n_classes: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).permutation(np.arange(n) % n_classes)


def primal(inputs: Inputs) -> tuple[np.ndarray, np.ndarray, float]:
    """Fisher z, its mean, and the scale that makes the mean squared norm 1."""
    z = np.arctanh(inputs.edges.astype(np.float64))
    mean = z.mean(0)
    return z, mean, float(np.sqrt(((z - mean) ** 2).sum(1).mean()))


def test_svm_decides_as_scikit_learn_on_scaled_edges():
    train, _ = correlated(40)
    new, _ = correlated(15, seed=5)
    y = codes(40, 2)
    z, mean, scale = primal(train)
    oracle = SVC(kernel="linear", C=1.0, tol=1e-8).fit((z - mean) / scale, y)
    expected = oracle.decision_function((np.arctanh(new.edges.astype(float)) - mean) / scale)
    model = create_model("svm", V, 2).fit(train, y)
    np.testing.assert_allclose(model.decision(new), expected, atol=1e-4)
    np.testing.assert_allclose(model.coef(), oracle.coef_[0] / scale, atol=1e-4)


@pytest.mark.parametrize("n_classes", [2, 5])
def test_logistic_has_the_coefficients_of_scikit_learn(n_classes: int):
    train, _ = correlated(50)
    y = codes(50, n_classes)
    z, mean, scale = primal(train)
    oracle = LogisticRegression(C=2.0, tol=1e-10, max_iter=5000).fit((z - mean) / scale, y)
    model = create_model("logistic", V, n_classes, C=2.0).fit(train, y)
    np.testing.assert_allclose(np.atleast_2d(model.coef()), oracle.coef_ / scale, atol=1e-5)
    np.testing.assert_allclose(model.predict_proba(train), oracle.predict_proba((z - mean) / scale), atol=1e-5)


def test_ridge_regression_equals_primal_ridge():
    train, _ = correlated(40)
    new, _ = correlated(12, seed=9)
    y = np.random.default_rng(3).normal(30.0, 8.0, size=40)
    z, mean, scale = primal(train)
    oracle = SklearnRidge(alpha=0.7).fit((z - mean) / scale, y)
    model = create_model("ridge", V, 1, penalty=0.7).fit(train, y)
    np.testing.assert_allclose(model.coef(), oracle.coef_ / scale, atol=1e-5)
    expected = oracle.predict((np.arctanh(new.edges.astype(float)) - mean) / scale)
    np.testing.assert_allclose(model.predict(new), expected, atol=1e-4)


def test_ridge_of_classes_regresses_plus_and_minus_one():
    train, _ = correlated(40)
    y = codes(40, 3)
    z, mean, scale = primal(train)
    oracle = SklearnRidge(alpha=1.0).fit((z - mean) / scale, np.where(y[:, None] == np.arange(3), 1.0, -1.0))
    model = create_model("ridge", V, 3).fit(train, y)
    np.testing.assert_allclose(model.coef(), oracle.coef_ / scale, atol=1e-5)


def test_support_vector_regression_works_in_units_of_the_targets_spread():
    train, _ = correlated(40)
    y = np.random.default_rng(3).normal(30.0, 8.0, size=40)
    z, mean, scale = primal(train)
    oracle = SVR(kernel="linear", C=1.0, epsilon=0.1, tol=1e-8).fit((z - mean) / scale, (y - y.mean()) / y.std())
    model = create_model("svm", V, 1).fit(train, y)
    np.testing.assert_allclose(model.predict(train), oracle.predict((z - mean) / scale) * y.std() + y.mean(), atol=5e-3)


def test_tangent_features_equal_a_loop_with_scipys_matrix_functions():
    train, parts = correlated(8)
    covariances = [ledoit_wolf((p - p.mean(0)) / p.std(0))[0] for p in parts]
    whitening = np.linalg.inv(sqrtm(np.mean(covariances, axis=0)))
    deviations = np.stack([logm(whitening @ c @ whitening) for c in covariances])
    features = create_model("ridge", V, 1, space="tangent").features.fit(train, np.ones(8)).transform(train)
    np.testing.assert_allclose(features[:, : V * (V - 1) // 2], flat(deviations), atol=1e-5)
    np.testing.assert_allclose(
        features[:, V * (V - 1) // 2 :], np.diagonal(deviations, axis1=1, axis2=2) / 2**0.5, atol=1e-5
    )


def test_without_series_correlations_are_shrunk_towards_the_identity():
    train, _ = correlated(8)
    bare = Inputs(train.edges, "paper")
    matrices = 0.7 * square(train.edges.astype(np.float64)) + 0.3 * np.eye(V)
    whitening = np.linalg.inv(sqrtm(matrices.mean(0)))
    deviations = np.stack([logm(whitening @ c @ whitening) for c in matrices])
    features = create_model("ridge", V, 1, space="tangent", shrinkage=0.3).features.fit(bare, np.ones(8))
    np.testing.assert_allclose(features.transform(bare)[:, : V * (V - 1) // 2], flat(deviations), atol=1e-5)


def test_site_centring_equals_subtracting_site_means_one_by_one():
    train, _ = correlated(30)
    y = np.random.default_rng(3).normal(size=30)
    new, _ = correlated(9, seed=4)
    new = Inputs(new.edges, "paper", sites=np.array(["a", "b", "c", "a", "b", "c", "elsewhere", "elsewhere", "a"]))
    z, fresh = np.arctanh(train.edges.astype(float)), np.arctanh(new.edges.astype(float))
    grand = z.mean(0)
    means = {site: z[train.sites == site].mean(0) for site in "abc"}
    centred = np.stack([row - means[s] for row, s in zip(z, train.sites)])
    new_centred = np.stack([row - means.get(s, grand) for row, s in zip(fresh, new.sites)])
    scale = np.sqrt((centred**2).sum(1).mean())
    oracle = SklearnRidge(alpha=1.0, fit_intercept=False).fit(centred / scale, y - y.mean())
    expected = oracle.predict(new_centred / scale) + y.mean()
    np.testing.assert_allclose(
        create_model("ridge", V, 1, center_sites=True).fit(train, y).predict(new), expected, atol=1e-5
    )


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 12), st.integers(1, 4), st.integers(0, 10**6))
def test_centred_kernel_is_the_kernel_of_centred_features(n: int, n_sites: int, seed: int):
    rng = np.random.default_rng(seed)
    x, new = rng.normal(size=(n, 5)), rng.normal(size=(3, 5))
    sites = np.array([f"s{k}" for k in rng.integers(n_sites, size=n)])
    new_sites = np.array([f"s{k}" for k in rng.integers(n_sites + 1, size=3)])
    weight = rng.uniform(0.1, 2.0, size=n)
    centring = Centring.fit(sites, weight)

    def centre(rows: np.ndarray, where: np.ndarray) -> np.ndarray:
        out = []
        for row, site in zip(rows, where):
            same = sites == site if (sites == site).any() else np.ones(n, dtype=bool)
            out.append(row - np.average(x[same], axis=0, weights=weight[same]))
        return np.array(out)

    groups = centring.groups(sites, n)
    kernel = centring.kernel(new @ x.T, x @ x.T, centring.groups(new_sites, 3), groups)
    np.testing.assert_allclose(kernel, centre(new, new_sites) @ centre(x, sites).T, atol=1e-9)
    dual = rng.normal(size=(n, 2))
    np.testing.assert_allclose(x.T @ centring.spread(dual, groups), centre(x, sites).T @ dual, atol=1e-9)


@pytest.mark.parametrize("name", ["ridge", "logistic"])
def test_a_subject_of_weight_two_counts_as_two(name: str):
    inputs, _ = correlated(20)
    y = codes(20, 2)
    weight = np.ones(20)
    weight[[2, 7]] = 2.0
    repeated = np.r_[np.arange(20), 2, 7]
    options = {"space": "tangent", "center_sites": True}
    once = create_model(name, V, 2, **options).fit(inputs, y, weight)
    twice = create_model(name, V, 2, **options).fit(inputs.take(repeated), y[repeated])
    np.testing.assert_allclose(once.decision(inputs), twice.decision(inputs), atol=1e-4)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_platt_scaling_is_the_regression_it_claims_and_keeps_the_order(seed: int):
    rng = np.random.default_rng(seed)
    decision, positive = rng.normal(size=40), rng.random(40) < 0.4
    positive[:2] = [True, False]
    slope, intercept = platt(decision, positive, np.ones(40))
    assert slope > 0
    if slope > 0.011 / decision.std():  # not held at its least value: both derivatives vanish
        target = np.where(positive, (positive.sum() + 1) / (positive.sum() + 2), 1 / ((~positive).sum() + 2))
        residual = 1 / (1 + np.exp(-(slope * decision + intercept))) - target
        np.testing.assert_allclose([residual.sum(), residual @ decision], 0.0, atol=1e-6)
