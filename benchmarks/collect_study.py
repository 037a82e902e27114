"""Put a study's runs into one table, with the command that made it and the versions it ran with.

python benchmarks/collect_study.py STUDY --out results/abide/table1_runs.csv [--command "bnt reproduce table1 ..."]
    [--only bnt vanilla] [--reference vanilla]

``runs.csv`` of a study has the command in it; --command is for studies whose ``study.json`` does not know it. --only
keeps some of its models, where a study was continued with fewer; --reference writes the tests of those against one of
them beside the table, as ``..._comparisons.csv``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bnt.cohort._files import write_atomic
from bnt.studies._results import comparison_table, run_table


def main() -> None:
    """Read the runs and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--command", default="")
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--reference", default="")
    options = parser.parse_args()
    table = run_table(options.study)
    if options.only:
        table = table[table["variant"].isin(options.only)]
    if options.command:
        table["command"] = options.command
    write_atomic(options.out, table.to_csv(index=False))
    if options.reference:
        tests = comparison_table(options.study, table, options.reference)
        beside = options.out.with_name(options.out.name.replace("_runs.csv", "_comparisons.csv"))
        write_atomic(beside, tests.to_csv(index=False))
        print(tests[["variant", "difference", "low", "high", "p_corrected_holm", "p_delong"]].round(4).to_string())
    shown = table.groupby("variant", sort=False)["auroc"].agg(["mean", "std", "count"])
    print(shown.round(4).to_string())


if __name__ == "__main__":
    main()
