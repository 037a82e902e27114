"""A campaign of faults: broken files, kills, a full disk, no memory, hostile folders and permuted labels, counted.

    python benchmarks/reliability.py results/reliability --mutants 20000 --kills 200

One row per kind of fault goes to ``reliability.csv`` as soon as it is known: how many were tried, how many ended as
they must (one sentence and code 2, or the same result), how many tracebacks, hangs, results that should not be, and how
many files of others were run. ``tests/faults/test_campaign.py`` is the short version.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import os
import pickle
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
import pandas as pd
from interruptions import COMPARE, SECONDS, TRAIN, Count, kills, limited, permuted_labels

import bnt
from bnt.cli._main import main
from bnt.training._trained import seal

# -- something to break --------------------------------------------------------------------------------


def make(folder: Path) -> None:
    """Make a cohort, a run, a study, a table of splits and scans of every format in ``folder``."""
    import scipy.io

    os.chdir(folder)
    cohort = bnt.simulate_cohort(n_subjects=60, n_rois=20, n_sites=2, seed=0)
    cohort.save("cohort")
    for words in (
        [*TRAIN, "--out", "run"],
        ["train", "cohort", "--model", "ridge", "--out", "linear"],
        [*COMPARE, "--out", "study"],
        ["split", "cohort", "--n-splits", "3", "--out", "splits.csv"],
    ):
        assert main(words) == 0, words
    rng = np.random.default_rng(0)
    for kind in ("npy", "npz", "mat", "csv", "gz"):
        Path(f"scans-{kind}").mkdir()
        for i in range(3):
            series, stem = rng.normal(size=(40, 6)), f"scans-{kind}/sub-{i:02d}"
            if kind == "npy":
                np.save(f"{stem}.npy", series)
            elif kind == "npz":
                np.savez_compressed(f"{stem}.npz", series=series)
            elif kind == "mat":
                scipy.io.savemat(f"{stem}.mat", {"series": series}, do_compression=True)
            else:
                pd.DataFrame(series).to_csv(f"{stem}.csv" + ".gz" * (kind == "gz"), index=False, header=False)


# -- broken files --------------------------------------------------------------------------------------

WORDS = [
    b"nan",
    b"inf",
    b"-1",
    b"1e999",
    b"null",
    b"[" * 5000,
    b"{",
    b'"',
    b"\0",
    b"\xff\xfe",
    b"9" * 400,
    b"member9e9.",
]


def mutant(data: bytes, draw: random.Random) -> bytes:
    """Return the bytes of a file with one fault."""
    if not data:
        return draw.randbytes(9)
    at, size = draw.randrange(len(data)), draw.choice([1, 2, 8, 64, 512])
    kind = draw.randrange(9)
    if kind == 0:
        return data[:at] + bytes([data[at] ^ (1 << draw.randrange(8))]) + data[at + 1 :]
    if kind == 1:
        return data[:at]
    if kind == 2:
        return data[:at] + data[at + size :]
    if kind == 3:
        return data[:at] + data[at : at + size] * 2 + data[at + size :]
    if kind == 4:
        return data[:at] + draw.randbytes(size) + data[at + size :]
    if kind == 5:
        return data[:at] + draw.choice(WORDS) + data[at:]
    if kind == 6:
        numbers = list(re.finditer(rb"-?\d+(\.\d+)?", data[: 1 << 16]))
        if numbers:
            one = draw.choice(numbers)
            return data[: one.start()] + draw.choice(WORDS) + data[one.end() :]
        return data + b"\0"
    if kind == 7:
        lines = data.split(b"\n")
        draw.shuffle(lines)
        return b"\n".join(lines)
    return data + draw.randbytes(size)


@dataclass
class Target:
    """Files that a command reads, and how to tell that it took garbage."""

    name: str
    files: list[str]
    words: list[str]
    sealed: bool = False
    """Whether the digests of the run are made anew, so that the readers behind the check are reached."""
    share: int = 1


def targets() -> list[Target]:
    """Return what is broken, with the command that reads it."""
    run = [
        "config.toml",
        "splits.csv",
        "weights.safetensors",
        "predictions.csv",
        "report.json",
        "metrics.jsonl",
        "DONE",
    ]
    store = sorted(str(file) for file in Path("cohort").rglob("*") if file.is_file())
    found = [
        Target("cohort", store, ["info", "cohort", "--verify"], share=4),
        Target(
            "run, digests as written",
            [f"run/{f}" for f in run],
            ["predict", "run", "cohort", "--out", "p.csv"],
            share=4,
        ),
        Target(
            "run, digests made anew", [f"run/{f}" for f in run], ["predict", "run", "cohort", "--out", "p.csv"], True, 4
        ),
        Target("linear run", [f"linear/{f}" for f in run], ["predict", "linear", "cohort", "--out", "p.csv"], True, 4),
        Target("page of a run", [f"run/{f}" for f in run], ["report", "run"], True),
        Target(
            "page of a study", ["study/study.json", "study/summary.csv", "study/comparisons.csv"], ["report", "study"]
        ),
        Target("study to resume", ["study/study.json"], [*COMPARE, "--out", "study"]),
        Target("table of splits", ["splits.csv"], ["split", "cohort", "--check", "splits.csv"], share=4),
    ]
    for kind in ("npy", "npz", "mat", "csv", "gz"):
        files = sorted(str(file) for file in Path(f"scans-{kind}").iterdir())
        found.append(Target(f"scans, .{kind}", files, ["import", f"scans-{kind}", "imported", "--overwrite"], share=4))
    return found


class Hangs(BaseException):
    """Raised by the alarm: no handler of the program takes it for an error of its own."""


def _alarm(*_: object) -> None:
    raise Hangs


def outcome_of(words: list[str]) -> tuple[str, int, str]:
    """Run a command in this process; return traceback, hang or nothing, its code and what it said."""
    said = io.StringIO()
    signal.signal(signal.SIGALRM, _alarm)
    signal.alarm(SECONDS)
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = main(words)
    except Hangs:
        return "hangs", -1, ""
    except BaseException as error:  # noqa: BLE001 - whatever leaves main would be a traceback
        return "tracebacks", -1, f"{type(error).__name__}: {str(error)[:150]}"
    finally:
        signal.alarm(0)
    return "", code, said.getvalue()


def is_garbage(target: Target, changed: bool) -> str:
    """Return what is wrong with what a command made of a broken file; nothing where it is sound."""
    if target.words[0] == "predict":
        numbers = pd.read_csv("p.csv").filter(regex="^(p_|predicted$)").select_dtypes("number").to_numpy()
        if not np.isfinite(numbers).all():
            return "a prediction that is no number"
        if changed and not target.sealed and Path("p.csv").read_bytes() != Path("p-before.csv").read_bytes():
            return "another prediction from a run that changed"
    if target.words[0] == "import":
        cohort = bnt.load_cohort("imported")
        if not np.isfinite(cohort.connectomes).all() or np.abs(cohort.connectomes).max() > 1 + 1e-6:
            return "a connectome that is none"
    return ""


def mutants(count: int, seed: int = 0, until: float = float("inf")) -> list[Count]:
    """Break files of the working directory ``count`` times; stop at the time ``until``."""
    all_targets, draw = targets(), random.Random(seed)
    counts = {t.name: Count(f"mutants: {t.name}") for t in all_targets}
    assert main(["predict", "run", "cohort", "--out", "p-before.csv"]) == 0
    kept = {name: Path(name).read_bytes() for t in all_targets for name in t.files}
    seals = {folder: Path(folder, "DONE").read_bytes() for folder in ("run", "linear")}
    study = {str(f): f.read_bytes() for f in Path("study").rglob("*") if f.is_file()}
    for target in draw.choices(all_targets, weights=[t.share for t in all_targets], k=count):
        if time.time() > until:
            break
        name = draw.choice(target.files)
        data = mutant(kept[name], draw)
        Path(name).write_bytes(data)
        folder = Path(name).parent
        if target.sealed and not name.endswith("DONE"):
            seal(folder)
        outcome, code, said = outcome_of(target.words)
        if not outcome and code == 0:
            wrong = is_garbage(target, data != kept[name])
            outcome = "garbage" if wrong else "harmless"
            said = wrong
        elif not outcome:
            lines = said.strip().splitlines()
            good = code == 2 and lines and lines[-1].startswith(f"bnt {target.words[0]}: ")
            outcome = "refused" if good else "tracebacks"
        counts[target.name].add(outcome, f"{name} ({len(data)} bytes): {said.strip()[-200:]}")
        Path(name).write_bytes(kept[name])
        for one, sums in seals.items():
            Path(one, "DONE").write_bytes(sums)
        if target.words[0] == "compare":
            for file, before in study.items():
                if not Path(file).is_file() or Path(file).read_bytes() != before:
                    Path(file).write_bytes(before)
        shutil.rmtree("imported", ignore_errors=True)
    return list(counts.values())


# -- hostile folders -----------------------------------------------------------------------------------


class Bomb:
    """A pickle that makes a file when it is loaded."""

    def __reduce__(self) -> tuple[Callable, tuple]:
        return os.mkdir, ("executed",)


def hostile() -> Count:
    """Give folders that want their code run to the commands that read them."""
    count = Count("hostile folders")
    evil = "import os\nos.mkdir('executed')\nclass Net: pass\n"

    def attempt(words: list[str], where: str) -> None:
        outcome, code, said = outcome_of(words)
        if Path("executed").exists():
            Path("executed").rmdir()
            outcome = "executed"
        count.add(outcome or ("refused" if code in (0, 2) else "tracebacks"), f"{where}: {said[-150:]}")

    for place in ("run/evil.py", "./evil.py", "../evil.py"):
        for suffix in (":Net", ":Net:x=1"):
            shutil.copytree("run", "theirs", dirs_exist_ok=True)
            Path("theirs/evil.py").write_text(evil)
            Path("evil.py").write_text(evil)
            text = Path("theirs/config.toml").read_text()
            config = text.replace(
                'model = "bnt"', f'model = "{place}{suffix}"\nsource_sha256 = "{sha256(evil.encode()).hexdigest()}"'
            )
            Path("theirs/config.toml").write_text(config)
            seal(Path("theirs"))
            for words in (
                ["predict", "theirs", "cohort"],
                ["report", "theirs"],
                ["explain", "theirs", "cohort", "--out", "e"],
            ):
                attempt(words, f"{place}{suffix} in {words[0]}")
    for kind in ("npy", "npz", "mat", "csv"):
        shutil.rmtree("scans-evil", ignore_errors=True)
        Path("scans-evil").mkdir()
        Path(f"scans-evil/sub-01.{kind}").write_bytes(pickle.dumps(Bomb()))
        attempt(["import", "scans-evil", "imported"], f"a pickle as .{kind}")
    np.save("scans-evil/sub-02.npy", np.array([Bomb()], dtype=object), allow_pickle=True)
    attempt(["import", "scans-evil", "imported"], "an array of objects")
    for name in ("weights.safetensors", "checkpoint.safetensors"):
        shutil.copytree("run", "theirs", dirs_exist_ok=True)
        Path("theirs", name).write_bytes(pickle.dumps(Bomb()))
        seal(Path("theirs"))
        attempt(["predict", "theirs", "cohort"], f"a pickle as {name}")
    return count


# -- the campaign --------------------------------------------------------------------------------------

COLUMNS = ("what", "tried", "as_it_must", "tracebacks", "hangs", "garbage", "executed", "command")


def record(file: Path, counts: list[Count], command: str) -> None:
    """Add rows to the table, and keep what went wrong beside it."""
    new = not file.exists()
    with open(file, "a", newline="") as handle:
        writer = csv.writer(handle)
        if new:
            writer.writerow(COLUMNS)
        for count in counts:
            writer.writerow([*(getattr(count, c) for c in COLUMNS[:-1]), command])
            print(
                f"{count.what}: {count.as_it_must} of {count.tried} as they must",
                *count.first[:8],
                sep="\n  ",
                flush=True,
            )


def campaign(out: Path, n_mutants: int, n_kills: int, n_limits: int, minutes: float, seed: int) -> None:
    """Run everything and write ``reliability.csv``."""
    out.mkdir(parents=True, exist_ok=True)
    file, command = out.resolve() / "reliability.csv", f"python benchmarks/reliability.py {' '.join(sys.argv[1:])}"
    began, before = time.time(), Path.cwd()
    os.environ["PYTHONPATH"] = os.pathsep.join(str(Path(p).resolve()) for p in sys.path if p)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["BNT_STATE"] = str(Path(folder) / "state")
        make(Path(folder))

        def by(share: float) -> float:
            return began + 60 * minutes * share

        record(file, [hostile()], command)
        record(file, mutants(n_mutants, seed, by(0.5)), command)
        record(file, kills(n_kills, seed, by(0.9)), command)
        record(file, [limited(n_limits, "disk", seed, by(0.95)), limited(n_limits, "memory", seed, by(1.0))], command)
        record(file, [permuted_labels()], command)
        os.chdir(before)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--mutants", type=int, default=20_000)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--limits", type=int, default=40)
    parser.add_argument("--minutes", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    campaign(given.out, given.mutants, given.kills, given.limits, given.minutes, given.seed)
