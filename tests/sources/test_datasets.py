"""Data sets that nilearn offers, from a small cache laid out as nilearn's own; nothing is downloaded."""

from __future__ import annotations

import nibabel as nib
import numpy as np
import pandas as pd
import pytest

import bnt
from bnt.cli._main import main
from fmriprep_files import AFFINE, SHAPE, T, confounds, write_atlas, write_maps

pytestmark = pytest.mark.filterwarnings("ignore")


def bold(file, seed: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    data = np.random.default_rng(seed).normal(1000, 20, (*SHAPE, T)).astype(np.float32)
    nib.Nifti1Image(data, AFFINE).to_filename(file)


@pytest.fixture
def offline(monkeypatch):
    """Any attempt to download fails."""
    import requests

    def refuse(*_, **__):
        raise requests.exceptions.ConnectionError("Max retries exceeded with url")

    monkeypatch.setattr(requests.Session, "send", refuse)


@pytest.fixture
def adhd(tmp_path, offline):
    """Three people of ADHD-200 in nilearn's folder."""
    from nilearn.datasets.func import adhd_ids

    root = tmp_path / "cache" / "adhd"
    ids = adhd_ids()[:3]
    for i, name in enumerate(ids):
        bold(root / "data" / name / f"{name}_rest_tshift_RPI_voreg_mni.nii.gz", i)
        table = pd.DataFrame(np.random.default_rng(i).normal(size=(T, 5)), columns=list("abcde"))
        table.to_csv(root / "data" / name / f"{name}_regressors.csv", index=False)
    people = {"Subject": [int(name) for name in ids], "site": ["NYU", "NYU", "Peking"], "adhd": [1, 0, 1]}
    people |= {"age": [9.5, 10.0, 11.0], "sex": ["M", "F", "M"], "MeanFD": [0.1, 0.2, 0.3]}
    pd.DataFrame(people).to_csv(root / "ADHD200_40subs_motion_parameters_and_phenotypics.csv", index=False)
    return tmp_path / "cache", ids


def test_adhd200_is_read_from_the_cache_as_nilearn_reads_it(adhd, tmp_path):
    from nilearn.datasets import fetch_adhd
    from nilearn.maskers import NiftiLabelsMasker

    cache, ids = adhd
    atlas = write_atlas(tmp_path / "six.nii.gz")
    words = ["fetch", "adhd200", str(tmp_path / "out"), "--data-dir", str(cache), "--limit", "3", "--jobs", "1"]
    assert main([*words, "--atlas", str(atlas)]) == 0
    cohort = bnt.load_cohort(tmp_path / "out")
    assert cohort.ids.tolist() == ids
    assert cohort.labels("diagnosis").tolist() == [1, 0, 1]
    assert cohort.sites.tolist() == ["NYU", "NYU", "Peking"]
    assert cohort.participants["mean_fd"].tolist() == [0.1, 0.2, 0.3]
    found = fetch_adhd(3, data_dir=str(cache), verbose=0)
    masker = NiftiLabelsMasker(str(atlas), t_r=2.0, low_pass=0.1, detrend=True, standardize="zscore_sample")
    series = masker.fit_transform(found["func"][2], confounds=found["confounds"][2])
    np.testing.assert_allclose(cohort.timeseries[2], series, atol=1e-6)


def test_the_development_data_are_read_with_several_atlases(tmp_path, offline):
    root = tmp_path / "cache" / "development_fmri"
    ids = ["sub-pixar123", "sub-pixar001"]  # an adult and a child
    for i, name in enumerate(ids):
        head = f"{name}_task-pixar"
        bold(root / f"{head}_space-MNI152NLin2009cAsym_desc-preproc_bold.nii.gz", i)
        table = confounds(np.random.default_rng(i))
        table.to_csv(root / f"{head}_desc-confounds_regressors.tsv", sep="\t", index=False, na_rep="n/a")
    people = {"participant_id": ids, "Age": [27.0, 4.8], "AgeGroup": ["Adult", "4yo"]}
    people |= {"Child_Adult": ["adult", "child"], "Gender": ["F", "M"], "Handedness": ["R", "R"]}
    pd.DataFrame(people).to_csv(root / "participants.tsv", sep="\t", index=False)
    atlases = [str(write_atlas(tmp_path / "six.nii.gz")), str(write_maps(tmp_path / "three.nii.gz"))]
    words = ["fetch", "development", str(tmp_path / "out"), "--data-dir", str(tmp_path / "cache"), "--limit", "2"]
    assert main([*words, "--jobs", "1", "--atlas", *atlases]) == 0
    cohort = bnt.load_cohort(tmp_path / "out", "three")
    assert dict(zip(cohort.ids, cohort.labels("child_adult"))) == dict(zip(ids, ["adult", "child"]))
    assert cohort.labels("age").tolist() == [27.0, 4.8]


def test_without_a_network_the_missing_data_set_is_named(tmp_path, offline, capsys):
    atlas = str(write_atlas(tmp_path / "six.nii.gz"))
    words = ["fetch", "adhd200", str(tmp_path / "out"), "--data-dir", str(tmp_path), "--atlas", atlas]
    assert main(words) == 2
    assert "ADHD-200 could not be downloaded (there is no connection" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("pipeline", "strategy"),
    [("cpac", "filt_noglobal"), ("ccs", "nofilt_global"), ("dparsf", "filt_noglobal"), ("niak", "nofilt_global")],
)
def test_abide_takes_every_pipeline_and_strategy_and_several_atlases(tmp_path, offline, pipeline, strategy):
    from test_abide import RATINGS, write_1d

    root = tmp_path / "cache" / "ABIDE_pcp"
    names = ["NYU_0050952", "NYU_0050954"]
    sizes = {"rois_aal": 5, "rois_dosenbach160": 7, "rois_ho": 4}
    (root / pipeline / strategy).mkdir(parents=True)
    for i, name in enumerate(names):
        for derivative, n_rois in sizes.items():
            series = np.random.default_rng(10 * i + n_rois).normal(size=(110, n_rois))
            write_1d(root / pipeline / strategy / f"{name}_{derivative}.1D", series)
    known = {"SUB_ID": [50952, 50954], "SITE_ID": "NYU", "FILE_ID": names, "DX_GROUP": [1, 2], "AGE_AT_SCAN": 12.0}
    empty = ["HANDEDNESS_CATEGORY", "FIQ", "VIQ", "PIQ", "ADOS_TOTAL", "BMI", "EYE_STATUS_AT_SCAN", "func_mean_fd"]
    table = pd.DataFrame(known | {"SEX": 1} | dict.fromkeys(empty) | dict.fromkeys(RATINGS, "OK"))
    table.to_csv(root / "Phenotypic_V1_0b_preprocessed1.csv")
    words = ["fetch", "abide", str(tmp_path / "out"), "--data-dir", str(tmp_path / "cache"), "--pipeline", pipeline]
    words += ["--derivative", *sizes]
    words += ["--no-band-pass", "--global-signal-regression"] if strategy == "nofilt_global" else []
    assert main(words) == 0
    for derivative, n_rois in sizes.items():
        cohort = bnt.load_cohort(tmp_path / "out", derivative.removeprefix("rois_"))
        assert (cohort.n_rois, cohort.source["pipeline"], cohort.source["strategy"]) == (n_rois, pipeline, strategy)
