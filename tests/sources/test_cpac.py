"""C-PAC outputs and the .1D files of ABIDE's release."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from source_files import edges, pearson, put, series, write_1d, write_participants

from bnt.errors import BadInput
from bnt.sources._ingest import import_cohort


def test_abide_names_give_the_file_id_and_the_atlas(tmp_path):
    for i, name in enumerate(("Pitt_0050003", "CMU_a_0050642")):
        write_1d(tmp_path / "in" / f"{name}_rois_cc200.1D", series(i))
    pd.DataFrame({"FILE_ID": ["Pitt_0050003", "CMU_a_0050642", "no_filename", "no_filename"], "DX_GROUP": [1, 2, 1, 2],
                  "SITE_ID": ["PITT", "CMU", "NYU", "NYU"]}).to_csv(tmp_path / "p.csv")  # fmt: skip
    cohort = import_cohort(tmp_path / "in", tmp_path / "out", participants=tmp_path / "p.csv", id_column="FILE_ID")
    assert cohort.ids.tolist() == ["CMU_a_0050642", "Pitt_0050003"]
    assert cohort.labels("DX_GROUP").tolist() == [2, 1]
    assert cohort.sites.tolist() == ["CMU", "PITT"]
    assert cohort.rois["label"].astype(str).tolist() == list("123456")
    assert cohort.atlas == "cc200"
    assert cohort.source["rows_without_scan"] == 2
    np.testing.assert_allclose(cohort.connectomes[1], edges(pearson(series(0))), atol=1e-5)


@pytest.mark.parametrize(
    "name",
    [
        "sub-01_task-rest_atlas-CC200_desc-Mean-1_timeseries.1D",
        "sub-01_ses-1_task-rest_run-1_atlas-CC200_space-MNI152NLin6ASym_reg-36Parameter_desc-Mean_timeseries.1D",
        "sub-01_session_1_task-func-1_atlas-AALspace-MNI152NLin6res-1x1x1_desc-Mean-1_timeseries.1D",
    ],
)
@pytest.mark.parametrize("separator", ["\t", ",", " "])
def test_series_under_the_names_of_several_versions(tmp_path, name, separator):
    x = series(1)
    rows = "\n".join(separator.join(f"{v:.10g}" for v in row) for row in x)
    put(tmp_path / "in" / "func" / name).write_text(f"# made by a pipeline\n{rows}\n")
    cohort = import_cohort(tmp_path / "in", tmp_path / "out")
    assert cohort.ids.tolist() == ["sub-01"]
    np.testing.assert_allclose(cohort.timeseries[0], x, rtol=1e-6)


def test_pearson_or_partial_matrices_are_taken_by_kind(tmp_path):
    for desc, seed in (("PearsonNilearn", 1), ("PartialNilearn", 2)):
        file = put(tmp_path / "in" / f"sub-01_task-rest_atlas-AAL_desc-{desc}_correlations.tsv")
        np.savetxt(file, pearson(series(seed)), delimiter="\t")
    paper = import_cohort(tmp_path / "in", tmp_path / "a")
    partial = import_cohort(tmp_path / "in", tmp_path / "b", kind="partial")
    np.testing.assert_allclose(paper.connectomes[0], edges(pearson(series(1))), atol=1e-6)
    np.testing.assert_allclose(partial.connectomes[0], edges(pearson(series(2))), atol=1e-6)


def test_two_denoisings_of_one_scan_need_a_choice(tmp_path):
    for desc in ("Mean-1", "Mean-2"):
        write_1d(tmp_path / "in" / f"sub-01_task-rest_atlas-CC200_desc-{desc}_timeseries.1D", series(1))
    with pytest.raises(BadInput, match=r"desc \(Mean-1, Mean-2\)"):
        import_cohort(tmp_path / "in", tmp_path / "out")
    assert len(import_cohort(tmp_path / "in", tmp_path / "out", pattern="*Mean-2_*")) == 1


def test_the_same_scan_under_two_names_shares_a_group(tmp_path):
    # UM_1_0050279 and UM_1_0050286 are such a pair (docs/facts.md, Data).
    for name, seed in (("UM_1_0050279", 1), ("UM_1_0050285", 2), ("UM_1_0050286", 1)):
        write_1d(tmp_path / "in" / f"{name}_rois_cc200.1D", series(seed))
    cohort = import_cohort(tmp_path / "in", tmp_path / "out")
    assert cohort.families.tolist() == ["UM_1_0050279", "UM_1_0050285", "UM_1_0050279"]
    assert cohort.findings == [{"check": "same scan", "participant_id": "UM_1_0050286", "value": "UM_1_0050279"}]


def test_bids_table_is_found_in_the_folder(tmp_path):
    write_1d(tmp_path / "in" / "sub-01_task-rest_atlas-CC200_timeseries.1D", series(1))
    write_participants(tmp_path / "in" / "participants.tsv", participant_id=["01"], age=[31.5])
    assert import_cohort(tmp_path / "in", tmp_path / "out").labels("age").tolist() == [31.5]
