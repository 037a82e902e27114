"""Values, names and files that nobody writes by accident: each is refused in a sentence, or taken for what it is."""

from __future__ import annotations

import gzip

import numpy as np
import pandas as pd
import pytest

import bnt
from bnt.cli._main import main
from bnt.errors import BadInput
from bnt.plotting._style import STYLE
from bnt.training import find_recipe

TRAIN = ["train", "cohort", "--model", "ridge", "--out"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("field", ["lr", "weight_decay", "mixup", "clip"])
def test_a_recipe_has_finite_numbers(field, value):
    with pytest.raises(BadInput, match=field):
        find_recipe("default", **{field: value})


@pytest.mark.parametrize(
    ("model", "option", "word"),
    [
        ("svm", "C=inf", "C"),
        ("svm", "C=nan", "C"),
        ("bnt", "n_classes=3", "n_classes"),
        ("ridge", "n_rois=3", "n_rois"),
    ],
)
def test_options_that_cannot_be_are_named(copy, model, option, word, capsys):
    words = ["train", "cohort", "--model", model, "--option", option, "--out", "new"]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert word in said
    assert "Traceback" not in said
    assert not (copy / "new").exists()


def bomb(folder, kind):
    """Write a file of a few kilobytes that expands to 20 MB."""
    folder.mkdir()
    row = ",".join(["0.5"] * 1000) + "\n"
    if kind == "gz":
        with gzip.open(folder / "sub-01.csv.gz", "wt") as file:
            file.write(row * 5000)
    elif kind == "npz":
        np.savez_compressed(folder / "sub-01.npz", series=np.zeros((5000, 500)))
    else:
        import scipy.io

        scipy.io.savemat(folder / "sub-01.mat", {"series": np.zeros((5000, 500))}, do_compression=True)


@pytest.mark.parametrize("kind", ["gz", "npz", "mat"])
def test_a_file_that_expands_too_far_is_refused(tmp_path, kind, capsys):
    bomb(tmp_path / "scans", kind)
    assert main(["import", str(tmp_path / "scans"), str(tmp_path / "out"), "--max-expanded", "0.01"]) == 2
    said = capsys.readouterr().err
    assert "sub-01" in said
    assert "--max-expanded" in said
    assert not (tmp_path / "out").exists()


def test_the_library_has_the_same_limit(tmp_path):
    bomb(tmp_path / "scans", "gz")
    with pytest.raises(BadInput, match="sub-01"):
        bnt.import_cohort(tmp_path / "scans", tmp_path / "out", max_expanded=0.01)


def test_several_members_of_a_gzip_file_are_read_to_their_end(tmp_path):
    from bnt.sources._number_files import read_text

    file = tmp_path / "two.csv.gz"
    file.write_bytes(gzip.compress(b"1,2\n") + gzip.compress(b"3,4\n") + b"\0\0")
    assert read_text(file) == "1,2\n3,4\n"
    file.write_bytes(gzip.compress(b"1,2\n" * 99)[:-12])
    with pytest.raises(BadInput, match="two.csv"):
        read_text(file)


@pytest.mark.parametrize("odd", [("None", r"$\frac$"), ("NA", "a,b"), ("\U0001d538\U0001f9e0", '"')])
@pytest.mark.usefixtures("undrawn")
def test_odd_names_of_classes_and_sites_go_through_all_commands(copy, odd, capsys):
    cohort = bnt.load_cohort("cohort")
    people = cohort.participants
    first = people["site"] == people["site"].iloc[0]
    table = people.assign(group_name=people["diagnosis"].map(dict(enumerate(odd))), site=np.where(first, *odd))
    bnt.Cohort(cohort.connectomes, table).save("odd")
    words = ["train", "odd", "--model", "ridge", "--label", "group_name", "--out", "odd-run"]
    assert main(words) == 0
    assert main(["report", "odd-run"]) == 0
    assert main(["predict", "odd-run", "odd", "--out", "p.csv"]) == 0
    found = pd.read_csv("p.csv", keep_default_na=False)
    assert {f"p_{name}" for name in odd} <= set(found)
    assert set(found["predicted"]) <= set(odd)
    assert found["low"].astype(float).between(0, 1).all()


def test_dollars_in_names_are_no_formulas():
    assert STYLE["text.parse_math"] is False
