"""Make Table 1, its figure and the table of docs/results.md from tables of runs, so that no number is typed.

python benchmarks/table1.py results/abide/table1_runs.csv [more_runs.csv ...] --out results/abide --page docs/results.md

The tables are ``runs.csv`` of studies (``bnt reproduce table1``, or ``benchmarks/collect_study.py``), of one session or
more; a run may be in one of them only. --page replaces what stands between the two markers of a page.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bnt.cohort._files import write_atomic
from bnt.paper._output import write_outputs
from bnt.paper._table1 import from_runs, read_runs

START, END = "<!-- table 1: made by benchmarks/table1.py -->\n", "<!-- end of table 1 -->"


def main() -> None:
    """Read the runs and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--dataset", choices=("ABIDE", "ABCD"), default="ABIDE", help="whose printed numbers")
    options = parser.parse_args()
    made = from_runs(read_runs(options.runs), options.dataset)
    write_outputs(options.out, "table1", made.table, made.text, made.figure)
    write_atomic(options.out / "table1_comparisons.csv", made.comparisons.to_csv(index=False))
    (options.out / "table1.pdf").unlink()  # the picture is enough beside the numbers
    if options.page:
        before, _, rest = options.page.read_text().partition(START)
        _, _, after = rest.partition(END)
        write_atomic(options.page, before + START + made.short + END + after)
    print(made.text)


if __name__ == "__main__":
    main()
