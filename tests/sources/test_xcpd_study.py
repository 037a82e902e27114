"""The worked XCP-D study of docs/xcpd.md: its script writes what the import is said to read."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np

from bnt.cli._main import main
from bnt.cohort import load_cohort
from bnt.cohort._inspect import people_of

SCRIPT = Path(__file__).parents[2] / "docs" / "examples" / "xcpd_study.py"


def test_the_worked_study_is_imported_whole_and_its_people_stay_together(tmp_path, monkeypatch, capsys):
    spec = importlib.util.spec_from_file_location("xcpd_study", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    for name, small in (("PEOPLE", 24), ("ROIS", 14), ("VOLUMES", 80)):
        monkeypatch.setattr(script, name, small)
    script.make(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(script.COMMANDS[0].split()[1:]) == 0
    assert "48 scans of 24 people" in capsys.readouterr().out
    cohort = load_cohort("cohort")
    table = cohort.participants
    assert len(set(people_of(table))) == 24
    assert len(set(cohort.families)) == 24 - 9  # three pairs of siblings at each of three sites
    assert set(table["group"]) == {"MDD", "control"}
    assert table["age"].dtype.kind == "f"
    assert table[["hamd", "mean_fd", "n_retained", "coverage"]].notna().all().all()
    np.testing.assert_array_equal(table["n_retained"], table["n_volumes"])  # XCP-D's series are censored
    assert cohort.rois["network"].nunique() == 7
