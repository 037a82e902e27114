"""Make Table 1, its figure and the tables of docs/results.md from tables of runs, so that no number is typed.

python benchmarks/table1.py results/abide/table1_runs.csv [more_runs.csv ...] --out results/abide --page docs/results.md
python benchmarks/table1.py results/abide/table1_stopping_runs.csv --name table1_stopping --out results/abide
    --page docs/results.md

The tables are ``runs.csv`` of studies (``bnt reproduce table1``, or ``benchmarks/collect_study.py``), of one session or
more; a run may be in one of them only. --page replaces what stands between the two markers of that name in a page.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bnt.cohort._files import write_atomic
from bnt.paper._grid import write_outputs
from bnt.paper._table1 import from_runs, read_runs

START, END = "<!-- {name}: made by benchmarks/table1.py -->\n", "<!-- end of {name} -->"


def main() -> None:
    """Read the runs and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--name", default="table1", help="start of the files' names, and the name of the markers")
    parser.add_argument("--dataset", choices=("ABIDE", "ABCD"), default="ABIDE", help="whose printed numbers")
    options = parser.parse_args()
    made = from_runs(read_runs(options.runs), options.dataset)
    write_outputs(options.out, options.name, made.table, made.text, made.figure)
    write_atomic(options.out / f"{options.name}_comparisons.csv", made.comparisons.to_csv(index=False))
    (options.out / f"{options.name}.pdf").unlink()  # the picture is enough beside the numbers
    if options.page:
        start, end = START.format(name=options.name), END.format(name=options.name)
        before, found, rest = options.page.read_text().partition(start)
        _, closed, after = rest.partition(end)
        if not (found and closed):
            sys.exit(f"{options.page} has no {start.strip()} ... {end}: put both lines where the table belongs.")
        write_atomic(options.page, before + start + made.short + end + after)
    print(made.text)


if __name__ == "__main__":
    main()
