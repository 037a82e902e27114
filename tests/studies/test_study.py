"""A study's folder: what it refuses, what it keeps, and the tables over it."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from small_studies import LOGISTIC, make_study, tiny, weights

from bnt.cohort import Cohort, load_cohort
from bnt.errors import BadInput
from bnt.splits import Split, named_splits
from bnt.studies._job import Job, Variant, run_job
from bnt.studies._results import folder_name, pooled_predictions, run_table, shared_runs
from bnt.studies._statistics import delong, paired_test
from bnt.studies._study import Study
from bnt.studies._summary import write_tables
from bnt.training._config import RunConfig, difference
from bnt.training._recipe import find_recipe
from bnt.training._task import Task
from bnt.training._trained import seal


@pytest.fixture
def copy(whole, tmp_path):
    """The finished study, to be changed."""
    return shutil.copytree(whole, tmp_path / "study")


def test_a_job_survives_being_sent_as_text(cohort, tmp_path):
    job = make_study(tmp_path, cohort, [tiny()]).jobs()[0]
    assert Job.from_json(job.to_json()) == job


@pytest.mark.parametrize(
    "other",
    [
        tiny(n_clusters=3),
        replace(tiny(), recipe=replace(tiny().recipe, lr=2e-3)),
        Variant("bnt", "vanilla", {"n_heads": 2}, "default", tiny().recipe),
    ],
    ids=["options", "recipe", "model"],
)
def test_a_finished_run_of_another_configuration_is_refused_before_anything_is_written(cohort, copy, other):
    before = {file: file.read_bytes() for file in copy.rglob("*") if file.is_file()}
    with pytest.raises(BadInput, match="another configuration"):
        make_study(copy, cohort, [other]).run()
    assert {file: file.read_bytes() for file in copy.rglob("*") if file.is_file()} == before


def test_other_subjects_under_the_same_split_name_are_refused(cohort, copy):
    study = make_study(copy, cohort, [LOGISTIC])
    study.splits[0] = replace(study.splits[0], train=study.splits[0].train[:-1])
    with pytest.raises(BadInput, match="another configuration"):
        study.run()


def test_fewer_models_and_splits_lose_nothing_and_more_are_added(cohort, copy, whole):
    make_study(copy, cohort, [LOGISTIC], n_splits=1).run()
    assert len(run_table(copy)) == 4
    make_study(copy, cohort, [Variant("svm", "svm")], n_splits=3).run(n_processes=2)
    runs = run_table(copy)
    assert runs.groupby("variant", sort=False)["split"].nunique().to_dict() == {"bnt": 2, "logistic": 2, "svm": 3}
    assert weights(whole).items() <= weights(copy).items()
    comparisons = write_tables(copy, "svm")[2]
    assert comparisons["n_splits"].tolist() == [2, 2]  # only splits that both have


def test_options_that_no_model_can_have_are_refused_before_anything_runs(cohort, tmp_path):
    with pytest.raises(BadInput, match="n_heads is 3"):
        make_study(tmp_path / "study", cohort, [tiny(n_heads=3)]).run()
    assert not (tmp_path / "study").exists()


def test_variants_with_one_name_are_refused(cohort, tmp_path):
    with pytest.raises(BadInput, match=r"same name, logistic: give each once"):
        make_study(tmp_path, cohort, [LOGISTIC, LOGISTIC])


def test_seeds_and_splits_given_twice_are_refused(cohort, tmp_path):
    with pytest.raises(BadInput, match="Seed 3 is given twice"):
        make_study(tmp_path, cohort, [LOGISTIC], seeds=(3, 4, 3))
    twice = named_splits(cohort, "diagnosis", "site-stratified", n_splits=1) * 2
    with pytest.raises(BadInput, match="Split site-stratified:0:split0 is given twice"):
        Study(tmp_path, cohort, "diagnosis", [LOGISTIC], twice)


def test_a_network_cannot_select_on_one_class_and_a_linear_model_need_not(cohort, tmp_path):
    zeros, ones = (np.flatnonzero(cohort.labels("diagnosis") == k) for k in (0, 1))
    parts = np.r_[zeros[:10], ones[:10]], zeros[10:14], np.r_[zeros[14:], ones[10:]]
    split = Split.of(cohort, parts, "s")
    with pytest.raises(BadInput, match="No validation subject of split s has diagnosis = 1 .*bnt cannot select"):
        Study(tmp_path, cohort, "diagnosis", [LOGISTIC, tiny()], [split])
    last = replace(tiny(), recipe=replace(tiny().recipe, select="last"))
    assert Study(tmp_path, cohort, "diagnosis", [LOGISTIC, last], [split]).cautions == []


def test_variants_that_would_share_a_folder_are_refused(cohort, tmp_path):
    pair = [Variant("a:b", "logistic"), Variant("a;b", "svm")]
    with pytest.raises(BadInput, match="share the folder"):
        make_study(tmp_path / "study", cohort, pair).run()


def test_long_names_make_short_folders_that_differ():
    names = {folder_name("x" * 300 + end, "split0", 0) for end in "ab"}
    assert len(names) == 2
    assert max(map(len, names)) <= 120


def test_the_time_left_is_known_from_earlier_runs(cohort, copy):
    assert make_study(copy, cohort, [LOGISTIC], n_splits=1).estimate() == 0
    assert make_study(copy, cohort, [LOGISTIC], n_splits=4).estimate() > 0
    assert make_study(copy, cohort, [Variant("svm", "svm")], n_splits=1).estimate() is None


# -- tables -----------------------------------------------------------------------------------------


def test_tables_say_what_the_runs_say(whole):
    runs, summary, comparisons = write_tables(whole, "logistic", 200)
    for _, row in runs.iterrows():
        report = json.loads((whole / "runs" / row["run"] / "report.json").read_text())
        assert row["auroc"] == report["test"]["auroc"]
        assert row["n_test"] == report["n"]["test"]
    bnt, logistic = (runs.loc[runs["variant"] == v, "auroc"].to_numpy() for v in ("bnt", "logistic"))
    assert summary.set_index("variant").loc["bnt", "auroc"] == pytest.approx(bnt.mean())
    ratio = float(runs["n_test"].iloc[0] / runs["n_train"].iloc[0])
    one = comparisons.iloc[0]
    assert one["p_corrected"] == pytest.approx(paired_test(bnt, logistic, ratio).p, nan_ok=True)
    assert one["p_plain"] == pytest.approx(paired_test(bnt, logistic).p, nan_ok=True)
    assert 0 < one["p_permutation"] <= 1
    assert summary["p_chance"].between(0, 1).all()
    for name in ("runs.csv", "summary.csv", "comparisons.csv", "summary.md"):
        assert (whole / name).is_file()


def test_delong_of_the_study_is_over_subjects_that_count_once(whole):
    runs, _, comparisons = write_tables(whole, "logistic")
    mine, theirs = (pooled_predictions(whole, runs, v).set_index("participant_id") for v in ("logistic", "bnt"))
    assert mine.index.is_unique
    both = sorted(set(mine.index) & set(theirs.index))
    test = delong(mine.loc[both, "label"] == 1, theirs.loc[both, "p_1"], mine.loc[both, "p_1"])
    assert comparisons["p_delong"].iloc[0] == pytest.approx(test.p)
    assert comparisons["n_subjects"].iloc[0] == len(both)


def test_whole_numbers_that_were_read_as_floats_are_still_classes(copy):
    for file in copy.glob("runs/*/predictions.csv"):
        table = pd.read_csv(file)
        table.assign(label=table["label"].astype(float)).to_csv(file, index=False)
        seal(file.parent)
    assert np.isfinite(write_tables(copy, "logistic")[2]["p_delong"].iloc[0])


def test_a_damaged_report_is_named(copy):
    file = next(copy.glob("runs/*/report.json"))
    file.write_text("{")
    with pytest.raises(BadInput, match=f"{file.parent.name} is damaged"):
        run_table(copy)


def test_an_unknown_reference_is_refused(whole):
    with pytest.raises(BadInput, match="no finished variant 'svm'"):
        write_tables(whole, "svm")


def test_splits_of_another_seed_are_refused(cohort, copy):
    study = make_study(copy, cohort, [Variant("svm", "svm")])
    study.splits = [replace(split, name=split.name.replace(":0:", ":1:")) for split in study.splits]
    with pytest.raises(BadInput, match="site-stratified:1:split0"):
        study.run()


def test_other_labels_or_sites_under_the_same_names_are_refused(cohort, copy):
    for column in ("diagnosis", "site"):
        study = make_study(copy, cohort, [Variant("svm", "svm")])
        people = cohort.participants.copy()
        people[column] = people[column].to_numpy()[::-1]
        study.cohort = Cohort(cohort.connectomes, people, timeseries=cohort.timeseries, path=cohort.path)
        with pytest.raises(BadInput, match="whose scans, sites or labels"):
            study.run()


def test_another_cohort_is_named_before_all_that_differs_with_it(cohort, copy, tmp_path):
    people = cohort.participants.assign(site="X", age=1.0)
    people["diagnosis"] = people["diagnosis"].to_numpy()[::-1]
    other = Cohort(cohort.connectomes, people)
    other.save(tmp_path / "other")
    study = make_study(copy, load_cohort(tmp_path / "other"), [tiny(n_clusters=3)])
    with pytest.raises(BadInput, match=f"made from cohort {cohort.path}, not {tmp_path / 'other'}: choose"):
        study.todo()
    (copy / "study.json").unlink()  # the runs say it as well
    with pytest.raises(BadInput, match=f"made from cohort {cohort.path.resolve()}, not {tmp_path / 'other'}"):
        study.todo()


@pytest.mark.parametrize(("name", "value"), [("protocol", "random"), ("label", "age"), ("positive", "0")])
def test_another_protocol_label_or_positive_class_is_refused(cohort, copy, name, value):
    study = make_study(copy, cohort, [Variant("ridge", "ridge")])
    setattr(study, name, value)
    with pytest.raises(BadInput, match=f"{name} = .*, not '{value}'") as caught:
        study.todo()
    assert caught.value.parameter == name


def test_an_old_name_of_the_protocol_is_the_same_protocol(cohort, copy):
    study = make_study(copy, cohort, [LOGISTIC])
    study.protocol = "paper"
    assert study.todo() == []


def config_of(recipe="default", changes=None, **fields):
    """The configuration of a run, as far as it decides whether a study is resumed."""
    made = RunConfig("bnt", "diagnosis", 0, find_recipe(recipe, "bnt", **changes or {}), Task("classification", (0, 1)))
    return replace(made, recipe_name=recipe, **{"cohort": "/a", "data_sha256": "1", **fields})


@pytest.mark.parametrize(
    ("found", "named", "parameter"),
    [
        (config_of(changes={"lr": 0.5, "epochs": 7}), ["epochs = 7", "lr = 0.5"], "change"),
        (config_of("paper"), ["recipe", "'paper'"], "recipe"),
        (config_of(threads=2), ["threads is 2, not 1"], "threads"),
        (config_of(label="sex"), ["'sex'"], "label"),
        (config_of(task=Task("classification", (1, 0))), ["positive class is 0, not 1"], "positive"),
        (config_of(options={"n_clusters": 3}), ["n_clusters = 3"], "options"),
        (config_of(revision=9), ["revision 9 of bnt"], ""),
        (config_of(split="s", split_sha256="x", threads=2), ["split s has other subjects"], ""),
        (config_of(cohort="/b", data_sha256="2", label="x"), ["cohort /b, not /a"], ""),
        (config_of(data_sha256="2"), ["cohort /a, whose"], ""),
    ],
)
def test_what_decides_most_is_named_with_its_parameter(found, named, parameter):
    other = difference(found, config_of())
    assert all(word in other.words for word in named)
    assert other.parameter == parameter


def test_a_run_is_the_same_wherever_its_cohort_lies():
    assert difference(config_of(cohort="/b"), config_of()) is None


def test_a_study_of_an_earlier_version_without_a_new_field_is_resumed(cohort, copy):
    before = weights(copy)
    study = json.loads((copy / "study.json").read_text())
    for variant in study["variants"]:
        del variant["recipe"]["count_dropped"]
    (copy / "study.json").write_text(json.dumps(study))
    for file in copy.glob("runs/*/config.toml"):
        file.write_text(file.read_text().replace("count_dropped = false\n", ""))
        (file.parent / "DONE").write_text("0" * 64 + "\n")
    again = make_study(copy, cohort, [tiny(), LOGISTIC])
    assert again.todo() == []
    assert again.run() == {}
    assert weights(copy) == before


def test_a_run_of_another_split_is_not_counted(copy):
    file = next(copy.glob("runs/*/report.json"))
    report = json.loads(file.read_text())
    file.write_text(json.dumps(report | {"split": "site-stratified:1:split0"}))
    seal(file.parent)
    assert len(run_table(copy)) == 3


def test_pooled_tests_use_the_runs_that_both_models_have(cohort, copy):
    make_study(copy, cohort, [LOGISTIC], n_splits=4).run(n_processes=2)
    runs = run_table(copy)
    assert runs["variant"].value_counts().to_dict() == {"logistic": 4, "bnt": 2}
    found = write_tables(copy, "logistic")[2].iloc[0]
    both = shared_runs(runs, "bnt", "logistic")
    assert both["variant"].value_counts().to_dict() == {"logistic": 2, "bnt": 2}
    mine, theirs = (pooled_predictions(copy, both, v).set_index("participant_id") for v in ("logistic", "bnt"))
    test = delong(mine["label"] == 1, theirs.loc[mine.index, "p_1"], mine["p_1"])
    assert found["p_delong"] == pytest.approx(test.p)
    assert found["n_subjects"] == len(mine)


def spoil(folder, keep_time):
    """Overwrite the connectomes of a cohort with noise: the same size, and the same time where asked for."""
    file = folder / "connectomes.npy"
    before = file.stat()
    edges = np.load(file, mmap_mode="r+")
    edges[:] = np.random.default_rng(0).normal(0, 0.2, edges.shape)
    edges.flush()
    if keep_time:
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("keep_time", [False, True])
def test_a_study_never_mixes_two_data_sets(cohort_folder, copy, tmp_path, keep_time):
    folder = shutil.copytree(cohort_folder, tmp_path / "cohort")
    spoil(folder, keep_time)
    before = {file: file.read_bytes() for file in copy.rglob("*") if file.is_file()}
    with pytest.raises(BadInput, match="written with"):
        make_study(copy, load_cohort(folder), [Variant("svm", "svm")]).run()
    assert {file: file.read_bytes() for file in copy.rglob("*") if file.is_file()} == before


def test_data_that_were_changed_on_purpose_are_a_cohort_of_their_own(cohort_folder, copy, tmp_path):
    folder = shutil.copytree(cohort_folder, tmp_path / "cohort")
    spoil(folder, keep_time=False)
    new = load_cohort(folder).save(tmp_path / "new")
    assert not len(new.changed(read=True))
    with pytest.raises(BadInput, match="choose another folder"):
        make_study(copy, new, [Variant("svm", "svm")]).run()


def test_a_cohort_that_is_written_again_while_a_study_runs_stops_its_runs(cohort_folder, tmp_path):
    folder = shutil.copytree(cohort_folder, tmp_path / "cohort")
    old = load_cohort(folder)
    job = make_study(tmp_path / "study", old, [LOGISTIC]).jobs()[0]
    Cohort(old.connectomes[::-1].copy(), old.participants).save(folder, overwrite=True)
    with pytest.raises(BadInput, match="changed since the study"):
        run_job(job)


def test_a_run_of_an_earlier_version_on_the_same_series_is_the_same_run():
    now = config_of(data_sha256="new", data_sha256_of_0_2="old")
    assert difference(config_of(data_sha256="old"), now) is None
    assert "whose" in difference(config_of(data_sha256="other"), now).words
    assert "data_sha256_of_0_2" not in now.to_dict()
