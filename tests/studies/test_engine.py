"""Local processes: whatever is killed, the study given again ends at the same numbers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small_studies import LOGISTIC, make_study, tiny, weights

from bnt.cohort._files import held, holder
from bnt.errors import BadInput
from bnt.studies import _engine as engine
from bnt.studies._engine import last_line
from bnt.studies._job import Job, Variant, lock_of


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "POLL_SECONDS", 0.05)


def process_of(job: Job) -> int:
    found = re.search(r"process (\d+)", holder(lock_of(job)))
    return int(found.group(1)) if found else 0


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_killed_worker_is_one_failed_job_and_the_study_given_again_ends_at_the_same_numbers(cohort, whole, tmp_path):
    study = make_study(tmp_path / "study", cohort, [tiny(), LOGISTIC])
    killed = []

    def kill_one(running, done, total, failures):
        for job in running:
            process = process_of(job)
            if process and not killed and last_line(job).get("epoch", 0) >= 3:
                os.kill(process, signal.SIGKILL)
                killed.append(job.name)

    failures = study.run(n_processes=2, watch=kill_one)
    assert list(failures) == killed
    assert "killed by signal 9" in failures[killed[0]]
    assert set(weights(study.folder)) == set(weights(whole)) - set(killed)
    assert (study.folder / "failures.csv").is_file()

    assert study.run(n_processes=2) == {}
    assert weights(study.folder) == weights(whole)
    assert not (study.folder / "failures.csv").exists()


DRIVER = """
import sys
from bnt.cohort import load_cohort
sys.path.insert(0, {tests!r})
from small_studies import LOGISTIC, make_study, tiny
with open({said!r}, "a") as file:
    file.write("run")
make_study({folder!r}, load_cohort({cohort!r}), [tiny(), LOGISTIC]).run(n_processes=2)
"""


def test_a_killed_driver_leaves_no_worker_and_the_study_given_again_ends_at_the_same_numbers(cohort, whole, tmp_path):
    """The driver is a script without a main guard, which its workers do not run again."""
    study, said = make_study(tmp_path / "study", cohort, [tiny(), LOGISTIC]), tmp_path / "said"
    script = tmp_path / "driver.py"
    places = {"folder": str(study.folder), "cohort": str(cohort.path), "said": str(said)}
    script.write_text(DRIVER.format(tests=str(Path(__file__).parent), **places))
    driver = subprocess.Popen([sys.executable, script])
    workers: set[int] = set()
    until = time.monotonic() + 600
    while driver.poll() is None and time.monotonic() < until:
        jobs = [job for job in study.jobs() if last_line(job).get("epoch", 0) >= 3 and process_of(job)]
        if jobs:
            workers = {process_of(job) for job in study.jobs()} - {0}
            driver.kill()
            break
        time.sleep(0.05)
    driver.wait()
    assert workers, "the driver ended before a worker was seen"
    assert said.read_text() == "run"
    while any(map(is_alive, workers)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(is_alive, workers))
    assert len(weights(study.folder)) < 4

    assert study.run(n_processes=2) == {}
    assert weights(study.folder) == weights(whole)


def test_a_finished_run_is_never_run_again(cohort, whole):
    files = sorted((whole / "runs").glob("*/*"))
    before = {file: file.stat().st_mtime_ns for file in files}
    assert make_study(whole, cohort, [tiny(), LOGISTIC]).run(n_processes=2) == {}
    assert {file: file.stat().st_mtime_ns for file in sorted((whole / "runs").glob("*/*"))} == before


def test_one_failed_job_does_not_stop_the_others_and_its_reason_is_one_sentence(cohort, tmp_path):
    diverging = Variant(
        "diverging", "bnt", tiny().options, "default", tiny(epochs=2).recipe.__class__(epochs=2, lr=1e30)
    )
    failures = make_study(tmp_path / "study", cohort, [diverging, LOGISTIC], n_splits=1).run(n_processes=2)
    assert list(failures) == ["diverging--split0--seed0"]
    assert "loss became" in failures["diverging--split0--seed0"]
    assert "\n" not in failures["diverging--split0--seed0"]
    assert list(weights(tmp_path / "study")) == ["logistic--split0--seed0"]


def test_two_drivers_do_not_work_on_one_study(cohort, tmp_path, monkeypatch):
    study = make_study(tmp_path / "study", cohort, [LOGISTIC], n_splits=1)
    study.folder.mkdir()
    monkeypatch.setattr("bnt.studies._study.held", lambda file, wait: held(file, 0.1))
    with held(study.folder / ".lock"), pytest.raises(BadInput, match=f"in use by process {os.getpid()}"):
        study.run()


def test_an_unknown_engine_is_refused(cohort, tmp_path):
    with pytest.raises(BadInput, match="no engine 'dask'"):
        make_study(tmp_path / "study", cohort, [LOGISTIC], n_splits=1).run(engine="dask")


def test_the_watcher_is_told_totals_that_count_earlier_runs(cohort, whole):
    seen = []
    make_study(whole, cohort, [tiny(), LOGISTIC]).run(watch=lambda running, done, total, _: seen.append((done, total)))
    assert seen == [(4, 4)]
