"""Connectome-based predictive modelling and kernel ridge on correlations, against loops and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import pearsonr
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LinearRegression, LogisticRegression

from bnt.errors import BadInput
from bnt.models import create_model
from bnt.models.classical._inputs import Inputs
from bnt.models.classical._solvers import folds

V, E = 8, 28


def people(n: int, seed: int = 0) -> tuple[Inputs, np.ndarray]:
    """Edges of which three rise and two fall with a score."""
    rng = np.random.default_rng(seed)
    score = rng.normal(size=n)
    edges = 0.2 * rng.normal(size=(n, E))
    edges[:, :3] += 0.1 * score[:, None]
    edges[:, 3:5] -= 0.1 * score[:, None]
    sites = np.array(["a", "b"])[np.arange(n) % 2]
    return Inputs(np.clip(edges, -0.95, 0.95).astype(np.float32), "pearson", 1.0, sites), score


def naive_sums(train: Inputs, y: np.ndarray, new: Inputs, threshold: float) -> tuple[np.ndarray, np.ndarray]:
    """Step by step: test each edge, sum those that rise and those that fall."""
    z, z_new = (np.arctanh(part.edges.astype(np.float64)) for part in (train, new))
    sums, sums_new = np.zeros((len(z), 2)), np.zeros((len(z_new), 2))
    for edge in range(E):
        r, p = pearsonr(z[:, edge], y)
        if p < threshold:
            sums[:, int(r < 0)] += z[:, edge]
            sums_new[:, int(r < 0)] += z_new[:, edge]
    return sums, sums_new


@pytest.mark.parametrize("threshold", [0.01, 0.2])
def test_cpm_predicts_a_score_as_a_loop_over_edges_does(threshold: float):
    train, y = people(60)
    new, _ = people(20, seed=1)
    sums, sums_new = naive_sums(train, y, new, threshold)
    expected = LinearRegression().fit(sums, y).predict(sums_new)
    got = create_model("cpm", V, 1, threshold=threshold).fit(train, y).predict(new)
    np.testing.assert_allclose(got, expected, atol=1e-5)


@pytest.mark.parametrize(("tails", "column"), [("positive", 0), ("negative", 1)])
def test_cpm_of_one_tail_uses_the_sum_of_that_network_alone(tails: str, column: int):
    train, y = people(60)
    new, _ = people(20, seed=1)
    sums, sums_new = naive_sums(train, y, new, 0.05)
    expected = LinearRegression().fit(sums[:, [column]], y).predict(sums_new[:, [column]])
    got = create_model("cpm", V, 1, threshold=0.05, tails=tails).fit(train, y).predict(new)
    np.testing.assert_allclose(got, expected, atol=1e-5)


def test_cpm_of_two_classes_is_logistic_regression_on_the_two_sums():
    train, score = people(80)
    new, _ = people(20, seed=1)
    y = (score > 0).astype(int)
    sums, sums_new = naive_sums(train, y, new, 0.01)
    mean, sd = sums.mean(0), sums.std(0)
    oracle = LogisticRegression(tol=1e-8, max_iter=2000).fit((sums - mean) / sd, y)
    got = create_model("cpm", V, 2).fit(train, y).decision(new)
    np.testing.assert_allclose(got, oracle.decision_function((sums_new - mean) / sd), atol=1e-4)


def test_cpm_selects_edges_anew_in_each_fold_that_calibrates_it():
    train, _ = people(60)
    y = np.random.default_rng(3).permutation(np.arange(60) % 2)  # no effect: all that is selected is chance
    model = create_model("cpm", V, 2, threshold=0.3).fit(train, y)
    p = model.predict_proba(train)[:, 1]
    assert np.abs(p - 0.5).max() < 0.25  # sums that had seen the labels would look like a strong effect


def test_cpm_without_a_single_edge_predicts_the_mean_and_warns():
    train, y = people(30)
    with pytest.warns(UserWarning, match="raise threshold"):
        model = create_model("cpm", V, 1, threshold=1e-12).fit(train, y)
    np.testing.assert_allclose(model.predict(train), y.mean())


def test_cpm_gives_all_edges_of_a_network_the_same_weight():
    train, y = people(60)
    found = create_model("cpm", V, 1).fit(train, y).coef()
    assert len(np.unique(np.round(found[found > 0], 10))) == 1
    assert len(np.unique(np.round(found[found < 0], 10))) == 1


@pytest.mark.parametrize(("option", "value"), [("threshold", 0.0), ("threshold", 1.5), ("tails", "left")])
def test_cpm_refuses_values_that_mean_nothing(option: str, value: object):
    with pytest.raises(BadInput, match="tail" if option == "tails" else option):
        create_model("cpm", V, 2, **{option: value})


def correlation_kernel(one: Inputs, other: Inputs) -> np.ndarray:
    """Pearson correlation of the edge vectors of each pair of people, one pair at a time."""
    return np.array([[np.corrcoef(a, b)[0, 1] for b in other.edges] for a in one.edges])


def centred(train: np.ndarray, new: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Kernels with the training mean subtracted from both people, and their mean training diagonal."""
    middle = train - train.mean(0) - train.mean(1, keepdims=True) + train.mean()
    scale = float(np.diag(middle).mean())
    outer = new - new.mean(1, keepdims=True) - train.mean(0) + train.mean()
    return middle / scale, outer / scale, scale


def test_krr_predicts_as_scikit_learns_kernel_ridge_on_the_correlations():
    train, y = people(50)
    new, _ = people(15, seed=1)
    among, of, _ = centred(correlation_kernel(train, train), correlation_kernel(new, train))
    oracle = KernelRidge(kernel="precomputed", alpha=0.3).fit(among, y - y.mean())
    got = create_model("krr", V, 1, penalty=0.3).fit(train, y).predict(new)
    np.testing.assert_allclose(got, oracle.predict(of) + y.mean(), atol=1e-4)


def test_krr_chooses_the_penalty_with_the_smallest_held_out_error():
    train, y = people(50)
    kernel = correlation_kernel(train, train)
    among, _, _ = centred(kernel, kernel)
    model = create_model("krr", V, 1)
    errors = {}
    for penalty in model.penalties:
        squares = []
        for fitted, rest in folds(y, 1):
            block, of, scale = centred(among[np.ix_(fitted, fitted)], among[np.ix_(rest, fitted)])
            ridge = KernelRidge(kernel="precomputed", alpha=penalty).fit(block * scale, y[fitted] - y[fitted].mean())
            squares.append((ridge.predict(of * scale) + y[fitted].mean() - y[rest]) ** 2)
        errors[penalty] = np.concatenate(squares).mean()
    best = min(errors, key=errors.__getitem__)
    new, _ = people(15, seed=1)
    fixed = create_model("krr", V, 1, penalty=best).fit(train, y).predict(new)
    np.testing.assert_array_equal(model.fit(train, y).predict(new), fixed)


def test_both_find_a_score_and_classes_in_people_they_have_not_seen():
    train, y = people(120)
    new, truth = people(80, seed=1)
    for name in ("cpm", "krr"):
        assert np.corrcoef(create_model(name, V, 1).fit(train, y).predict(new), truth)[0, 1] > 0.5
        found = create_model(name, V, 2).fit(train, y > 0).predict(new)
        assert np.mean(found == (truth > 0)) > 0.65
