"""The multi-kernel ridge against plain loops over its definition, its views against scikit-learn and numpy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.covariance import ledoit_wolf

from bnt.cohort import square
from bnt.cohort._scans import Series
from bnt.connectivity import connectomes
from bnt.errors import BadInput
from bnt.models import create_model
from bnt.models.classical._features import ShrunkTangent
from bnt.models.classical._inputs import Inputs
from bnt.models.classical._multi_kernel import views_of
from bnt.models.classical._subject_matrices import _estimated, from_series, pack

V = 6


def people(n: int, seed: int = 0, missing: int | None = None) -> tuple[Inputs, np.ndarray]:
    """Series of unequal lengths and amplitudes at three sites; the classes differ in one pair of regions."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % 2)
    lengths = rng.integers(40, 60, size=n)
    parts = []
    for i, length in enumerate(lengths):
        x = np.cumsum(rng.normal(size=(length, V)), axis=0) * 0.3 + rng.normal(size=(length, V))
        x[:, 1] += y[i] * x[:, 0]
        parts.append((x * rng.uniform(0.5, 2.0, size=V)).astype(np.float32))
    if missing is not None:
        parts[missing][:, 3] = 7.0
    series = Series(np.concatenate(parts), np.cumsum(lengths) - lengths, lengths)
    return Inputs(connectomes(parts), "paper", 1.0, np.array(["a", "b", "c"])[np.arange(n) % 3], series), y


def naive_decisions(train: Inputs, y: np.ndarray, test: Inputs, penalty: float) -> np.ndarray:
    """Centre, normalise, average and solve, one pair of subjects at a time."""
    n, m = len(train), len(test)
    total, count = np.zeros((n + m, n)), 0
    for view in views_of(V, train.series is not None, 0.5).values():
        view.fit(train, np.ones(n))
        a, b = view.transform(train).astype(float), view.transform(test).astype(float)
        for by_site in (False, True):
            vectors = []
            for x, site in zip(np.concatenate([a, b]), [*train.sites, *test.sites]):
                same = train.sites == site
                mean = a[same].mean(0) if by_site and same.any() else a.mean(0)
                vectors.append((x - mean) / np.linalg.norm(x - mean))
            for i, one in enumerate(vectors):
                for j, other in enumerate(vectors[:n]):
                    total[i, j] += one @ other
            count += 1
    kernel = total / count
    signs = 2.0 * y - 1
    dual = np.linalg.solve(kernel[:n] + penalty * np.eye(n), signs - signs.mean())
    return kernel[n:] @ dual + signs.mean()


@pytest.mark.parametrize("with_series", [True, False])
def test_decisions_are_those_of_the_definition(with_series: bool):
    (train, y), (test, _) = people(30), people(9, seed=1)
    if not with_series:
        train, test = replace(train, series=None), replace(test, series=None)
    test = replace(test, sites=np.where(np.arange(9) < 3, "never seen", test.sites))
    model = create_model("multi-kernel", V, 2, penalty=0.4).fit(train, y)
    np.testing.assert_allclose(model.decision(test), naive_decisions(train, y, test, 0.4), atol=1e-5)


def test_a_subject_is_scored_the_same_alone_and_in_company():
    (train, y), (test, _) = people(30), people(9, seed=1)
    model = create_model("multi-kernel", V, 2).fit(train, y)
    together = model.decision(test)
    alone = np.concatenate([model.decision(test.take([i])) for i in range(len(test))])
    np.testing.assert_allclose(alone, together, atol=1e-6)


def test_shrunk_tangent_is_the_logarithm_of_the_whitened_shrunk_correlations():
    inputs, _ = people(12)
    view = ShrunkTangent(V, 0.5).fit(inputs, np.ones(12))
    shrunk = 0.5 * square(inputs.edges, 1.0).astype(float) + 0.5 * np.eye(V)
    reference = shrunk.mean(0)
    values, vectors = np.linalg.eigh(reference)
    whitening = (vectors / np.sqrt(values)) @ vectors.T
    for got, one in zip(view.transform(inputs), shrunk):
        w, u = np.linalg.eigh(whitening @ one @ whitening)
        expected = pack(((u * np.log(w)) @ u.T)[None])[0]
        expected[-V:] /= np.sqrt(2)
        np.testing.assert_allclose(got, expected, atol=1e-5)


def test_a_region_without_a_signal_gets_the_mean_edges_of_those_who_have_it():
    inputs, _ = people(12, missing=4)
    view = ShrunkTangent(V, 0.5).fit(inputs, np.ones(12))
    filled = square(view._packed(inputs)[4][:-V], 0.0) * 2  # the identity's share is one half
    full = square(inputs.edges, 0.0)
    others = np.delete(full, 4, axis=0).mean(0)
    np.testing.assert_allclose(filled[3], others[3], atol=1e-6)
    rest = np.ix_([0, 1, 2, 4, 5], [0, 1, 2, 4, 5])
    np.testing.assert_allclose(filled[rest], full[4][rest], atol=1e-6)


def test_standardised_tangent_is_the_logarithm_of_scikit_learns_whitened_covariance():
    inputs, _ = people(10)
    view = views_of(V, True, 0.5)["standardised_tangent"].fit(inputs, np.ones(10))
    got = view.transform(inputs)
    series = [(one - one.mean(0)) / one.std(0) for one in (np.asarray(s, dtype=float) for s in inputs.series)]
    matrices = np.stack([ledoit_wolf(one, assume_centered=True)[0] for one in series])
    values, vectors = np.linalg.eigh(matrices.mean(0))
    whitening = (vectors / np.sqrt(values)) @ vectors.T
    w, u = np.linalg.eigh(whitening @ matrices[0] @ whitening)
    np.testing.assert_allclose(got[0][:-V], pack(((u * np.log(w)) @ u.T)[None])[0][:-V], atol=2e-4)


def test_amplitude_is_the_covariance_up_to_one_scale_a_subject():
    inputs, _ = people(3)
    for packed, one in zip(from_series(inputs.series, V, "amplitude"), inputs.series):
        x = np.asarray(one, dtype=float) - np.mean(one, axis=0, dtype=float)
        expected = ledoit_wolf(x / np.sqrt((x**2).mean()), assume_centered=True)[0]
        np.testing.assert_allclose(packed, pack(expected[None])[0], rtol=1e-4, atol=1e-5)


def test_prewhitening_leaves_what_an_autoregression_does_not_foresee():
    inputs, _ = people(3)
    for packed, one in zip(from_series(inputs.series, V, "prewhitened"), inputs.series):
        x = np.asarray(one, dtype=float)
        x = (x - x.mean(0)) / x.std(0)
        past = np.stack([x[2 - k : len(x) - 1 - k].ravel() for k in range(3)], axis=1)
        rest = (x[3:].ravel() - past @ np.linalg.lstsq(past, x[3:].ravel(), rcond=None)[0]).reshape(-1, V)
        rest = (rest - rest.mean(0)) / rest.std(0)
        np.testing.assert_allclose(packed, pack(ledoit_wolf(rest, assume_centered=True)[0][None])[0], atol=1e-4)


def test_lagged_is_the_mean_of_both_directions():
    inputs, _ = people(2)
    x = np.asarray(inputs.series[0], dtype=float)
    x = (x - x.mean(0)) / x.std(0)
    expected = [[(x[1:, i] @ x[:-1, j] + x[1:, j] @ x[:-1, i]) / 2 / (len(x) - 1) for j in range(V)] for i in range(V)]
    np.testing.assert_allclose(from_series(inputs.series, V, "lagged")[0], pack(np.array([expected]))[0], atol=1e-5)


@pytest.mark.parametrize("volumes", [3, 4, 5])
def test_very_short_series_still_have_every_view(volumes: int):
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=(volumes, V)).astype(np.float32) for _ in range(12)]
    joined = Series(np.concatenate(parts), np.arange(12) * volumes, np.full(12, volumes))
    inputs = Inputs(connectomes(parts), "paper", 1.0, None, joined)
    model = create_model("multi-kernel", V, 2).fit(inputs, np.arange(12) % 2)
    assert np.isfinite(model.decision(inputs)).all()


def test_a_model_of_series_refuses_subjects_without():
    inputs, y = people(20)
    model = create_model("multi-kernel", V, 2).fit(inputs, y)
    with pytest.raises(BadInput, match="give their series"):
        model.decision(replace(inputs, series=None))


def test_a_prewhitened_covariance_does_not_depend_on_who_else_is_there():
    rng = np.random.default_rng(0)
    series = [rng.normal(size=(176, 200)).cumsum(0).astype(np.float32) for _ in range(2)]
    alone, together = _estimated(series[:1], "prewhitened"), _estimated(series, "prewhitened")
    np.testing.assert_array_equal(alone, together[:1])
