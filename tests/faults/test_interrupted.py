"""Signals, a full disk, no memory: one sentence, the right code, nothing half-written, and the same bits afterwards."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bnt.cli import _main
from bnt.cli._main import main
from bnt.cohort import _files
from bnt.cohort._files import held, new_folder, write_atomic
from bnt.errors import BadInput, lacks_memory

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import interruptions  # noqa: E402

TRAIN = ["train", "cohort", "--model", "bnt", "--option", "n_clusters=3", "--threads", "1"]

# Runs a command and sends itself a signal when a module is looked for.
AT_IMPORT = """
import os, sys
name, number = sys.argv[1], int(sys.argv[2])
del sys.argv[1:3]
class At:
    def find_spec(self, wanted, *_):
        if wanted == name:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), number)
sys.meta_path.insert(0, At())
from bnt.__main__ import start
start()
"""


@pytest.fixture
def heard() -> Iterator[None]:
    """Programs started here take Ctrl-C: a shell ignores it in commands behind an &, and programs inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def run(program: list[str], folder: Path, **more) -> tuple[int, list[str]]:
    """Run a program; return its code and the lines of its standard error."""
    done = subprocess.run(
        [sys.executable, *program], cwd=folder, capture_output=True, text=True, timeout=300, check=False, **more
    )
    return done.returncode, done.stderr.splitlines()


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize(("module", "number"), [("bnt.cli._main", 2), ("torch.nn", 15), ("torch.optim", 2)])
def test_a_signal_during_imports_is_one_sentence(copy, module, number):
    words = [*TRAIN, "--epochs", "1", "--out", "early"]
    code, said = run(["-c", AT_IMPORT, module, str(number), *words], copy)
    assert code == 128 + number
    assert len(said) == 1
    assert said[0].startswith("bnt")


def test_a_signal_while_a_text_is_executed_keeps_its_code(tmp_path):
    """As where a dataclass is made: `python -m` then ends itself by SIGINT, whatever the exit code is."""
    (tmp_path / "ended.py").write_text(
        "from bnt.cli import _main\n"
        "text = 'import os\\nos.kill(os.getpid(), 15)\\nwhile True: pass'\n"
        "_main.find_command = lambda name: exec(text)\n"
        "_main.entry_point()\n"
    )
    code, said = run(["-m", "ended", "info", "x"], tmp_path)
    assert (code, said) == (143, ["bnt info: ended by a signal; no partial file is left."])


@pytest.mark.parametrize("words", [["nosuch"], ["info", "nowhere"]])
def test_the_code_is_right_where_nothing_can_be_said(words):
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "bnt", *words], stdout=full, stderr=full, check=False)
    assert done.returncode == 2


def test_an_interrupt_that_a_library_hides_is_still_one(monkeypatch, capsys):
    def hidden(_):
        try:
            _main._interrupt(signal.SIGTERM, None)
        except KeyboardInterrupt:
            raise ImportError("initialization failed") from None

    monkeypatch.setattr(_main, "_received", [])
    monkeypatch.setattr(_main, "find_command", hidden)
    assert main(["info", "x"]) == 143
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes"),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
    ],
)
def test_no_memory_is_one_sentence_whoever_says_it(error, monkeypatch, capsys):
    def fails(_):
        raise error

    assert lacks_memory(error)
    monkeypatch.setattr(_main, "find_command", fails)
    assert main(["train", "x", "--out", "y"]) == 2
    assert "memory" in capsys.readouterr().err


def test_an_address_space_that_is_too_small_is_told_before_libraries_hang_in_it(copy):
    limit = "import resource; resource.setrlimit(resource.RLIMIT_AS, (680 << 20,) * 2); "
    code, said = run(["-c", limit + "from bnt.__main__ import start; start()", *TRAIN, "--out", "new"], copy)
    assert code == 2
    assert len(said) == 1
    assert "ulimit -v" in said[0]


COMMANDS = {
    "simulate": ["simulate", "new", "--subjects", "60", "--rois", "20"],
    "select": ["select", "cohort", "new", "--where", "sex=F"],
    "split": ["split", "cohort", "--out", "new.csv"],
    "train": [*TRAIN, "--epochs", "1", "--out", "new"],
    "report": ["report", "run"],
    "predict": ["predict", "run", "cohort", "--out", "new.csv"],
}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.usefixtures("undrawn")
def test_a_full_disk_is_one_sentence_and_leaves_nothing(copy, name, monkeypatch, capsys):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = {str(f.relative_to(copy)): f.stat().st_mtime_ns for f in copy.rglob("*") if f.is_file()}
    monkeypatch.setattr(_files.os, "fsync", full)
    assert main(COMMANDS[name]) == 2
    said = capsys.readouterr().err.splitlines()
    assert "No space left" in said[-1]
    after = {str(f.relative_to(copy)): f.stat().st_mtime_ns for f in copy.rglob("*") if f.is_file()}
    assert {k: v for k, v in after.items() if not k.startswith("new/")} == before
    assert not list(copy.glob(".new*"))
    assert not list(copy.rglob("*.tmp"))


def test_a_terminated_training_resumes_to_the_same_weights(copy):
    words = [*TRAIN, "--epochs", "25", "--out"]
    process = interruptions.start([*words, "cut"])  # a fork of this process: nothing is imported again
    until = time.monotonic() + 100
    while not (copy / "cut" / "metrics.jsonl").is_file() and time.monotonic() < until:
        time.sleep(0.01)
    os.kill(process, signal.SIGTERM)
    assert interruptions.wait(process, 100) == 143
    assert "Traceback" not in (copy / interruptions.LOG).read_text()
    assert not (copy / "cut" / "DONE").exists()
    assert main([*words, "cut", "--resume"]) == 0
    assert main([*words, "whole"]) == 0
    one, other = ((copy / name / "weights.safetensors").read_bytes() for name in ("cut", "whole"))
    assert one == other


def test_two_trainings_do_not_share_a_folder(copy, capsys):
    with held(copy / ".run.lock", of=copy / "run"):
        assert main([*TRAIN, "--epochs", "2", "--out", "run", "--resume"]) == 2
        said = capsys.readouterr().err
        assert str(os.getpid()) in said
        assert "run is in use" in said
    assert not (copy / ".run.lock").exists()
    assert main([*TRAIN, "--epochs", "2", "--out", "run", "--resume"]) == 0
    assert not (copy / ".run.lock").exists()


def test_folders_of_killed_processes_are_removed_and_those_of_living_ones_kept(tmp_path):
    (tmp_path / ".new.dead1234.tmp").mkdir()
    (tmp_path / ".new.dead1234.tmp" / "part").write_text("half")
    with new_folder(tmp_path / "new") as living:
        _files.tidy(tmp_path / "new")
        assert living.is_dir()
        write_atomic(living / "cohort.json", "{}")
    assert [f.name for f in tmp_path.iterdir()] == ["new"]


def test_what_a_kill_left_aside_is_put_back(tmp_path):
    aside = tmp_path / ".new.dead1234.old"
    aside.mkdir()
    (aside / "cohort.json").write_text("{}")
    with pytest.raises(BadInput, match="exists already"), new_folder(tmp_path / "new"):
        pass
    assert (tmp_path / "new" / "cohort.json").is_file()


@pytest.mark.usefixtures("heard")
def test_an_interrupt_reaches_no_worker_and_prints_no_traceback(copy):
    """Ctrl-C goes to the whole group: the server that imports, its workers, and the driver, who alone answers."""
    words = ["compare", "cohort", "--models", "bnt", "--epochs", "300", "--splits", "2", "--jobs", "1", "--out", "cut"]
    with subprocess.Popen(
        [sys.executable, "-m", "bnt", *words],
        cwd=copy,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as process:
        while process.poll() is None and not (copy / "cut" / "study.json").is_file():
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)  # while the server imports
        said = process.communicate(timeout=120)[1]
    assert process.returncode == 130
    assert "Traceback" not in said
    assert said.splitlines()[-1].startswith("bnt compare: interrupted")
