"""Motion, retained volumes and coverage from the files that XCP-D, fMRIPrep and C-PAC write beside the series."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from source_files import LABELS, T, put, series, write_1d, write_participants, write_xcpd_series

from bnt.errors import BadInput
from bnt.sources._ingest import import_cohort
from bnt.sources._motion import find_quality
from bnt.sources._scan import Content, Scan

FD = np.array([np.nan, *np.linspace(0.1, 0.3, T - 1)])
SPACE = "space-MNI152NLin2009cAsym"


def write(file, separator="\t", **columns):
    pd.DataFrame(columns).to_csv(put(Path(file)), sep=separator, index=False, na_rep="n/a")


@pytest.fixture
def xcpd(tmp_path):
    """XCP-D 26: names and folders as its own tests list them (xcp_d/tests/data/*_outputs.txt)."""
    root = tmp_path / "xcp_d"
    for i in (1, 2):
        write_xcpd_series(root, f"sub-0{i}_task-rest", series(i), key="atlas")
    write(
        root / "sourcedata" / "atlases" / "tpl-MNI152NLin6Asym" / "tpl-MNI152NLin6Asym_atlas-Gordon_res-01_dseg.tsv",
        index=range(1, 7),
        label=LABELS,
        network_label=[*"abc", None, None, "f"],
        atlas_name=["Gordon"] * 3 + ["ThalamusHCP"] * 2 + ["Gordon"],
    )
    return root


def test_motion_retained_volumes_and_coverage_of_xcpd(xcpd, tmp_path, capsys):
    for i in (1, 2):
        stem = xcpd / f"sub-0{i}" / "func" / f"sub-0{i}_task-rest"
        write(f"{stem}_motion.tsv", framewise_displacement=FD * i, framewise_displacement_filtered=FD * 0)
        write(f"{stem}_outliers.tsv", framewise_displacement=[1, 1, 1] + [0] * (T - 3))
        write(f"{stem}_{SPACE}_atlas-Gordon_stat-coverage_bold.tsv", Node=LABELS, coverage=[1.0] * 5 + [0.4])
        write(f"{stem}_{SPACE}_atlas-Tian_stat-coverage_bold.tsv", Node=["x"], coverage=[0.1])
    people = import_cohort(xcpd, tmp_path / "out").participants
    assert people["mean_fd"].to_numpy() == pytest.approx([np.nanmean(FD), 2 * np.nanmean(FD)])
    assert people["n_retained"].tolist() == [T - 3] * 2
    assert people["coverage"].to_numpy() == pytest.approx([0.9, 0.9])
    assert "mean_fd of 2 scans" in capsys.readouterr().err


@pytest.mark.parametrize(("end", "separator"), [("tsv", "\t"), ("csv", ",")])
def test_the_summary_of_xcpd_goes_before_its_volumes(xcpd, tmp_path, end, separator):
    stem = xcpd / "sub-01" / "func" / "sub-01_task-rest"
    columns = {"sub": ["01"], "mean_fd": [0.123], "num_censored_volumes": [7], "num_retained_volumes": [23]}
    write(f"{stem}_{SPACE}_desc-linc_qc.{end}", separator, **columns)
    write(f"{stem}_motion.tsv", framewise_displacement=FD)
    people = import_cohort(xcpd, tmp_path / "out").participants
    assert people["mean_fd"][0] == pytest.approx(0.123)
    assert people["n_retained"][0] == 23
    assert people["mean_fd"].isna().tolist() == [False, True]


def test_runs_that_are_averaged_have_the_mean_of_their_motion(xcpd, tmp_path):
    for run in (1, 2):
        name = f"sub-03_task-rest_run-{run}"
        write_xcpd_series(xcpd, name, series(5 + run), key="atlas")
        write(xcpd / "sub-03" / "func" / f"{name}_motion.tsv", framewise_displacement=FD * run)
        write(xcpd / "sub-03" / "func" / f"{name}_outliers.tsv", framewise_displacement=[1] * run + [0] * (T - run))
    people = import_cohort(xcpd, tmp_path / "out").participants.set_index("participant_id")
    assert people.loc["sub-03", "mean_fd"] == pytest.approx(1.5 * np.nanmean(FD))
    assert people.loc["sub-03", "n_retained"] == 2 * T - 3


def test_a_column_of_the_participants_table_is_kept(xcpd, tmp_path, capsys):
    write_participants(xcpd / "participants.tsv", participant_id=["sub-01", "sub-02"], mean_fd=[9.0, 8.0])
    write(xcpd / "sub-01" / "func" / "sub-01_task-rest_motion.tsv", framewise_displacement=FD)
    assert import_cohort(xcpd, tmp_path / "out").participants["mean_fd"].tolist() == [9.0, 8.0]
    assert "mean_fd of the participants table is kept" in capsys.readouterr().err


def test_a_damaged_quality_file_is_named(xcpd, tmp_path):
    (xcpd / "sub-01" / "func" / "sub-01_task-rest_motion.tsv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInput, match="sub-01_task-rest_motion.tsv"):
        import_cohort(xcpd, tmp_path / "out")


def test_networks_of_xcpd_26_and_the_atlas_of_parcels_without_one(xcpd, tmp_path):
    rois = import_cohort(xcpd, tmp_path / "out").rois
    assert rois["network"].tolist() == ["a", "b", "c", "ThalamusHCP", "ThalamusHCP", "f"]


def test_the_networks_of_glassers_table(tmp_path):
    root = tmp_path / "xcp_d"
    write_xcpd_series(root, "sub-01_task-rest", series(1), atlas="Glasser")
    write(
        root / "atlases" / "atlas-Glasser" / "atlas-Glasser_dseg.tsv",
        index=range(1, 7),
        label=LABELS,
        cifti_label=[f"{name}_ROI" for name in LABELS],
        community_yeo=list("vvsddd"),
    )
    assert import_cohort(root, tmp_path / "out").rois["network"].tolist() == list("vvsddd")


def write_cpac(folder, i):
    stem = f"sub-0{i}_ses-1_task-rest_run-1"
    write_1d(put(folder / f"sub-0{i}" / "func" / f"{stem}_atlas-Gordon_desc-Mean-1_timeseries.1D"), series(i))
    return folder / f"sub-0{i}" / "func" / stem


@pytest.mark.parametrize("how", ["summary", "volumes", "displacement", "power_params"])
def test_motion_of_cpac(tmp_path, how):
    stem = write_cpac(tmp_path / "cpac", 1)
    fd = np.nan_to_num(FD)
    if how == "summary":
        write(f"{stem}_desc-summary_motion.tsv", Subject=["x"], MeanFD_Power=[0.17], rootMeanSquareFD=[0.3])
    elif how == "volumes":
        names = ("Framewise displacement Jenkinson", "Framewise displacement power", "DVARS")
        write(f"{stem}_motion.tsv", **dict(zip(names, (fd * 9, fd, fd * 5))))
    elif how == "displacement":
        put(stem.with_name(f"{stem.name}_framewise-displacement-power.1D")).write_text("\n".join(map(str, fd)))
    else:
        put(stem.with_name(f"{stem.name}_power_params.txt")).write_text("Subject,Scan,MeanFD_Power\nx,y,0.17\n")
    found = import_cohort(tmp_path / "cpac", tmp_path / "out").participants["mean_fd"][0]
    assert found == pytest.approx(0.17 if how in ("summary", "power_params") else fd.mean())


@pytest.mark.parametrize("tail", ["desc-confounds_timeseries", "desc-confounds_regressors"])
def test_motion_of_fmriprep(tmp_path, tail):
    func = tmp_path / "sub-01" / "ses-1" / "func"
    write(func / f"sub-01_ses-1_task-rest_{tail}.tsv", csf=np.arange(T), framewise_displacement=FD)
    bold = func / f"sub-01_ses-1_task-rest_{SPACE}_desc-preproc_bold.nii.gz"
    other = func / f"sub-01_ses-1_task-nback_{SPACE}_desc-preproc_bold.nii.gz"
    scans = [Scan("sub-01", file, Content, "ses-1") for file in (bold, other)]
    found = find_quality(scans, tmp_path)
    assert found[0].columns["mean_fd"] == pytest.approx(np.nanmean(FD))
    assert "mean_fd" not in found[1].columns
