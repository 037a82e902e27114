"""Matrices, vectors, nilearn's output and cohorts are the same connectomes; what is not one is refused."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from nilearn.connectome import ConnectivityMeasure, sym_matrix_to_vec
from sklearn.pipeline import make_pipeline

from bnt import BrainNetworkClassifier, BrainNetworkRegressor
from bnt.cohort import Cohort, square
from bnt.errors import BadInput
from bnt.estimators._layout import plausibility

V, E = 16, 120  # of the fixture's cohort


@pytest.fixture(scope="module")
def matrices(cohort):
    return square(cohort.connectomes.astype(np.float64))


@pytest.fixture(scope="module")
def fitted(cohort, y, tiny):
    return BrainNetworkClassifier(**tiny).fit(cohort, "diagnosis")


def test_matrices_vectors_and_cohorts_give_the_same_bits(cohort, matrices, y, tiny):
    sites, groups = cohort.sites, cohort.families
    from_cohort = BrainNetworkClassifier(**tiny).fit(cohort, y).predict_proba(cohort)
    for X in (matrices, cohort.connectomes, pd.DataFrame(cohort.connectomes), sym_matrix_to_vec(matrices, True)):
        again = BrainNetworkClassifier(**tiny).fit(X, y, sites=sites, groups=groups).predict_proba(X)
        np.testing.assert_array_equal(again, from_cohort)


def test_predicts_any_form_after_fitting_another(fitted, cohort, matrices):
    expected = fitted.predict_proba(cohort)
    for X in (matrices, list(matrices), cohort.connectomes):
        np.testing.assert_array_equal(fitted.predict_proba(X), expected)
    np.testing.assert_allclose(fitted.predict_proba(cohort.select([7, 3])), expected[[7, 3]], atol=1e-5)


def test_vectors_with_nilearns_diagonal_are_read_without_it(fitted, cohort, matrices, y, tiny):
    """ConnectivityMeasure keeps the diagonal by default; V(V+1)/2 entries would pass for V + 1 ROIs."""
    with_diagonal = sym_matrix_to_vec(matrices)
    clf = BrainNetworkClassifier(**tiny).fit(with_diagonal, y, sites=cohort.sites)
    assert (clf.n_features_in_, clf.n_rois_) == (V * (V + 1) // 2, V)
    np.testing.assert_array_equal(clf.predict_proba(with_diagonal), fitted.predict_proba(cohort))


@pytest.mark.parametrize("kind", ["covariance", "precision"])
@pytest.mark.parametrize("discard", [True, False])
def test_variances_on_nilearns_diagonal_are_recognised(cohort, y, tiny, kind, discard):
    series = [np.asarray(s, dtype=np.float64) for s in cohort.timeseries]
    measure = ConnectivityMeasure(kind=kind, vectorize=True, discard_diagonal=discard, standardize=False)
    assert BrainNetworkClassifier(**tiny).fit(measure.fit_transform(series), y).n_rois_ == V


@pytest.mark.parametrize("discard", [True, False])
@pytest.mark.parametrize("kind", ["unknown", "tangent"])
def test_vectors_in_tangent_space_need_the_number_of_rois(cohort, y, tiny, kind, discard):
    series = [np.asarray(s, dtype=np.float64) for s in cohort.timeseries]
    measure = ConnectivityMeasure(kind="tangent", vectorize=True, discard_diagonal=discard, standardize=False)
    X = measure.fit_transform(series)
    with pytest.raises(BadInput, match=f"{V if discard else V + 1} ROIs without") as error:
        BrainNetworkClassifier(**tiny, kind=kind).fit(X, y)
    assert error.value.parameter == "n_rois"
    clf = BrainNetworkClassifier(**tiny, kind=kind, n_rois=V).fit(X, y)
    assert (clf.n_rois_, clf.n_features_in_) == (V, X.shape[1])


def test_a_number_of_rois_that_does_not_fit_is_refused(cohort, y, tiny):
    with pytest.raises(BadInput, match=f"n_rois is {V + 5}"):
        BrainNetworkClassifier(**tiny, n_rois=V + 5).fit(cohort.connectomes, y)


def test_upper_triangles_with_diagonal_are_refused_with_the_conversion(matrices, y, tiny):
    i, j = np.triu_indices(V)
    with pytest.raises(BadInput, match=rf"np.triu_indices\({V}\)"):
        BrainNetworkClassifier(**tiny).fit(matrices[:, i, j], y)


@pytest.mark.parametrize("discard", [True, False])
def test_a_pipeline_from_series_through_nilearn(cohort, y, tiny, discard):
    series = [np.asarray(s, dtype=np.float64) for s in cohort.timeseries]
    measure = ConnectivityMeasure(kind="correlation", vectorize=True, discard_diagonal=discard, standardize=False)
    pipe = make_pipeline(measure, BrainNetworkClassifier(**tiny)).fit(series, y)
    assert pipe[-1].n_rois_ == V
    assert pipe.predict(series).shape == y.shape


class TestOrder:
    """The check of the order of vectors."""

    def rows_of_upper(self, matrices):
        i, j = np.triu_indices(V, 1)
        return matrices[:, i, j]

    @pytest.mark.parametrize("transform", [lambda a: a, np.arctanh], ids=["correlation", "fisher-z"])
    def test_warns_of_vectors_in_the_order_of_triu_indices(self, matrices, y, transform):
        X = transform(self.rows_of_upper(matrices))
        with pytest.warns(UserWarning, match="M\\[:, i, j\\] = M\\[:, j, i\\] = X"):
            BrainNetworkClassifier("logistic").fit(X, y)

    def test_the_conversion_it_tells_restores_the_matrices(self, matrices):
        X = self.rows_of_upper(matrices)
        M = np.zeros((len(X), V, V))
        i, j = np.triu_indices(V, 1)
        M[:, i, j] = M[:, j, i] = X
        np.testing.assert_array_equal(M + np.eye(V), matrices)

    def test_is_silent_for_correlations_fisher_z_partial_and_tangent(self, cohort, y):
        series = [np.asarray(s, dtype=np.float64) for s in cohort.timeseries]
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="The vectors of X")
            for kind in ("correlation", "partial correlation", "tangent"):
                measure = ConnectivityMeasure(kind=kind, vectorize=True, discard_diagonal=True, standardize=False)
                BrainNetworkClassifier("logistic", n_rois=V).fit(measure.fit_transform(series), y)
            BrainNetworkClassifier("logistic").fit(np.arctanh(cohort.connectomes), y)
            BrainNetworkClassifier("logistic", n_rois=V).fit(np.random.default_rng(0).normal(size=(60, E)), y)


@pytest.mark.abide
def test_the_order_of_real_connectomes_is_told_apart(shared_abide):
    """At 200 ROIs the wrong order has eigenvalues below -3, the right one none below rounding."""
    packed = np.load(shared_abide / "cpac_filt_noglobal_rois_cc200.npz", allow_pickle=False)
    series = np.split(packed["series"][: packed["length"][:5].sum()], np.cumsum(packed["length"][:4]))
    with np.errstate(invalid="ignore"):  # ROIs without a signal; correlations do not depend on a subject's scale
        matrices = np.nan_to_num([np.corrcoef(one.T) for one in series])
    i, j = np.triu_indices(200, 1)
    assert plausibility(sym_matrix_to_vec(matrices, True)).min() > -1e-3
    assert plausibility(matrices[:, i, j]).max() < -3


class TestRefusals:
    """Sentences for what cannot be used."""

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_not_finite(self, cohort, matrices, y, tiny, fitted, bad):
        broken = matrices.copy()
        broken[3, 0, 1] = broken[3, 1, 0] = bad
        for X in (broken, sym_matrix_to_vec(broken, True)):
            with pytest.raises(ValueError, match="contains (NaN|infinity)"):
                BrainNetworkClassifier(**tiny).fit(X, y)
            with pytest.raises(ValueError, match="contains (NaN|infinity)"):
                fitted.predict(X)
        sick = Cohort(sym_matrix_to_vec(broken, True), cohort.participants, cohort.rois)
        with pytest.raises(BadInput, match=cohort.ids[3]):
            BrainNetworkClassifier(**tiny).fit(sick, y)

    def test_asymmetric(self, matrices, y, tiny):
        broken = matrices.copy()
        broken[5, 0, 1] += 0.1
        with pytest.raises(BadInput, match="Matrix 5 of X is not symmetric"):
            BrainNetworkClassifier(**tiny).fit(broken, y)

    def test_not_square(self, matrices, y, tiny):
        with pytest.raises(BadInput, match=r"\(60, 16, 15\)"):
            BrainNetworkClassifier(**tiny).fit(matrices[:, :, :-1], y)

    def test_vectors_of_no_number_of_rois(self, cohort, y, tiny):
        with pytest.raises(BadInput, match="119 entries.*105 for V = 15, 120 for V = 16"):
            BrainNetworkClassifier(**tiny).fit(cohort.connectomes[:, :-1], y)

    def test_another_number_of_rois_when_predicting(self, fitted, cohort, matrices):
        with pytest.raises(BadInput, match="15 ROIs, but this BrainNetworkClassifier was fitted on 16"):
            fitted.predict(matrices[:, 1:, 1:])
        with pytest.raises(ValueError, match="105 features, but BrainNetworkClassifier is expecting 120"):
            fitted.predict(cohort.connectomes[:, :105])
        smaller = Cohort(matrices[:, 1:, 1:], cohort.participants)
        with pytest.raises(BadInput, match="15 ROIs"):
            fitted.predict(smaller)

    def test_another_kind_when_predicting(self, fitted, cohort):
        other = Cohort(np.arctanh(cohort.connectomes), cohort.participants, kind="fisher-z", diagonal=0)
        with pytest.raises(BadInput, match="'fisher-z' connectomes.*'pearson'"):
            fitted.predict(other)

    def test_unknown_model_option_recipe_kind_and_device(self, cohort, y, tiny):
        for change, said in (
            ({"model": "bmt"}, "did you mean 'bnt'"),
            ({"options": {"n_cluster": 3}}, "did you mean 'n_clusters'"),
            ({"recipe": "papr"}, "there are paper, released, default"),
            ({"kind": "covariance"}, "choose one of pearson"),
            ({"device": "gpu"}, "choose cpu"),
            ({"validation_fraction": 1.0}, "validation_fraction is 1.0"),
            ({"epochs": 0}, "epochs is 0"),
        ):
            with pytest.raises(BadInput, match=said):
                BrainNetworkClassifier(**tiny | change).fit(cohort.connectomes, y)

    def test_a_name_as_y_needs_a_cohort(self, cohort, tiny):
        with pytest.raises(BadInput, match="needs a bnt.Cohort"):
            BrainNetworkClassifier(**tiny).fit(cohort.connectomes, "diagnosis")
        with pytest.raises(BadInput, match="no label 'diagnose'"):
            BrainNetworkClassifier(**tiny).fit(cohort, "diagnose")

    def test_models_of_series_need_them(self, cohort, y):
        with pytest.raises(BadInput, match="reads time series"):
            BrainNetworkClassifier("fbnetgen").fit(cohort.connectomes, y)

    def test_sites_of_the_wrong_length(self, cohort, y, tiny):
        with pytest.raises(BadInput, match="sites has shape"):
            BrainNetworkClassifier(**tiny).fit(cohort.connectomes, y, sites=cohort.sites[:-1])


class TestDiagonal:
    """What stands on the diagonal of the matrices that a model sees."""

    def test_is_what_the_matrices_have(self, matrices, y, tiny):
        zero = matrices - np.eye(V)
        clf = BrainNetworkClassifier(**tiny).fit(zero, y)
        assert clf.config_.diagonal == 0
        assert not np.array_equal(
            clf.predict_proba(zero), BrainNetworkClassifier(**tiny).fit(matrices, y).predict_proba(matrices)
        )

    def test_fishers_infinite_diagonal_asks_for_a_value(self, matrices, y, tiny):
        with np.errstate(divide="ignore"):
            z = np.arctanh(matrices)
        with pytest.raises(BadInput, match="set diagonal"):
            BrainNetworkClassifier(**tiny).fit(z, y)
        clf = BrainNetworkClassifier(**tiny, diagonal=0.0).fit(z, y)
        assert np.isfinite(clf.predict_proba(z)).all()

    def test_of_vectors_follows_the_kind(self, cohort, y, tiny):
        clf = BrainNetworkRegressor(**tiny, kind="fisher-z").fit(np.arctanh(cohort.connectomes), y)
        assert clf.config_.diagonal == 0
