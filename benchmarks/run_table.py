"""Run models on the splits of Table 1 one after the other, and keep every finished run in a table of runs.

python benchmarks/run_table.py COHORT --models dgm bnt-released --splits 5 --out results/abide/table1_stopping_runs.csv

The stopping rule is fixed in advance and the same for every network: at most 40 epochs, and no more than 10 without a
better smoothed validation AUROC (`--epochs`, `--patience`); the epoch with the best one is tested, also of models whose
own publication takes the last epoch. All models run on split 0 first, in one command, which
loads the libraries once, then on split 1, and so on; with --one-by-one every model has a command of its own, and its
row is kept as soon as it is done. A run whose row is in the table already is not made again, on this machine or
another; folders of runs go to --work. Several of these commands can fill one table at the same time: each reads it
again, under a lock, before it adds rows.
"""

from __future__ import annotations

import argparse
import fcntl
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
    parser.add_argument("--one-by-one", action="store_true")
    options = parser.parse_args()
    for number in range(options.splits):
        for models in [[model] for model in options.models] if options.one_by_one else [options.models]:
            run_split(options, models, f"split{number}")


def run_split(options: argparse.Namespace, models: list[str], split: str) -> None:
    """Run the models on one split whose rows the table lacks, and add the rows."""
    done = table(options.out)
    have = set(done.loc[done["split"] == f"site-stratified:0:{split}", "variant"])
    missing = [model for model in models if model not in have]
    if not missing:
        return
    study = options.work / (f"{missing[0].replace(':', '-')}--{split}" if len(models) == 1 else split)
    words = ["compare", "COHORT", "--models", *missing, "--split-names", split, "--out", "STUDY", "--jobs", "1"]
    words += ["--change", f"epochs={options.epochs}", f"patience={options.patience}", "select=smoothed"]
    places = {"COHORT": str(options.cohort), "STUDY": str(study)}
    subprocess.run([sys.executable, "-m", "bnt", *(places.get(w, w) for w in words)], check=True)
    rows = run_table(study)
    new = rows[rows["variant"].isin(missing)].assign(
        command=" ".join(["bnt", *words]).replace("COHORT", "cohort").replace("STUDY", "study")
    )
    with (options.work / "table.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        together = pd.concat([table(options.out), new]).drop_duplicates(["variant", "split", "seed"])
        write_atomic(options.out, together.to_csv(index=False))


def table(path: Path) -> pd.DataFrame:
    """Return the rows that are there."""
    return pd.read_csv(path) if path.is_file() else pd.DataFrame({"variant": [], "split": []})


if __name__ == "__main__":
    main()
