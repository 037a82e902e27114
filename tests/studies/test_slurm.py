"""The SLURM engine, with submitit's local executor, and with SLURM's commands played by small scripts."""

from __future__ import annotations

import os
import pickletools
import re
import signal
import sys
import textwrap
from pathlib import Path

import pytest
from small_studies import make_study, tiny, weights

from bnt.cli._options import Machine
from bnt.cohort._files import held, holder
from bnt.errors import BadInput
from bnt.studies import Slurm, _engine, _slurm
from bnt.studies._engine import last_line
from bnt.studies._job import ELSEWHERE, Job, Variant, lock_of

RIDGE = Variant("ridge", "ridge")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_engine, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(_slurm, "ANSWER_SECONDS", 0.1)


@pytest.fixture
def on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("submitit", reason="submitit is not installed (extra [slurm])")
    monkeypatch.setattr(_slurm, "CLUSTER", "local")


def predictions(folder: Path) -> dict[str, bytes]:
    return {file.parent.name: file.read_bytes() for file in folder.glob("runs/*/predictions.csv")}


def send_once(what: signal.Signals, sent: list[str]):
    """A watcher that sends a signal to the process of the first network that has trained a little."""

    def watch(running: list[Job], done: int, total: int, failures: dict[str, str]) -> None:
        for job in running:
            process = re.search(r"process (\d+)", holder(lock_of(job)))
            if process and not sent and last_line(job).get("epoch", 0) >= 3:
                os.kill(int(process.group(1)), what)
                sent.append(job.name)

    return watch


def test_what_is_pickled_is_a_function_of_the_package_and_text(tmp_path):
    submitit = pytest.importorskip("submitit", reason="submitit is not installed (extra [slurm])")
    submitit.core.utils.DelayedSubmission(_slurm.carry_out, "{}", "file").dump(tmp_path / "one.pkl")
    codes = list(pickletools.genops((tmp_path / "one.pkl").read_bytes()))
    words = [word for code, word, _ in codes if "UNICODE" in code.name]
    assert sum(code.name in ("GLOBAL", "STACK_GLOBAL") for code, _, _ in codes) == 2
    assert {"submitit.core.utils", "DelayedSubmission", "bnt.studies._slurm", "carry_out"} <= set(words)


def test_a_run_whose_time_is_up_names_the_option_and_the_study_given_again_ends_at_the_same_numbers(
    on_this_machine, cohort, whole, tmp_path
):
    study = make_study(tmp_path / "study", cohort, [tiny()], n_splits=1)
    warned: list[str] = []  # submitit takes any warning within the last ten minutes for the end
    failures = study.run(engine="slurm", slurm=Slurm(minutes=9), watch=send_once(signal.SIGUSR2, warned))
    assert list(failures) == warned
    assert len(warned) == 1
    assert "--minutes" in failures[warned[0]]
    left = [file for file in (study.folder / "slurm").rglob("*") if file.is_file()]
    assert {file.suffix for file in left} == {".out", ".err"}

    assert study.run() == {}
    assert len(weights(study.folder)) == 1
    assert weights(study.folder).items() <= weights(whole).items()


SBATCH = """
    import os, re, subprocess, sys
    text = open(sys.argv[1]).read()
    open(os.environ["FAKE"] + "/batch.sh", "w").write(text)
    n = int(re.search(r"--array=0-(\\d+)", text).group(1)) + 1
    for i in range(n):
        env = os.environ | {"SLURM_JOB_ID": str(70 + i), "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": str(i)}
        started = subprocess.Popen(["bash", sys.argv[1]], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        open(f"{os.environ['FAKE']}/{i}.pid", "w").write(str(started.pid))
    print("Submitted batch job 7")
"""
SRUN = """
    import os, sys
    if os.environ["SLURM_ARRAY_TASK_ID"] == os.environ.get("LOST"):
        sys.exit(1)
    words = sys.argv[1:]
    command = words[words.index(sys.executable):]
    os.execv(command[0], command)
"""
SACCT = """
    import os
    from pathlib import Path
    print("JobID|State|NodeList")
    for file in Path(os.environ["FAKE"]).glob("*.pid"):
        status = Path("/proc") / file.read_text() / "status"
        over = not status.exists() or "State:\\tZ" in status.read_text()
        print(f"7_{file.stem}|{'NODE_FAIL' if over else 'RUNNING'}|n1")
"""


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Commands of SLURM that run an array's jobs on this machine; they keep the batch script."""
    pytest.importorskip("submitit", reason="submitit is not installed (extra [slurm])")
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in {"sbatch": SBATCH, "srun": SRUN, "sacct": SACCT, "scancel": "\n"}.items():
        (folder / name).write_text(f"#!{sys.executable}\n{textwrap.dedent(text)}")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE", str(folder))
    return folder


def test_an_array_asks_for_the_resources_and_a_lost_node_is_one_failed_job(scripts, cohort, tmp_path, monkeypatch):
    """The other job's predictions are those of the local engine."""
    here, study = (make_study(tmp_path / name, cohort, [RIDGE]) for name in ("here", "study"))
    assert here.run() == {}
    monkeypatch.setenv("LOST", "1")
    machine = Machine(
        engine="slurm", jobs=1, partition="short", minutes=30, memory_gb=2.5, slurm=("account=lab", "mail-type=END")
    )
    failures = study.run(engine="slurm", slurm=machine.slurm_settings())
    assert list(failures) == [study.jobs()[1].name]
    (said,) = failures.values()
    assert "node_fail" in said
    assert "repeat the command" in said
    assert f"see {study.folder}/slurm/" in said
    asked = (scripts / "batch.sh").read_text()
    for line in ("array=0-1%1", "partition=short", "time=30", "mem=2560MB", "cpus-per-task=1", "account=lab"):
        assert f"#SBATCH --{line}\n" in asked
    assert "#SBATCH --mail-type=END\n" in asked
    assert len(predictions(study.folder)) == 1
    assert predictions(study.folder).items() <= predictions(here.folder).items()


def test_pickles_of_an_earlier_submission_are_removed_unread_and_links_are_left(tmp_path):
    old, mine = tmp_path / "slurm" / "old", tmp_path / "mine"
    for folder in (old, mine):
        folder.mkdir(parents=True)
        (folder / "1_0_result.pkl").write_bytes(b"hostile")
    (tmp_path / "slurm" / "link").symlink_to(mine)
    new = _slurm._new_folder(tmp_path / "slurm")
    assert list(new.iterdir()) == []
    assert new.stat().st_mode & 0o077 == 0, "others can read or write what the jobs load"
    assert list(old.iterdir()) == []
    assert list(mine.iterdir()) == [mine / "1_0_result.pkl"]


def test_pickles_of_another_command_that_lives_are_left(tmp_path):
    theirs = tmp_path / "slurm" / "theirs"
    theirs.mkdir(parents=True)
    (theirs / "1_0_submitted.pkl").touch()
    with held(theirs / _slurm.LOCK, of=theirs):
        _slurm._new_folder(tmp_path / "slurm")
        assert (theirs / "1_0_submitted.pkl").exists()
    _slurm._new_folder(tmp_path / "slurm")
    assert not (theirs / "1_0_submitted.pkl").exists()


def test_a_job_that_starts_while_another_command_works_on_its_run_is_no_failure(cohort, tmp_path, monkeypatch):
    """What becomes of its answer is the same for every engine, see test_engine.py."""
    (job,) = make_study(tmp_path / "study", cohort, [RIDGE], n_splits=1).jobs()
    monkeypatch.setattr("bnt.studies._job.LOOK_SECONDS", 0.0)
    with held(lock_of(job), of=Path(job.folder)):
        _slurm.carry_out(job.to_json(), str(tmp_path / "answer"))
    assert (tmp_path / "answer").read_text() == ELSEWHERE
    assert not Path(job.folder).exists()


def test_without_submitit_or_slurm_the_engine_says_so(cohort, tmp_path, monkeypatch):
    study = make_study(tmp_path / "study", cohort, [RIDGE], n_splits=1)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "submitit", None)
        with pytest.raises(BadInput, match="submitit is not installed: pip install"):
            study.run(engine="slurm")
    pytest.importorskip("submitit", reason="submitit is not installed (extra [slurm])")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(BadInput, match="no SLURM here"):
        study.run(engine="slurm")


@pytest.mark.parametrize(
    ("machine", "named"),
    [
        (Machine(partition="short"), "--partition"),
        (Machine(engine="ray", slurm=("account=lab",)), "--slurm"),
        (Machine(engine="slurm", minutes=0), "minutes"),
        (Machine(engine="slurm", memory_gb=-1.0), "memory"),
        (Machine(engine="slurm", slurm=("time=5",)), "--minutes"),
        (Machine(engine="slurm", slurm=("array=5",)), "array"),
    ],
)
def test_options_that_mean_nothing_are_refused(machine, named):
    with pytest.raises(BadInput, match=named):
        machine.slurm_settings()
