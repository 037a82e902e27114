"""A campaign of faults: broken files, kills, a full disk, no memory, hostile folders, permuted labels, growth; counted.

    python benchmarks/reliability.py results/reliability --mutants 20000 --kills 200

Each part writes its own table as it goes, and the same command resumes where it was stopped: ``mutants.csv`` (one row
per kind of file), ``kills.csv`` (one row per kill), ``limits.csv``, ``hostile.csv``, ``labels.csv``,
``duplicates.csv`` and ``growth.csv``.
``tests/faults/test_campaign.py`` is the short version.
"""

from __future__ import annotations

import argparse
import os
import pickle
import shutil
import sys
import tempfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from fault_readers import command, targets  # noqa: E402
from fault_targets import make  # noqa: E402
from mutants import Count, Table, attempt, break_files  # noqa: E402

from bnt.training._trained import seal  # noqa: E402

PARTS = ("hostile", "mutants", "kills", "limits", "labels", "duplicates", "growth")


def mutants(table: Table, count: int, seed: int = 0, only: str = "") -> None:
    """Break files of the working directory ``count`` times in all, shared out among the targets."""
    chosen = [target for target in targets() if only in target.name]
    whole = sum(target.share for target in chosen)
    for target in chosen:
        n = max(1, round(count * target.share / whole))
        break_files(target, table.count(target.name), n, seed, lambda: table.write(soon=True))
        table.write()


# -- hostile folders -----------------------------------------------------------------------------------


class Bomb:
    """A pickle that makes a folder when it is loaded."""

    def __reduce__(self) -> tuple[Callable, tuple]:
        return os.mkdir, ("executed",)


def hostile(count: Count, places: int = 4) -> None:
    """Give folders that want their code run to the commands that read them."""
    evil = "import os\nos.mkdir('executed')\nclass Net: pass\n"

    def read(*words: str) -> None:
        outcome, said = attempt(words[0], command(*words))
        if Path("executed").exists():
            Path("executed").rmdir()
            outcome = "executed"
        count.add(outcome or "same", f"{' '.join(words)}: {said}")

    where = ("theirs/evil.py", "./evil.py", "../evil.py", str(Path("theirs/evil.py").resolve()))
    for place in where[:places]:
        for suffix in (":Net", ":Net:x=1"):
            shutil.copytree("run", "theirs", dirs_exist_ok=True)
            for file in ("theirs/evil.py", "evil.py"):
                Path(file).write_text(evil)
            text, digest = Path("theirs/config.toml").read_text(), sha256(evil.encode()).hexdigest()
            model = f'model = "{place}{suffix}"\nsource_sha256 = "{digest}"'
            Path("theirs/config.toml").write_text(text.replace('model = "bnt"', model))
            seal(Path("theirs"))
            read("predict", "theirs", "cohort")
            read("report", "theirs")
            read("explain", "theirs", "cohort", "--out", "explained")
            read("validate", "theirs", "cohort", "--out", "validated")
            read("export", "theirs", "exported")
    for kind in ("npy", "npz", "mat", "csv", "nii.gz"):
        shutil.rmtree("scans-evil", ignore_errors=True)
        Path("scans-evil").mkdir()
        Path(f"scans-evil/sub-01.{kind}").write_bytes(pickle.dumps(Bomb()))
        read("import", "scans-evil", "imported")
    np.save("scans-evil/sub-02.npy", np.array([Bomb()], dtype=object), allow_pickle=True)
    read("import", "scans-evil", "imported")
    np.save("abide-evil.npy", {"corr": Bomb(), "label": np.zeros(2)}, allow_pickle=True)
    read("import", "abide-evil.npy", "imported", "--format", "authors")
    for name in ("weights.safetensors", "checkpoint.safetensors", "member0.safetensors"):
        shutil.rmtree("theirs")
        shutil.copytree("run", "theirs")
        Path("theirs", name).write_bytes(pickle.dumps(Bomb()))
        seal(Path("theirs"))
        read("predict", "theirs", "cohort")
    for left in ("theirs", "scans-evil", "imported", "explained", "validated", "exported"):
        shutil.rmtree(left, ignore_errors=True)


# -- the campaign --------------------------------------------------------------------------------------


def campaign(out: Path, parts: list[str], n_mutants: int, n_kills: int, n_limits: int, seed: int) -> None:
    """Run the parts that are asked for and write their tables."""
    out.mkdir(parents=True, exist_ok=True)
    out, before = out.resolve(), Path.cwd()
    os.environ["PYTHONPATH"] = os.pathsep.join(str(Path(p).resolve()) for p in sys.path if p)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["BNT_STATE"] = str(Path(folder) / "state")
        make(Path(folder))
        try:
            if "hostile" in parts:
                table = Table(out / "hostile.csv")
                table.counts["hostile folders"] = Count("hostile folders")
                hostile(table.counts["hostile folders"])
                table.write()
            if "mutants" in parts:
                mutants(Table(out / "mutants.csv"), n_mutants, seed)
            if "kills" in parts or "limits" in parts:
                import interruptions

                if "kills" in parts:
                    interruptions.kills(out / "kills.csv", n_kills, seed)
                if "limits" in parts:
                    interruptions.limits(out / "limits.csv", n_limits, seed)
            if {"labels", "duplicates", "growth"} & set(parts):
                import long_runs

                if "labels" in parts:
                    long_runs.permuted_labels(out / "labels.csv")
                if "duplicates" in parts:
                    long_runs.near_duplicates(out / "duplicates.csv")
                if "growth" in parts:
                    long_runs.growth(out / "growth.csv")
        finally:
            os.chdir(before)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--mutants", type=int, default=20_000)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--limits", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    campaign(given.out, given.parts, given.mutants, given.kills, given.limits, given.seed)
