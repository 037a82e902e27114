"""Local processes: whatever is killed, the study given again ends at the same numbers."""

from __future__ import annotations

import errno
import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest
from small_studies import LOGISTIC, make_study, tiny, weights

from bnt.cohort._files import held, holder, in_use
from bnt.errors import BadInput
from bnt.studies import _engine as engine
from bnt.studies._engine import last_line
from bnt.studies._job import ELSEWHERE, Job, Variant, attempt, lock_of
from bnt.studies._results import run_table
from bnt.studies._summary import write_tables


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


def test_two_commands_share_the_runs_of_a_study_and_end_with_the_same_tables(cohort, whole, tmp_path):
    first, second = (make_study(tmp_path / "study", cohort, [tiny(), LOGISTIC]) for _ in range(2))
    kept: set[str] = set()  # what the first command was at when the second began

    def begin_the_second(running, done, total, failures):
        if running and not kept and process_of(running[0]):
            kept.update(job.name for job in running)
            assert second.run(n_processes=2, watch=note) == {}
            write_tables(second.folder)

    seen = []

    def note(running, done, total, failures):
        seen.append((done, total, {job.name for job in running}, dict(failures)))

    assert first.run(n_processes=1, watch=begin_the_second) == {}
    write_tables(first.folder)
    assert len(kept) == 1, "the first command did not run one job at a time"
    assert seen[-1] == (4, 4, set(), {})
    assert not any(kept & running and len(running) > 1 for _, _, running, _ in seen), "a run was made twice at a time"
    assert weights(first.folder) == weights(whole)
    assert scores(first.folder) == scores(whole)
    assert not (first.folder / "locks").exists()


def scores(folder: Path) -> str:
    """Return the table of runs without its times."""
    table = run_table(folder)
    return table.drop(columns=[c for c in table if "seconds" in c or c == "peak_memory_mb"]).to_csv()


def test_a_run_whose_holder_dies_is_taken_over_and_one_that_lives_is_waited_for(cohort, tmp_path, monkeypatch, capsys):
    study = make_study(tmp_path / "study", cohort, [LOGISTIC])
    dead, alive = study.jobs()
    lock_of(dead).parent.mkdir(parents=True)
    lock_of(dead).write_text(f"process 1 on {socket.gethostname()}")  # nobody has its lock
    other = ExitStack()
    other.enter_context(held(lock_of(alive), of=Path(alive.folder)))

    def watch(running, done, total, failures):
        assert failures == {}
        if running == [alive]:
            assert (done, total) == (1, 2)
            other.close()

    assert study.run(n_processes=2, watch=watch) == {}
    assert sorted(weights(study.folder)) == sorted([dead.name, alive.name])
    said = [line for line in capsys.readouterr().err.splitlines() if "Waiting" in line]
    assert said == [f"Waiting for 1 run that process {os.getpid()} on {socket.gethostname()} works on."]


def test_a_worker_that_comes_second_leaves_the_run_alone(cohort, tmp_path, monkeypatch):
    (job,) = make_study(tmp_path / "study", cohort, [LOGISTIC], n_splits=1).jobs()
    monkeypatch.setattr("bnt.studies._job.LOOK_SECONDS", 0.0)
    with held(lock_of(job)):
        assert attempt(job) == ELSEWHERE
    assert not Path(job.folder).exists()


def test_a_run_that_another_command_took_first_is_no_failure_and_done_here_if_that_one_ends_early(
    cohort, tmp_path, monkeypatch
):
    (job,) = make_study(tmp_path / "study", cohort, [LOGISTIC], n_splits=1).jobs()
    answers, real = [{job.name: ELSEWHERE}], engine.run_local
    monkeypatch.setattr(engine, "run_local", lambda *given: answers.pop() if answers else real(*given))
    seen = []
    assert engine.run_jobs([job], watch=lambda _, done, total, failures: seen.append((done, total, failures))) == {}
    assert engine.is_done(job)
    assert seen[-1] == (1, 1, {})


def test_a_study_whose_tables_are_written_is_waited_for_and_said_to_be_in_use(cohort, tmp_path, monkeypatch):
    study = make_study(tmp_path / "study", cohort, [LOGISTIC], n_splits=1)
    study.folder.mkdir()
    monkeypatch.setattr("bnt.studies._study.held", lambda file: held(file, 0.1))
    with held(study.folder / ".lock"), pytest.raises(BadInput, match=f"in use by process {os.getpid()}"):
        study.run()


def test_without_locks_of_the_file_system_a_holder_of_this_machine_is_known_by_its_process(tmp_path, monkeypatch):
    def none(handle: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr("bnt.cohort._files.fcntl.flock", none)
    lock = tmp_path / "one.lock"
    for who, expected in (
        (f"process {os.getpid()} on {socket.gethostname()}", True),
        ("process 1 on elsewhere", True),
        (f"process {2**22 + 1} on {socket.gethostname()}", False),  # beyond the largest number of a process
    ):
        lock.write_text(who)
        assert in_use(lock) is expected
        assert lock.exists() is expected


def test_an_unknown_engine_is_refused(cohort, tmp_path):
    with pytest.raises(BadInput, match="engine 'dask'"):
        make_study(tmp_path / "study", cohort, [LOGISTIC], n_splits=1).run(engine="dask")


def test_the_watcher_is_told_totals_that_count_earlier_runs(cohort, whole):
    seen = []
    make_study(whole, cohort, [tiny(), LOGISTIC]).run(watch=lambda running, done, total, _: seen.append((done, total)))
    assert seen == [(4, 4)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_waits_until_a_worker_has_started(number: int) -> None:
    """Half a start would leave the worker with half of what it is sent, and a traceback."""
    started = []

    class Interrupted:
        def __init__(self, **_: object) -> None:
            self.name = ""

        def start(self) -> None:
            os.kill(os.getpid(), number)
            time.sleep(0.01)  # another thread may take it: Python runs the handler in this one a moment later
            started.append(self)

    context = SimpleNamespace(Pipe=multiprocessing.Pipe, Process=Interrupted)
    default = signal.signal(number, signal.default_int_handler)
    idle, end = threading.Event(), threading.Thread(target=lambda: idle.wait())  # as libraries have
    end.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            engine._Worker.start(context, print)
        assert signal.getsignal(number) is signal.default_int_handler
    finally:
        signal.signal(number, default)
        idle.set()
        end.join()
    assert len(started) == 1


def test_a_forked_worker_is_ended_though_the_driver_handles_its_end() -> None:
    """It kept the handler that holds SIGTERM back while a process starts, and its driver waited for ever."""
    default = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        first, second = (engine._Worker.start(multiprocessing.get_context("fork"), print) for _ in range(2))
        time.sleep(0.5)  # both serve; the second holds the first one's connection open too
        processes = [first.process.pid, second.process.pid]
        first.process.terminate()
        first.process.join(10)
        assert not first.process.is_alive()
    finally:
        signal.signal(signal.SIGTERM, default)
        for worker in (first, second):
            worker.process.kill()
            worker.end()
    assert not any(is_alive(process) for process in processes)
