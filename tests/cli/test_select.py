"""``bnt select``: a cohort of some subjects of another."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from bnt.cli._main import main
from bnt.cohort import Cohort, load_cohort


@pytest.fixture
def whole(tmp_path):
    rng = np.random.default_rng(0)
    people = pd.DataFrame(
        {
            "participant_id": [f"sub-{i}" for i in range(6)],
            "site": list("AABBCC"),
            "sex": list("MFMFMF"),
            "fiq": [100.0, np.nan, 90.0, 110.0, np.nan, 120.0],
        }
    )
    series = [rng.normal(size=(30, 5)).astype(np.float32) for _ in range(6)]
    edges = rng.uniform(-0.5, 0.5, (6, 10)).astype(np.float32)
    return Cohort(edges, people, timeseries=series).save(tmp_path / "whole")


def select(whole, tmp_path, *words):
    return main(["select", str(whole.path), str(tmp_path / "some"), *words])


def test_conditions_are_joined_and_the_rest_of_the_cohort_comes_along(whole, tmp_path, capsys):
    assert select(whole, tmp_path, "--having", "fiq", "--where", "site=B,C", "sex=F") == 0
    some = load_cohort(tmp_path / "some")
    assert some.ids.tolist() == ["sub-3", "sub-5"]
    np.testing.assert_array_equal(some.edges([0, 1]), whole.edges([3, 5]))
    np.testing.assert_array_equal(some.timeseries[1], whole.timeseries[5])
    assert "2 of 6 subjects" in capsys.readouterr().out


def test_a_list_of_ids_keeps_the_order_of_the_cohort(whole, tmp_path):
    (tmp_path / "ids.txt").write_text("sub-4\nsub-1\n")
    assert select(whole, tmp_path, "--ids", str(tmp_path / "ids.txt")) == 0
    assert load_cohort(tmp_path / "some").ids.tolist() == ["sub-1", "sub-4"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--having", "iq"], "no column 'iq'"),
        (["--where", "site"], "not COLUMN=VALUE"),
        (["--where", "site=D"], "None of the 6 subjects"),
        (["--ids", "nowhere.txt"], "cannot be read"),
    ],
)
def test_bad_input_is_one_sentence_and_nothing_is_written(whole, tmp_path, capsys, words, sentence):
    assert select(whole, tmp_path, *words) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
    assert not (tmp_path / "some").exists()


def test_a_code_is_found_in_a_column_with_gaps(whole, tmp_path):
    assert select(whole, tmp_path, "--where", "fiq=90,120") == 0
    assert load_cohort(tmp_path / "some").ids.tolist() == ["sub-2", "sub-5"]
