"""Where jobs run: processes of this machine, or a cluster of Ray or SLURM, which schedules them itself."""

from __future__ import annotations

import json
import logging
import multiprocessing
import multiprocessing.connection
import multiprocessing.forkserver
import multiprocessing.resource_tracker
import os
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from bnt.cohort._files import forget, holder
from bnt.errors import BadInput
from bnt.models._own import remember
from bnt.models._registry import source_digest
from bnt.studies._job import REPEAT, Job, attempt, lock_of, run_job

if TYPE_CHECKING:
    from bnt.studies._slurm import Slurm

Failures = dict[str, str]  # name of a failed job -> its one-sentence reason
Watcher = Callable[[Sequence[Job], int, int, Failures], None]  # running, done, total, failures

POLL_SECONDS = 1.0
CONNECT_SECONDS = 10.0
RAY_RETRIES = 5  # starts again after a lost worker or node; without an end, a job that no node can hold never fails
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
ENGINES = ("local", "ray", "slurm")
# Loaded once, before the workers fork: a worker that imports them itself spends longer on it than a linear model runs.
PRELOADED = (
    "bnt.training._run",
    "bnt.training._config",
    "bnt.studies._job",
    "bnt.models._bnt",
    "bnt.models.classical",
    "bnt.training._learner",
    "scipy.stats",
    "sklearn.linear_model",
    "threadpoolctl",
    "torch._dynamo",  # what torch's optimisers import when they are first made
)


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
) -> Failures:
    """Run jobs on an engine; return the failures, if any, with their reasons."""
    if engine not in ENGINES:
        raise BadInput(f"There is no engine {engine!r}: choose one of {', '.join(ENGINES)}.", "engine")
    if not jobs:
        return {}
    for model in sorted({job.variant.model for job in jobs}):
        remember(model, source_digest(model))  # here, as a worker may be on another machine
    folders = {lock_of(job).parent for job in jobs}
    forget(file for folder in folders for file in folder.glob("*.lock"))
    if engine == "slurm":
        from bnt.studies._slurm import Slurm, run_slurm

        return run_slurm(jobs, slurm or Slurm(), watch)
    return run_ray(jobs, address, watch) if engine == "ray" else run_local(jobs, n_processes, watch)


def _end_with_parent() -> None:
    """End this process as soon as the driver is gone, so that no orphan works on beside the next driver."""
    driver = multiprocessing.parent_process()
    if driver is None:
        return
    multiprocessing.connection.wait([driver.sentinel])
    os._exit(1)


def _child(text: str, answer: Connection, work: Callable[[Job], Any]) -> None:
    """Carry one job out in a process of its own and send why it failed, if it did."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's: it ends its workers itself
    threading.Thread(target=_end_with_parent, daemon=True).start()
    job = Job.from_json(text)
    warnings.formatwarning = lambda message, *_, **__: f"{job.name}: {' '.join(str(message).split())}\n"
    reason = attempt(job, work)
    if reason:
        answer.send_bytes(reason.encode())
        raise SystemExit(1)


def _start_server(threads: int) -> Any:
    """Return the context whose server has the libraries loaded, once, with few threads of their own."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))
    multiprocessing.resource_tracker.ensure_running()  # here, because its start ends the block of signals below
    # The server and its workers inherit this: a Ctrl-C while they import is the driver's, too.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        multiprocessing.forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
    return context


@contextmanager
def _hidden_main() -> Iterator[None]:
    """Hide the caller's script while a process starts: workers would run it again, and they need nothing of it."""
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


def run_local(
    jobs: Sequence[Job], n_processes: int, watch: Watcher | None = None, work: Callable[[Job], Any] = run_job
) -> Failures:
    """Run jobs in processes of this machine, ``n_processes`` at a time, each with its own threads.

    A worker that is killed is one failed job; the others continue. When the driver ends, however it ends,
    its workers end too. ``work`` is what is done with a job, a function of a module.
    """
    context = _start_server(max((job.threads for job in jobs), default=1))
    waiting, done = list(reversed(jobs)), 0
    running: dict[Any, tuple[Any, Connection, Job]] = {}
    failures: Failures = {}
    try:
        while waiting or running:
            while waiting and len(running) < max(1, n_processes):
                job = waiting.pop()
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(target=_child, args=(job.to_json(), theirs, work), name=job.name)
                with _hidden_main():
                    process.start()
                theirs.close()
                running[process.sentinel] = (process, ours, job)
            if watch is not None:
                watch([job for _, _, job in running.values()], done, len(jobs), failures)
            for sentinel in multiprocessing.connection.wait(list(running), timeout=POLL_SECONDS):
                process, answer, job = running.pop(sentinel)
                process.join()
                done += 1
                if process.exitcode:
                    failures[job.name] = _why(answer, process.exitcode)
                answer.close()
                process.close()
        if watch is not None:
            watch([], done, len(jobs), failures)
    finally:
        for process, _, _ in running.values():
            process.terminate()
        for process, _, _ in running.values():
            process.join()
    return failures


def _why(answer: Connection, exit_code: int) -> str:
    try:
        if answer.poll():
            return answer.recv_bytes().decode()
    except EOFError:
        pass  # it ended without a word, which the next sentence says
    how = f"was killed by signal {-exit_code} (out of memory?)" if exit_code < 0 else f"ended with code {exit_code}"
    return f"its process {how}: {REPEAT}"


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
    # One process per job (max_calls), as on one machine: nothing of one run is left in the next one's memory.
    remote = ray.remote(max_retries=RAY_RETRIES, max_calls=1)(_remote)
    waiting = {
        remote.options(num_cpus=job.threads, num_gpus=1 if job.device.startswith("cuda") else 0, name=job.name).remote(
            job.to_json()
        ): job
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
    except (OSError, ValueError):
        return {}
