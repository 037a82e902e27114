"""The BIDS App: bids_dir output_dir participant|group, onto the commands that are there."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import bnt
from bnt.cli._main import main
from bnt.sources import _extract
from fmriprep_files import write_atlas, write_tree


@pytest.fixture
def xcpd(tmp_path):
    """A BIDS root with XCP-D's series of 24 people, whose classes differ."""
    bids = tmp_path / "bids"
    cohort = bnt.simulate_cohort(n_subjects=24, n_rois=14, n_sites=2, effect=2.0, n_volumes=60, seed=0)
    names = [f"sub-{i:02d}" for i in range(len(cohort))]
    for name, series in zip(names, cohort.timeseries):
        folder = bids / "derivatives" / "xcp_d" / name / "func"
        folder.mkdir(parents=True)
        table = pd.DataFrame(np.asarray(series), columns=cohort.rois["label"])
        file = folder / f"{name}_task-rest_space-MNI152NLin6Asym_atlas-Ours_stat-mean_timeseries.tsv"
        table.to_csv(file, sep="\t", index=False)
    people = pd.DataFrame({"participant_id": names, "diagnosis": cohort.labels("diagnosis"), "site": cohort.sites})
    people.to_csv(bids / "participants.tsv", sep="\t", index=False)
    return bids


@pytest.mark.usefixtures("undrawn")
def test_participants_and_then_the_group_give_a_page(xcpd, tmp_path, capsys):
    out = tmp_path / "out"
    words = ["bids-app", str(xcpd), str(out)]
    assert main([*words, "participant", "--participant_label", "00", "sub-03"]) == 0
    assert sorted(folder.name for folder in out.glob("sub-*")) == ["sub-00", "sub-03"]
    assert bnt.load_cohort(out / "sub-03").ids.tolist() == ["sub-03"]
    described = json.loads((out / "dataset_description.json").read_text())
    assert described["DatasetType"] == "derivative"

    more = ["--models", "ridge", "svm", "--splits", "2", "--n_cpus", "1"]
    assert main([*words, "group", *more]) == 0
    assert len(bnt.load_cohort(out / "cohort")) == 24
    assert "ridge" in (out / "study" / "report.html").read_text()
    assert main([*words, "group", *more]) == 0
    assert "is used; delete it to import again" in capsys.readouterr().out


def test_images_that_participants_extracted_are_used_by_the_group(tmp_path, monkeypatch):
    derived = write_tree(tmp_path / "bids", n=2)
    atlas = write_atlas(tmp_path / "six.nii.gz")
    seen: list[str] = []
    extract = _extract.extract
    monkeypatch.setattr(
        _extract, "extract", lambda images, *rest: seen.append(images.participant) or extract(images, *rest)
    )
    words = ["bids-app", str(tmp_path / "bids"), str(tmp_path / "out")]
    more = ["--derivatives", str(derived), "--atlas", str(atlas), "--n-cpus", "1"]
    assert main([*words, "participant", *more]) == 0
    assert seen == ["sub-01", "sub-02"]
    main([*words, "group", *more, "--models", "ridge", "--splits", "1"])  # two people are too few to compare
    assert len(bnt.load_cohort(tmp_path / "out" / "cohort")) == 2
    assert seen == ["sub-01", "sub-02"]


def test_a_participant_who_is_not_there_is_named(xcpd, tmp_path, capsys):
    words = ["bids-app", str(xcpd), str(tmp_path / "out"), "participant", "--participant-label", "99"]
    assert main(words) == 2
    assert "sub-99" in capsys.readouterr().err


def test_a_level_that_there_is_not_is_refused(xcpd, tmp_path, capsys):
    assert main(["bids-app", str(xcpd), str(tmp_path / "out"), "session"]) == 2
    assert "participant" in capsys.readouterr().err
