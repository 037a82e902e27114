"""What runs of a study share changes no bit, leaks nothing, and is computed once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from small_studies import LOGISTIC, make_study, note_process, tiny, weights

import bnt
from bnt.cohort import Cohort
from bnt.errors import BadInput
from bnt.models import create_model
from bnt.models.classical import _features
from bnt.models.classical import _subject_matrices as _shared
from bnt.models.classical._inputs import Inputs
from bnt.models.classical._subject_matrices import Shared, sharing
from bnt.studies._engine import _next_job, run_local
from bnt.studies._job import Variant, as_if_alone, opened, run_job

V = 8
MODELS = {
    "svm": {},
    "ridge": {"space": "tangent"},
    "tangent-logistic": {},
    "linear-ensemble": {},
    "multi-kernel": {},
    "best": {},
    "cpm": {"threshold": 0.2},
    "krr": {},
    "kernel-transformer": {"epochs": 1, "min_steps": 5},
}
TRAIN, TEST = np.arange(0, 40), np.arange(40, 60)


@pytest.fixture(autouse=True)
def nothing_kept():
    _shared.forget_shared()
    yield
    _shared.forget_shared()


@pytest.fixture(scope="module")
def with_series(tmp_path_factory: pytest.TempPathFactory) -> Cohort:
    """Series of several lengths; one length has one training and one test subject."""
    rng = np.random.default_rng(1)
    series = [rng.normal(size=(30 + (i % 3) + 9 * (i in (5, 50)), V)).cumsum(0) for i in range(60)]
    return save(series, tmp_path_factory.mktemp("sharing") / "cohort")


def save(series: list[np.ndarray], folder: Path) -> Cohort:
    participants = pd.DataFrame({"participant_id": [f"s{i}" for i in range(60)], "diagnosis": np.arange(60) % 2})
    participants["site"] = np.where(np.arange(60) % 4 < 2, "A", "B")
    edges = bnt.connectivity.connectomes([np.asarray(one, dtype=np.float32) for one in series])
    return Cohort(edges, participants, timeseries=series).save(folder)


def fitted(cohort: Cohort, name: str) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The state of a model fitted on the training part, and its probabilities for the test part."""
    y = (np.arange(60) % 2)[TRAIN]
    model = create_model(name, V, 2, **MODELS[name]).fit(Inputs.of(cohort, TRAIN), y)
    return model.state_dict(), model.predict_proba(Inputs.of(cohort, TEST))


def assert_same(one: tuple, other: tuple) -> None:
    assert one[0].keys() == other[0].keys()
    for name, value in one[0].items():
        np.testing.assert_array_equal(value, other[0][name], err_msg=name)
    np.testing.assert_array_equal(one[1], other[1])


@pytest.mark.parametrize("disk_gb", [0.0, 1.0])
def test_every_model_has_the_same_bits_with_and_without_sharing(with_series, disk_gb):
    alone = {name: fitted(with_series, name) for name in MODELS}
    for _ in range(2):  # computed, then found
        for name in MODELS:
            with sharing(disk_gb):
                assert_same(fitted(with_series, name), alone[name])


def test_a_tangent_space_is_computed_once_per_split(with_series, monkeypatch):
    asked = []
    project = _features.project_to_tangent
    monkeypatch.setattr(_features, "project_to_tangent", lambda *given: asked.append(len(given[1])) or project(*given))
    for name in ("tangent-logistic", "linear-ensemble", "tangent-logistic"):
        with sharing(0.0):
            fitted(with_series, name)
    assert asked == [len(TRAIN), len(TEST)]


def test_a_test_subjects_data_change_no_training_feature_weight_or_selection(with_series, tmp_path):
    series = [np.array(one) for one in with_series.timeseries]
    series[50] = series[50] ** 3
    other = save(series, tmp_path / "other")
    for name in MODELS:
        with sharing(1.0):
            before = fitted(with_series, name)
        with sharing(1.0):
            after = fitted(other, name)
        assert_same((before[0], before[1][:10]), (after[0], after[1][:10]))
        assert not np.array_equal(before[1][10], after[1][10]), name


def test_a_training_subjects_data_change_what_is_learned(with_series, tmp_path):
    series = [np.array(one) for one in with_series.timeseries]
    series[7] = series[7] ** 3
    other = save(series, tmp_path / "other")
    with sharing(1.0):
        before = fitted(with_series, "tangent-logistic")[0]
    with sharing(1.0):
        after = fitted(other, "tangent-logistic")[0]
    assert not np.array_equal(before["reference"], after["reference"])


def test_harmonised_edges_are_not_shared(with_series):
    with sharing(0.0):
        assert Inputs.of(with_series, TRAIN).content
        assert Inputs.of(with_series.with_edges(lambda edges, _: edges * 0.5), TRAIN).content == ""
    assert Inputs.of(with_series, TRAIN).content == ""


def test_memory_is_bounded_and_what_was_longest_out_of_use_goes_first(monkeypatch):
    monkeypatch.setattr(_shared, "MEMORY_BYTES", 100)
    shared = Shared()
    for key in ("a", "b"):
        shared.remembered(key, lambda: np.zeros(6))
    shared.remembered("a", lambda: pytest.fail("a was forgotten"))
    shared.remembered("c", lambda: np.zeros(6))
    assert list(shared.kept) == ["a", "c"]
    shared.remembered("too large", lambda: np.zeros(50))
    assert list(shared.kept) == ["a", "c"]


def test_what_another_run_spent_counts_once_per_run():
    shared = Shared()
    shared.remembered("a", lambda: np.zeros(1))
    assert shared.seconds == 0.0
    shared.kept["a"] = (np.zeros(1), 2.5)
    shared.begin(0)
    for _ in range(2):
        shared.remembered("a", lambda: pytest.fail("it is known"))
    assert shared.seconds == 2.5


# -- warm workers ------------------------------------------------------------------------------------------------------


def processes(folder: Path) -> dict[str, str]:
    return {file.stem: file.read_text() for file in sorted(folder.glob("**/*.process"))}


def test_one_process_carries_out_one_job_after_the_other_and_is_replaced_after_a_failure(cohort, tmp_path):
    study = make_study(tmp_path / "study", cohort, [LOGISTIC, Variant("fails", "ridge"), Variant("svm", "svm")])
    failures = run_local(study.jobs(), 1, work=note_process)
    assert {name.partition("--")[0] for name in failures} == {"fails"}
    found = processes(tmp_path)
    of = {name.partition("--seed")[0]: process for name, process in found.items()}
    assert of["logistic--split0"] == of["fails--split0"] != of["svm--split0"]
    assert of["svm--split0"] == of["logistic--split1"] == of["fails--split1"] != of["svm--split1"]


def test_a_users_own_model_has_a_process_of_its_own(cohort, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("from sklearn.linear_model import LogisticRegression\n")
    own = Variant("own", f"{file}:LogisticRegression")
    study = make_study(tmp_path / "study", cohort, [LOGISTIC, own, Variant("svm", "svm")], n_splits=1)
    assert run_local(study.jobs(), 1, work=note_process) == {}
    assert len(set(processes(tmp_path).values())) == 3


def test_a_worker_takes_the_jobs_of_its_split_first_then_of_a_split_that_no_one_has(cohort, tmp_path):
    study = make_study(tmp_path / "study", cohort, [LOGISTIC, Variant("svm", "svm")], n_splits=3)
    jobs = study.jobs()
    splits = [(job.cohort, job.split.name) for job in jobs]
    waiting = jobs[1:]
    assert _next_job(waiting, splits[0], {splits[0]}) is jobs[1]
    assert _next_job(waiting, splits[0], {splits[2]}) is jobs[4]
    assert _next_job([jobs[2]], splits[0], {splits[2]}) is jobs[2]


def test_the_order_of_runs_in_a_process_changes_no_bit(cohort, tmp_path):
    variants = [tiny(epochs=3), LOGISTIC, Variant("krr", "krr")]
    for name, order in (("one", variants), ("other", variants[::-1])):
        assert make_study(tmp_path / name, cohort, order, n_splits=1).run(n_processes=1) == {}
    assert weights(tmp_path / "one") == weights(tmp_path / "other")


def test_a_job_finds_random_numbers_as_a_new_process_does(cohort, tmp_path):
    import torch

    (job,) = make_study(tmp_path / "study", cohort, [LOGISTIC], n_splits=1).jobs()
    drawn = []
    for _ in range(2):
        with as_if_alone(job):
            drawn.append((float(torch.rand(1)), float(np.random.rand())))  # noqa: NPY002 - what users' code may draw
    assert drawn[0] == drawn[1]


def test_a_cohort_that_was_written_again_is_opened_again_and_refused(cohort, tmp_path):
    copy = bnt.load_cohort(cohort.path).save(tmp_path / "cohort")
    (job,) = make_study(tmp_path / "study", copy, [LOGISTIC], n_splits=1).jobs()
    first = opened(tmp_path / "cohort")
    assert opened(tmp_path / "cohort") is first
    table = copy.participants.assign(diagnosis=1 - copy.participants["diagnosis"])
    Cohort(copy.connectomes, table).save(tmp_path / "cohort", overwrite=True)
    assert opened(tmp_path / "cohort") is not first
    with pytest.raises(BadInput, match="has changed since"):
        run_job(job)


def test_a_cache_below_nothing_is_refused(cohort, tmp_path):
    with pytest.raises(BadInput, match="cache") as refused:
        make_study(tmp_path / "study", cohort, [LOGISTIC], n_splits=1, cache_gb=-1.0)
    assert refused.value.parameter == "cache_gb"


def test_a_run_counts_what_it_would_cost_alone(with_series, tmp_path):
    variants = [Variant("first", "multi-kernel"), Variant("second", "multi-kernel")]
    study = make_study(tmp_path / "study", with_series, variants, n_splits=1, cache_gb=0.0)
    assert study.run(n_processes=1) == {}
    runs = bnt.studies.run_table(study.folder).set_index("variant")
    assert runs.loc["second", "cpu_seconds_shared"] >= runs.loc["first", "cpu_seconds_shared"]
    assert replace(study.jobs()[0], cache_gb=1.0).cache_gb == 1.0
