"""The page of a study: finished or still running."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bnt.errors import BadInput
from bnt.plotting import _charts as figures
from bnt.plotting._charts import shown_name
from bnt.report import _caveats as cautions
from bnt.report import _commands as commands
from bnt.report import _evidence as evidence
from bnt.report._page import Page
from bnt.studies._results import (
    comparison_table,
    notes,
    per_split,
    pooled_predictions,
    read_study,
    run_table,
    score_name,
    summary_table,
)
from bnt.studies._study import folder_name
from bnt.training._config import RunConfig, read_config

Planned = list[tuple[str, str, str]]  # variant, split, run
MOST_LINES = 8  # models in one figure before it cannot be read


def planned_runs(study: dict[str, Any]) -> Planned:
    """Return the variant, the split and the folder's name of every run of a study."""
    return [
        (v["name"], split, folder_name(v["name"], split, seed))
        for v in study["variants"]
        for split in study["splits"]
        for seed in study["seeds"]
    ]


def stored_tables(folder: Path, runs: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return summary and comparisons as ``bnt compare`` wrote them, or new ones where runs were added since."""
    files = [folder / name for name in ("runs.csv", "summary.csv", "comparisons.csv")]
    reference = ""
    if all(file.is_file() for file in files):
        old, summary = (pd.read_csv(file) for file in files[:2])
        comparisons = pd.read_csv(files[2]) if files[2].stat().st_size > 1 else pd.DataFrame()
        if "run" in old and set(old["run"]) == set(runs["run"]):
            return summary, comparisons
        reference = str(comparisons["reference"].iloc[0]) if len(comparisons) else ""
    variants = [str(v) for v in runs["variant"].unique()]
    chosen = reference if reference in variants else variants[0]
    return summary_table(runs), comparison_table(folder, runs, chosen)


def study_page(folder: Path, refresh: int = 0) -> Page:
    """Return the page of a study.

    Parameters
    ----------
    folder : path
    refresh : int
        Seconds after which a browser reads the page of an unfinished study again; 0 is never.
    """
    study = read_study(folder)
    planned = planned_runs(study)
    runs = run_table(folder)
    if runs.empty and not refresh:
        raise BadInput(f"{folder} has no finished run yet: pass --watch to follow it.")
    cohort = evidence.look_up_cohort(study["cohort"])
    leak = study_leak(folder, planned, cohort)
    live = refresh if len(runs) < len(planned) else 0
    models = len(study["variants"])
    title = f"{counted(models, 'model')} predict{'s' if models == 1 else ''} {study['label']}"
    if runs.empty:
        page = Page(title, f"None of {len(planned)} runs is finished yet.", live)
    else:
        summary, comparisons = stored_tables(folder, runs)
        page = Page(title, lead(summary, comparisons, score_name(runs)), live)
    page.warnings(cautions.of_study(study, runs, len(planned), leak))
    page.notice(cautions.NOT_A_DEVICE)
    glance(page, study, cohort, leak)
    if not runs.empty:
        result(page, folder, runs, summary, comparisons)
        subjects(page, folder, runs, summary)
        cost(page, summary, score_name(runs))
    progress(page, folder, planned, runs)
    again(page, folder, study, planned, comparisons if not runs.empty else pd.DataFrame())
    return page


def study_leak(folder: Path, planned: Planned, cohort: evidence.Cohort) -> str | None:
    """Return the leak guard's finding over the splits of a study, each checked once."""
    found: str | None = None
    for split in dict.fromkeys(s for _, s, _ in planned):
        run = next((r for _, s, r in planned if s == split and (folder / "runs" / r / "splits.csv").is_file()), None)
        if run is not None:
            found = evidence.leaks(folder / "runs" / run, cohort)
            if found:
                return f"{split}: {found}"
    return found if cohort.participants is None or found is not None else ""


def counted(n: int, what: str) -> str:
    """Return a number of things in words."""
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def p_text(p: float) -> str:
    """Return a p-value as papers print it."""
    return "" if not np.isfinite(p) else "< 0.001" if p < 0.001 else f"{p:.3f}"


def lead(summary: pd.DataFrame, comparisons: pd.DataFrame, metric: str) -> str:
    """Return the headline: the best model with its interval, the reference, and whether they can be told apart."""
    best = summary.sort_values(metric, ascending=False).iloc[0]
    span = ""
    if np.isfinite(best[f"{metric}_low"]):
        low, high = (min(max(best[f"{metric}_{side}"], -1.0), 1.0) for side in ("low", "high"))
        span = f" (95 % interval {low:.3f} to {high:.3f})"
    splits = counted(int(best["n_splits"]), "split")
    text = f"{best['variant']} has the highest mean test {shown_name(metric)} over {splits}: {best[metric]:.3f}{span}."
    if not len(comparisons):
        return text
    reference = comparisons["reference"].iloc[0]
    rows = comparisons[comparisons["variant"] == best["variant"]]
    if len(rows):
        row = rows.iloc[0]
        value = float(summary.loc[summary["variant"] == reference, metric].iloc[0])
        text += f" The reference {reference} has {value:.3f}; the paired difference is {row['difference']:+.3f}"
    else:
        row = comparisons.sort_values("difference", ascending=False).iloc[0]
        value = float(summary.loc[summary["variant"] == row["variant"], metric].iloc[0])
        text += f" The next best, {row['variant']}, has {value:.3f}; its paired difference is {row['difference']:+.3f}"
    if np.isfinite(row["low"]):
        text += f" (95 % interval {row['low']:+.3f} to {row['high']:+.3f}, corrected for overlapping splits)"
        text += "." if row["low"] > 0 or row["high"] < 0 else ", which chance can explain."
        return text
    why = "from one split" if row["n_splits"] < 2 else f"the same on all {row['n_splits']} splits"
    return text + f", {why}: nothing can be said about chance."


def glance(page: Page, study: dict[str, Any], cohort: evidence.Cohort, leak: str | None) -> None:
    """Say what was done with whom."""
    page.heading("At a glance")
    sizes = sorted({tuple(s) for s in study["split_sizes"]})
    parts = f"{sizes[0][0]:,} training, {sizes[0][1]:,} validation, {sizes[0][2]:,} test"
    guard = {None: "passed before training", "": "no subject, group or scan on two sides (checked again)"}
    facts = cohort.facts
    page.facts(
        [
            ("Cohort", " · ".join(str(x) for x in (facts.get("source", {}).get("name", ""), study["cohort"]) if x)),
            ("Subjects", f"{study['n_subjects']:,}"),
            (
                "Brain",
                f"{study['n_rois']} ROIs{' of ' + facts['atlas'] if facts.get('atlas') else ''}, {study['kind']}",
            ),
            (
                "Protocol",
                f"{study['protocol']}: {counted(len(study['splits']), 'split')}, "
                f"{counted(len(study['seeds']), 'seed')}",
            ),
            ("Each split", parts + (" (sizes differ)" if len(sizes) > 1 else "") + "; the test part is scored once"),
            ("Leak guard", guard.get(leak, "LEAK")),
        ]
    )
    sites = evidence.sites_by_class(cohort, study["label"])
    if sites is not None:
        page.table(sites, f"Subjects by site and {study['label']}.", "cohort")


def result(page: Page, folder: Path, runs: pd.DataFrame, summary: pd.DataFrame, comparisons: pd.DataFrame) -> None:
    """Show scores over splits, and paired differences."""
    metric = score_name(runs)
    shown = shown_name(metric)
    page.heading("Result")
    columns = [c for c in ("auroc", "accuracy", "sensitivity", "specificity", "brier", "r", "mse") if c in summary]
    compact = pd.DataFrame({"model": summary["variant"]})
    for column in columns:
        compact[shown_name(column)] = [mean_sd(row, column) for _, row in summary.iterrows()]
    if "p_chance" in summary:
        compact["p against chance"] = [p_text(p) for p in summary["p_chance"]]
    page.table(compact, "Mean ± SD of the test metrics over the splits.", "summary", summary)
    for sentence in notes(runs, comparisons):
        page.paragraph(sentence)
    scores = per_split(runs, metric)
    page.figure(
        figures.paired_plot(scores, shown),
        f"Test {shown} of each split: one row a model, dots of one split joined by a line, the bar is the mean. "
        "Splits differ in difficulty, so only differences within a split count.",
        scores.reset_index(),
        "paired",
    )
    if not len(comparisons):
        return
    page.figure(
        figures.forest_plot(comparisons, shown),
        f"Paired differences from {comparisons['reference'].iloc[0]} with 95 % intervals by the corrected t-test of "
        "Nadeau and Bengio. Left of the dotted line a model is worse; an interval across it can be chance.",
        comparisons,
        "differences",
    )
    names = {
        "variant": "model",
        "difference": "difference",
        "low": "95 % from",
        "high": "to",
        "p_corrected_holm": "p (corrected, Holm)",
        "p_permutation_holm": "p (permutation, Holm)",
        "p_delong_holm": "p (DeLong, Holm)",
        "p_plain": "p (plain t-test)",
    }
    table = comparisons[[c for c in names if c in comparisons]].copy()
    for column in [c for c in table.columns if str(c).startswith("p_")]:
        table[column] = [p_text(p) for p in table[column]]
    page.table(
        table.rename(columns=names),
        "The same differences as numbers. The plain t-test, which the paper used, takes overlapping splits as "
        "independent and finds too much.",
        "comparisons",
        comparisons,
    )


def mean_sd(row: pd.Series, column: str) -> str:
    """Return mean ± SD, or the mean alone, and the number of splits where it is not all of them."""
    mean, sd, n = row[column], row[f"{column}_sd"], row.get(f"{column}_n", row["n_splits"])
    if not np.isfinite(mean):
        return ""
    text = f"{mean:.3f} ± {sd:.3f}" if np.isfinite(sd) else f"{mean:.3f}"
    return text if n == row["n_splits"] else f"{text} (n = {n})"


def chosen_models(summary: pd.DataFrame, most: int) -> list[str]:
    """Return the first model of a study and the best others, in the study's order."""
    metric = "auroc" if "auroc" in summary else "r"
    best = summary.iloc[1:].sort_values(metric, ascending=False)["variant"].head(most - 1).tolist()
    return [v for v in summary["variant"] if v == summary["variant"].iloc[0] or v in best]


def subjects(page: Page, folder: Path, runs: pd.DataFrame, summary: pd.DataFrame) -> None:
    """Show what the subjects' averaged predictions say: ROC, calibration, sites."""
    pooled, tables = {}, {}
    for variant in chosen_models(summary, MOST_LINES):
        predictions = pooled_predictions(folder, runs, variant)
        found = evidence.binary_columns(predictions)
        if found is not None and 0 < found[0].sum() < len(found[0]):
            pooled[variant] = found
            tables[variant] = evidence.per_site_table(predictions)
    if not pooled:
        return
    order = summary["variant"].tolist()
    page.heading("Subjects and sites")
    data = pd.concat(
        [pd.DataFrame({"model": k, "positive": p.astype(int), "probability": q}) for k, (p, q) in pooled.items()]
    )
    few = chosen_models(summary[summary["variant"].isin(list(pooled))], 3)
    some = "" if len(pooled) == len(summary) else f" The first model and the {len(pooled) - 1} best others are drawn."
    page.pair(
        [
            (
                figures.roc_curves(pooled, order=order),
                "ROC curves of all test subjects; one tested in several splits counts once, with its mean "
                f"probability. The dotted line is chance.{some}",
                data,
                "roc",
            ),
            (
                figures.calibration_curves({name: pooled[name] for name in few}, order=order),
                "Calibration of the same predictions: on the dotted line, a probability means what it says. Bars are "
                "95 % intervals.",
                data[data["model"].isin(few)],
                "calibration",
            ),
        ]
    )
    shown = {name: tables[name] for name in few if len(tables[name]) > 1}
    if shown:
        page.figure(
            figures.per_site_plot(shown, order=order),
            "AUROC by site (test subjects in brackets) with 95 % intervals; few subjects make wide ones. Sites with "
            "one class only are left out; the dotted line is chance.",
            pd.concat([table.assign(model=name) for name, table in tables.items()]),
            "sites",
        )


def cost(page: Page, summary: pd.DataFrame, metric: str) -> None:
    """Show what a run cost."""
    page.heading("Parameters and time")
    table = pd.DataFrame(
        {
            "model": summary["variant"],
            "parameters": summary["n_parameters"],
            "CPU seconds": [f"{s:,.1f}" for s in summary["cpu_seconds"]],
            "memory (MB)": summary["peak_memory_mb"].round().astype(int),
        }
    )
    page.table(table, "What one run cost: parameters, processor time, and memory at the most.", "cost")
    if len(summary) > 1:
        columns = ["variant", "n_parameters", "cpu_seconds", "peak_memory_mb", metric]
        page.figure(
            figures.cost_plot(summary, metric),
            f"Mean test {shown_name(metric)} over the processor time of one run (logarithmic): up and left is better.",
            summary[columns],
            "cost-figure",
        )


def progress(page: Page, folder: Path, planned: Planned, runs: pd.DataFrame) -> None:
    """Show the epochs of all runs, those still running, and those that failed."""
    curves = evidence.curve_table(folder, [(variant, run) for variant, _, run in planned])
    failed = folder / "failures.csv"
    done = set() if runs.empty else set(runs["run"])
    begun = [
        {"run": run, "epoch": int(lines[-1]["epoch"]), "loss": lines[-1]["loss"], "validation": lines[-1]["val_score"]}
        for _, _, run in planned
        if run not in done and (lines := evidence.read_lines(folder / "runs" / run))
    ]
    if curves.empty and not begun and not failed.is_file():
        return
    page.heading("Training")
    if begun:
        page.table(pd.DataFrame(begun), "Runs that are not finished, and how far they are.", "running")
    if failed.is_file() and len(done) < len(planned):
        page.table(pd.read_csv(failed), "Runs that failed, and why.", "failures")
    if not curves.empty:
        score = "validation AUROC" if runs.empty or "auroc" in runs else "validation squared error"
        page.figure(
            figures.validation_curves(curves, score),
            "Score of the validation part by epoch, one line per run and member. Linear models have no epochs.",
            curves,
            "curves",
        )


def again(page: Page, folder: Path, study: dict[str, Any], planned: Planned, comparisons: pd.DataFrame) -> None:
    """Say how to repeat the study."""
    config: RunConfig | None = None
    first: dict[str, Path] = {}
    for _, split, run in planned:
        path = folder / "runs" / run
        if (path / "config.toml").is_file():
            config = config or read_config(path)
            first.setdefault(split, path)
    page.heading("How to make it again")
    reference = str(comparisons["reference"].iloc[0]) if len(comparisons) else None
    page.paragraph("The same command goes on with an unfinished study, and ends at the same numbers.")
    typed = study.get("commands", [])
    if all(command.startswith("bnt compare ") for command in typed):
        page.code(commands.compare_command(study, config, reference))
        if typed:
            page.paragraph("As it was typed:")
    if typed:
        page.code("\n".join(typed))
    table = commands.split_table(first)
    if table:
        page.file(
            table,
            "splits.csv",
            "Who was in which part; --protocol takes this table as well:",
        )
    page.file((folder / "study.json").read_text(), "study.json", "Every setting of the study:", "application/json")
