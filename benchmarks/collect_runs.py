"""Put finished runs into one table: what was run, its test metrics, what it cost.

python benchmarks/collect_runs.py RUN [RUN ...] --out results/abide/released_recipe.csv
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from bnt.cohort._files import write_atomic
from bnt.training._run import load_result


def row(folder: Path) -> dict[str, object]:
    """Return one run as a row."""
    result = load_result(folder)
    config, report = result.config, result.report
    metrics = {k: round(v, 4) for k, v in report["test"].items() if isinstance(v, float)}
    return {
        "model": config.model,
        "recipe": config.recipe_name,
        "epochs": config.recipe.epochs,
        "chosen_epoch": max(report["epochs"], default=0),
        "split": config.split,
        "seed": config.seed,
        "n_test": report["n"]["test"],
        **metrics,
        "n_validation": report["n"]["validation"],
        "validation_auroc": round(report["validation"].get("auroc", float("nan")), 4),
        "seconds": report["seconds"],
        "cpu_seconds": report["cpu_seconds"],
        "peak_memory_mb": report["peak_memory_mb"],
        "torch": report["versions"]["torch"],
    }


def main() -> None:
    """Read the runs and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    table = pd.DataFrame([row(folder) for folder in options.runs])
    write_atomic(options.out, table.to_csv(index=False))
    print(table.to_string(index=False))


if __name__ == "__main__":
    main()
