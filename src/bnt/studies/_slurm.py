"""Jobs on a SLURM cluster: job arrays through submitit, without a node that only coordinates.

Each submission has a new folder inside the study, readable by its user alone: the batch script, the logs, and, until it
ends, what submitit pickles. That is a function of this module and text; answers come back as text.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bnt.cohort._files import held, holder, in_use, write_atomic
from bnt.errors import BadInput
from bnt.studies import _engine
from bnt.studies._job import REPEAT, Job, attempt, lock_of, run_job

CLUSTER = "slurm"  # submitit's name of it; tests use its "local"
LARGEST_ARRAY = 1000  # what SLURM takes unless its administrator allows more
LOCK = "command.lock"  # in a submission's folder, while its command lives
ANSWER_SECONDS = 15.0  # until a shared file system shows an ended job's answer
OPTIONS = {"time": "--minutes", "mem": "--memory-gb", "cpus_per_task": "--threads", "partition": "--partition"}
SUBMITITS_OWN = ("array", "output", "error", "open_mode", "signal")
ADVICE = {"OUT_OF_MEMORY": "give more --memory-gb and ", "TIMEOUT": "give more --minutes, or "}


@dataclass(frozen=True)
class Slurm:
    """SLURM resources of each run of a study. The number of CPUs is the study's threads, and cuda requests one GPU.

    Parameters
    ----------
    partition : str
        Empty for the cluster's default.
    minutes : int
        Time limit of a run.
    memory_gb : float, optional
        None for the cluster's default.
    at_once : int
        Largest number of runs at a time; 0 leaves it to SLURM.
    extra : mapping
        Other options of ``sbatch``, without their dashes.

    Examples
    --------
    >>> from bnt.studies import Slurm
    >>> Slurm(partition="short", minutes=30, extra={"account": "lab"}).minutes
    30
    """

    partition: str = ""
    minutes: int = 60
    memory_gb: float | None = None
    at_once: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.minutes < 1:
            raise BadInput(f"A run of {self.minutes} minutes is too short: ask for at least 1.", "minutes")
        if self.memory_gb is not None and not self.memory_gb > 0:
            raise BadInput(f"{self.memory_gb} GB of memory are too little: ask for more than 0.", "memory_gb")
        for name in self.extra:
            plain = name.replace("-", "_")
            if not re.fullmatch(r"[a-z][a-z_]*", plain) or plain in SUBMITITS_OWN:
                raise BadInput(f"{name!r} cannot be set: give an option of sbatch such as account=lab.", "slurm")
            if plain in OPTIONS:
                raise BadInput(f"{name!r} has an option of its own: use {OPTIONS[plain]}.", "slurm")

    def parameters(self, jobs: Sequence[Job]) -> dict[str, Any]:
        """Return submitit's parameters for these jobs."""
        return {
            "name": "bnt",
            "timeout_min": self.minutes,
            "mem_gb": self.memory_gb,
            "cpus_per_task": max(job.threads for job in jobs),
            "gpus_per_node": 1 if any(job.device.startswith("cuda") for job in jobs) else None,
            "slurm_partition": self.partition or None,
            "slurm_array_parallelism": self.at_once or len(jobs),
            "slurm_additional_parameters": {name.replace("-", "_"): value for name, value in self.extra.items()},
        }


def run_slurm(jobs: Sequence[Job], settings: Slurm, watch: _engine.Watcher | None = None) -> _engine.Failures:
    """Submit jobs as arrays and wait for them; return the failures.

    A job that SLURM ends, or that is lost with its node, is one failed job. When this command ends early, it cancels
    what it submitted. A preempted job that SLURM starts again resumes from its checkpoint.
    """
    try:
        import submitit
    except ImportError as error:
        raise BadInput("submitit is not installed: pip install 'brain-network-transformer[slurm]'.") from error
    folder = _new_folder(lock_of(jobs[0]).parent.parent / "slurm")
    with held(folder / LOCK, of=folder):
        return _submit(submitit, folder, jobs, settings, watch)


def _submit(
    submitit: Any, folder: Path, jobs: Sequence[Job], settings: Slurm, watch: _engine.Watcher | None
) -> _engine.Failures:
    """Do what :func:`run_slurm` promises, in a folder of this submission."""
    waiting: dict[Any, Job] = {}
    try:
        try:
            executor = submitit.AutoExecutor(folder, cluster=CLUSTER)
        except RuntimeError as error:
            raise BadInput(
                "There is no SLURM here (srun is not found): start this on a node from which you submit jobs, or use "
                "--engine local.",
                "engine",
            ) from error
        executor.update_parameters(**settings.parameters(jobs))
        for first in range(0, len(jobs), LARGEST_ARRAY):
            part = jobs[first : first + LARGEST_ARRAY]
            texts, answers = [job.to_json() for job in part], [str(_answer(folder, job)) for job in part]
            try:
                submitted = executor.map_array(carry_out, texts, answers)
            except (submitit.core.utils.FailedJobError, submitit.core.utils.FailedSubmissionError) as error:
                raise BadInput(f"SLURM did not take the jobs ({' '.join(str(error).split())}).", "engine") from error
            waiting |= dict(zip(submitted, part))
        return _wait(folder, waiting, watch)
    finally:
        for left in waiting:
            left.cancel(check=False)
        _forget_pickles(folder)


def _new_folder(logs: Path) -> Path:
    """Make a submission's folder. No one could put a pickle there before, nor can others now."""
    if logs.is_symlink():
        raise BadInput(f"{logs} is a link: remove it, because the files of the jobs are stored in the study itself.")
    logs.mkdir(exist_ok=True)
    for left in logs.iterdir():  # by a command that was killed: its jobs that have not started find nothing to do
        if left.is_dir() and not left.is_symlink() and not in_use(left / LOCK):
            _forget_pickles(left)
    return Path(tempfile.mkdtemp(dir=logs, prefix=time.strftime("%Y%m%d-%H%M%S-")))


def _forget_pickles(folder: Path) -> None:
    for pattern in ("*.pkl", "*.answer"):
        for file in folder.glob(pattern):
            file.unlink(missing_ok=True)


def _answer(folder: Path, job: Job) -> Path:
    return folder / f"{job.name}.answer"


def carry_out(text: str, answer: str) -> None:
    """Carry one job out inside a SLURM job; write why it failed, or nothing, to a file."""
    write_atomic(answer, attempt(Job.from_json(text), _in_time))


def _in_time(job: Job) -> None:
    from submitit.core.utils import UncompletedJobError

    try:
        run_job(job)
    except UncompletedJobError as error:  # what submitit raises when SLURM announces the end
        raise BadInput(f"its time on SLURM was up: {ADVICE['TIMEOUT']}{REPEAT}") from error


def _wait(folder: Path, waiting: dict[Any, Job], watch: _engine.Watcher | None) -> _engine.Failures:
    """Take jobs out of ``waiting`` as they end; return the failures."""
    failures: _engine.Failures = {}
    ended: dict[Any, float] = {}
    total = len(waiting)
    while waiting:
        if watch is not None:
            running = [job for one, job in waiting.items() if one not in ended and holder(lock_of(job))]
            watch(running, total - len(waiting), total, failures)
        for one, job in list(waiting.items()):
            if not one.done():
                continue
            answer = _answer(folder, job)
            if answer.is_file():
                reason = answer.read_text()
            elif time.monotonic() - ended.setdefault(one, time.monotonic()) < ANSWER_SECONDS:
                continue
            else:
                reason = _lost(one)
            del waiting[one]
            if reason:
                failures[job.name] = reason
        if waiting:
            time.sleep(_engine.POLL_SECONDS)
    if watch is not None:
        watch([], total, total, failures)
    return failures


def _lost(one: Any) -> str:
    """Return why a job left no answer, as far as SLURM says."""
    state = one.state
    advice = ADVICE.get(state.split()[0], "")
    return f"SLURM job {one.job_id} ended early ({state.lower()}), see {one.paths.stderr}: {advice}{REPEAT}"
