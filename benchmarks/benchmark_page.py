"""Write docs/benchmark.md: what papers after 2022 claim, the protocol of their code, and what their models score here.

python benchmarks/benchmark_page.py results/abide/table1_stopping_runs.csv --out docs/benchmark.md

The claims and protocols are benchmarks/published.csv, one row per paper, each with the commit and the files that were
read. The scores come from tables of runs (columns variant, split and auroc); where several tables have a run of the
same model and split, the last one counts. A model without a run is shown as not run.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from bnt.cohort._files import write_atomic
from bnt.errors import BadInput
from bnt.studies import paired_test

PUBLISHED = Path(__file__).with_name("published.csv")
LINEAR = ("svm", "logistic", "ridge", "tangent-logistic", "linear-ensemble", "cpm", "krr", "best")
OLDER = ("bnt-released", "bnt")
HEAD = """# Models published after 2022, on one protocol

This page compares the scores that papers claim, and how their code obtains them, with the scores of the same models
here. All models here have the same splits, stratified by site and diagnosis (706 training, 100 validation and 203 test
subjects of ABIDE), and the test set is scored once. All networks have one stopping rule, fixed in advance: at most 40
epochs, and at most 10 without a better smoothed validation AUROC. The papers used other subjects, splits and
preprocessing, so their numbers and ours are not comparable row by row. That is why the models are run again.

This page is made by `{command}`; do not edit it.

"""


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="tables of runs")
    parser.add_argument("--reference", default="tangent-logistic", help="the model that others are tested against")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    command = f"python benchmarks/benchmark_page.py {' '.join(map(str, options.runs))} --out {options.out}"
    published = pd.read_csv(PUBLISHED, dtype=str, keep_default_na=False)
    page = "\n".join(
        [
            HEAD.format(command=command),
            scores_section(read_runs(options.runs), list(published["model"]), options.reference),
            published_section(published),
        ]
    )
    write_atomic(options.out, page)


# -- what models score here ----------------------------------------------------------------------------


def read_runs(paths: list[Path]) -> pd.DataFrame:
    """Return one row per model and split of several tables; later tables override earlier ones."""
    tables = []
    for path in paths:
        table = pd.read_csv(path)
        missing = [column for column in ("variant", "split", "auroc", "n_train", "n_test") if column not in table]
        if missing:
            raise BadInput(f"{path} has no column {missing[0]!r}: give tables of runs, such as runs.csv of a study.")
        tables.append(table)
    return pd.concat(tables, ignore_index=True).drop_duplicates(["variant", "split"], keep="last")


def scores_section(runs: pd.DataFrame, models: list[str], reference: str) -> str:
    """Return the table of scores: linear models, the released BNT, then the models of the papers."""
    auroc = runs.pivot(index="split", columns="variant", values="auroc")
    test_share = float((runs["n_test"] / runs["n_train"]).mean())
    rows = []
    for name in [*LINEAR, *OLDER, *(model for model in models if model)]:
        if name not in auroc:
            if name in models:
                rows.append([f"`{name}`", "not run", "", "", ""])
            continue
        found = auroc[name].dropna()
        spread = f" ± {100 * found.std():.1f}" if len(found) > 1 else ""
        seconds = runs.loc[runs["variant"] == name, "cpu_seconds"].mean() if "cpu_seconds" in runs else float("nan")
        rows.append(
            [
                f"`{name}`",
                f"{100 * found.mean():.1f}{spread}",
                str(len(found)),
                against(auroc, name, reference, test_share),
                "" if pd.isna(seconds) else f"{seconds:.0f}",
            ]
        )
    heads = ["model", "test AUROC", "splits", f"minus `{reference}` (p)", "CPU seconds per split"]
    words = (
        "AUROC in per cent, mean and SD over splits. Differences use the splits that both models have. The p-values\n"
        "are those of a t-test corrected for splits that share subjects (Nadeau and Bengio 2003), not adjusted for\n"
        "the number of models. One split allows no test. CPU seconds are means over busy machines of different speed,\n"
        "so only large differences mean something.\n\n"
    )
    return "## Scores here\n\n" + words + markdown(heads, rows) + "\n"


def against(auroc: pd.DataFrame, name: str, reference: str, test_share: float) -> str:
    """Return the difference to the reference, with its corrected p where there are two splits or more."""
    if name == reference or reference not in auroc:
        return ""
    both = auroc[[name, reference]].dropna()
    if both.empty:
        return ""
    difference = f"{100 * (both[name] - both[reference]).mean():+.1f}"
    if len(both) < 2:
        return difference
    return f"{difference} ({paired_test(both[name].to_numpy(), both[reference].to_numpy(), test_share).p:.2g})"


# -- what papers say and do ----------------------------------------------------------------------------


def published_section(published: pd.DataFrame) -> str:
    """Return one table of claims and one of protocols."""
    claims, protocols = [], []
    for row in published.to_dict("records"):
        name = f"`{row['model']}`" if row["model"] else "not in bnt"
        code = f"[{row['repository']}](https://github.com/{row['repository']}) at `{row['commit']}`"
        claims.append([name, row["paper"], row["data"], row["claim"], f"{row['claim source']}, {code}"])
        files = ", ".join(f"`{file}`" for file in row["files read"].split("; "))  # as code: names may hold __
        protocols.append([name, row["splits"], row["selection"], row["reported part"], row["sites"], files])
    return (
        "## What papers claim\n\n"
        "The claims as far as they are in the repository of the paper, with the file.\n\n"
        + markdown(["model", "paper", "data", "claim", "where"], claims)
        + "\n\n## What their code does\n\nFrom the files named, at the commit above.\n\n"
        + markdown(
            ["model", "splits", "how epoch and settings are selected", "reported set", "sites", "files"], protocols
        )
        + "\n"
    )


def markdown(heads: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


if __name__ == "__main__":
    main()
