"""From a run's or a study's folder to its page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bnt.cohort.atomic import write_atomic
from bnt.errors import BadInput
from bnt.report import evidence, figures
from bnt.report.page import Page


def write_report(folder: str | Path, out: str | Path | None = None) -> Path:
    """Write ``report.html`` into a run's or a study's folder, or to ``out``; return where it is.

    Parameters
    ----------
    folder : path
        Made by ``bnt train`` or ``bnt compare``.
    out : path, optional
        The file to write.
    """
    folder = Path(folder)
    if (folder / "study.json").is_file():
        page = study_page(folder)
    elif (folder / "config.toml").is_file():
        page = run_page(folder)
    else:
        raise BadInput(f"{folder} is neither a run nor a study: give a folder that bnt train or bnt compare made.")
    target = Path(out) if out is not None else folder / "report.html"
    write_atomic(target, page.html())
    return target


def interval_text(metrics: dict[str, Any], name: str) -> str:
    """Return a metric with its interval in words."""
    low, high = metrics[f"{name}_ci"]
    return f"{metrics[name]:.3f} (95 % interval {low:.3f} to {high:.3f})"


def metric_table(metrics: dict[str, Any]) -> pd.DataFrame:
    """Return a run's metrics as rows."""
    rows = []
    for name, value in metrics.items():
        if name.endswith("_ci") or name.startswith("n"):
            continue
        low, high = metrics.get(f"{name}_ci", (np.nan, np.nan))
        rows.append({"metric": name.replace("_", " "), "value": value, "low": low, "high": high})
    return pd.DataFrame(rows)


def run_page(folder: Path) -> Page:
    """Return the page of one run."""
    from bnt.training.run import load_result

    result = load_result(folder)
    config, report = result.config, result.report
    test = result.predictions[result.predictions["part"] == "test"]
    binary = evidence.binary_columns(test)
    metrics = report["test"]
    n = report["n"]
    if config.task.kind == "regression":
        lead = f"r = {interval_text(metrics, 'r')} on {n['test']} test subjects."
    elif binary is not None:
        lead = f"AUROC {interval_text(metrics, 'auroc')} on {n['test']} test subjects."
    else:
        lead = f"AUROC {metrics['auroc']:.3f} (mean one-vs-rest) on {n['test']} test subjects."
    page = Page(f"{config.model} predicts {config.label}", lead)
    page.warnings(evidence.run_warnings(n["test"], config.split))
    page.paragraph(
        "A research result. Not a diagnostic device: it must not decide about the care of any person.", soft=True
    )

    page.heading("Tested once")
    positive = f" The positive class is {report['positive_class']!r}." if report["positive_class"] is not None else ""
    page.table(metric_table(metrics), f"Test metrics with 95 % intervals.{positive}", "test-metrics")
    if binary is not None:
        curve = pd.DataFrame({"positive": binary[0], "probability": binary[1]})
        both = {config.model: binary}
        page.pair(
            [
                (figures.roc_curves(both), "ROC curve of the test part; the dotted line is chance.", curve, "roc"),
                (
                    figures.calibration_curves(both),
                    "Calibration: on the dotted line, a probability means what it says. Bars are 95 % intervals.",
                    curve,
                    "calibration",
                ),
            ]
        )
        sites = evidence.per_site_table(test)
        if len(sites) > 1:
            page.figure(
                figures.per_site_plot(sites),
                "AUROC of the test subjects of each site (their number in brackets), with 95 % intervals.",
                sites,
                "sites",
            )
    elif config.task.kind == "regression":
        page.figure(
            figures.predicted_scores(test["label"].to_numpy(float), test["predicted"].to_numpy(float), config.label),
            "Predicted against true score of each test subject; the dotted line is a perfect prediction.",
            test[["label", "predicted"]],
            "scores",
        )

    lines = evidence.read_lines(folder)
    if lines:
        page.heading("Training")
        name = "validation AUROC" if config.task.kind == "classification" else "validation squared error"
        page.figure(
            figures.learning_curves(lines, name),
            "Training loss and validation score by epoch, one line a network; a ring marks the epoch that was kept.",
            pd.DataFrame(lines),
            "curves",
        )
    page.heading("Who was in it")
    participants = evidence.cohort_table(config.cohort)
    counts = (
        evidence.parts_by_class(folder, participants, config.label) if config.task.kind == "classification" else None
    )
    page.paragraph(
        f"{n['train']} training, {n['validation']} validation, {n['test']} test subjects; split {config.split}."
    )
    if counts is not None:
        page.table(counts, f"Subjects by part and {config.label}.", "parts")
    page.heading("How to make it again")
    page.code(train_command(config))
    page.code(
        "\n".join(f"{k}: {v}" for k, v in report["versions"].items()) + f"\nweights sha256: {report['weights_sha256']}"
    )
    return page


def train_command(config: Any) -> str:
    """Return the command that repeats a run."""
    options = " ".join(f"{k}={v}" for k, v in config.options.items())
    split = config.split.split(":")
    return (
        f"bnt train {config.cohort or 'COHORT'} --model {config.model} --label {config.label} "
        f"--recipe {config.recipe_name} --protocol {split[0]} --split {split[-1]} "
        f"--seed {config.seed} --threads {config.threads}" + (f" --option {options}" if options else "") + " --out RUN"
    )


def study_page(folder: Path) -> Page:
    """Return the page of a study."""
    from bnt.experiments.results import per_split, pooled_predictions, read_study, score_name, write_tables

    study = read_study(folder)
    runs, summary, comparisons = write_tables(folder, reference_of(folder))
    metric = score_name(runs)
    shown = "AUROC" if metric == "auroc" else metric
    best = summary.sort_values(metric, ascending=False).iloc[0]
    page = Page(
        f"{len(study['variants'])} models predict {study['label']}",
        f"The highest mean {shown} over {best['n_splits']} splits is that of {best['variant']}: {best[metric]:.3f} "
        f"(95 % interval {best[f'{metric}_low']:.3f} to {best[f'{metric}_high']:.3f}).",
    )
    page.warnings(evidence.study_warnings(study, runs))
    page.paragraph(
        "A research result. Not a diagnostic device: it must not decide about the care of any person.", soft=True
    )

    page.heading("Result")
    columns = [c for c in ("auroc", "accuracy", "sensitivity", "specificity", "brier", "r", "mse") if c in summary]
    compact = pd.DataFrame({"model": summary["variant"]})
    for column in columns:
        compact[column] = [f"{m:.3f} ± {s:.3f}" for m, s in zip(summary[column], summary[f"{column}_sd"])]
    compact["parameters"] = summary["n_parameters"]
    compact["CPU s"] = summary["cpu_seconds"].round(1)
    compact["memory MB"] = summary["peak_memory_mb"].round()
    page.table(compact, "Mean ± SD of the test metrics over the splits, and what a run cost.", "summary", summary)
    scores = per_split(runs, metric)
    page.figure(
        figures.paired_plot(scores, shown),
        f"Test {shown} of each split (joined by lines) and the mean (bar). Only differences within a split count.",
        scores.reset_index(),
        "paired",
    )
    if len(comparisons):
        page.figure(
            figures.forest_plot(comparisons, shown),
            "Paired differences with 95 % intervals by the corrected t-test of Nadeau and Bengio; left of the dotted "
            "line a model is worse than the reference.",
            comparisons,
            "differences",
        )
    pooled = {}
    for variant in summary["variant"]:
        found = evidence.binary_columns(pooled_predictions(folder, runs, variant))
        if found is not None and 0 < found[0].sum() < len(found[0]):
            pooled[variant] = found
    if pooled:
        data = pd.concat([pd.DataFrame({"model": k, "positive": p, "probability": q}) for k, (p, q) in pooled.items()])
        page.pair(
            [
                (
                    figures.roc_curves(pooled),
                    "ROC curves; a subject tested in several splits counts once.",
                    data,
                    "roc",
                ),
                (figures.calibration_curves(pooled), "Calibration of the same predictions.", data, "calibration"),
            ]
        )
    page.heading("Who was in it")
    sizes = study["split_sizes"][0]
    page.paragraph(
        f"{study['n_subjects']} subjects, {study['n_rois']} ROIs, {study['kind']} connectomes; "
        f"{study['protocol']} splits of {sizes[0]} training, {sizes[1]} validation and {sizes[2]} test subjects, "
        "the test part scored once."
    )
    sites = evidence.sites_by_class(evidence.cohort_table(study["cohort"]), study["label"])
    if sites is not None:
        page.table(sites, f"Subjects by site and {study['label']}.", "cohort")
    page.heading("How to make it again")
    page.code(compare_command(study))
    return page


def reference_of(folder: Path) -> str | None:
    """Return the reference chosen when the study's tables were made."""
    file = folder / "comparisons.csv"
    if not file.is_file():
        return None
    table = pd.read_csv(file) if file.stat().st_size > 1 else pd.DataFrame()
    return str(table["reference"].iloc[0]) if len(table) else None


def compare_command(study: dict[str, Any]) -> str:
    """Return the command that repeats a study."""
    models = " ".join(v["model"] for v in study["variants"])
    seeds = " ".join(str(s) for s in study["seeds"])
    return (
        f"bnt compare {study['cohort']} --models {models} --label {study['label']} --protocol {study['protocol']} "
        f"--splits {len(study['splits'])} --seeds {seeds} --recipe {study['variants'][0]['recipe_name']} --out STUDY"
    )
