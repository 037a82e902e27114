"""Engines that run jobs: local processes, Ray or SLURM."""

from __future__ import annotations

import gc
import json
import logging
import multiprocessing
import multiprocessing.connection
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from bnt._words import say
from bnt.cohort._files import forget, holder, in_use
from bnt.errors import BadInput
from bnt.models._own import remember
from bnt.models._registry import in_catalog, source_digest
from bnt.studies._job import ELSEWHERE, REPEAT, Job, attempt, lock_of, run_job
from bnt.studies._server import start_server

if TYPE_CHECKING:
    from bnt.studies._slurm import Slurm

Failures = dict[str, str]  # name of a failed job -> its one-sentence reason
Watcher = Callable[[Sequence[Job], int, int, Failures], None]  # running, done, total, failures

POLL_SECONDS = 1.0
CONNECT_SECONDS = 10.0
RAY_RETRIES = 5  # starts again after a lost worker or node; without an end, a job that no node can hold never fails
ENGINES = ("local", "ray", "slurm")


def is_done(job: Job) -> bool:
    """Whether a finished and undamaged run is in the job's folder (the study checks its configuration)."""
    from bnt.training._trained import damage

    return (Path(job.folder) / "DONE").is_file() and damage(Path(job.folder)) is None


def run_jobs(
    jobs: Sequence[Job],
    *,
    engine: str = "local",
    n_processes: int = 1,
    address: str | None = None,
    slurm: Slurm | None = None,
    watch: Watcher | None = None,
    work: Callable[[Job], Any] = run_job,
) -> Failures:
    """Run jobs on an engine; return the failures, if any, with their reasons.

    A job that another command works on is left to it and waited for; if that one ends early, it is done here.
    ``work`` is what local processes do with a job, under its lock.
    """
    if engine not in ENGINES:
        raise BadInput(f"Unknown engine {engine!r}: choose one of {', '.join(ENGINES)}.", "engine")
    for model in sorted({job.variant.model for job in jobs}):
        remember(model, source_digest(model))  # here, as a worker may be on another machine
    left, failures = list(jobs), Failures()
    told: set[str] = set()
    shown = 0

    def watch_all(running: Sequence[Job], done: int, _: int, found: Failures) -> None:
        nonlocal shown
        if watch is not None:
            passed_on = sum(reason == ELSEWHERE for reason in found.values())
            real = failures | {name: reason for name, reason in found.items() if reason != ELSEWHERE}
            shown = len(jobs) - len(left) + done - passed_on
            watch(running, shown, len(jobs), real)

    while left := [job for job in left if not is_done(job)]:
        free = [job for job in left if not in_use(lock_of(job))]
        if not free:
            told = _tell(left, told)
            watch_all(left, 0, 0, {})
            time.sleep(POLL_SECONDS)
            continue
        if engine == "slurm":
            from bnt.studies._slurm import Slurm, run_slurm

            found = run_slurm(free, slurm or Slurm(), watch_all)
        elif engine == "ray":
            found = run_ray(free, address, watch_all)
        else:
            found = run_local(free, n_processes, watch_all, work)
        ended = {job.name for job in free if found.get(job.name) != ELSEWHERE}
        left = [job for job in left if job.name not in ended]
        failures |= {name: reason for name, reason in found.items() if name in ended}
    if shown < len(jobs):  # others did the last ones
        watch_all([], 0, 0, {})
    for folder in {lock_of(job).parent for job in jobs}:
        forget(folder)
    return failures


def _tell(jobs: Sequence[Job], told: set[str]) -> set[str]:
    """Say who works on the jobs that are waited for, where it is someone new; return all who were named."""
    holders = {who for job in jobs if (who := holder(lock_of(job)))}
    if holders - told:
        say(f"Waiting for {len(jobs)} run{'s' * (len(jobs) != 1)} that {', '.join(sorted(holders))} works on.")
    return told | holders


def _end_with_parent() -> None:
    """End this process as soon as the driver is gone, so that no orphan works on beside the next driver."""
    driver = multiprocessing.parent_process()
    if driver is None:
        return
    multiprocessing.connection.wait([driver.sentinel])
    os._exit(1)


def _serve(driver: Connection, work: Callable[[Job], Any]) -> None:
    """Carry jobs out, one after the other, and answer why each failed, until the driver closes the connection."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's: it ends its workers itself
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a forked worker would keep the driver's handler of the start
    threading.Thread(target=_end_with_parent, daemon=True).start()
    gc.freeze()  # the collection after each job need not look through what the server imported
    while True:
        try:
            job = Job.from_json(driver.recv_bytes().decode())
        except EOFError:
            return
        driver.send_bytes(attempt(job, work).encode())


@contextmanager
def _starting() -> Iterator[None]:
    """Hide the caller's script and hold Ctrl-C and SIGTERM back while a process starts.

    Workers would run the script again, and they need nothing of it. A worker whose start was interrupted would get half
    of what it is sent, and print a traceback.
    """
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    came: list[int] = []
    handlers: dict[signal.Signals, Any] = {}
    try:
        if threading.current_thread() is threading.main_thread():  # no other is interrupted
            for number in (signal.SIGINT, signal.SIGTERM):
                # Blocking them here would not do: threads of libraries take them, and Python runs the handler here.
                if callable(handler := signal.getsignal(number)):
                    handlers[number] = handler
                    signal.signal(number, lambda got, _: came.append(got))
        yield
    finally:
        sys.modules["__main__"] = script
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for first in came[:1]:
            signal.raise_signal(first)


@dataclass
class _Worker:
    """A process of this machine, and the job that it carries out."""

    process: Any
    connection: Connection
    job: Job | None = None
    split: tuple[str, str] = ("", "")

    @classmethod
    def start(cls, context: Any, work: Callable[[Job], Any]) -> _Worker:
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, work), name="bnt worker")
        with _starting():
            process.start()
        theirs.close()
        return cls(process, ours)

    def give(self, job: Job) -> None:
        """Send a job; where the process is gone, its end says so."""
        self.job, self.split, self.process.name = job, _split_of(job), job.name
        with suppress(OSError):
            self.connection.send_bytes(job.to_json().encode())

    def answer(self) -> str:
        """Return why the job failed, or an empty text."""
        try:
            if self.connection.poll():
                return self.connection.recv_bytes().decode()
        except (EOFError, OSError):
            pass  # it ended without a word, which the next sentence says
        self.process.join()
        code = self.process.exitcode
        how = f"was killed by signal {-code} (out of memory?)" if code < 0 else f"ended with code {code}"
        return f"its process {how}: {REPEAT}"

    def end(self) -> None:
        """End the process, at once."""
        self.connection.close()
        self.process.terminate()
        self.process.join()
        self.process.close()


def _split_of(job: Job) -> tuple[str, str]:
    return job.cohort, job.split.name


def _next_job(waiting: list[Job], mine: tuple[str, str], others: set[tuple[str, str]]) -> Job:
    """Take a job of the split that a worker knows, else of a split that no one works on, else the first."""
    chosen = next((job for job in waiting if _split_of(job) == mine), None)
    chosen = chosen or next((job for job in waiting if _split_of(job) not in others), waiting[0])
    waiting.remove(chosen)
    return chosen


def run_local(
    jobs: Sequence[Job], n_processes: int, watch: Watcher | None = None, work: Callable[[Job], Any] = run_job
) -> Failures:
    """Run jobs in processes of this machine, ``n_processes`` at a time, each with its own threads.

    A process carries out one job after the other, those of a split together, as they share features. It is replaced
    after a failure, and before and after a model that is not of bnt, whose code may leave anything behind.
    A worker that is killed is one failed job; the others continue. When the driver ends, however it ends,
    its workers end too. ``work`` is what is done with a job, a function of a module.
    """
    context = start_server(max((job.threads for job in jobs), default=1), [job.variant.model for job in jobs])
    waiting, done = list(jobs), 0
    idle: list[_Worker] = []
    busy: list[_Worker] = []
    failures: Failures = {}
    try:
        while waiting or busy:
            while waiting and len(busy) < max(1, n_processes):
                known = idle[-1].split if idle else ("", "")
                job = _next_job(waiting, known, {worker.split for worker in busy})
                if is_done(job) or in_use(lock_of(job)):  # by another command
                    done += 1
                    failures |= {} if is_done(job) else {job.name: ELSEWHERE}
                    continue
                if idle and not in_catalog(job.variant.model):
                    idle.pop().end()
                worker = idle.pop() if idle else _Worker.start(context, work)
                busy.append(worker)
                worker.give(job)
            for worker in idle:
                worker.end()  # nothing is left for it
            idle.clear()
            if watch is not None:
                watch([worker.job for worker in busy if worker.job], done, len(jobs), failures)
            signs = {sign: worker for worker in busy for sign in (worker.connection, worker.process.sentinel)}
            ready = multiprocessing.connection.wait(list(signs), timeout=POLL_SECONDS)
            for worker in {id(signs[sign]): signs[sign] for sign in ready}.values():
                assert worker.job is not None
                busy.remove(worker)
                done += 1
                reason = worker.answer()
                if reason:
                    failures[worker.job.name] = reason
                fit = reason in ("", ELSEWHERE) and worker.process.is_alive()
                if fit and in_catalog(worker.job.variant.model):
                    idle.append(worker)
                else:
                    worker.end()
        if watch is not None:
            watch([], done, len(jobs), failures)
    finally:
        for worker in busy + idle:
            worker.end()
    return failures


def run_ray(jobs: Sequence[Job], address: str | None, watch: Watcher | None = None) -> Failures:
    """Send the same jobs to a Ray cluster; each asks for as many CPUs as it has threads.

    Ray places them, balances them and starts those of a lost worker or node again; a job started
    again resumes from its checkpoint, as the study's folder is on a file system that all nodes see.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
    try:
        import ray
    except ImportError as error:
        raise BadInput("Ray is not installed: pip install 'brain-network-transformer[cluster]'.") from error
    ours = not ray.is_initialized()
    if ours:
        _refuse_silence(address)
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
        except (ConnectionError, ValueError, RuntimeError) as error:
            reason = " ".join(str(error).split())
            raise BadInput(f"There is no Ray cluster at {address or 'this machine'} ({reason}).") from error
    try:
        return _through_ray(ray, jobs, watch)
    finally:
        if ours:
            ray.shutdown()


def _refuse_silence(address: str | None) -> None:
    """Refuse an address where no one answers: Ray itself would try for minutes."""
    host, colon, port = (address or "").rpartition(":")
    if not colon or not port.isdigit() or "/" in host:
        return  # none, auto, or a client's address, which Ray resolves
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        raise BadInput(f"There is no Ray cluster at {address} ({error}): start one with ray start --head.") from error


def _through_ray(ray: Any, jobs: Sequence[Job], watch: Watcher | None) -> Failures:
    # As on one machine, a process carries out one job after the other, but for models that are not of bnt.
    remotes = [ray.remote(max_retries=RAY_RETRIES, max_calls=calls)(_remote) for calls in (1, 0)]
    waiting = {
        remotes[in_catalog(job.variant.model)]
        .options(num_cpus=job.threads, num_gpus=1 if job.device.startswith("cuda") else 0, name=job.name)
        .remote(job.to_json()): job
        for job in jobs
    }
    failures: Failures = {}
    done = 0
    while waiting:
        if watch is not None:
            watch([job for job in waiting.values() if holder(lock_of(job))], done, len(jobs), failures)
        ready, _ = ray.wait(list(waiting), num_returns=1, timeout=POLL_SECONDS)
        for reference in ready:
            job = waiting.pop(reference)
            done += 1
            try:
                failure = ray.get(reference)
            except ray.exceptions.RayError as error:
                lines = str(error).strip().splitlines() or ["no message"]
                failure = f"{type(error).__name__}: {lines[0].rstrip('.:')}: {REPEAT}"
            if failure:
                failures[job.name] = failure
    if watch is not None:
        watch([], done, len(jobs), failures)
    return failures


def _remote(text: str) -> str:
    """Carry one job out on a Ray worker; return why it failed, or nothing."""
    return attempt(Job.from_json(text))


def last_line(job: Job) -> dict[str, Any]:
    """Return the newest line of a running job's metrics, or the number of its draws, for whoever watches."""
    if job.draws:
        file = Path(job.folder) / "draws.csv"
        return {"draw": len(file.read_text().splitlines()) - 1} if file.is_file() else {}
    file = Path(job.folder) / "metrics.jsonl"
    try:
        lines = file.read_text().splitlines()
        return json.loads(lines[-1]) if lines else {}
    except (OSError, ValueError, RecursionError):
        return {}
