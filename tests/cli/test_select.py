"""``bnt select``: a cohort of some subjects of another."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from bnt.cli._main import main
from bnt.cli._parsing import meets
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
        (["--where", "site"], "does not compare 'site'"),
        (["--where", "iq < 3"], "names 'iq', which is no column"),
        (["--where", "fiq < tall"], "'tall' is no number"),
        (["--where", "site < 3"], "column 'site' is no number"),
        (["--where", "(fiq < 3"], "closing parenthesis"),
        (["--where", "fiq < 3 sex = F"], "not understood at 'sex'"),
        (["--where", "__import__('os').system('x') = 1"], "no column"),
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


@pytest.mark.parametrize(
    ("condition", "chosen"),
    [
        ("fiq < 110", [0, 2]),
        ("fiq<110 and site != 'B'", [0]),
        ("fiq >= 110 or sex = F", [1, 3, 5]),
        ("not fiq < 110", [3, 5]),  # whoever has no value is chosen by neither
        ("(fiq = 100 or fiq = 90) and not site == A", [2]),
        ("fiq > 95 and fiq <= 110 or site = C and sex = M", [0, 3, 4]),  # and binds more than or
        ("site in (A, 'C')", [0, 1, 4, 5]),
        ("site=A, C", [0, 1, 4, 5]),
        ("not (site in (A) or sex = F)", [2, 4]),
        ("`fiq` > 1e2", [3, 5]),
        ('site = "and" or sex = M', [0, 2, 4]),
    ],
)
def test_conditions_are_read_as_in_sql(whole, tmp_path, condition, chosen):
    assert select(whole, tmp_path, "--where", condition) == 0
    assert load_cohort(tmp_path / "some").ids.tolist() == [f"sub-{i}" for i in chosen]


@pytest.mark.parametrize("seed", range(5))
def test_conditions_agree_with_pandas_where_nothing_is_missing(seed):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({"a": rng.integers(0, 5, 40), "b": rng.normal(size=40), "c": rng.choice(list("xyz"), 40)})
    text = "not (a <= 2 and b > 0.1) or c == 'x' and not a != 4"
    expected = ~((table["a"] <= 2) & (table["b"] > 0.1)) | ((table["c"] == "x") & ~(table["a"] != 4))
    np.testing.assert_array_equal(meets(table, text), expected)
