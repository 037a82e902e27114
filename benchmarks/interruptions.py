"""Kills at random moments, too little disk or memory, and permuted labels: parts of ``reliability.py``."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import numpy as np

import bnt

SECONDS = 60  # after which a command counts as one that hangs
TRAIN = ["train", "cohort", "--model", "bnt", "--option", "n_clusters=3", "--epochs", "2", "--threads", "1"]
COMPARE = ["compare", "cohort", "--models", "ridge", "logistic", "--splits", "2", "--jobs", "1"]


@dataclass
class Count:
    """What came of one kind of fault."""

    what: str
    tried: int = 0
    as_it_must: int = 0
    tracebacks: int = 0
    hangs: int = 0
    garbage: int = 0
    executed: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, outcome: str, where: str = "") -> None:
        """Count one outcome, and keep where the first bad ones came from."""
        self.tried += 1
        if outcome in ("refused", "same", "harmless"):
            self.as_it_must += 1
            return
        setattr(self, outcome, getattr(self, outcome) + 1)
        if len(self.first) < 20:
            self.first.append(f"{outcome}: {where}")
            print(self.what, self.first[-1], file=sys.__stderr__, flush=True)


# -- kills ---------------------------------------------------------------------------------------------


def commands() -> dict[str, tuple[list[str], list[str], list[str]]]:
    """Return, by command: its words, what is added to repeat it, and the files that must come out the same."""
    result = ["weights.safetensors", "predictions.csv", "splits.csv"]
    runs = [f"new/runs/{m}--split{i}--seed0/{f}" for m in ("ridge", "logistic") for i in (0, 1) for f in result]
    return {
        "train": ([*TRAIN, "--out", "new"], ["--resume"], [f"new/{f}" for f in result]),
        "compare": ([*COMPARE, "--out", "new"], [], [*runs, "new/comparisons.csv"]),
        "simulate": (
            ["simulate", "new", "--subjects", "60", "--rois", "20"],
            ["--overwrite"],
            ["new/participants.tsv"],
        ),
        "select": (["select", "cohort", "new", "--where", "sex=F"], ["--overwrite"], ["new/participants.tsv"]),
        "import": (["import", "scans-npy", "new"], ["--overwrite"], ["new/participants.tsv"]),
        "split": (["split", "cohort", "--out", "new.csv"], ["--overwrite"], ["new.csv"]),
        "predict": (["predict", "run", "cohort", "--out", "new.csv"], [], ["new.csv"]),
        "report": (["report", "linear", "--out", "new.html"], [], ["new.html"]),
        "explain": (
            ["explain", "linear", "cohort", "--permutations", "9", "--out", "new"],
            ["--overwrite"],
            ["new/edges.csv"],
        ),
    }


def digests(files: list[str]) -> list[str]:
    """Return the sha256 of files; empty for those that are not there."""
    return [sha256(Path(f).read_bytes()).hexdigest() if Path(f).is_file() else "" for f in files]


def clean() -> None:
    """Remove what a command made."""
    for path in (*Path().glob("new*"), *Path().glob(".new*")):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def kills(count: int, seed: int = 0, until: float = float("inf"), only: str = "") -> list[Count]:
    """Kill every command at random moments, repeat it, and compare what comes out with an undisturbed one."""
    draw, found = random.Random(seed), []
    numbers = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
    known: dict[str, tuple[list[str], float]] = {}
    counts = {name: Count(f"kills: {name}") for name in commands() if only in name}
    for i in range(count):
        name = list(counts)[i % len(counts)]
        words, again, files = commands()[name]
        clean()
        if time.time() > until:
            break
        if name not in known:
            started = time.time()
            subprocess.run([sys.executable, "-m", "bnt", *words], check=True, capture_output=True)
            known[name] = digests(files), time.time() - started
            assert all(known[name][0]), (name, files)
            clean()
        number = draw.choice(numbers)
        with subprocess.Popen(
            [sys.executable, "-m", "bnt", *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(draw.uniform(0.1, 1.0) * known[name][1])
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number) if number != signal.SIGTERM else process.send_signal(number)
            try:
                said = process.communicate(timeout=SECONDS)[1]
            except subprocess.TimeoutExpired:
                process.kill()
                counts[name].add("hangs", f"signal {number}")
                continue
        code, known_codes = process.returncode, (0, -signal.SIGKILL, 130, 143)
        if "Traceback" in said or code not in known_codes:
            counts[name].add("tracebacks", f"signal {number}, code {code}: {said[-200:]}")
            continue
        made = Path("new").exists() or Path("new.csv").exists()
        done = subprocess.run(
            [sys.executable, "-m", "bnt", *words, *(again if made else [])], capture_output=True, text=True, check=False
        )
        left = [str(p) for p in (*Path().glob(".new*"), *Path("new").rglob("*.tmp"))]
        same = done.returncode == 0 and digests(files) == known[name][0] and not left
        counts[name].add(
            "same" if same else "garbage", f"signal {number}: code {done.returncode}, {left} {done.stderr[-200:]}"
        )
    clean()
    found += counts.values()
    return found


# -- disk, memory, labels ------------------------------------------------------------------------------


def limited(count: int, kind: str, seed: int = 0, until: float = float("inf")) -> Count:
    """Run commands where files or memory may not grow beyond a limit drawn at random."""
    draw, found = random.Random(seed), Count(f"too little {kind}")
    number = resource.RLIMIT_FSIZE if kind == "disk" else resource.RLIMIT_AS
    for i in range(count):
        if time.time() > until:
            break
        name = list(commands())[i % len(commands())]
        words, _, files = commands()[name]
        limit = int(draw.choice([0, 100, 4096, 20_000, 60_000]) if kind == "disk" else draw.uniform(0.2, 3) * 2**30)
        clean()

        def limit_it(number: int = number, limit: int = limit) -> None:
            resource.setrlimit(number, (limit, limit))

        try:
            done = subprocess.run(
                [sys.executable, "-m", "bnt", *words],
                preexec_fn=limit_it,  # noqa: PLW1509 - no thread is running
                capture_output=True,
                text=True,
                check=False,
                timeout=3 * SECONDS,
            )
        except subprocess.TimeoutExpired:
            found.add("hangs", f"{name} with {limit} bytes")
            continue
        if "Traceback" in done.stderr or done.returncode not in (0, 1, 2):
            found.add("tracebacks", f"{name} with {limit} bytes: code {done.returncode}, {done.stderr[-200:]}")
        elif done.returncode == 0 and not all(digests(files)):
            found.add("garbage", f"{name} with {limit} bytes")
        else:
            found.add("refused" if done.returncode else "same")
    clean()
    return found


def permuted_labels(seeds: int = 10) -> Count:
    """Train on labels permuted within sites: no model may find what is not there."""
    from bnt.splits import named_splits
    from bnt.training import describe, find_recipe, train_run

    found, scores = Count("permuted labels"), Counter()
    for seed in range(seeds):
        cohort = bnt.simulate_cohort(n_subjects=160, n_rois=20, n_sites=4, seed=seed)
        people = cohort.participants.copy()
        rng = np.random.default_rng(seed)
        within = people.groupby("site")["diagnosis"]
        people["diagnosis"] = within.transform(lambda y, rng=rng: rng.permutation(y.to_numpy()))
        shuffled = bnt.Cohort(cohort.connectomes, people)
        (split,) = named_splits(shuffled, "diagnosis", "site-stratified", n_splits=1)
        for model in ("ridge", "svm"):
            config = describe(shuffled, "diagnosis", split, model=model, recipe=find_recipe("default"))
            scores[model] += train_run(shuffled, split, config, f"permuted-{model}-{seed}").report["test"]["auroc"]
    for model, total in scores.items():
        mean = total / seeds
        found.add("harmless" if abs(mean - 0.5) < 0.15 else "garbage", f"{model}: mean AUROC {mean:.3f}")
        found.first.append(f"{model}: mean AUROC {mean:.3f} over {seeds} cohorts")
    return found
