"""Where jobs run: processes of this machine, or a Ray cluster. Scheduling on a cluster is Ray's business."""

from __future__ import annotations

import json
import multiprocessing
import multiprocessing.connection
import os
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bnt.errors import BadInput
from bnt.experiments.job import Job, run_job

Outcome = dict[str, str]  # name of a failed job -> its one-sentence reason
Watcher = Callable[[Sequence[Job], int, int, Outcome], None]  # running, done, total, failures

POLL_SECONDS = 1.0


def is_done(job: Job) -> bool:
    """Whether a finished run is in the job's folder (its configuration is checked when it is read)."""
    return (Path(job.folder) / "DONE").is_file()


def _reason(job: Job) -> Path:
    return Path(job.folder).parent / f"{job.name}.failed"


def _child(text: str) -> None:
    """Carry one job out in a process of its own; a failure leaves its reason in a file."""
    job = Job.from_json(text)
    reason = _reason(job)
    reason.unlink(missing_ok=True)
    try:
        run_job(job)
    except BadInput as error:
        reason.write_text(str(error))
        raise SystemExit(2) from error
    except Exception as error:  # noqa: BLE001 - one failed job must not stop the others; it is reported
        reason.write_text(
            f"{type(error).__name__}: {error} ({traceback.format_exc().strip().splitlines()[-3].strip()})"
        )
        raise SystemExit(1) from error


def run_local(jobs: Sequence[Job], n_processes: int, watch: Watcher | None = None) -> Outcome:
    """Run jobs in processes of this machine, ``n_processes`` at a time, each with its own threads.

    A worker that is killed is one failed job; the others go on.
    """
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["bnt.training.run", "bnt.experiments.job"])
    waiting, done = list(jobs), 0
    running: dict[Any, tuple[Any, Job]] = {}
    failures: Outcome = {}
    try:
        while waiting or running:
            while waiting and len(running) < n_processes:
                job = waiting.pop(0)
                process = context.Process(target=_child, args=(job.to_json(),), name=job.name)
                process.start()
                running[process.sentinel] = (process, job)
            for sentinel in multiprocessing.connection.wait(list(running), timeout=POLL_SECONDS):
                process, job = running.pop(sentinel)
                process.join()
                done += 1
                if process.exitcode:
                    failures[job.name] = _why(job, process.exitcode)
            if watch is not None:
                watch([job for _, job in running.values()], done, len(jobs), failures)
    finally:
        for process, _ in running.values():
            process.terminate()
    return failures


def _why(job: Job, exit_code: int) -> str:
    reason = _reason(job)
    if reason.is_file():
        return reason.read_text()
    return f"its process ended with {exit_code} (killed, or out of memory): give the command again to go on."


def run_ray(jobs: Sequence[Job], address: str | None, watch: Watcher | None = None) -> Outcome:
    """Send the same jobs to a Ray cluster; each asks for as many CPUs as it has threads.

    Ray places them, balances them and starts those of a lost node again on another one; a job started
    again goes on from its checkpoint, as the study's folder is on a file system that all nodes see.
    """
    try:
        import ray
    except ImportError as error:
        raise BadInput("Ray is not installed: pip install 'brain-network-transformer[cluster]'.") from error
    ray.init(address=address, ignore_reinit_error=True, log_to_driver=False)
    remote = ray.remote(max_retries=-1)(_remote)
    gpu = [1 if job.device.startswith("cuda") else 0 for job in jobs]
    waiting = {
        remote.options(num_cpus=job.threads, num_gpus=g, name=job.name).remote(job.to_json()): job
        for job, g in zip(jobs, gpu)
    }
    failures: Outcome = {}
    done = 0
    while waiting:
        ready, _ = ray.wait(list(waiting), num_returns=1, timeout=POLL_SECONDS)
        for reference in ready:
            job = waiting.pop(reference)
            done += 1
            try:
                failure = ray.get(reference)
            except ray.exceptions.RayError as error:
                failure = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            if failure:
                failures[job.name] = failure
        if watch is not None:
            started = [job for job in waiting.values() if Path(job.folder).is_dir() and not is_done(job)]
            watch(started, done, len(jobs), failures)
    return failures


def _remote(text: str) -> str:
    """Carry one job out on a Ray worker; return why it failed, or nothing."""
    try:
        run_job(Job.from_json(text))
    except BadInput as error:
        return str(error)
    return ""


def last_line(job: Job) -> dict[str, Any]:
    """Return the newest line of a running job's metrics, for the one who watches."""
    file = Path(job.folder) / "metrics.jsonl"
    try:
        lines = file.read_text().splitlines()
        return json.loads(lines[-1]) if lines else {}
    except (OSError, ValueError):
        return {}
