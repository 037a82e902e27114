"""Kills at random moments, and too little disk or memory: parts of ``reliability.py``.

A command is run in a child of this process, which has imported everything already, so that a kill costs what the
command does and not the imports; workers of a study are forked in the same way. Every tenth kill is of a real
``python -m bnt``, with its imports and its server of workers. After a kill the command is repeated, and the folder must
be that of an undisturbed command: byte for byte, but for what two undisturbed commands differ in (times, memory). There
numbers are compared without those that measure time or memory, and digests must be those of the files.
"""

from __future__ import annotations

import contextlib
import csv
import json
import multiprocessing
import os
import random
import re
import resource
import shutil
import signal
import sys
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

from fault_targets import COMPARE, NETWORK
from mutants import SECONDS, Table

import bnt.__main__
from bnt.cli._main import COMMANDS, entry_point

MEASURED = (
    *("seconds", "cpu_seconds", "peak_memory_mb", "command", "commands", "CPU s"),
    *("ours CPU s", "nilearn CPU s", "times faster"),  # of `bench`: what is left are its rows and largest differences
)
TIMED = (
    "DONE",
    ".sha256",
    "report.json",
    "reproduce.json",
    "metrics.jsonl",
    "model_card.md",
    "runs.csv",
    "summary.csv",
    "summary.md",
)
LOG = "said.txt"
RELEASE = "raw"
NOT_KILLED = {"info", "audit", "models", "theory", "bids-app"}  # they write nothing, or run another command


def commands() -> dict[str, tuple[list[str], list[str]]]:
    """Return, by name: the words of every command that writes, and what is added where its output is there already."""
    again = ["--overwrite"]
    study = ["--splits", "2", "--jobs", "1", "--out", "new"]
    made = {
        "simulate": (["simulate", "new", "--subjects", "100", "--rois", "20"], again),
        "select": (["select", "cohort", "new", "--where", "sex=M"], again),
        "import": (["import", "scans-npy", "new"], again),
        "import images": (
            ["import", "bids/derivatives/fmriprep", "new", "--atlas", "six.nii.gz", "--jobs", "1"],
            again,
        ),
        "fetch": (["fetch", "abide", "new", "--data-dir", RELEASE], again),
        "split": (["split", "cohort", "--n-splits", "5", "--out", "new.csv"], again),
        "train": (
            ["train", "cohort", *NETWORK[:4], "ffn=16", "--epochs", "4", "--threads", "1", "--out", "new"],
            ["--resume"],
        ),
        "train linear": (["train", "cohort", "--model", "svm", "--out", "new"], ["--resume"]),
        "compare": ([*COMPARE, "--out", "new"], []),
        "compare networks": (
            ["compare", "cohort", "--models", "bnt:n_clusters=3,ffn=16", "--epochs", "2", *study],
            [],
        ),
        "tune": (["tune", "cohort", "--model", "ridge", "--grid", "penalty=0.1,1", *study], []),
        "learning-curve": (
            ["learning-curve", "cohort", "--model", "ridge", "--fractions", "0.3", "0.5", "0.7", "1", *study],
            [],
        ),
        "reproduce": (["reproduce", "parameters", "cohort", "--out", "new"], []),
        "reproduce table": (
            ["reproduce", "table1", "cohort", "--preset", "quick", "--only", "vanilla", "--epochs", "2", *study],
            [],
        ),
        "predict": (["predict", "run", "cohort", "--out", "new.csv"], []),
        "validate": (["validate", "linear", "elsewhere", "--out", "new"], again),
        "explain": (["explain", "linear", "cohort", "--permutations", "99", "--out", "new"], again),
        "report": (["report", "linear", "--out", "new.html"], []),
        "report of a study": (["report", "study", "--out", "new.html", "--paper", "new"], again),
        "export": (["export", "run", "new"], again),
        "bench": (
            ["bench", "connectivity", "--subjects", "8", "--rois", "20", "--repeats", "1", "--csv", "new.csv"],
            [],
        ),
    }
    assert {words[0] for words, _ in made.values()} == set(COMMANDS) - NOT_KILLED
    return made


def prepare() -> None:
    """Import what commands import, and make what only these need: other people, and a small release of ABIDE."""
    import numpy as np
    import pandas as pd

    other = bnt.simulate_cohort(n_subjects=60, n_rois=20, n_sites=2, n_volumes=40, seed=7)
    people = other.participants.assign(participant_id=[f"else-{i:03d}" for i in range(60)], family="")
    people["family"] = people["participant_id"]
    if not Path("elsewhere").exists():
        bnt.Cohort(other.connectomes, people, other.rois).save("elsewhere")
    root = Path(RELEASE) / "ABIDE_pcp"
    folder = root / "cpac" / "filt_noglobal"
    folder.mkdir(parents=True, exist_ok=True)
    rng, names = np.random.default_rng(0), [f"NYU_{51000 + i:07d}" for i in range(6)]
    for name in names:
        head = "\t".join(f"#{i + 1}" for i in range(8))
        file = folder / f"{name}_rois_cc200.1D"
        np.savetxt(file, rng.normal(size=(120, 8)), fmt="%.6f", delimiter="\t", header=head, comments="")
    numbers = ("AGE_AT_SCAN", "FIQ", "VIQ", "PIQ", "ADOS_TOTAL", "BMI", "func_mean_fd")
    table = {"SUB_ID": range(51000, 51006), "SITE_ID": "NYU", "FILE_ID": names, "DX_GROUP": [1, 2] * 3, "SEX": 1}
    table |= {"HANDEDNESS_CATEGORY": "R", "EYE_STATUS_AT_SCAN": 1, **dict.fromkeys(numbers, 10.0)}
    raters = ("qc_rater_1", "qc_anat_rater_2", "qc_func_rater_2", "qc_anat_rater_3", "qc_func_rater_3")
    pd.DataFrame(table | dict.fromkeys(raters, "OK")).to_csv(root / "Phenotypic_V1_0b_preprocessed1.csv")


# -- running one command -------------------------------------------------------------------------------


def start(words: list[str], real: bool = False, limit: tuple[int, int] | None = None) -> int:
    """Start a command in a process group of its own and return its number; it writes what it says into a file."""
    # A signal that comes before the child has begun waits until it has: a forked command is a Python that runs already.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    child = os.fork()
    if child:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        return child
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it in commands behind an &
        if not real:
            signal.signal(signal.SIGINT, bnt.__main__._leave)
            signal.signal(signal.SIGTERM, bnt.__main__._leave)
        said = os.open(LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(said, 1)
        os.dup2(said, 2)
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
        if limit is not None:
            sys.dont_write_bytecode = True  # Python 3.11 takes a module that the limit cut off for whole
            os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
            resource.setrlimit(limit[0], (limit[1], limit[1]))
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        if real:
            os.execv(sys.executable, [sys.executable, "-m", "bnt", *words])
        from bnt.studies import _engine, _server

        _engine.start_server = _server.start_server = lambda *_: multiprocessing.get_context("fork")
        # Workers of the real server do not inherit what the command does with SIGTERM, by which it ends them.
        os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))
        sys.argv = ["bnt", *words]
        code = 1
        try:
            entry_point()
        except SystemExit as end:
            code = int(end.code or 0)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    except BaseException:  # noqa: BLE001 - what Python would print
        import traceback

        with contextlib.suppress(OSError):
            traceback.print_exc()
            sys.stderr.flush()
    finally:
        os._exit(1)  # never back into the process that forked it


def wait(child: int, seconds: float) -> int | None:
    """Return the exit code of a child (negative: its signal), or None where it still runs after some seconds."""
    until = time.monotonic() + seconds
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > until:
            return None
        time.sleep(0.005)


def run(words: list[str], real: bool = False, limit: tuple[int, int] | None = None) -> tuple[int | None, str]:
    """Run a command to its end; return its code, None where it hangs, and what it said."""
    child = start(words, real, limit)
    code = wait(child, 5 * SECONDS)
    if code is None:
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return code, Path(LOG).read_text(errors="replace")


def clean() -> None:
    """Remove what a command made."""
    for path in (*Path().glob("new*"), *Path().glob(".new*")):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


# -- comparing -----------------------------------------------------------------------------------------


def tree() -> dict[str, bytes]:
    """Return every file that a command made."""
    files = [f for root in Path().glob("new*") for f in (root.rglob("*") if root.is_dir() else [root]) if f.is_file()]
    return {str(f): f.read_bytes() for f in sorted(files)}


def unmeasured(name: str, data: bytes) -> Any:
    """Return the content of a file without times and memory; of other kinds of files, whether they are there."""

    def without(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: without(v) for k, v in value.items() if k not in MEASURED}
        return [without(v) for v in value] if isinstance(value, list) else value

    if name.endswith(".json") and not name.endswith(".times.json"):
        return without(json.loads(data))
    if name.endswith(".jsonl"):
        return [without(json.loads(line)) for line in data.splitlines()]
    if name.endswith(".csv"):
        rows = list(csv.DictReader(data.decode().splitlines()))
        return [{k: v for k, v in row.items() if not any(m in (k or "") for m in MEASURED)} for row in rows]
    if name.endswith(("DONE", ".sha256")):
        for line in data.decode().splitlines():
            digest, _, file = line.partition("  ")
            if sha256((Path(name).parent / file).read_bytes()).hexdigest() != digest:
                return f"the digest of {file} is another"
        return [line.partition("  ")[2] for line in data.decode().splitlines()]
    return re.sub(rb"[\d.]+", b"", data) if name.endswith(".md") else True


def differs(found: dict[str, bytes], wanted: dict[str, Any], exact: set[str]) -> str:
    """Return in what the files differ from those of an undisturbed command; nothing where they do not."""
    if set(found) != set(wanted):
        return f"other files: {sorted(set(found) ^ set(wanted))[:3]}"
    for name, data in found.items():
        same = sha256(data).hexdigest() == wanted[name] if name in exact else unmeasured(name, data) == wanted[name]
        if not same:
            return f"{name} differs"
    return ""


def undisturbed(words: list[str]) -> tuple[dict[str, Any], set[str], float]:
    """Run a command twice; return its files, those that are the same in both, and how long it takes."""
    seen = []
    for _ in range(2):
        clean()
        began = time.monotonic()
        code, said = run(words)
        assert code == 0, (words, said[-400:])
        took = time.monotonic() - began
        seen.append(tree())
    exact = {n for n, data in seen[0].items() if seen[1].get(n) == data and not n.endswith(TIMED)}
    wanted = {n: sha256(d).hexdigest() if n in exact else unmeasured(n, d) for n, d in seen[1].items()}
    clean()
    return wanted, exact, took


# -- kills ---------------------------------------------------------------------------------------------

COLUMNS = ("kill", "command", "signal", "moment", "process", "code", "outcome", "n_files", "n_byte_for_byte")


def kills(file: Path, count: int, seed: int = 0, only: str = "", real_every: int = 10) -> list[dict[str, Any]]:
    """Kill every command at random moments, repeat it, and compare what comes out with an undisturbed one."""
    prepare()
    rows = list(csv.DictReader(open(file, newline=""))) if file.is_file() else []  # noqa: SIM115
    names = order([name for name in commands() if only in name])
    known: dict[str, tuple[dict[str, Any], set[str], float]] = {}
    for i in range(len(rows), count):
        name = names[i % len(names)]
        words, again = commands()[name]
        if name not in known:
            known[name] = undisturbed(words)
        wanted, exact, took = known[name]
        draw = random.Random(f"{seed} {i}")
        number = draw.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
        moment, real = draw.random(), i % real_every == real_every - 1
        row = [i, name, number.name, f"{moment:.3f}", "real" if real else "forked"]
        outcome = one_kill(words, again, number, moment * (took + 3 * real), real, wanted, exact)
        rows.append(dict(zip(COLUMNS, [*row, *outcome, len(wanted), len(exact)])))
        with open(file, "w", newline="") as handle:
            writer = csv.DictWriter(handle, COLUMNS)
            writer.writeheader()
            writer.writerows(rows)
        if outcome[1] != "identical":
            print(f"kill {i} of {name}: {outcome}", file=sys.stderr, flush=True)
    clean()
    return rows


DEAR = ("compare networks", "tune", "learning-curve", "reproduce", "reproduce table", "report of a study", "bench")


def order(names: list[str]) -> list[str]:
    """Return all commands once, then rounds of the cheap ones with one dear one each."""
    cheap, dear = [n for n in names if n not in DEAR], [n for n in names if n in DEAR]
    return names + [n for one in dear or [cheap[0]] for n in (*cheap, one)]


def one_kill(
    words: list[str], again: list[str], number: signal.Signals, after: float, real: bool, wanted: dict, exact: set[str]
) -> tuple[Any, str]:
    """Kill a command after some seconds, repeat it, compare; return its code and ``identical``, or what was wrong."""
    clean()
    child = start(words, real)
    code = wait(child, after)
    if code is None:
        with contextlib.suppress(ProcessLookupError):
            if number == signal.SIGTERM:
                os.kill(child, number)  # as a batch system does; Ctrl-C and the kill go to all of the group
            else:
                os.killpg(child, number)
        code = wait(child, SECONDS)
    if code is None:
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return "", f"it did not end within {SECONDS} s"
    said = Path(LOG).read_text(errors="replace")
    unborn = real and code == -number and not said  # Python itself had not begun
    if "Traceback" in said or (code not in (0, -signal.SIGKILL, 128 + number) and not unborn):
        return code, f"code {code}: {said.strip()[-150:]}"
    there = any(Path(name).exists() for name in ("new", "new.csv", "new.html"))
    last, said = run([*words, *(again if there else [])])
    if last != 0:
        return code, f"repeated: code {last}, {said.strip()[-150:]}"
    left = [p.name for p in (*Path().glob(".new*"), *Path("new").rglob("*.tmp"))]
    return code, f"left behind: {left[:3]}" if left else differs(tree(), wanted, exact) or "identical"


# -- disk and memory -----------------------------------------------------------------------------------


STUDIES = ("compare", "tune", "learning-curve", "reproduce")  # they name the runs that failed, and end with code 1
SMALL = (0.6, 0.8, 1.0, 1.2, 1.4)  # GB of address space, in which the libraries cannot be loaded


def limits(
    file: Path,
    count: int,
    seed: int = 0,
    only: str = "",
    kinds: tuple[str, ...] = ("little disk", "small address space", "little memory"),
) -> Table:
    """Run commands where files or memory may not grow beyond a limit.

    Limits of disk and memory are drawn at random, ``count`` of each; every command is run in each of the small address
    spaces, which must be refused in one line.
    """
    prepare()
    table = Table(file)
    names = [name for name in commands() if only in name]
    for kind in kinds:
        found, small = table.count(f"too {kind}"), kind == "small address space"
        for i in range(found.tried, len(names) * len(SMALL) if small else count):
            name, draw = names[i % len(names)], random.Random(f"{seed} {kind} {i}")
            if kind == "little disk":
                limit = resource.RLIMIT_FSIZE, draw.choice([0, 100, 4096, 20_000, 60_000])
            else:
                gigabytes = SMALL[i // len(names)] if small else draw.uniform(1.5, 3.5)
                limit = resource.RLIMIT_AS, int(gigabytes * 2**30)
            clean()
            # An address space is limited before libraries are loaded, so that has to be a process of its own.
            words = commands()[name][0]
            code, said = run(words, limit[0] == resource.RLIMIT_AS, limit)
            where = f"{name} with {limit[1]} bytes: code {code}, {said.strip()[-200:]}"
            last = said.strip().rpartition("\n")[2]
            full = kind == "little disk" and len(said.encode()) >= limit[1]  # what is said goes into a file, too
            allowed = (0, 1, 2) if words[0] in STUDIES else (0, 2)
            silent = code == 2 and not full and not last.startswith("bnt ")
            if code is None:
                found.add("hangs", where)
            elif "Traceback" in said or code not in allowed or silent:
                found.add("tracebacks", where)
            elif code == 0 and (small or not tree()) or small and said.count("\n") != 1:
                found.add("garbage", where)
            else:
                found.add("refused" if code else "same")
            table.write()
    clean()
    return table
