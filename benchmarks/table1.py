"""Make Table 1, its figure and the tables of docs/results.md from tables of runs, so that no number is typed.

python benchmarks/table1.py results/abide/table1_runs.csv [more_runs.csv ...] --out results/abide --page docs/results.md
python benchmarks/table1.py results/abide/table1_stopping_runs.csv --name table1_stopping --out results/abide
    --page README.md docs/results.md

The tables are ``runs.csv`` of studies (``bnt reproduce table1``, or ``benchmarks/collect_study.py``), of one session or
more; a run may be in one of them only. --page replaces what stands between the two markers of that name in pages.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from matplotlib.figure import Figure

from bnt._words import duration
from bnt.cohort._files import write_atomic
from bnt.errors import BadInput
from bnt.paper._grid import GridResult, cpu_time, rows, training, write_outputs
from bnt.paper._plan import METRICS, N_RUNS, show
from bnt.paper._tables import METHODS, OURS, REFERENCE, collect, draw, markdown, order, printed
from bnt.studies._job import Variant
from bnt.studies._results import comparison_table, summary_table
from bnt.training._recipe import Recipe

MOST_COMMANDS = 8  # that a table lists below itself
START, END = "<!-- {name}: made by benchmarks/table1.py -->\n", "<!-- end of {name} -->"


def read_runs(files: Sequence[Path]) -> pd.DataFrame:
    """Read ``runs.csv`` of several studies as one table; two results of one run are refused."""
    parts = []
    for file in files:
        try:
            parts.append(pd.read_csv(file, dtype={"split": str}))
        except (OSError, ValueError) as error:
            raise BadInput(f"{file} cannot be read as a table of runs: {error}.") from error
        absent = [c for c in ("variant", "split", "seed", *METRICS) if c not in parts[-1]]
        if absent:
            raise BadInput(f"{file} has no column {absent[0]!r}: give runs.csv of a study.")
    table = pd.concat(parts, ignore_index=True)
    twice = table[table.duplicated(["variant", "split", "seed"])]
    if len(twice):
        one = twice.iloc[0]
        raise BadInput(f"{one['variant']} on {one['split']} with seed {one['seed']} is in these tables twice.")
    return table


class Made(NamedTuple):
    """Table 1 as a table, as Markdown (whole, and AUROC and accuracy alone), its tests, and its figure."""

    table: pd.DataFrame
    text: str
    short: str
    comparisons: pd.DataFrame
    figure: Figure


def from_runs(runs: pd.DataFrame, dataset: str = "ABIDE") -> Made:
    """Make Table 1 from runs of one or more studies of the same splits."""
    found = set(runs["variant"])
    models = [m for m in order() if m in found or m in METHODS]
    runs = runs[runs["variant"].isin(models)]
    reference = REFERENCE if REFERENCE in found else str(runs["variant"].iloc[0])
    result = GridResult(
        runs, summary_table(runs), {}, 0.0, Path(), comparison_table(None, runs, reference), trained_by(runs)
    )
    recipe = training(result.variants, runs)
    commands = sorted({c for line in runs["command"] for c in str(line).split("; ")})
    if len(commands) > MOST_COMMANDS:
        commands = [f"{len(commands)} of them, in the column `command` of the table of runs"]
    else:
        commands = [f"`{one}`" for one in commands]
    where = (
        f"\nOurs: {words_of_sizes(runs)}; mean ± SD over splits"
        + (f"; {recipe}." if recipe else ".")
        + f" CPU time of all runs: {duration(cpu_time(runs))}.\n"
        + "Commands: "
        + "; ".join(commands)
        + f".\nPaper: as printed for {dataset}, {N_RUNS} runs.\n"
    )
    positive = str(runs["positive_class"].iloc[0]) if "positive_class" in runs else "the positive class"
    text = markdown(dataset, result, models, where, positive)
    return Made(
        collect(dataset, result, models),
        text,
        short(dataset, result, models),
        result.comparisons,
        draw(dataset, result, models),
    )


def words_of_sizes(runs: pd.DataFrame) -> str:
    """Return how many splits there are, of which protocol, and how large their parts."""
    n = runs["split"].nunique()
    parts = {"n_train": "training", "n_val": "validation", "n_test": "test"}
    sizes = [f"{runs[c].median():.0f} {part}" for c, part in parts.items() if c in runs and runs[c].notna().any()]
    protocol = runs["split"].iloc[0].partition(":")[0]
    each = runs.groupby("variant")["split"].nunique()
    fewer = f" (fewer for some rows, the first {each.min()} at least)" if each.min() < n else ""
    return f"protocol `{protocol}`, {n} split{'s' * (n != 1)}{fewer} of {', '.join(sizes)} people"


def trained_by(runs: pd.DataFrame) -> list[Variant]:
    """Return variants with what their runs say of their recipe; none for tables of earlier versions."""
    columns = ("recipe", "epochs", "patience", "select", "batch_size")
    if any(c not in runs for c in columns):
        return []
    found = []
    known = runs.dropna(subset=list(columns))
    for (name, model), group in known.groupby(["variant", "model"], sort=False):
        ways = group[list(columns)].drop_duplicates()
        if len(ways) > 1:
            raise BadInput(f"Runs of {name} were trained in {len(ways)} ways: one row of a table needs one recipe.")
        recipe, epochs, patience, select, batch = ways.iloc[0]
        made = Recipe(epochs=int(epochs), patience=int(patience), select=select, batch_size=int(batch))
        found.append(Variant(str(name), str(model), {}, str(recipe), made))
    return found


def short(dataset: str, result: GridResult, models: Sequence[str]) -> str:
    """Return the table of AUROC and accuracy, the paper's beside ours."""
    lines = []
    for model in models:
        theirs = printed(dataset, model)
        cells = [f"`{model}`" + (f" ({OURS[model][1]})" if model in OURS else "")]
        for i, metric in enumerate(METRICS[:2]):
            cells += [show(theirs[i]), show(result.value(model, metric))]
        lines.append([*cells, str(result.n_splits(model) or "–")])
    return rows(["model", "AUROC, paper", "AUROC, ours", "accuracy, paper", "accuracy, ours", "splits"], lines)


def main() -> None:
    """Read the runs and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--page", type=Path, nargs="+", default=[])
    parser.add_argument("--name", default="table1", help="start of the files' names, and the name of the markers")
    parser.add_argument("--dataset", choices=("ABIDE", "ABCD"), default="ABIDE", help="whose printed numbers")
    options = parser.parse_args()
    made = from_runs(read_runs(options.runs), options.dataset)
    write_outputs(options.out, options.name, made.table, made.text, made.figure)
    write_atomic(options.out / f"{options.name}_comparisons.csv", made.comparisons.to_csv(index=False))
    (options.out / f"{options.name}.pdf").unlink()  # the picture is enough beside the numbers
    start, end = START.format(name=options.name), END.format(name=options.name)
    for page in options.page:
        before, found, rest = page.read_text().partition(start)
        _, closed, after = rest.partition(end)
        if not (found and closed):
            sys.exit(f"{page} has no {start.strip()} ... {end}: put both lines where the table belongs.")
        write_atomic(page, before + start + made.short + end + after)
    print(made.text)


if __name__ == "__main__":
    main()
