"""Covariances and tangent space against nilearn and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from nilearn.connectome import ConnectivityMeasure, sym_matrix_to_vec
from scipy.linalg import logm, sqrtm
from sklearn.covariance import LedoitWolf, empirical_covariance

from bnt.connectivity import TangentSpace, _tangent, covariances
from bnt.connectivity._logarithm import logarithms
from bnt.errors import BadInput


@pytest.fixture(scope="module")
def series() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(12, 12))
    return [rng.normal(size=(t, 12)) @ (mixing + 0.3 * rng.normal(size=(12, 12))) for t in (40, 60, 40, 80, 60, 60)]


def test_covariances_equal_scikit_learn(series):
    shrunk = np.stack([LedoitWolf().fit(one).covariance_ for one in series])
    plain = np.stack([empirical_covariance(one) for one in series])
    np.testing.assert_allclose(covariances(series), shrunk, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(covariances(series, shrunk=False), plain, rtol=1e-9, atol=1e-9)


def test_geometric_tangent_space_equals_nilearn(series):
    measure = ConnectivityMeasure(kind="tangent")
    oracle = measure.fit_transform(series)
    covs = covariances(series)
    space = TangentSpace().fit(covs)
    assert space.converged_
    # nilearn stops its descent at a gradient of 1e-7 an entry, so it is itself right to about 1e-5.
    np.testing.assert_allclose(space.reference_, measure.mean_, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(space.transform(covs), oracle, atol=1e-5)
    np.testing.assert_allclose(space.vectors(covs), sym_matrix_to_vec(oracle), atol=1e-5)


def test_deviations_from_the_geometric_mean_average_to_zero(series):
    covs = covariances(series)
    assert np.abs(TangentSpace().fit(covs).transform(covs).mean(0)).max() < 1e-5


@pytest.mark.filterwarnings("ignore:logm result may be inaccurate")  # by 1e-13
@pytest.mark.parametrize("reference", ["arithmetic", "log-euclidean"])
def test_cheaper_references_equal_their_definitions(series, reference):
    from scipy.linalg import expm

    covs = covariances(series)
    mean = covs.mean(0) if reference == "arithmetic" else expm(np.mean([logm(c) for c in covs], axis=0))
    space = TangentSpace(reference).fit(covs)
    np.testing.assert_allclose(space.reference_, mean, rtol=1e-8, atol=1e-8)
    white = np.linalg.inv(sqrtm(mean))
    np.testing.assert_allclose(space.transform(covs[1]), logm(white @ covs[1] @ white), atol=1e-5)


def test_the_reference_is_the_training_subjects_alone(series):
    covs = covariances(series)
    space = TangentSpace().fit(covs[:4])
    before = space.reference_.copy()
    one = space.transform(covs[5])
    np.testing.assert_array_equal(space.transform(covs[4:])[1], one)
    np.testing.assert_array_equal(space.reference_, before)


def test_vectors_keep_the_norm(series):
    covs = covariances(series)
    space = TangentSpace("arithmetic").fit(covs)
    np.testing.assert_allclose(
        2 * (space.vectors(covs) ** 2).sum(1), (space.transform(covs) ** 2).sum((1, 2)), rtol=1e-4
    )


def test_a_singular_covariance_is_refused_with_its_number(series):
    covs = covariances(series)
    covs[3] = np.ones((12, 12)) - 0.01 * np.eye(12)
    with pytest.raises(BadInput, match="subject 3 is not positive definite"):
        TangentSpace().fit(covs)


def test_misuse_is_refused(series):
    covs = covariances(series)
    with pytest.raises(BadInput, match="'harmonic'.*geometric"):
        TangentSpace("harmonic")
    with pytest.raises(BadInput, match="call fit"):
        TangentSpace().transform(covs)
    with pytest.raises(BadInput, match="do not fit"):
        TangentSpace("arithmetic").fit(covs).transform(covs[:, :5, :5])


def test_logarithms_without_eigenvectors_are_scipys(monkeypatch):
    rng = np.random.default_rng(0)
    covs = covariances([rng.normal(size=(90, 70)) @ np.diag(np.linspace(0.02, 3.0, 70)) for _ in range(5)])
    space = TangentSpace("arithmetic").fit(covs)
    assert len(covs[0]) >= _tangent.WITHOUT_VECTORS_FROM
    found = space.transform(covs)
    for one, cov in zip(found, covs):
        expected = logm(space.whitening_ @ cov @ space.whitening_)
        assert np.linalg.norm(one - expected) < 1e-6 * np.linalg.norm(expected)
    np.testing.assert_array_equal(space.transform(covs[3]), found[3])  # whoever else is in the batch


def test_logarithms_of_diagonal_matrices_and_of_blocks():
    rng = np.random.default_rng(0)
    blocks = np.kron(np.eye(10), np.full((7, 7), 0.5)) + np.eye(70)
    given = np.stack([np.eye(70), np.diag(rng.uniform(1e-5, 1.0, 70)), blocks])
    found, right = logarithms(given.copy())
    assert right.all()
    for one, matrix in zip(found, given):
        np.testing.assert_allclose(one, logm(matrix), atol=2e-6)


def test_where_logarithms_without_eigenvectors_are_wrong_those_with_them_are_taken(monkeypatch):
    rng = np.random.default_rng(0)
    turned = np.linalg.qr(rng.normal(size=(70, 70)))[0]
    covs = np.stack([turned @ np.diag(np.r_[np.full(20, least), np.full(50, 1.0)]) @ turned.T for least in (1e-9, 0.1)])
    assert logarithms(covs.copy())[1].tolist() == [False, True]
    space = TangentSpace("arithmetic").fit(np.eye(70)[None])
    found = space.transform(covs)
    monkeypatch.setattr(_tangent, "WITHOUT_VECTORS_FROM", 1000)
    np.testing.assert_array_equal(found[0], space.transform(covs)[0])
    np.testing.assert_allclose(found[1], space.transform(covs)[1], atol=1e-6)
    with pytest.raises(BadInput, match="subject 1 is not positive definite"):
        space.transform(np.stack([covs[0], -covs[1]]))
