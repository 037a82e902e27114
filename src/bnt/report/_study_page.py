"""Contents of the report of a study, finished or running; ``templates/study.html`` has the text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bnt._words import counted, heading, is_share, p_value, p_words, shown, shown_name, spoken, spoken_interval
from bnt.cohort._files import readable, without_folders
from bnt.errors import BadInput
from bnt.plotting import _charts as charts
from bnt.report import _evidence as evidence
from bnt.report._render import Chart, compare_command, permutation_words, shareable, split_table
from bnt.report._tested import MOST_LINES, MOST_PANELS, chosen_models, of_subjects
from bnt.studies._chance import read_covariates
from bnt.studies._results import (
    SCORES,
    comparison_table,
    folder_name,
    per_split,
    pooled_predictions,
    read_study,
    run_table,
    score_name,
    summary_table,
)
from bnt.studies._summary import chance_note, notes, primary_p, read_tables
from bnt.training._config import RunConfig, read_config

Planned = list[tuple[str, str, str]]  # variant, split, run


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
    tables, reference = read_tables(folder), ""
    if tables is not None:
        old, summary, comparisons = tables
        if "run" in old and set(old["run"]) == set(runs["run"]):
            return summary, comparisons
        reference = str(comparisons["reference"].iloc[0]) if len(comparisons) else ""
    variants = [str(v) for v in runs["variant"].unique()]
    chosen = reference if reference in variants else variants[0]
    return summary_table(runs), comparison_table(folder, runs, chosen)


def study_page(folder: Path, refresh: int = 0, with_ids: bool = False) -> dict[str, Any]:
    """Return the values of ``study.html``.

    Parameters
    ----------
    refresh : int
        Seconds after which a browser reads the page of an unfinished study again; 0 is never.
    with_ids : bool
        Name subjects and folders.
    """
    study = read_study(folder)
    planned = planned_runs(study)
    runs = run_table(folder)
    if runs.empty and not refresh:
        raise BadInput(f"{folder} has no finished run yet: follow it with bnt report --watch.")
    cohort = evidence.look_up_cohort(study["cohort"])
    leak = evidence.named_leak(study_leak(folder, planned, cohort), with_ids)
    models = [without_folders(variant["name"]) for variant in study["variants"]]
    page: dict[str, Any] = {
        "title": f"Prediction of {study['label']}: {models[0] if len(models) == 1 else counted(len(models), 'model')}",
        "lead": f"None of {len(planned)} runs is finished yet.",
        "caveats": evidence.study_caveats(study, runs, len(planned), leak, cohort),
        "refresh": refresh if len(runs) < len(planned) else 0,
        "label": study["label"],
        "overview": overview(study, cohort, leak),
        "sites_by_class": evidence.sites_by_class(cohort, study["label"]),
        "metric": "",
        "result": None,
        "site_accuracy": None,
        "tested": None,
        "several": True,
        "cost": None,
        "training": progress(folder, planned, runs),
    }
    summary = comparisons = pd.DataFrame()
    if not runs.empty:
        metric = score_name(runs)
        summary, comparisons = stored_tables(folder, runs)
        covariates = read_covariates(folder, study["splits"])
        page["caveats"] += evidence.covariate_caveat(summary, covariates, metric)
        page |= {
            "lead": lead(summary, comparisons, metric),
            "metric": shown_name(metric),
            "result": scores(
                runs,
                summary,
                comparisons,
                metric,
                covariates,
                by_site=bool(study.get("site_caution")),
            ),
            "site_accuracy": site_table(runs),
            "tested": subjects(folder, runs, summary, study["label"], cohort),
            "cost": cost(summary, metric),
        }
    page |= reproducibility(folder, study, planned, summary, comparisons, with_ids)
    if with_ids:
        return page
    ids = [] if cohort.participants is None else cohort.participants["participant_id"].tolist()
    return shareable(page, [study["cohort"], folder], ids)


def study_leak(folder: Path, planned: Planned, cohort: evidence.CohortFacts) -> str | None:
    """Return the leak guard's finding over the splits of a study, each checked once."""
    found: str | None = None
    for split in dict.fromkeys(s for _, s, _ in planned):
        run = next((r for _, s, r in planned if s == split and (folder / "runs" / r / "splits.csv").is_file()), None)
        if run is not None:
            found = evidence.leaks(folder / "runs" / run, cohort)
            if found:
                return f"{split}: {found}"
    return found if cohort.participants is None or found is not None else ""


def lead(summary: pd.DataFrame, comparisons: pd.DataFrame, metric: str) -> str:
    """Return the headline: the best model with its interval, the reference, and whether they differ."""
    best = summary.sort_values(metric, ascending=False).iloc[0]
    low, high = (min(max(best[f"{metric}_{side}"], -1.0), 1.0) for side in ("low", "high"))
    span = f" ({found})" if (found := spoken_interval(low, high, metric)) else ""
    splits = counted(int(best["n_splits"]), "split")
    alone = len(summary) == 1
    text = f"{best['variant']} has {'a' if alone else 'the highest'} mean test {shown_name(metric)} over {splits}"
    text += f" of {spoken(best[metric], metric)}{span}." if alone else f": {spoken(best[metric], metric)}{span}."
    if not len(comparisons):
        return text
    reference, unit = comparisons["reference"].iloc[0], " points" if is_share(metric) else ""
    rows = comparisons[comparisons["variant"] == best["variant"]]
    if len(rows):
        row = rows.iloc[0]
        value = float(summary.loc[summary["variant"] == reference, metric].iloc[0])
        text += f" The reference {reference} has {spoken(value, metric)}; the paired difference is "
    else:
        row = comparisons.sort_values("difference", ascending=False).iloc[0]
        value = float(summary.loc[summary["variant"] == row["variant"], metric].iloc[0])
        text += f" The next best, {row['variant']}, has {spoken(value, metric)}; its paired difference is "
    text += f"{shown(row['difference'], metric, '+')}{unit}"
    if np.isfinite(row["low"]):
        text += f" ({spoken_interval(row['low'], row['high'], metric, '+')}, corrected for overlapping splits)"
        text += "." if row["low"] > 0 or row["high"] < 0 else "; the interval includes 0."
        p = float(row["p_corrected_holm"])
        if len(comparisons) > 1 and np.isfinite(p):  # the best of several was looked for
            text += f" After Holm's correction for {len(comparisons)} comparisons, {p_words(p)}."
        return text
    why = "from one split" if row["n_splits"] < 2 else f"the same on all {row['n_splits']} splits"
    return text + f", {why}: nothing can be said about chance."


def overview(study: dict[str, Any], cohort: evidence.CohortFacts, leak: str | None) -> list[tuple[str, str]]:
    """Return what was done with whom, as names and values."""
    sizes = sorted({tuple(s) for s in study["split_sizes"]})
    parts = f"{sizes[0][0]:,} training, {sizes[0][1]:,} validation, {sizes[0][2]:,} test"
    parts += " scans" if cohort.people() else ""
    splits, seeds = counted(len(study["splits"]), "split"), counted(len(study["seeds"]), "seed")
    return [
        ("Cohort", cohort.described(study["cohort"])),
        ("Subjects", f"{study['n_subjects']:,}" + cohort.people()),
        ("Connectomes", cohort.connectomes(study["n_rois"], study["kind"])),
        *([("Other atlases", other)] if (other := cohort.other_atlases()) else []),
        ("Protocol", f"{study['protocol']}: {splits}, {seeds}"),
        ("Each split", parts + (" (sizes differ)" if len(sizes) > 1 else "") + "; the test set is scored once"),
        ("Leak guard", evidence.guard_text(leak)),
    ]


def site_table(runs: pd.DataFrame) -> pd.DataFrame | None:
    """Return how well sites are predicted before and after harmonising, one row per model, or None."""
    if "site_accuracy_before" not in runs:
        return None
    found = runs.dropna(subset="site_accuracy_before").groupby("variant", sort=False)
    columns = {
        "site_accuracy_before": "before (%)",
        "site_accuracy_after": "after (%)",
        "site_chance": "always the largest site (%)",
        "n_told_sites": "sites",
    }
    table = found[list(columns)].mean().rename(columns=columns)
    ends = zip(*(found["n_told_sites"].agg(end).astype(int) for end in ("min", "max")))
    table["sites"] = [f"{low}" if low == high else f"{low} to {high}" for low, high in ends]  # of test sets
    return table.rename_axis("model").reset_index()


def scores(
    runs: pd.DataFrame,
    summary: pd.DataFrame,
    comparisons: pd.DataFrame,
    metric: str,
    alone: pd.DataFrame,
    by_site: bool = False,
) -> dict[str, Any]:
    """Return scores over splits, and paired differences where there is more than one model."""
    name, primary = shown_name(metric), primary_p(summary, comparisons)
    within = ["auroc_within_site"] if by_site else []
    every = ("auroc", *within, "accuracy", "sensitivity", "specificity", "brier", "r", "r2", "mae", "medae")
    columns = [c for c in every if c in summary]
    rows = [row for table in (summary, alone) for _, row in table.iterrows()]
    below = "\n[" if sum(c == metric or c in SCORES for c in columns) > 2 else " ["  # so that the table is not too wide
    compact = pd.DataFrame({"model": [row["variant"] for row in rows]})
    for column in columns:
        spans = column == metric or column in SCORES
        texts = [mean_sd(row, column, spans) if column in row else "" for row in rows]
        compact[heading(column)] = [text.replace(" [", below) for text in texts]
        if column == metric and primary.column == "p_chance":  # beside the score, where it is seen
            compact[primary.heading] = [p_value(row["p_chance"]) if "p_chance" in row else "" for row in rows]
    by_split = per_split(runs, metric)
    found: dict[str, Any] = {
        "summary": compact,
        "summary_full": pd.concat([summary, alone], ignore_index=True),
        "alone": len(alone),
        "several": len(summary) > 1,
        "notes": [
            sentence
            for sentence in (*notes(runs, comparisons), *chance_note(summary, primary))
            if not sentence.startswith("Caution")  # these are among the caveats
        ],
        "paired": Chart(charts.paired_plot(by_split, name), by_split.reset_index()),
        "comparisons": None,
    }
    if not len(comparisons):
        return found
    unit = " (percentage points)" if is_share(metric) else ""
    table = pd.DataFrame({"model": comparisons["variant"]})
    table[f"difference [95 %]{unit}"] = [difference_words(row, metric) for _, row in comparisons.iterrows()]
    if primary.column:
        table[primary.heading] = [p_value(p) for p in comparisons[primary.column]]
    return found | {
        "reference": comparisons["reference"].iloc[0],
        "forest": Chart(charts.forest_plot(comparisons, name), comparisons),
        "comparisons": table,
        "comparisons_full": comparisons,
    }


def difference_words(row: pd.Series, metric: str) -> str:
    """Return a paired difference with its interval, where it has one."""
    low, high = (shown(row[side], metric, "+") for side in ("low", "high"))
    return shown(row["difference"], metric, "+") + (f" [{low}, {high}]" if low and high else "")


def mean_sd(row: pd.Series, column: str, interval: bool = False) -> str:
    """Return mean ± SD, or the mean alone, its interval if wanted, and the number of splits where it is not all."""
    mean, sd, n = row[column], row[f"{column}_sd"], row.get(f"{column}_n", row["n_splits"])
    if not np.isfinite(mean):
        return ""
    text = shown(mean, column) + (f" ± {shown(sd, column, like=mean)}" if np.isfinite(sd) else "")
    low, high = row.get(f"{column}_low", np.nan), row.get(f"{column}_high", np.nan)
    if interval and np.isfinite([low, high]).all():
        text += f" [{shown(low, column, like=mean)}, {shown(high, column, like=mean)}]"
    return text if n == row["n_splits"] else f"{text} (n = {n})"


def subjects(
    folder: Path, runs: pd.DataFrame, summary: pd.DataFrame, label: str, cohort: evidence.CohortFacts
) -> dict[str, Any]:
    """Return what the subjects' predictions show, averaged over the splits that tested them."""
    tables = {name: pooled_predictions(folder, runs, name) for name in chosen_models(summary, MOST_LINES)}
    few = chosen_models(summary, MOST_PANELS)
    return of_subjects(tables, few, summary["variant"].tolist(), label, lambda c: cohort.class_name(label, c))


def cost(summary: pd.DataFrame, metric: str) -> dict[str, Any]:
    """Return what one run cost, and a chart where there is more than one model."""
    table = pd.DataFrame(
        {
            "model": summary["variant"],
            "parameters": summary["n_parameters"],
            "CPU seconds": [f"{s:,.{2 if s < 10 else 1}f}" for s in summary["cpu_seconds"]],
            "memory (MB)": summary["peak_memory_mb"].round().astype(int),
        }
    )
    columns = ["variant", "n_parameters", "cpu_seconds", "peak_memory_mb", metric]
    chart = Chart(charts.cost_plot(summary, metric), summary[columns]) if len(summary) > 1 else None
    return {"table": table, "chart": chart}


def _failures(file: Path) -> pd.DataFrame | None:
    if not file.is_file():
        return None
    with readable(file, "repeat the command that made the study"):
        return pd.read_csv(file)


def progress(folder: Path, planned: Planned, runs: pd.DataFrame) -> dict[str, Any] | None:
    """Return the epochs of all runs, those still running, and those that failed; None where there are none."""
    curves = evidence.curve_table(folder, [(variant, run) for variant, _, run in planned])
    failed = _failures(folder / "failures.csv")
    done = set() if runs.empty else set(runs["run"])
    is_error = (curves["val_score"].astype(float) < 0).any()  # networks of a score maximise the negative error
    score = "mean squared error" if is_error else "AUROC"
    begun = [
        {
            "run": run,
            "epoch": int(lines[-1]["epoch"]),
            "loss": lines[-1]["loss"],
            f"validation {score}": abs(lines[-1]["val_score"] or 0.0),
        }
        for _, _, run in planned
        if run not in done and (lines := evidence.read_lines(folder / "runs" / run))
    ]
    if curves.empty and not begun and failed is None:
        return None
    order = list(dict.fromkeys(variant for variant, _, _ in planned))
    drawn = None if curves.empty else charts.validation_curves(curves, f"validation {score}", order=order)
    return {
        "score": score,
        "running": pd.DataFrame(begun) if begun else None,
        "failed": failed if len(done) < len(planned) else None,
        "curves": None if drawn is None else Chart(drawn, curves),
    }


def reproducibility(
    folder: Path,
    study: dict[str, Any],
    planned: Planned,
    summary: pd.DataFrame,
    comparisons: pd.DataFrame,
    with_ids: bool,
) -> dict[str, Any]:
    """Return how to repeat the study."""
    config: RunConfig | None = None
    first: dict[str, Path] = {}
    for _, split, run in planned:
        path = folder / "runs" / run
        if (path / "config.toml").is_file():
            config = config or read_config(path)
            first.setdefault(split, path)
    reference = str(comparisons["reference"].iloc[0]) if len(comparisons) else None
    typed = study.get("commands", [])
    compared = all(command.startswith("bnt compare ") for command in typed)
    permutations = permutation_words(summary, typed)
    return {
        "command": compare_command(study, config, reference, permutations) if compared else "",
        "typed": "\n".join(typed),
        "splits": (split_table(first) or None) if with_ids else None,
        "settings": (folder / "study.json").read_text(),
    }
