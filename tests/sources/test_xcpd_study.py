"""The example from XCP-D to a page: what it writes is imported whole. The rest of it is run by ``make docs``."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from bnt.cohort import load_cohort
from bnt.cohort._inspect import people_of

SCRIPT = Path(__file__).parents[2] / "docs" / "examples" / "plot_2_xcpd.py"


def test_the_worked_study_is_imported_whole_and_its_people_stay_together(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    source, mark, _ = SCRIPT.read_text().partition("# Inspect, and leave out\n")
    sizes = "PEOPLE, ROIS, VOLUMES = 96, 30, 240"
    assert mark
    assert sizes in source
    there: dict[str, Any] = {}
    exec(compile(source.replace(sizes, "PEOPLE, ROIS, VOLUMES = 24, 14, 80"), SCRIPT.name, "exec"), there)
    assert "48 scans of 24 people" in capsys.readouterr().out
    cohort = load_cohort(there["place"] / "cohort")
    table = cohort.participants
    assert len(set(people_of(table))) == 24
    assert len(set(cohort.families)) == 24 - 9  # three pairs of siblings at each of three sites
    assert set(table["group"]) == {"MDD", "control"}
    assert table["age"].dtype.kind == "f"
    assert table[["hamd", "mean_fd", "n_retained", "coverage"]].notna().all().all()
    np.testing.assert_array_equal(table["n_retained"], table["n_volumes"])  # XCP-D's series are censored
    assert cohort.rois["network"].nunique() == 7
