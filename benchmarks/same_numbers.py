"""Digests of what every model predicts on a small cohort: whether a change of the code changes any number.

python benchmarks/same_numbers.py --out before.csv          # before the change
python benchmarks/same_numbers.py --out after.csv --against before.csv

Every model of the catalogue is trained for two epochs on one split, and eight of them for a score, on one thread with
fixed seeds. The digests are of predictions.csv of every run and of the study's tables without their times. The second
command ends with code 1 and names what differs.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd

SCORES = ["bnt", "bnt-released:n_clusters=8", "vanilla", "ridge", "svm", "linear-ensemble", "multi-kernel", "best"]
TIMES = ("seconds", "cpu_seconds", "cpu_seconds_shared", "peak_memory_mb", "versions", "command", "run")


def bnt(*words: str, folder: Path) -> None:
    """Run a command of bnt on one thread."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "BNT_STATE": str(folder / "state")}
    subprocess.run([sys.executable, "-m", "bnt", *words], check=True, cwd=folder, env=environment, stdout=sys.stderr)


def digests(study: Path) -> dict[str, str]:
    """Return the digest of every run's predictions and of the study's tables."""
    found = {}
    for file in sorted(study.glob("runs/*/predictions.csv")):
        found[f"{study.name}/{file.parent.name}"] = hashlib.sha256(file.read_bytes()).hexdigest()
    for name in ("runs.csv", "summary.csv", "comparisons.csv"):
        table = pd.read_csv(study / name)
        table = table.drop(columns=[c for c in table.columns if c in TIMES or "seconds" in c or "memory" in c])
        text = table.sort_values(list(table.columns[:3])).to_csv(index=False)
        found[f"{study.name}/{name}"] = hashlib.sha256(text.encode()).hexdigest()
    return found


def main() -> None:
    """Make both studies and write, or compare, their digests."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--against", type=Path, help="digests of another version")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        bnt("simulate", "cohort", "--subjects", "160", "--rois", "24", "--sites", "3", "--seed", "5", folder=folder)
        shared = ["--splits", "1", "--change", "epochs=2", "min_steps=0", "--jobs", "1"]
        bnt("compare", "cohort", "--models", "all", *shared, "--out", "classes", folder=folder)
        bnt("compare", "cohort", "--models", *SCORES, "--label", "age", *shared, "--out", "scores", folder=folder)
        found = {**digests(folder / "classes"), **digests(folder / "scores")}
    pd.Series(found, name="sha256").rename_axis("what").to_csv(options.out)
    print(f"{len(found)} digests in {options.out}")
    if options.against:
        other = pd.read_csv(options.against, index_col="what")["sha256"].to_dict()
        differ = sorted(name for name in {*found, *other} if found.get(name) != other.get(name))
        print(f"{len(found) - len([d for d in differ if d in found])} of {len(other)} equal to {options.against}")
        if differ:
            sys.exit("different: " + ", ".join(differ))


if __name__ == "__main__":
    main()
