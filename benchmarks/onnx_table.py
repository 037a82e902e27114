"""Which networks can be written as ONNX: each is trained for one epoch on a few simulated people and exported.

    python benchmarks/onnx_table.py [MODEL ...]

writes results/onnx.csv, one row per network; docs/tables.py puts it into docs/sharing.md. Needs the extra ``onnx``.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pandas as pd

import bnt
from bnt.models._catalog import CATALOG
from bnt.splits import named_splits
from bnt.training import describe, export_run, find_recipe, train_run

FILE = Path(__file__).resolve().parents[1] / "results" / "onnx.csv"


def result(name: str, cohort: bnt.Cohort, folder: Path) -> str:
    """Return an empty text where a network is exported, and otherwise why not."""
    (split,) = named_splits(cohort, "diagnosis", "site-stratified", n_splits=1)
    small = dict(bnt.models.find_entry(name).constructor().small)
    recipe = find_recipe("default", name, epochs=1, batch_size=8, min_steps=0)
    config = describe(cohort, "diagnosis", split, model=name, options=small, recipe=recipe)
    train_run(cohort, split, config, folder / name)
    try:
        export_run(folder / name, folder / f"{name}-shared", onnx=True)
    except bnt.BadInput as error:
        return str(error).partition("because ")[2].removesuffix(": export it without ONNX.")
    return ""


def main(names: list[str]) -> None:
    """Export every network, or those named, and update the table."""
    done = dict(pd.read_csv(FILE, keep_default_na=False).to_numpy().tolist()) if FILE.is_file() else {}
    every = [entry.name for entry in CATALOG if entry.trains_in_epochs]
    with tempfile.TemporaryDirectory() as place:
        cohort = bnt.simulate_cohort(
            n_subjects=40, n_rois=20, n_sites=2, n_volumes=40, seed=0, out=Path(place) / "cohort"
        )
        for name in names or every:
            done[name] = result(name, cohort, Path(place))
            print(f"{name}: {done[name] or 'exported'}", flush=True)
    table = pd.DataFrame([(name, done[name]) for name in every if name in done], columns=["model", "why_not"])
    table.to_csv(FILE, index=False)


if __name__ == "__main__":
    main(sys.argv[1:])
