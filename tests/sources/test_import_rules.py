"""Bad input is refused with one sentence that names the file; nothing is written."""

from __future__ import annotations

import inspect
import pickle

import numpy as np
import pandas as pd
import pytest
from source_files import LABELS, edges, pearson, put, series, write_participants, write_xcpd_series

from bnt.cli._main import main
from bnt.errors import BadInput
from bnt.sources._ingest import import_cohort, read_cohort


def folder_of(tmp_path, *arrays):
    for i, values in enumerate(arrays, 1):
        np.save(put(tmp_path / "in" / f"sub-{i:02d}.npy"), values)
    return tmp_path / "in"


def refused(tmp_path, source, match, **options):
    """Check that the import is refused by one line and leaves the disk as it was."""
    before = sorted(p for p in tmp_path.rglob("*"))
    with pytest.raises(BadInput, match=match) as caught:
        import_cohort(source, tmp_path / "out", **options)
    assert "\n" not in str(caught.value)
    assert sorted(p for p in tmp_path.rglob("*")) == before


def with_value(values, at, value):
    values = np.array(values, dtype=float)
    values[at] = value
    return values


def symmetric_with(m, i, j, value):
    return with_value(with_value(m, (i, j), value), (j, i), value)


GOOD = series(1)
MATRIX = pearson(GOOD)
BAD = {
    "scattered NaN in a series": (with_value(GOOD, (3, 2), np.nan), "missing value in volume 4, ROI 3"),
    "infinite series": (with_value(GOOD, (3, 2), np.inf), "infinite value in volume 4, ROI 3"),
    "beyond float32": (with_value(GOOD, (3, 2), 1e300), "infinite value in volume 4, ROI 3"),
    "no value at all": (np.full((30, 6), np.nan), "no value in any ROI|no ROI"),
    "another number of ROIs": (series(2, n_rois=5), r"sub-02 .* has 5 ROIs, sub-01 .* has 6"),
    "too few volumes": (series(2, volumes=7), "sub-02 .* has 7 volumes"),
    "one dimension": (np.zeros(9), r"shape \(9,\)"),
    "four dimensions": (np.zeros((2, 2, 2, 2)), "shape"),
    "a stack in a folder": (np.zeros((3, 30, 6)), "import that file alone"),
    "complex numbers": (GOOD * 1j, "complex128"),
    "text": (np.full((30, 6), "a"), "real numbers"),
    "a matrix among series": (MATRIX, "sub-02 .* is a matrix .* sub-01 .* is a series"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_series_is_refused(tmp_path, case):
    values, message = BAD[case]
    refused(tmp_path, folder_of(tmp_path, GOOD, values), f"sub-02.*({message})|({message})")


BAD_MATRICES = {
    "scattered NaN": (symmetric_with(MATRIX, 1, 2, np.nan), "missing value between ROIs 2 and 3"),
    "infinite": (symmetric_with(MATRIX, 1, 2, np.inf), "infinite value between ROIs 2 and 3"),
    "Fisher z given as Pearson": (symmetric_with(MATRIX, 1, 2, 1.7), "fisher-z"),
    "not symmetric": (with_value(MATRIX, (1, 2), MATRIX[1, 2] + 0.1), "differ by up to 0.1"),
    "covariance": (MATRIX * 0.5, "0.5 on its diagonal"),
}


@pytest.mark.parametrize("case", BAD_MATRICES)
def test_a_bad_matrix_is_refused(tmp_path, case):
    values, message = BAD_MATRICES[case]
    refused(tmp_path, folder_of(tmp_path, pearson(series(2)), values), f"sub-02.*{message}")


@pytest.mark.parametrize("one", [np.inf, 18.7, 3.8])
def test_fisher_z_taken_for_correlations_is_told_by_its_diagonal(tmp_path, one):
    small = MATRIX / 4  # its Fisher z are within [-1, 1]
    np.fill_diagonal(small, one)
    refused(tmp_path, folder_of(tmp_path, small), r"sub-01 .* on its diagonal, as Fisher z .* fisher-z")
    np.fill_diagonal(small, 4)  # or covariances of one variance
    refused(tmp_path, folder_of(tmp_path, small), "fisher-z if they are that, or divide other matrices")


@pytest.mark.parametrize(("start", "step"), [(0, 1), (0.5, 0.72), (100, -2)])
@pytest.mark.parametrize("at", [0, 3])
def test_a_column_of_times_or_an_index_is_no_region(tmp_path, start, step, at):
    values = np.insert(GOOD.astype(np.float64), at, start + step * np.arange(len(GOOD)), axis=1)
    refused(tmp_path, folder_of(tmp_path, values), rf"sub-01 .* ROI {at + 1}, that changes by .* time or an index")
    refused(tmp_path, folder_of(tmp_path, values.round(1)), "that changes by .* time or an index")


def test_fisher_z_with_an_infinite_diagonal_is_accepted_as_such(tmp_path):
    with np.errstate(divide="ignore"):
        z = np.arctanh(np.round(MATRIX, 12))
    cohort = import_cohort(folder_of(tmp_path, z), tmp_path / "out", kind="fisher-z")
    assert (cohort.kind, cohort.diagonal) == ("fisher-z", 0.0)
    np.testing.assert_allclose(cohort.connectomes[0], edges(z), rtol=1e-5)


def test_small_asymmetry_is_averaged_and_large_recorded_on_request(tmp_path):
    small = with_value(MATRIX, (1, 2), MATRIX[1, 2] + 8e-5)
    large = with_value(MATRIX, (1, 2), MATRIX[1, 2] - 0.1)
    source = folder_of(tmp_path, small, large)
    cohort = import_cohort(source, tmp_path / "out", allow_asymmetric=True)
    assert cohort.square([0])[0, 1, 2] == pytest.approx(MATRIX[1, 2] + 4e-5, abs=1e-6)
    assert cohort.square([1])[0, 1, 2] == pytest.approx(MATRIX[1, 2] - 0.05, abs=1e-6)
    (finding,) = cohort.findings
    assert (finding["check"], finding["participant_id"]) == ("asymmetric", "sub-02")
    assert finding["value"] == pytest.approx(0.1)


def test_short_runs_can_be_left_out(tmp_path):
    source = folder_of(tmp_path, GOOD, series(2, volumes=7))
    cohort = import_cohort(source, tmp_path / "out", drop_short=True)
    assert cohort.ids.tolist() == ["sub-01"]
    assert cohort.source["scans_too_short"] == 1
    refused(tmp_path, source, "min_volumes=31", drop_short=True, min_volumes=31, overwrite=True)


def test_other_labels_or_another_order_are_refused(tmp_path):
    write_xcpd_series(tmp_path / "in", "sub-01_task-rest", series(1))
    write_xcpd_series(tmp_path / "in", "sub-02_task-rest", series(2), [*LABELS[:4], LABELS[5], LABELS[4]])
    refused(tmp_path, tmp_path / "in", r"sub-02 .* has 'LH_Vis_6' as ROI 5, sub-01 .* has 'LH_Vis_5'")


def test_nothing_is_read_before_it_is_asked_for(tmp_path):
    from bnt.sources._readers import find_scans

    (tmp_path / "in").mkdir()
    for i in range(3):
        (tmp_path / "in" / f"sub-0{i}_task-rest_seg-Gordon_stat-mean_timeseries.tsv").write_text("garbage")
    assert [scan.participant for scan in find_scans(tmp_path / "in").scans] == ["sub-00", "sub-01", "sub-02"]


def test_an_interruption_leaves_nothing_behind(tmp_path, monkeypatch):
    from bnt.sources import _ingest as importing

    source = folder_of(tmp_path, GOOD, series(2), series(3))
    before = sorted(tmp_path.rglob("*"))
    seen = []

    def combine(runs, mode, kind):
        seen.append(sorted(tmp_path.rglob("*")) != before)
        if len(seen) == 3:
            raise KeyboardInterrupt
        return original(runs, mode, kind)

    original = importing.combine_runs
    monkeypatch.setattr(importing, "combine_runs", combine)
    with pytest.raises(KeyboardInterrupt):
        import_cohort(source, tmp_path / "out")
    assert seen[-1]  # it was being written when it was interrupted
    assert sorted(tmp_path.rglob("*")) == before


def test_links_to_folders_are_followed_once_and_lost_links_named(tmp_path):
    np.save(put(tmp_path / "store" / "sub-01" / "ts.npy"), GOOD)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "sub-01").symlink_to(tmp_path / "store" / "sub-01")
    (tmp_path / "store" / "sub-01" / "round").symlink_to(tmp_path / "in")
    assert import_cohort(tmp_path / "in", tmp_path / "out").ids.tolist() == ["sub-01"]
    (tmp_path / "in" / "sub-02.npy").symlink_to(tmp_path / "annexed")
    refused(tmp_path, tmp_path / "in", r"sub-02\.npy is a link to a file that is not there", overwrite=True)


def table(tmp_path, **columns):
    return write_participants(tmp_path / "p.tsv", **columns)


def test_a_scan_without_a_row_is_refused_or_dropped(tmp_path):
    source = folder_of(tmp_path, GOOD, series(2))
    people = table(tmp_path, participant_id=["sub-02", "sub-09"], sex=["F", "M"])
    refused(tmp_path, source, r"sub-01 .* is not in .*p\.tsv .* drop_unlisted", participants=people)
    cohort = import_cohort(source, tmp_path / "out", participants=people, drop_unlisted=True)
    assert cohort.ids.tolist() == ["sub-02"]
    assert cohort.source["rows_without_scan"] == 1
    assert cohort.source["scans_without_row"] == 1


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"subject": ["sub-01"]}, {}, "no column 'participant_id'; it has subject"),
        ({"participant_id": ["sub-01"]}, {"site_column": "centre"}, "no column 'centre'"),
        ({"participant_id": ["sub-01"]}, {"family": "family"}, "no column 'family'"),
        ({"participant_id": ["sub-01", "01"]}, {}, "lists participant '01' twice"),
        ({"participant_id": ["sub-01", None]}, {}, "no participant_id in row 2"),
        ({"participant_id": ["x", "y"]}, {"drop_unlisted": True}, "is not in .* id_column"),
        ({"participant_id": []}, {}, "no rows"),
    ],
)
def test_a_bad_participants_table_is_refused(tmp_path, columns, options, message):
    source, people = folder_of(tmp_path, GOOD), table(tmp_path, **columns)
    refused(tmp_path, source, message, participants=people, **options)


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\xfe\x00\x01", b"\0\0\0", b"a\x1b[2J", b'"', b"\n\n", pickle.dumps({"a": 1}), b"a\tb\n1\t2\t3\n4\n"],
)
def test_a_damaged_participants_table_is_refused(tmp_path, content):
    (tmp_path / "p.tsv").write_bytes(content)
    refused(tmp_path, folder_of(tmp_path, GOOD), r"p\.tsv", participants=tmp_path / "p.tsv")


def test_ids_with_leading_zeros_stay_as_they_are(tmp_path):
    np.save(put(tmp_path / "in" / "007.npy"), GOOD)
    people = table(tmp_path, participant_id=["007", "7"], sex=["F", "M"])
    cohort = import_cohort(tmp_path / "in", tmp_path / "out", participants=people)
    assert cohort.ids.tolist() == ["007"]
    assert cohort.labels("sex").tolist() == ["F"]


def test_an_roi_table_is_put_in_the_order_of_the_scans(tmp_path):
    write_xcpd_series(tmp_path / "in", "sub-01_task-rest", series(1))
    rois = tmp_path / "rois.csv"
    pd.DataFrame({"label": LABELS[::-1], "x": range(6), "network": list("abcdef")}).to_csv(rois, index=False)
    cohort = import_cohort(tmp_path / "in", tmp_path / "out", rois=rois)
    assert cohort.rois["label"].tolist() == LABELS
    assert cohort.rois["network"].tolist() == list("fedcba")
    pd.DataFrame({"Name": LABELS[::-1], "X": ["1,5"] * 6, "Network": list("abcdef")}).to_csv(rois, sep=";", index=False)
    table = import_cohort(tmp_path / "in", tmp_path / "out", rois=rois, overwrite=True).rois
    assert table["network"].tolist() == list("fedcba")
    assert table["x"].tolist() == [1.5] * 6
    pd.DataFrame({"label": LABELS[1:]}).to_csv(rois, index=False)
    refused(tmp_path, tmp_path / "in", "lists 5 ROIs, the scans have 6", rois=rois, overwrite=True)
    pd.DataFrame({"label": [*LABELS[1:], "other"]}).to_csv(rois, index=False)
    refused(tmp_path, tmp_path / "in", "other labels than the scans", rois=rois, overwrite=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"runs": "all"}, "runs.*average"),
        ({"kind": "cosine"}, "kind is 'cosine'"),
        ({"content": "graph"}, "content.*'graph'"),
        ({"format": "hdf5"}, "format.*'hdf5'"),
        ({"dtype": "int8"}, "dtype.*'int8'"),
        ({"pattern": "*.mat"}, "None of the 1 files"),
        ({"participants": "nowhere.tsv"}, "nowhere.tsv does not exist"),
        ({"rois": "nowhere.tsv"}, "nowhere.tsv does not exist"),
        ({"format": "xcpd"}, "holds no .*timeseries.tsv"),
        ({"format": "cpac"}, "holds no .*timeseries.1D"),
        ({"format": "cifti"}, "holds no .*ptseries.nii"),
        ({"format": "authors"}, "is not a file"),
    ],
)
def test_options_that_do_not_fit_are_refused(tmp_path, options, message):
    refused(tmp_path, folder_of(tmp_path, GOOD), message, **options)


def test_an_empty_or_absent_source_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    refused(tmp_path, tmp_path / "empty", "holds no file of a known kind")
    refused(tmp_path, tmp_path / "absent", "does not exist")
    refused(tmp_path, tmp_path / ("x" * 300), "cannot be opened")
    (tmp_path / "notes.doc").write_text("hello")
    refused(tmp_path, tmp_path / "notes.doc", "unknown extension")


def test_the_command_exits_2_with_one_line_and_writes_nothing(tmp_path, capsys):
    source = folder_of(tmp_path, with_value(GOOD, (0, 0), np.nan))
    assert main(["import", str(source), str(tmp_path / "out")]) == 2
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("bnt import: sub-01")
    assert not (tmp_path / "out").exists()


def test_the_command_writes_a_cohort_and_says_what_is_missing(tmp_path, capsys):
    x = series(2)
    x[:, 0] = np.nan
    source = folder_of(tmp_path, GOOD, x)
    assert main(["import", str(source), str(tmp_path / "out"), "--kind", "fisher-z"]) == 0
    out = capsys.readouterr().out
    assert "Cohort(2 subjects, 6 ROIs" in out
    assert "1 subjects lack 1 ROIs in all" in out


def test_the_command_has_the_defaults_of_the_function():
    from bnt.cli._data_commands import Import

    defaults = {n: p.default for n, p in inspect.signature(import_cohort).parameters.items()}
    options = vars(Import("a", "b"))
    assert set(defaults) - {"work"} == set(options)  # "work" is where the BIDS App keeps images that it has read
    shared = set(options) - {"source", "out", "max_expanded"}  # the command gives the limit in GB
    assert {n: options[n] for n in shared} == {n: defaults[n] for n in shared}


# -- series that lie on their side -----------------------------------------------------------------------------


def bold_like(seed, volumes=100, n_rois=120, smoothness=0.8):
    """Series with autocorrelation in time, ROIs in networks of ten neighbours, a level per ROI and a global signal."""
    rng = np.random.default_rng(seed)
    networks = np.repeat(rng.normal(size=(volumes + 50, n_rois // 10)), 10, axis=1)
    noise = rng.normal(size=(volumes + 50, n_rois)) + 0.7 * networks + rng.normal(size=(volumes + 50, 1))
    for t in range(1, len(noise)):
        noise[t] += smoothness * noise[t - 1]
    return noise[50:] + rng.uniform(500, 1500, size=n_rois)


def test_transposed_series_are_refused_with_the_fix(tmp_path):
    source = folder_of(tmp_path, *(bold_like(i).T for i in range(3)))
    refused(tmp_path, source, "sub-01 .*120 rows and 100 columns.*transpose")
    cohort = import_cohort(source, tmp_path / "out", transpose=True)
    assert (cohort.n_rois, cohort.participants["n_volumes"].tolist()) == (120, [100] * 3)
    np.testing.assert_allclose(cohort.connectomes[0], edges(pearson(bold_like(0))), atol=1e-4)
    again = read_cohort(source, like=cohort)
    assert again.n_rois == 120


@pytest.mark.parametrize("smoothness", [0.0, 0.3, 0.8])
def test_series_as_they_should_be_are_not_taken_for_transposed(tmp_path, smoothness):
    source = folder_of(tmp_path, *(bold_like(i, smoothness=smoothness) for i in range(2)))
    assert import_cohort(source, tmp_path / "out").n_rois == 120


def test_content_series_leaves_the_check_out(tmp_path):
    source = folder_of(tmp_path, bold_like(0).T)
    assert import_cohort(source, tmp_path / "out", content="series").n_rois == 100
