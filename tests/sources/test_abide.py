"""ABIDE: what becomes of the release's files, on a small made-up release and on the real one."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bnt.cli._main import main
from bnt.errors import BadInput
from bnt.sources import import_cohort
from bnt.sources._abide import fetch_abide, read_phenotype

SITES = ["PITT", "PITT", "PITT", "NYU", "NYU", "OHSU"]
LENGTHS = [120, 130, 120, 140, 140, 90]
RATINGS = ("qc_rater_1", "qc_anat_rater_2", "qc_func_rater_2", "qc_anat_rater_3", "qc_func_rater_3")
N_ROIS = 6


def write_1d(path: Path, series: np.ndarray) -> None:
    header = "\t".join(f"#{i + 1}" for i in range(series.shape[1]))
    np.savetxt(path, series, fmt="%.6f", delimiter="\t", header=header, comments="")


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """Six subjects in nilearn's layout; the second of NYU is the first once more, OHSU is short."""
    root = tmp_path / "raw" / "ABIDE_pcp"
    folder = root / "cpac" / "filt_noglobal"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    ids = [f"{site}_{50000 + i:07d}" for i, site in enumerate(SITES)]
    for i, name in enumerate(ids):
        series = rng.normal(size=(LENGTHS[i], N_ROIS))
        if i == 1:
            series[:, 2] = 7.0
        write_1d(folder / f"{name}_rois_cc200.1D", series)
    shutil.copy(folder / f"{ids[3]}_rois_cc200.1D", folder / f"{ids[4]}_rois_cc200.1D")
    table = pd.DataFrame(
        {
            "SUB_ID": range(50000, 50006),
            "SITE_ID": SITES,
            "FILE_ID": ids,
            "DX_GROUP": [1, 2, 1, 2, 1, 2],
            "AGE_AT_SCAN": [10.5, 11, 12, 13, 14, 15],
            "SEX": [1, 2, 1, 1, 2, 1],
            "HANDEDNESS_CATEGORY": ["R", "-9999", None, "L", "R", "R"],
            "FIQ": [100, -9999, None, 90, 110, 100],
            "VIQ": [100.0] * 6,
            "PIQ": [100.0] * 6,
            "ADOS_TOTAL": [-9999.0] * 6,
            "BMI": [None] * 6,
            "EYE_STATUS_AT_SCAN": [1, 2, 1, 1, 1, 1],
            "func_mean_fd": [0.1, 0.2, None, 0.1, 0.1, 0.1],
            **dict.fromkeys(RATINGS, "OK"),
        }
    )
    table.loc[3, "qc_func_rater_3"] = "fail"
    table.loc[2, "qc_anat_rater_2"] = "maybe"
    table.loc[6] = table.loc[5].replace({ids[5]: "no_filename"})
    table.to_csv(root / "Phenotypic_V1_0b_preprocessed1.csv")
    return tmp_path / "raw"


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Downloads fail as they do without a network."""
    import nilearn.datasets
    from requests.exceptions import ConnectionError

    def refuse(**_):
        raise ConnectionError("Max retries exceeded with url: ...")

    monkeypatch.setattr(nilearn.datasets, "fetch_abide_pcp", refuse)


def series_file(release: Path, number: int) -> Path:
    name = f"{SITES[number]}_{50000 + number:07d}_rois_cc200.1D"
    return release / "ABIDE_pcp" / "cpac" / "filt_noglobal" / name


def test_autism_is_the_positive_class_and_codes_are_missing_values(release: Path, tmp_path: Path) -> None:
    table = fetch_abide(tmp_path / "out", release, subjects="all").participants
    assert table["diagnosis"].tolist() == [1, 0, 1, 0, 1, 0]
    assert table["sex"].tolist() == ["M", "F", "M", "M", "F", "M"]
    assert table["fiq"].isna().tolist() == [False, True, True, False, False, False]
    assert table["handedness"].isna().tolist() == [False, True, True, False, False, False]
    assert table["ados_total"].isna().all()
    assert table["eye_status"].tolist() == ["open", "closed", "open", "open", "open", "open"]


def test_the_paper_leaves_out_scans_of_fewer_than_100_volumes(release: Path, tmp_path: Path) -> None:
    cohort = fetch_abide(tmp_path / "out", release)
    assert cohort.participants["n_volumes"].tolist() == LENGTHS[:5]
    assert {"check": "too short", "participant_id": "OHSU_0050005", "value": 90} in cohort.findings


def test_quality_checked_is_nilearns_rule(release: Path, tmp_path: Path) -> None:
    cohort = fetch_abide(tmp_path / "out", release, subjects="quality-checked")
    assert "NYU_0050003" not in cohort.ids  # one rater said fail
    assert "PITT_0050002" in cohort.ids  # rater 2 may say maybe
    assert len(cohort) == 5


def test_a_scan_under_two_names_shares_a_group(release: Path, tmp_path: Path) -> None:
    cohort = fetch_abide(tmp_path / "out", release)
    group = dict(zip(cohort.ids, cohort.families))
    assert group["NYU_0050004"] == group["NYU_0050003"] == "NYU_0050003"
    assert len(set(cohort.families)) == 4


def test_a_scan_under_two_names_can_be_dropped(release: Path, tmp_path: Path) -> None:
    cohort = fetch_abide(tmp_path / "out", release, duplicates="drop")
    assert "NYU_0050003" in cohort.ids
    assert "NYU_0050004" not in cohort.ids


def test_a_constant_roi_has_no_edges_and_is_counted(release: Path, tmp_path: Path) -> None:
    cohort = fetch_abide(tmp_path / "out", release)
    matrix = cohort.square([1])[0]
    assert cohort.participants["n_missing_rois"].tolist() == [0, 1, 0, 0, 0]
    assert (np.delete(matrix[2], 2) == 0).all()
    assert np.isfinite(matrix).all()


def test_series_and_connectomes_are_those_of_the_files(release: Path, tmp_path: Path) -> None:
    cohort = fetch_abide(tmp_path / "out", release)
    oracle = np.loadtxt(series_file(release, 2))  # as nilearn reads it
    np.testing.assert_allclose(cohort.timeseries[2], oracle, atol=1e-6)
    np.testing.assert_allclose(cohort.square([2])[0], np.corrcoef(oracle.T), atol=1e-5)


def test_a_failed_download_says_what_is_there_and_writes_nothing(
    release: Path, tmp_path: Path, no_network: None
) -> None:
    series_file(release, 3).unlink()
    with pytest.raises(BadInput, match=r"NYU_0050003 .* 5 of 6 series"):
        fetch_abide(tmp_path / "out", release)
    assert not (tmp_path / "out").exists()


def test_only_missing_files_are_asked_for(release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nilearn.datasets

    absent, asked = series_file(release, 3), []
    content = absent.read_bytes()
    absent.unlink()

    def download(**options):
        asked.append(options["SUB_ID"])
        absent.write_bytes(content)

    monkeypatch.setattr(nilearn.datasets, "fetch_abide_pcp", download)
    assert len(fetch_abide(tmp_path / "out", release)) == 5
    assert asked == [[50003]]


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[: text.rindex(".") + 3],
        lambda text: text[: text.rindex("\t")],
        lambda text: text.replace("\n", "\tx\n", 3),
        lambda text: "",
        lambda text: text.split("\n")[0] + "\n",
        lambda text: "#9" + text[2:],
    ],
    ids=["cut inside a number", "value missing", "letters", "empty", "header only", "other ROIs"],
)
def test_a_damaged_series_is_named_and_nothing_is_written(release: Path, tmp_path: Path, change) -> None:
    path = series_file(release, 2)
    path.write_text(change(path.read_text()))
    with pytest.raises(BadInput, match=path.name):
        fetch_abide(tmp_path / "out", release)
    assert not (tmp_path / "out").exists()


def test_bad_options_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    for options in ({"subjects": "some"}, {"derivative": "rois_x"}, {"kind": "x"}, {"dtype": "float8"}, {"limit": 0}):
        with pytest.raises(BadInput):
            fetch_abide(tmp_path / "out", tmp_path / "nowhere", **options)
    assert not (tmp_path / "nowhere").exists()


def test_the_command_prints_the_sentence_and_exits_with_2(
    tmp_path: Path, no_network: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fetch", "abide", str(tmp_path / "out"), "--data-dir", str(tmp_path / "raw")]) == 2
    assert "could not be downloaded" in capsys.readouterr().err


# -- the real release; numbers from docs/facts.md, Data ---------------------------------------


@pytest.fixture(scope="module")
def abide(abide_dir: Path, tmp_path_factory: pytest.TempPathFactory):
    return fetch_abide(tmp_path_factory.mktemp("real") / "abide", abide_dir, jobs=1)


@pytest.mark.abide
def test_the_papers_1009_subjects(abide) -> None:
    labels = abide.labels("diagnosis")
    assert (len(abide), (labels == 1).sum(), (labels == 0).sum()) == (1009, 493, 516)
    assert len(set(abide.sites)) == 19
    assert abide.participants["fiq"].isna().sum() == 68
    assert abide.participants["mean_fd"].isna().sum() == 1


@pytest.mark.abide
@pytest.mark.parametrize(
    ("site", "asd", "control"), [("NYU", 75, 100), ("USM", 46, 25), ("UCLA_2", 13, 13), ("KKI", 20, 28)]
)
def test_counts_of_a_site(abide, site: str, asd: int, control: int) -> None:
    labels = abide.where(site=site).labels("diagnosis")
    assert ((labels == 1).sum(), (labels == 0).sum()) == (asd, control)


@pytest.mark.abide
def test_the_duplicate_scan_is_found_by_its_bytes(abide) -> None:
    found = [f for f in abide.findings if f["check"] == "same scan"]
    assert found == [{"check": "same scan", "participant_id": "UM_1_0050286", "value": "UM_1_0050279"}]
    assert len(set(abide.families)) == 1008


@pytest.mark.abide
def test_no_other_two_people_have_nearly_the_same_scan(abide) -> None:
    assert len(set(abide.scans)) == 1008
    one, other = (abide.scans[abide.ids == name] for name in ("UM_1_0050279", "UM_1_0050286"))
    assert one == other


@pytest.mark.abide
def test_constant_rois_of_46_subjects(abide) -> None:
    missing = abide.participants.set_index("participant_id")["n_missing_rois"]
    assert ((missing > 0).sum(), missing.sum()) == (46, 430)
    assert missing["Caltech_0051478"] == 118
    assert np.isfinite(abide.connectomes).all()


@pytest.mark.abide
def test_sizes_of_the_other_choices(abide_dir: Path) -> None:
    table = read_phenotype(abide_dir / "ABIDE_pcp" / "Phenotypic_V1_0b_preprocessed1.csv")
    assert (len(table), table["diagnosis"].sum(), table["site"].nunique()) == (1035, 505, 20)
    assert table["quality_checked"].sum() == 871


@pytest.mark.abide
def test_ids_are_those_of_the_shared_splits(abide, shared_abide: Path) -> None:
    listed = pd.read_csv(shared_abide / "splits.csv")["file_id"]
    assert set(abide.ids) - set(listed) == {"UM_1_0050286"}
    assert set(listed) <= set(abide.ids)


@pytest.mark.abide
def test_files_are_where_nilearn_keeps_them(abide, abide_dir: Path) -> None:
    from nilearn.datasets import fetch_abide_pcp

    oracle = fetch_abide_pcp(
        data_dir=abide_dir,
        pipeline="cpac",
        band_pass_filtering=True,
        global_signal_regression=False,
        derivatives=["rois_cc200"],
        quality_checked=False,
        n_subjects=3,
        verbose=0,
    )
    assert oracle["phenotypic"]["FILE_ID"].tolist() == abide.ids[:3].tolist()
    for i in range(3):
        np.testing.assert_allclose(abide.timeseries[i], oracle["rois_cc200"][i], rtol=1e-6, atol=1e-5)
        np.testing.assert_allclose(abide.square([i])[0], np.corrcoef(oracle["rois_cc200"][i].T), atol=1e-5)


@pytest.mark.abide
def test_the_shipped_roi_table_is_attached(abide, shared_abide: Path) -> None:
    source = pd.read_csv(shared_abide / "cc200_rois.tsv", sep="\t")
    assert abide.rois["network"].tolist() == source["network"].tolist()
    np.testing.assert_array_equal(abide.rois[["x", "y", "z"]], source[["x", "y", "z"]])


@pytest.mark.abide
def test_the_real_abide_files_come_in_with_their_duplicate_grouped(abide_dir, tmp_path):
    root = abide_dir / "ABIDE_pcp"
    source = tmp_path / "some"
    source.mkdir()
    files = sorted(root.rglob("*_rois_cc200.1D"))
    assert len(files) == 1035  # docs/facts.md, Data
    for file in [f for f in files if f.name.startswith("UM_1_00502")]:
        (source / file.name).symlink_to(file)
    people = next(root.glob("Phenotypic*.csv"))
    cohort = import_cohort(source, tmp_path / "out", participants=people, id_column="FILE_ID")
    assert cohort.n_rois == 200
    assert set(cohort.sites) == {"UM_1"}
    groups = dict(zip(cohort.ids, cohort.families))
    assert groups["UM_1_0050286"] == groups["UM_1_0050279"] == "UM_1_0050279"
    assert len(set(groups.values())) == len(cohort) - 1
    x = np.loadtxt(source / "UM_1_0050279_rois_cc200.1D")
    row = cohort.ids.tolist().index("UM_1_0050279")
    kept = x.std(axis=0) > 0
    np.testing.assert_allclose(
        cohort.square([row])[0][np.ix_(kept, kept)], np.corrcoef(x[:, kept], rowvar=False), atol=1e-5
    )
