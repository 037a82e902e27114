"""What the page of a study shows, finished or still running; ``templates/study.html`` has its words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bnt.errors import BadInput
from bnt.plotting import _charts as charts
from bnt.plotting._charts import shown_name
from bnt.report import _commands as commands
from bnt.report import _evidence as evidence
from bnt.report._render import Chart, shareable
from bnt.studies._around import read_covariates
from bnt.studies._results import (
    comparison_table,
    per_split,
    pooled_predictions,
    read_study,
    run_table,
    score_name,
    summary_table,
)
from bnt.studies._study import folder_name
from bnt.studies._summary import chance_note, notes, primary_p, read_tables
from bnt.studies._wording import counted, p_value
from bnt.training._config import RunConfig, read_config

Planned = list[tuple[str, str, str]]  # variant, split, run
MOST_LINES = 8  # models in one figure before it cannot be read
COMPARISON_COLUMNS = {
    "variant": "model",
    "difference": "difference",
    "low": "95 % from",
    "high": "to",
    "p_corrected_holm": "p (corrected t-test, Holm)",  # the primary one; the file has the others
}


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
    folder : path
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
    models = len(study["variants"])
    page: dict[str, Any] = {
        "title": f"Prediction of {study['label']}: {counted(models, 'model')}",
        "lead": f"None of {len(planned)} runs is finished yet.",
        "caveats": evidence.study_caveats(study, runs, len(planned), leak),
        "refresh": refresh if len(runs) < len(planned) else 0,
        "label": study["label"],
        "overview": overview(study, cohort, leak),
        "sites_by_class": evidence.sites_by_class(cohort, study["label"]),
        "metric": "",
        "result": None,
        "told": None,
        "subjects": None,
        "cost": None,
        "training": progress(folder, planned, runs),
    }
    summary = comparisons = pd.DataFrame()
    if not runs.empty:
        metric = score_name(runs)
        summary, comparisons = stored_tables(folder, runs)
        page |= {
            "lead": lead(summary, comparisons, metric),
            "metric": shown_name(metric),
            "result": scores(
                runs,
                summary,
                comparisons,
                metric,
                read_covariates(folder, study["splits"]),
                by_site=bool(study.get("site_caution")),
            ),
            "told": site_table(runs),
            "subjects": subjects(folder, runs, summary),
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
        text += f" The reference {reference} has {value:.3f}; the paired difference is {row['difference']:+z.3f}"
    else:
        row = comparisons.sort_values("difference", ascending=False).iloc[0]
        value = float(summary.loc[summary["variant"] == row["variant"], metric].iloc[0])
        text += f" The next best, {row['variant']}, has {value:.3f}; its paired difference is {row['difference']:+z.3f}"
    if np.isfinite(row["low"]):
        text += f" (95 % interval {row['low']:+z.3f} to {row['high']:+z.3f}, corrected for overlapping splits)"
        text += "." if row["low"] > 0 or row["high"] < 0 else ", which chance can explain."
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
        ("Each split", parts + (" (sizes differ)" if len(sizes) > 1 else "") + "; the test part is scored once"),
        ("Leak guard", evidence.guard_text(leak)),
    ]


def site_table(runs: pd.DataFrame) -> pd.DataFrame | None:
    """Return how well sites are told before and after harmonising, one row per model; None where none harmonises."""
    if "site_accuracy_before" not in runs:
        return None
    found = runs.dropna(subset="site_accuracy_before").groupby("variant", sort=False)
    columns = {
        "site_accuracy_before": "before",
        "site_accuracy_after": "after",
        "site_chance": "largest site alone",
        "n_told_sites": "sites",
    }
    table = found[list(columns)].mean().rename(columns=columns)
    ends = zip(*(found["n_told_sites"].agg(end).astype(int) for end in ("min", "max")))
    table["sites"] = [f"{low}" if low == high else f"{low} to {high}" for low, high in ends]  # of test parts
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
    shown, primary = shown_name(metric), primary_p(summary, comparisons)
    within = ["auroc_within_site"] if by_site else []
    every = ("auroc", *within, "accuracy", "sensitivity", "specificity", "brier", "r", "mse")
    columns = [c for c in every if c in summary]
    rows = [row for table in (summary, alone) for _, row in table.iterrows()]
    compact = pd.DataFrame({"model": [row["variant"] for row in rows]})
    for column in columns:
        compact[shown_name(column)] = [mean_sd(row, column) if column in row else "" for row in rows]
        if column == metric and primary.column == "p_chance":  # beside the score, where it is seen
            compact[primary.heading] = [p_value(row["p_chance"]) if "p_chance" in row else "" for row in rows]
    by_split = per_split(runs, metric)
    found: dict[str, Any] = {
        "summary": compact,
        "summary_full": pd.concat([summary, alone], ignore_index=True),
        "alone": len(alone),
        "notes": [*notes(runs, comparisons), *chance_note(summary, primary)],
        "paired": Chart(charts.paired_plot(by_split, shown), by_split.reset_index()),
        "comparisons": None,
    }
    if not len(comparisons):
        return found
    table = comparisons[[c for c in COMPARISON_COLUMNS if c in comparisons]].copy()
    for column in [c for c in table.columns if str(c).startswith("p_")]:
        table[column] = [p_value(p) for p in table[column]]
    return found | {
        "reference": comparisons["reference"].iloc[0],
        "forest": Chart(charts.forest_plot(comparisons, shown), comparisons),
        "comparisons": table.rename(columns=COMPARISON_COLUMNS),
        "comparisons_full": comparisons,
    }


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


def subjects(folder: Path, runs: pd.DataFrame, summary: pd.DataFrame) -> dict[str, Any] | None:
    """Return ROC, calibration and sites of the subjects' averaged predictions; None where classes are not two."""
    pooled, tables = {}, {}
    for variant in chosen_models(summary, MOST_LINES):
        predictions = pooled_predictions(folder, runs, variant)
        found = evidence.binary_columns(predictions)
        if found is not None and 0 < found[0].sum() < len(found[0]):
            pooled[variant] = found
            tables[variant] = evidence.per_site_table(predictions)
    if not pooled:
        return None
    order = summary["variant"].tolist()
    data = pd.concat(
        [pd.DataFrame({"model": k, "positive": p.astype(int), "probability": q}) for k, (p, q) in pooled.items()]
    )
    few = chosen_models(summary[summary["variant"].isin(list(pooled))], 3)
    calibrated = charts.calibration_curves({name: pooled[name] for name in few}, order=order)
    by_site = {name: tables[name] for name in few if len(tables[name]) > 1}
    sites = None
    if by_site:
        every = pd.concat([table.assign(model=name) for name, table in tables.items()])
        sites = Chart(charts.per_site_plot(by_site, order=order), every)
    return {
        "n_models": len(pooled),
        "fewer": counted(len(few), "model") if len(few) < len(summary) else "",
        "left_out": len(summary) - len(pooled),
        "roc": Chart(charts.roc_curves(pooled, order=order), data),
        "calibration": Chart(calibrated, data[data["model"].isin(few)]),
        "sites": sites,
    }


def cost(summary: pd.DataFrame, metric: str) -> dict[str, Any]:
    """Return what one run cost, and a chart where there is more than one model."""
    table = pd.DataFrame(
        {
            "model": summary["variant"],
            "parameters": summary["n_parameters"],
            "CPU seconds": [f"{s:,.1f}" for s in summary["cpu_seconds"]],
            "memory (MB)": summary["peak_memory_mb"].round().astype(int),
        }
    )
    columns = ["variant", "n_parameters", "cpu_seconds", "peak_memory_mb", metric]
    chart = Chart(charts.cost_plot(summary, metric), summary[columns]) if len(summary) > 1 else None
    return {"table": table, "chart": chart}


def progress(folder: Path, planned: Planned, runs: pd.DataFrame) -> dict[str, Any] | None:
    """Return the epochs of all runs, those still running, and those that failed; None where there are none."""
    curves = evidence.curve_table(folder, [(variant, run) for variant, _, run in planned])
    failed = folder / "failures.csv"
    done = set() if runs.empty else set(runs["run"])
    begun = [
        {"run": run, "epoch": int(lines[-1]["epoch"]), "loss": lines[-1]["loss"], "validation": lines[-1]["val_score"]}
        for _, _, run in planned
        if run not in done and (lines := evidence.read_lines(folder / "runs" / run))
    ]
    if curves.empty and not begun and not failed.is_file():
        return None
    score = "validation AUROC" if runs.empty or "auroc" in runs else "validation squared error"
    return {
        "running": pd.DataFrame(begun) if begun else None,
        "failed": pd.read_csv(failed) if failed.is_file() and len(done) < len(planned) else None,
        "curves": None if curves.empty else Chart(charts.validation_curves(curves, score), curves),
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
    permutations = commands.permutation_words(summary, typed)
    return {
        "command": commands.compare_command(study, config, reference, permutations) if compared else "",
        "typed": "\n".join(typed),
        "splits": (commands.split_table(first) or None) if with_ids else None,
        "settings": (folder / "study.json").read_text(),
    }
