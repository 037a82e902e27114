"""Connectomes by kind: against nilearn and numpy, and the rule for regions without a signal."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nilearn.connectome import ConnectivityMeasure
from sklearn.covariance import EmpiricalCovariance

from bnt.cohort import flat
from bnt.connectivity import KINDS, connectomes, kind_of
from bnt.errors import BadInput

EDGES = {"vectorize": True, "discard_diagonal": True}


def simulated(lengths: list[int], n_rois: int, seed: int = 0, offset: float = 0.0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(n_rois, n_rois))
    return [rng.normal(size=(t, n_rois)) @ mixing + offset for t in lengths]


ORACLES = {
    "pearson": lambda s: np.stack([flat(np.corrcoef(one.T)) for one in s]),
    "fisher-z": lambda s: np.arctanh(np.stack([flat(np.corrcoef(one.T)) for one in s])),
    "ledoit-wolf": lambda s: ConnectivityMeasure(kind="correlation", **EDGES).fit_transform(s),
    "shrunk-z": lambda s: np.arctanh(ConnectivityMeasure(kind="correlation", **EDGES).fit_transform(s)),
    "partial": lambda s: ConnectivityMeasure(kind="partial correlation", **EDGES).fit_transform(s),
}


@pytest.mark.parametrize("kind", ORACLES)
@settings(max_examples=15, deadline=None)
@given(
    lengths=st.lists(st.integers(8, 60), min_size=1, max_size=6),
    n_rois=st.integers(2, 25),
    seed=st.integers(0, 1000),
    offset=st.sampled_from([0.0, 100.0]),
)
def test_equals_the_oracle_for_any_shapes(kind, lengths, n_rois, seed, offset):
    series = simulated(lengths, n_rois, seed, offset)
    found = connectomes(series, kind)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, ORACLES[kind](series), atol=1e-5, rtol=1e-5)


def test_pearson_equals_nilearn_with_the_empirical_covariance():
    series = simulated([50, 70, 50], 12)
    measure = ConnectivityMeasure(EmpiricalCovariance(), kind="correlation", **EDGES)
    np.testing.assert_allclose(connectomes(series), measure.fit_transform(series), atol=1e-6)


@pytest.mark.parametrize("kind", ["pearson", "ledoit-wolf", "partial"])
def test_a_large_offset_costs_no_precision(kind):
    series = simulated([80], 10)
    np.testing.assert_allclose(connectomes([series[0] + 1e4], kind), connectomes(series, kind), atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [5.0, 0.1, np.nan, np.inf])
def test_a_region_without_a_signal_has_no_edges_and_leaves_the_others_finite(kind, value):
    series = simulated([40], 8)
    series[0][:, 3] = value
    found = connectomes(series, kind)[0]
    dead = flat((np.eye(8)[3][:, None] + np.eye(8)[3][None]) > 0)
    assert (found[dead] == 0).all()
    assert np.isfinite(found).all()
    assert (found[~dead] != 0).all()


def test_one_missing_volume_makes_the_region_missing():
    series = simulated([40], 8)
    series[0][7, 3] = np.nan
    assert (connectomes(series)[0][[3, 4, 5]] == 0).all()  # (0,3), (1,3), (2,3)


def test_the_rest_of_a_pearson_matrix_does_not_feel_a_constant_region():
    series = simulated([40], 8)
    constant = [np.insert(series[0], 8, 2.0, axis=1)]
    np.testing.assert_allclose(connectomes(constant)[0][: 8 * 7 // 2], connectomes(series)[0], atol=1e-6)


def test_a_constant_region_counts_in_the_shrinkage_as_in_nilearn():
    series = simulated([40, 30], 8)
    series[1][:, 2] = 7.0
    oracle = ConnectivityMeasure(kind="correlation", **EDGES).fit_transform(series)
    np.testing.assert_allclose(connectomes(series, "ledoit-wolf"), oracle, atol=1e-6)


def test_noise_of_rounding_is_no_signal():
    series = simulated([60], 5)
    series[0][:, 1] = 1e-14 * np.random.default_rng(0).normal(size=60)
    assert connectomes(series)[0][0] == 0


def test_identical_regions_have_a_finite_fisher_z():
    series = simulated([60], 5)
    series[0][:, 1] = series[0][:, 0]
    found = connectomes(series, "fisher-z")[0]
    assert np.isfinite(found).all()
    assert found[0] == pytest.approx(np.arctanh(1 - 1e-6), rel=1e-4)


def test_each_subject_is_independent_of_the_others():
    series = simulated([30, 45, 30, 45, 60], 9)
    together = connectomes(series, "shrunk-z")
    alone = np.concatenate([connectomes([one], "shrunk-z") for one in series])
    np.testing.assert_allclose(together, alone, atol=1e-6)


def test_half_and_single_precision_series_are_taken():
    series = simulated([50], 6)
    single = connectomes([series[0].astype(np.float32)])
    np.testing.assert_allclose(single, connectomes(series), atol=1e-5)
    np.testing.assert_allclose(connectomes([series[0].astype(np.float16)]), single, atol=1e-2)


def test_whole_number_series_are_taken():
    numbers = np.random.default_rng(0).integers(0, 1000, size=(50, 6))
    np.testing.assert_allclose(connectomes([numbers]), connectomes([numbers.astype(float)]), atol=1e-6)


def test_diagonals_and_aliases():
    # docs/facts.md, Data: the released matrices have a zero diagonal, the paper's a unit one.
    assert {name: kind.diagonal for name, kind in KINDS.items()} == {
        "pearson": 1.0,
        "shrunk-z": 0.0,
        "fisher-z": 0.0,
        "ledoit-wolf": 1.0,
        "partial": 1.0,
    }
    assert kind_of("correlation") is kind_of("paper") is KINDS["pearson"]  # "paper", "released": names of bnt 0.1.0
    assert kind_of("released") is KINDS["shrunk-z"]


def test_an_unknown_kind_lists_the_known_ones():
    with pytest.raises(BadInput, match=r"'spearman'.*pearson, shrunk-z, fisher-z"):
        connectomes(simulated([20], 3), "spearman")


@pytest.mark.parametrize(
    ("series", "message"),
    [
        ([], "no time series"),
        ([np.zeros(5)], r"shape \(5,\)"),
        ([np.ones((20, 4)), np.ones((20, 5))], "Series 1 has 5 ROIs"),
        ([np.ones((2, 4))], "2 volumes"),
        ([np.ones((20, 1))], "1 ROI"),
        ([np.ones((20, 4))], "no ROI that varies"),
        ([np.full((20, 4), np.nan)], "no ROI that varies"),
        ([np.random.default_rng(0).normal(size=(20, 4)) * [1e12, 1e-2, 1e-2, 1e-2]], "one ROI that varies"),
    ],
)
def test_bad_series_are_refused_by_name(series, message):
    with pytest.raises(BadInput, match=message):
        connectomes(series)


@pytest.mark.abide
def test_real_series_with_constant_regions_equal_nilearn(shared_abide):
    # docs/facts.md, Data: 118 ROIs of Caltech_0051478 are constant, 27 of SDSU_0050209.
    packed = np.load(shared_abide / "cpac_filt_noglobal_rois_cc200.npz", allow_pickle=False)
    ends, names = np.cumsum(packed["length"]), packed["file_id"].tolist()
    stacked, series = packed["series"], []
    for name in ("Caltech_0051478", "SDSU_0050209", "Pitt_0050003"):
        i = names.index(name)
        series.append(stacked[ends[i] - packed["length"][i] : ends[i]] * packed["scale"][i] + packed["offset"][i])
    constant = [int((one.max(0) == one.min(0)).sum()) for one in series]
    assert constant[:2] == [118, 27]
    found = connectomes(series, "ledoit-wolf")
    oracle = ConnectivityMeasure(kind="correlation", **EDGES).fit_transform([one.astype(float) for one in series])
    np.testing.assert_allclose(found, oracle, atol=1e-5)
    pearson = connectomes(series)
    with np.errstate(all="ignore"):
        undefined = [np.isnan(flat(np.corrcoef(one.T))) for one in series]
    assert all((row[gap] == 0).all() for row, gap in zip(pearson, undefined))
