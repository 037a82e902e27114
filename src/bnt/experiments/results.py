"""From finished runs to tables: one row a run, one row a model, one row a comparison."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bnt.errors import BadInput
from bnt.experiments.statistics import delong, holm, paired_test, summarise

METRICS = ("auroc", "accuracy", "sensitivity", "specificity", "balanced_accuracy", "brier", "calibration_error")
SCORES = ("r", "mse", "mae", "r2", "spearman")


def read_study(folder: str | Path) -> dict[str, Any]:
    """Read a study's description."""
    file = Path(folder) / "study.json"
    if not file.is_file():
        raise BadInput(f"{folder} has no study.json, so it is not a study: give the folder that bnt compare made.")
    try:
        return json.loads(file.read_text())
    except ValueError as error:
        raise BadInput(f"{file} is damaged ({error}): give the bnt compare command again.") from error


def run_table(folder: str | Path) -> pd.DataFrame:
    """Return one row a finished run of a study, in the order of variants, splits and seeds."""
    from bnt.experiments.study import folder_name

    folder, study, rows = Path(folder), read_study(folder), []
    for variant in study["variants"]:
        for split, sizes in zip(study["splits"], study["split_sizes"]):
            for seed in study["seeds"]:
                run = folder / "runs" / folder_name(variant["name"], split, seed)
                if not (run / "DONE").is_file():
                    continue
                report = json.loads((run / "report.json").read_text())
                test = {k: v for k, v in report["test"].items() if k in METRICS + SCORES}
                rows.append(
                    {
                        "variant": variant["name"],
                        "model": variant["model"],
                        "split": split,
                        "seed": seed,
                        **test,
                        "epochs": max(report["epochs"], default=0),
                        "n_train": sizes[0],
                        "n_test": sizes[2],
                        "n_parameters": report["n_parameters"],
                        "seconds": report["seconds"],
                        "cpu_seconds": report["cpu_seconds"],
                        "peak_memory_mb": report["peak_memory_mb"],
                        "run": run.name,
                    }
                )
    return pd.DataFrame(rows)


def overlap(runs: pd.DataFrame) -> float:
    """Return n_test / n_train of the splits, the correction for their overlap."""
    return float((runs["n_test"] / runs["n_train"]).mean())


def score_name(runs: pd.DataFrame) -> str:
    """Return the headline metric of a study: AUROC, or r for a score."""
    return "auroc" if "auroc" in runs else "r"


def per_split(runs: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return a table of a metric, splits x variants, averaged over seeds."""
    return runs.pivot_table(index="split", columns="variant", values=metric, aggfunc="mean", sort=False)


def summary_table(runs: pd.DataFrame) -> pd.DataFrame:
    """Return one row a variant: mean, SD and corrected 95 % interval of every metric, and what it cost."""
    rows = []
    ratio = overlap(runs)
    names = [m for m in METRICS + SCORES if m in runs]
    for variant, group in runs.groupby("variant", sort=False):
        row: dict[str, Any] = {"variant": variant, "n_splits": group["split"].nunique(), "n_runs": len(group)}
        for metric in names:
            found = summarise(group.groupby("split", sort=False)[metric].mean().tolist(), ratio)
            row |= {
                metric: found.mean,
                f"{metric}_sd": found.sd,
                f"{metric}_low": found.low,
                f"{metric}_high": found.high,
            }
        row |= {
            "n_parameters": int(group["n_parameters"].median()),
            "cpu_seconds": float(group["cpu_seconds"].mean()),
            "peak_memory_mb": float(group["peak_memory_mb"].max()),
        }
        rows.append(row)
    return pd.DataFrame(rows)


def pooled_predictions(folder: str | Path, runs: pd.DataFrame, variant: str) -> pd.DataFrame:
    """Return one row a subject: its test predictions averaged over the splits and seeds that tested it."""
    parts = []
    for name in runs.loc[runs["variant"] == variant, "run"]:
        table = pd.read_csv(Path(folder) / "runs" / name / "predictions.csv", dtype={"participant_id": str})
        parts.append(table[table["part"] == "test"])
    table = pd.concat(parts)
    columns = [c for c in table.columns if c.startswith("p_") or c == "predicted"]
    grouped = table.groupby("participant_id")
    return grouped[columns].mean().join(grouped["label"].first()).reset_index()


def comparison_table(folder: str | Path, runs: pd.DataFrame, reference: str) -> pd.DataFrame:
    """Compare every variant with a reference over shared splits.

    One row a variant: the paired difference with its corrected 95 % interval and p (Nadeau-Bengio), the plain
    t-test's p as the paper used it, both after Holm's correction, and DeLong's test on the subjects' averaged
    predictions for binary tasks.
    """
    metric = score_name(runs)
    scores = per_split(runs, metric)
    ratio = overlap(runs)
    mine = pooled_predictions(folder, runs, reference)
    rows = []
    for variant in scores.columns:
        if variant == reference:
            continue
        pair = scores[[variant, reference]].dropna()
        corrected = paired_test(pair[variant].tolist(), pair[reference].tolist(), ratio)
        plain = paired_test(pair[variant].tolist(), pair[reference].tolist())
        row: dict[str, Any] = {
            "variant": variant,
            "reference": reference,
            "metric": metric,
            "n_splits": corrected.n,
            "difference": corrected.difference,
            "low": corrected.low,
            "high": corrected.high,
            "t_corrected": corrected.t,
            "p_corrected": corrected.p,
            "p_plain": plain.p,
        }
        probabilities = [c for c in mine.columns if c.startswith("p_")]
        if len(probabilities) == 2:
            theirs = pooled_predictions(folder, runs, variant).set_index("participant_id")
            both = mine.set_index("participant_id").join(theirs, lsuffix="_ref", how="inner")
            positive = both["label"].astype(str) == probabilities[1].removeprefix("p_")
            if 0 < positive.sum() < len(positive):
                test = delong(
                    positive.to_numpy(), both[probabilities[1]].to_numpy(), both[probabilities[1] + "_ref"].to_numpy()
                )
                row |= {
                    "delong_difference": test.difference,
                    "delong_z": test.z,
                    "p_delong": test.p,
                    "n_subjects": len(both),
                }
        rows.append(row)
    table = pd.DataFrame(rows)
    for column in ("p_corrected", "p_plain", "p_delong"):
        if column in table:
            table[f"{column}_holm"] = holm(table[column].tolist())
    return table


def markdown_table(summary: pd.DataFrame, comparisons: pd.DataFrame) -> str:
    """Return the study's headline as a Markdown table, in per cent for classification."""
    binary = "sensitivity" in summary
    columns = [c for c in ("auroc", "accuracy", "sensitivity", "specificity") if c in summary] or ["r", "mse", "mae"]
    scale = 100 if binary or "auroc" in summary else 1
    lines = [
        "| model | " + " | ".join(columns) + " | difference [95 %] | p (corrected, Holm) | CPU s |",
        "|---|" + "---|" * (len(columns) + 3),
    ]
    found = comparisons.set_index("variant") if len(comparisons) else pd.DataFrame()
    for _, row in summary.iterrows():
        cells = [f"{scale * row[c]:.1f} ± {scale * row[f'{c}_sd']:.1f}" for c in columns]
        difference, p = "reference", ""
        if row["variant"] in found.index:
            one = found.loc[row["variant"]]
            difference = f"{scale * one['difference']:+.1f} [{scale * one['low']:+.1f}, {scale * one['high']:+.1f}]"
            p = f"{one['p_corrected_holm']:.3f}" if np.isfinite(one["p_corrected_holm"]) else "n/a"
        lines.append(
            f"| {row['variant']} | " + " | ".join(cells) + f" | {difference} | {p} | {row['cpu_seconds']:.0f} |"
        )
    return "\n".join(lines) + "\n"


def write_tables(folder: str | Path, reference: str | None = None) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Make and write ``runs.csv``, ``summary.csv``, ``comparisons.csv`` and ``summary.md``."""
    from bnt.cohort.atomic import write_atomic

    folder = Path(folder)
    runs = run_table(folder)
    if runs.empty:
        raise BadInput(f"{folder} has no finished run yet.")
    summary = summary_table(runs)
    chosen = reference or str(summary["variant"].iloc[0])
    if chosen not in summary["variant"].tolist():
        raise BadInput(f"There is no finished variant {chosen!r}; there are {', '.join(summary['variant'])}.")
    comparisons = comparison_table(folder, runs, chosen)
    write_atomic(folder / "runs.csv", runs.to_csv(index=False))
    write_atomic(folder / "summary.csv", summary.to_csv(index=False))
    write_atomic(folder / "comparisons.csv", comparisons.to_csv(index=False))
    write_atomic(folder / "summary.md", markdown_table(summary, comparisons))
    return runs, summary, comparisons
