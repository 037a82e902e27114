"""Run models on the splits of Table 1 one after the other, and keep every finished run in a table of runs.

python benchmarks/run_table.py COHORT --models dgm bnt-released --splits 5 --out results/abide/table1_stopping_runs.csv

The stopping rule is fixed in advance and the same for every network: at most 40 epochs, and no more than 10 without a
better smoothed validation AUROC (`--epochs`, `--patience`). All models run on split 0 first,
then on split 1, and so on. A run whose row is in the table already is not made again, on this machine or another;
folders of runs go to --work.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pandas as pd

from bnt.cohort._files import write_atomic
from bnt.studies import run_table


def main() -> None:
    """Run what the table lacks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cohort", type=Path)
    parser.add_argument("--models", nargs="+", required=True)
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--patience", type=int, default=10)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("runs"))
    options = parser.parse_args()
    for number in range(options.splits):
        for model in options.models:
            run_one(options, model, f"split{number}")


def run_one(options: argparse.Namespace, model: str, split: str) -> None:
    """Run one model on one split, unless its row is in the table, and add the row."""
    done = pd.read_csv(options.out) if options.out.is_file() else pd.DataFrame({"variant": [], "split": []})
    if ((done["variant"] == model) & (done["split"] == f"site-stratified:0:{split}")).any():
        return
    study = options.work / f"{model.replace(':', '-')}--{split}"
    words = ["compare", "COHORT", "--models", model, "--split-names", split, "--out", "STUDY", "--jobs", "1"]
    words += ["--change", f"epochs={options.epochs}", f"patience={options.patience}"]
    places = {"COHORT": str(options.cohort), "STUDY": str(study)}
    subprocess.run([sys.executable, "-m", "bnt", *(places.get(w, w) for w in words)], check=True)
    new = run_table(study).assign(
        command=" ".join(["bnt", *words]).replace("COHORT", "cohort").replace("STUDY", "study")
    )
    write_atomic(options.out, pd.concat([done, new], ignore_index=True).to_csv(index=False))


if __name__ == "__main__":
    main()
