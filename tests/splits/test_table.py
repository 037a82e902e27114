"""The guard, the table of splits by subject id, protocols by name, and ``bnt split``."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
from cohorts import cohort_of
from hypothesis import given, settings
from hypothesis import strategies as st

import bnt
from bnt.cli._main import main
from bnt.errors import BadInput
from bnt.splits import (
    RepeatedKFold,
    SavedSplits,
    SiteStratifiedSplit,
    Split,
    check_split,
    named_splits,
    protocol,
    read_splits,
    save_splits,
)
from bnt.splits._protocols import choose_split, split_notices
from bnt.splits._split import SplitName, check_classes


@pytest.fixture
def cohort():
    return cohort_of(["a", "b"] * 20, [0, 0, 1, 1] * 10, groups=[0, 0, *range(1, 39)])


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (([2, 3], [4], [5, 2]), "Subject sub-0002 is in both the training and the test set"),
        (([2, 2], [4], [5]), "Subject sub-0002 is twice in the training set"),
        (([0, 3], [1], [5]), r"sub-0000 \(training\) and sub-0001 \(validation\) are of one family \(family-0\)"),
        (([0, 3], [], [5]), "validation set of the split is empty"),
        (([0, 3], [4], [40]), "subject number 40; the cohort has 40"),
        (([0, -1], [4], [5]), "subject number -1"),
        (([0.5], [4], [5]), "training set is an array of float64"),
    ],
)
def test_the_guard_names_the_subject(cohort, parts, message):
    with pytest.raises(BadInput, match=message):
        check_split(cohort, *parts)


def test_the_guard_refuses_identical_scans_on_two_sides(cohort):
    edges = cohort.connectomes.copy()
    edges[9] = edges[4]
    twins = bnt.Cohort(edges, cohort.participants)
    check_split(twins, [4, 9], [5], [6])
    with pytest.raises(BadInput, match=r"sub-0004 \(training\) and sub-0009 \(test\) have the same scan"):
        check_split(twins, [4], [5], [9])


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_splits_are_read_back_by_subject_id(cohort, tmp_path, suffix):
    splits = list(SiteStratifiedSplit(n_splits=3, train_fraction=0.5).split(cohort, "diagnosis"))
    path = tmp_path / f"splits{suffix}"
    save_splits(path, cohort, splits, names=["x", "y", "z"])
    order = np.random.default_rng(0).permutation(len(cohort))
    shuffled = cohort.select(order)
    for name, (one, other) in zip("xyz", zip(splits, read_splits(path, shuffled), strict=True)):
        for a, b in zip(one, other.rows(shuffled)):
            assert set(cohort.ids[a]) == set(shuffled.ids[b])
        assert len(read_splits(path, cohort, names=[name])) == 1


def test_the_layout_is_one_row_per_subject_with_words_or_nothing(cohort, tmp_path):
    path = tmp_path / "splits.csv"
    save_splits(path, cohort, [(np.array([2]), np.array([3]), np.array([4]))])
    lines = path.read_text().splitlines()
    assert lines[0] == "participant_id,split0"
    assert lines[1:6] == ["sub-0000,", "sub-0001,", "sub-0002,train", "sub-0003,validation", "sub-0004,test"]


def test_a_leaking_split_is_not_written(cohort, tmp_path):
    with pytest.raises(BadInput, match="one family"):
        save_splits(tmp_path / "s.csv", cohort, [([0], [1], [2])])
    assert list(tmp_path.iterdir()) == []


def test_ids_of_another_column_are_found_by_its_name(cohort, tmp_path):
    named = bnt.Cohort(cohort.connectomes, cohort.participants.assign(file_id=[f"F{i}" for i in range(40)]))
    path = tmp_path / "s.csv"
    path.write_text("file_id,seed0\nF5,0\nF6,1\nF7,2\n")
    [found] = read_splits(path, named)
    assert [p.tolist() for p in found.rows(named)] == [[5], [6], [7]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "participant_id,s\nsub-0002,0\nnobody,1\n",
            r"1 of 2 subjects who are not in the cohort \(the first is nobody",
        ),
        ("participant_id,s\nsub-0002,0\nsub-0003,3\n", "subject sub-0003: '3' is not train"),
        ("participant_id,s\nsub-0002,0\nsub-0002,1\n", "lists subject sub-0002 twice"),
        ("participant_id,s\nsub-0002,0\nsub-0003,1\n", "split s: The test set of the split is empty"),
        ("participant_id,s\nsub-0000,0\nsub-0001,1\nsub-0003,2\n", "are of one family"),
        ("name,s\nsub-0002,0\n", "first column must be one of"),
        ("participant_id\nsub-0002\n", "is not a table of splits"),
        ("", "is not a table of splits"),
        ('participant_id,s\n"sub-0002,0\n', "is not a table of splits"),
        ("participant_id,s\nsub-0002,0,1,2\nsub-0003,1\n", "splits.csv"),
    ],
)
def test_a_broken_table_is_refused_in_one_sentence(cohort, tmp_path, text, message):
    path = tmp_path / "splits.csv"
    path.write_text(text)
    with pytest.raises(BadInput, match=message):
        read_splits(path, cohort)


@settings(max_examples=100, deadline=None)
@given(content=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(tmp_path_factory, content):
    cohort = cohort_of(["a"] * 4, [0, 1] * 2)
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(content)
    with pytest.raises(BadInput):
        read_splits(path, cohort)


def test_protocols_by_name(cohort, tmp_path):
    assert protocol("paper", n_splits=5) == SiteStratifiedSplit(n_splits=5)
    assert protocol("kfold", n_folds=3) == RepeatedKFold(n_folds=3)
    assert protocol("site-stratified", sizes=[0.6, 0.2, 0.2]).sizes == (0.6, 0.2, 0.2)
    path = tmp_path / "s.csv"
    save_splits(path, cohort, SiteStratifiedSplit(n_splits=2).split(cohort, "diagnosis"))
    assert protocol(str(path)) == SavedSplits(str(path))
    assert len(list(protocol(str(path), names=["split1"]).split(cohort, "diagnosis"))) == 1
    with pytest.raises(BadInput, match=r"protocol 'bootstrap'.*site-stratified"):
        protocol("bootstrap")
    with pytest.raises(BadInput, match=r"no setting 'n_folds'; it has n_splits"):
        protocol("random", n_folds=2)
    with pytest.raises(BadInput, match="There is no file nowhere.csv"):
        protocol("nowhere.csv")


def test_the_lists_of_a_run_of_version_0_1_0_are_read(cohort, tmp_path):
    [split] = named_splits(cohort, "diagnosis", "site-stratified", n_splits=1)
    lines = [f"{name},{part}" for part, names in split.parts.items() for name in names]
    (tmp_path / "splits.csv").write_text("\n".join(["participant_id,part", *lines]))
    [found] = named_splits(cohort, "diagnosis", str(tmp_path / "splits.csv"))
    assert found.name == "splits.csv:part"
    assert (found.parts, found.digest()) == (split.parts, split.digest())
    assert read_splits(tmp_path / "splits.csv")[0] == found  # without a cohort, too


def test_a_table_with_fewer_splits_or_subjects_is_said(cohort, tmp_path, capsys):
    path = tmp_path / "s.csv"
    half = cohort.select(np.arange(20))
    save_splits(path, half, SiteStratifiedSplit(n_splits=3).split(half, "diagnosis"))
    splits = named_splits(cohort, "diagnosis", str(path), n_splits=9)
    fewer, left_out = split_notices(cohort, str(path), splits, n_splits=9)
    assert "s.csv has 3 splits" in fewer
    assert left_out.startswith("20 of 40 subjects")
    assert split_notices(half, str(path), splits, n_splits=3) == []
    assert split_notices(half, str(path), splits[:1], n_splits=5, names=["split0"]) == []
    choose_split(cohort, "diagnosis", str(path), which="split1")
    assert capsys.readouterr().err == "20 of 40 subjects are not in split split1 of s.csv.\n"


def test_leave_one_site_out_says_how_many_splits_it_has(cohort):
    splits = named_splits(cohort, "diagnosis", "loso")
    assert "2 splits" in split_notices(cohort, "loso", splits, n_splits=5)[0]
    assert split_notices(cohort, "random", splits, n_splits=2) == []


def test_splits_of_a_protocol_can_be_chosen_by_name(cohort):
    every = named_splits(cohort, "diagnosis", "site-stratified", n_splits=3)
    assert named_splits(cohort, "diagnosis", "paper", n_splits=1, names=["split2", "split0"]) == [every[2], every[0]]
    sites = named_splits(cohort, "diagnosis", "loso")
    assert named_splits(cohort, "diagnosis", "loso", names=[sites[1].short]) == [sites[1]]
    for name, word in (("random", "seed1"), ("kfold", "split"), ("loso", "nowhere")):
        with pytest.raises(BadInput, match=word):
            named_splits(cohort, "diagnosis", name, names=[word])


# -- classes that a part lacks ----------------------------------------------------------------------

ILL = cohort_of(["a"] * 8, [0] * 8, ill=[0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0])


@pytest.mark.parametrize(
    ("parts", "selecting", "message"),
    [
        (([0, 1], [2, 4], [3, 5]), [], r"^No training subject of split s has ill = 1 \(4 of 8 subjects have it\): use"),
        (
            ([0, 4], [1, 2], [3, 5]),
            ["bnt"],
            "No validation subject of split s has ill = 1.*bnt cannot select",
        ),
    ],
)
def test_a_class_that_cannot_be_learned_or_selected_on_is_refused(parts, selecting, message):
    with pytest.raises(BadInput, match=message):
        check_classes(ILL, "ill", [Split.of(ILL, parts, "s")], selecting)


def test_a_class_that_is_not_tested_is_a_caution_for_each_of_a_few_splits():
    found = check_classes(ILL, "ill", [Split.of(ILL, ([0, 4], [1, 2], [3]), f"s{k}") for k in range(6)])
    assert found[0] == "AUROC is undefined on split s0: no test subject has ill = 1 (4 of 8 subjects have it)."
    assert found[3:] == ["AUROC is undefined on 3 more splits, too: s3, s4, s5."]


def test_choosing_a_split_that_lacks_a_class_says_so(capsys):
    lonely = cohort_of(["a"] * 20 + ["b"] * 20 + ["c"] * 10, [0, 1] * 20 + [1] * 10)
    choose_split(lonely, "diagnosis", "leave-one-site-out", which="c")
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "No test subject of split leave-one-site-out:0:c has diagnosis = 0 (20 of 50" in said
    choose_split(lonely, "diagnosis", "leave-one-site-out", which="a")
    assert capsys.readouterr().err == ""


def test_numbers_of_folds_are_not_taken_for_sets(cohort, tmp_path):
    path = tmp_path / "folds.csv"
    path.write_text("participant_id,fold\n" + "".join(f"{name},{i % 3}\n" for i, name in enumerate(cohort.ids)))
    with pytest.raises(BadInput, match="numbers in its column fold, which may be those of folds"):
        read_splits(path, cohort)


def test_one_split_is_chosen_by_number_or_name(cohort, tmp_path):
    splits = list(SiteStratifiedSplit(n_splits=3).split(cohort, "diagnosis"))
    path = tmp_path / "s.csv"
    save_splits(path, cohort, splits, names=["a", "b", "c"])
    for name, which in (("site-stratified", "2"), (str(path), "c"), (str(path), "2")):
        found = choose_split(cohort, "diagnosis", name, which=which)
        np.testing.assert_array_equal(found.rows(cohort)[0], splits[2][0])
    assert choose_split(cohort, "diagnosis", str(path), which="c").name == "s.csv:c"
    tested = choose_split(cohort, "diagnosis", "leave-one-site-out", which="b").rows(cohort)[2]
    assert set(cohort.sites[tested]) == {"b"}
    for name, which in ((str(path), "d"), ("leave-one-site-out", "c"), ("site-stratified", "last")):
        with pytest.raises(BadInput, match=f"no split '{which}'"):
            choose_split(cohort, "diagnosis", name, which=which)


def test_the_command_makes_and_checks_a_table(cohort, tmp_path, capsys):
    cohort.save(tmp_path / "cohort")
    out = tmp_path / "splits.csv"
    command = ["split", str(tmp_path / "cohort")]
    assert main([*command, "--n-splits", "2", "--out", str(out)]) == 0
    assert main([*command, "--check", str(out)]) == 0
    assert "no subject, family or scan in two sets" in capsys.readouterr().out
    assert main([*command, "--out", str(out)]) == 2  # exists
    assert main([*command, "--protocol", "kfold", "--n-splits", "3"]) == 2
    assert main([*command, "--folds", "3"]) == 2
    lines = out.read_text().splitlines()
    lines[1], lines[2] = "sub-0000,0,0", "sub-0001,1,0"
    out.write_text("\n".join(lines))
    assert main([*command, "--check", str(out)]) == 2
    assert "are of one family (family-0)" in capsys.readouterr().err


@pytest.mark.abide
def test_the_shared_splits_fit_the_real_subjects(shared_abide):
    # README of the data: 1,008 subjects, 705 / 101 / 202, UM_1_0050286 (the duplicate scan) left out.
    packed = np.load(shared_abide / "cpac_filt_noglobal_rois_cc200.npz", allow_pickle=False)
    names = packed["file_id"][packed["length"] >= 100]
    import pandas as pd

    rng = np.random.default_rng(0)
    edges = rng.uniform(-1, 1, size=(len(names), 3)).astype(np.float32)
    real = bnt.Cohort(edges, pd.DataFrame({"participant_id": names}))
    splits = read_splits(shared_abide / "splits.csv", real, names=[f"seed{k}" for k in range(100, 120)])
    assert len(splits) == 20
    for split in splits:
        assert split.sizes == (705, 101, 202)
        assert set(real.ids) - {*split.train, *split.validation, *split.test} == {"UM_1_0050286"}


# -- the split itself -------------------------------------------------------------------------------


def test_a_split_keeps_its_digest_of_version_0_1_0(cohort):
    rows = next(SiteStratifiedSplit(n_splits=1).split(cohort, "diagnosis"))
    lists = json.dumps([cohort.ids[part].tolist() for part in rows])
    assert Split.of(cohort, rows).digest() == hashlib.sha256(lists.encode()).hexdigest()


def test_a_split_finds_its_subjects_in_another_order_and_names_who_is_missing(cohort):
    split = Split.of(cohort, ([2, 3], [4], [5]), "mine")
    turned = cohort.select(np.arange(40)[::-1])
    assert [rows.tolist() for rows in split.rows(turned)] == [[37, 36], [35], [34]]
    with pytest.raises(BadInput, match="sub-0005.*mine"):
        split.rows(cohort.select(np.arange(5)))


@pytest.mark.parametrize("name", ["site-stratified:0:split3", "splits.csv:seed100", "mine", "", "loso:1:a b"])
def test_a_split_name_is_read_back(name):
    assert str(SplitName.parse(name)) == name
