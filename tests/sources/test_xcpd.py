"""XCP-D derivatives: names of all versions, runs, missing parcels, the participants table of the BIDS root."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from source_files import LABELS, edges, pearson, series, write_participants, write_xcpd_matrix, write_xcpd_series

from bnt.errors import BadInput
from bnt.sources._ingest import import_cohort


@pytest.fixture
def bids(tmp_path):
    """A BIDS root with two participants and derivatives/xcp_d below it."""
    write_participants(
        tmp_path / "bids" / "participants.tsv", participant_id=["sub-01", "sub-02"], sex=["F", "M"], site=["A", "B"]
    )
    return tmp_path / "bids" / "derivatives" / "xcp_d"


@pytest.mark.parametrize("key", ["seg", "atlas"])
@pytest.mark.parametrize("tail", ["stat-mean_timeseries", "timeseries"])
def test_series_of_every_version_give_pearson_and_labels(bids, tmp_path, key, tail):
    for i in (1, 2):
        write_xcpd_series(bids, f"sub-0{i}_task-rest", series(i), key=key, tail=tail)
    cohort = import_cohort(bids, tmp_path / "out")
    assert cohort.ids.tolist() == ["sub-01", "sub-02"]
    assert cohort.labels("sex").tolist() == ["F", "M"]
    assert cohort.sites.tolist() == ["A", "B"]
    assert cohort.rois["label"].tolist() == LABELS
    assert cohort.atlas == "Gordon"
    np.testing.assert_allclose(cohort.connectomes[1], edges(pearson(series(2))), atol=1e-5)
    np.testing.assert_allclose(cohort.timeseries[0], series(1), rtol=1e-6)


@pytest.mark.parametrize(
    "tail",
    [
        "stat-pearsoncorrelation_relmat",
        "stat-pearsoncorrelation_conmat",
        "measure-pearsoncorrelation_conmat",
        "den-91k_stat-pearsoncorrelation_relmat",
    ],
)
def test_matrices_of_every_version(bids, tmp_path, tail):
    for i in (1, 2):
        write_xcpd_matrix(bids, f"sub-0{i}_task-rest", pearson(series(i)), tail=tail)
    cohort = import_cohort(bids, tmp_path / "out")
    np.testing.assert_allclose(cohort.connectomes[0], edges(pearson(series(1))), atol=1e-6)
    assert cohort.timeseries is None


def test_series_are_preferred_and_matrices_on_request(bids, tmp_path):
    write_xcpd_series(bids, "sub-01_task-rest", series(1))
    write_xcpd_matrix(bids, "sub-01_task-rest", pearson(series(5)))
    first = import_cohort(bids, tmp_path / "a")
    np.testing.assert_allclose(first.connectomes[0], edges(pearson(series(1))), atol=1e-5)
    second = import_cohort(bids, tmp_path / "b", content="matrix")
    np.testing.assert_allclose(second.connectomes[0], edges(pearson(series(5))), atol=1e-6)


def test_matrices_of_some_volumes_are_left_out(bids, tmp_path):
    write_xcpd_matrix(bids, "sub-01_task-rest", pearson(series(1)))
    write_xcpd_matrix(
        bids, "sub-01_task-rest", pearson(series(2)), tail="stat-pearsoncorrelation_desc-100volumes_relmat"
    )
    cohort = import_cohort(bids, tmp_path / "out")
    np.testing.assert_allclose(cohort.connectomes[0], edges(pearson(series(1))), atol=1e-6)


def test_several_atlases_need_a_choice_and_are_listed(bids, tmp_path):
    for atlas in ("Gordon", "4S156Parcels"):
        write_xcpd_series(bids, "sub-01_task-rest", series(1), atlas=atlas)
    with pytest.raises(BadInput, match="4S156Parcels, Gordon"):
        import_cohort(bids, tmp_path / "out")
    assert import_cohort(bids, tmp_path / "out", atlas="gordon").atlas == "Gordon"
    with pytest.raises(BadInput, match="no files of atlas 'Tian'; it has 4S156Parcels, Gordon"):
        import_cohort(bids, tmp_path / "other", atlas="Tian")


def test_several_tasks_need_a_choice(bids, tmp_path):
    write_xcpd_series(bids, "sub-01_task-rest", series(1))
    write_xcpd_series(bids, "sub-01_task-nback", series(2))
    with pytest.raises(BadInput, match=r"task \(nback, rest\)"):
        import_cohort(bids, tmp_path / "out")
    cohort = import_cohort(bids, tmp_path / "out", pattern="*_task-nback_*")
    np.testing.assert_allclose(cohort.timeseries[0], series(2), rtol=1e-6)


def two_runs(folder):
    write_xcpd_series(folder, "sub-01_ses-1_task-rest_run-2", series(1))
    write_xcpd_series(folder, "sub-01_ses-1_task-rest_run-10", series(2))
    write_xcpd_series(folder, "sub-02_ses-1_task-rest_run-2", series(3))


def test_runs_are_averaged_through_fisher_z(bids, tmp_path):
    two_runs(bids)
    cohort = import_cohort(bids, tmp_path / "out")
    expected = np.tanh((np.arctanh(edges(pearson(series(1)))) + np.arctanh(edges(pearson(series(2))))) / 2)
    np.testing.assert_allclose(cohort.connectomes[0], expected, atol=1e-5)
    assert cohort.participants["n_volumes"].tolist() == [60, 30]


def test_first_run_is_first_by_number(bids, tmp_path):
    two_runs(bids)
    cohort = import_cohort(bids, tmp_path / "out", runs="first")
    np.testing.assert_allclose(cohort.timeseries[0], series(1), rtol=1e-6)


def test_separate_runs_share_the_group_of_their_person(bids, tmp_path):
    two_runs(bids)
    cohort = import_cohort(bids, tmp_path / "out", runs="separate")
    assert cohort.ids.tolist() == ["sub-01_ses-1_run-2", "sub-01_ses-1_run-10", "sub-02_ses-1_run-2"]
    assert cohort.families.tolist() == ["sub-01", "sub-01", "sub-02"]
    assert cohort.labels("sex").tolist() == ["F", "F", "M"]


def test_joined_runs_are_correlated_after_each_is_standardised(bids, tmp_path):
    two_runs(bids)
    cohort = import_cohort(bids, tmp_path / "out", runs="concatenate")
    z = np.concatenate([(x - x.mean(0)) / x.std(0) for x in (series(1), series(2))])
    np.testing.assert_allclose(cohort.connectomes[0], edges(pearson(z)), atol=1e-5)


def test_matrices_cannot_be_joined(bids, tmp_path):
    for run in (1, 2):
        write_xcpd_matrix(bids, f"sub-01_task-rest_run-{run}", pearson(series(run)))
    with pytest.raises(BadInput, match="sub-01_run-1 .* is a matrix"):
        import_cohort(bids, tmp_path / "out", runs="concatenate")
    assert len(import_cohort(bids, tmp_path / "out")) == 1


def test_concatenation_beside_its_runs_is_left_out(bids, tmp_path):
    two_runs(bids)
    write_xcpd_series(bids, "sub-01_ses-1_task-rest", series(9, 60))
    cohort = import_cohort(bids, tmp_path / "out", runs="separate")
    assert len(cohort) == 3


def test_concatenation_beside_its_directions_is_left_out(bids, tmp_path, capsys):
    for i, direction in enumerate(("AP", "PA"), 1):
        write_xcpd_series(bids, f"sub-01_ses-1_task-rest_dir-{direction}", series(i, 60))
    write_xcpd_series(bids, "sub-01_ses-1_task-rest", series(9, 120))
    cohort = import_cohort(bids, tmp_path / "out")
    assert cohort.participants["n_volumes"].tolist() == [120]
    assert "2 scans of 1 participants" in capsys.readouterr().err


def test_a_constant_parcel_is_missing_and_left_out_of_the_mean_of_runs(bids, tmp_path):
    x, y = series(1), series(2)
    x[:, 2] = 0.0
    for run, values in ((1, x), (2, y)):
        write_xcpd_series(bids, f"sub-01_task-rest_run-{run}", values)
    write_xcpd_series(bids, "sub-02_task-rest", x)
    cohort = import_cohort(bids, tmp_path / "out")
    np.testing.assert_allclose(cohort.square([0])[0, 2], pearson(y)[2], atol=1e-5)
    assert cohort.participants["n_missing_rois"].tolist() == [0, 1]


def test_missing_parcels_have_no_edges_and_are_counted(bids, tmp_path):
    x = series(1)
    x[:, 2] = np.nan
    write_xcpd_series(bids, "sub-01_task-rest", x)
    write_xcpd_series(bids, "sub-02_task-rest", series(2))
    cohort = import_cohort(bids, tmp_path / "out")
    full = np.nan_to_num(pearson(x))
    np.testing.assert_allclose(cohort.connectomes[0], edges(full), atol=1e-5)
    assert cohort.participants["n_missing_rois"].tolist() == [1, 0]
    assert (cohort.square([0])[0, 2, [0, 1, 3, 4, 5]] == 0).all()


def test_missing_parcels_of_a_matrix(bids, tmp_path):
    m = pearson(series(1))
    m[2, :] = m[:, 2] = np.nan
    write_xcpd_matrix(bids, "sub-01_task-rest", m)
    cohort = import_cohort(bids, tmp_path / "out")
    np.testing.assert_allclose(cohort.connectomes[0], edges(np.nan_to_num(m)), atol=1e-6)
    assert cohort.participants["n_missing_rois"].tolist() == [1]


def test_a_parcel_missing_in_one_run_is_taken_from_the_other(bids, tmp_path):
    x = series(1)
    x[:, 2] = np.nan
    write_xcpd_series(bids, "sub-01_task-rest_run-1", x)
    write_xcpd_series(bids, "sub-01_task-rest_run-2", series(2))
    cohort = import_cohort(bids, tmp_path / "out")
    np.testing.assert_allclose(cohort.square([0])[0, 2], pearson(series(2))[2], atol=1e-5)
    assert cohort.participants["n_missing_rois"].tolist() == [0]


def test_networks_come_from_the_atlas_beside_the_data(bids, tmp_path):
    write_xcpd_series(bids, "sub-01_task-rest", series(1))
    write_participants(
        bids / "atlases" / "atlas-Gordon" / "atlas-Gordon_dseg.tsv",
        index=range(1, 7),
        label=LABELS[::-1],
        network_label=list("fedcba"),
    )
    assert import_cohort(bids, tmp_path / "out").rois["network"].tolist() == list("abcdef")


def test_rows_and_columns_in_different_order_are_refused(bids, tmp_path):
    file = write_xcpd_matrix(bids, "sub-01_task-rest", pearson(series(1)))
    frame = pd.read_csv(file, sep="\t", index_col=0)
    frame[LABELS[::-1]].to_csv(file, sep="\t")
    with pytest.raises(BadInput, match="names row 1 'LH_Vis_1' and column 1 'LH_Vis_6'"):
        import_cohort(bids, tmp_path / "out")
