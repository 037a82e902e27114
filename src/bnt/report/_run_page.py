"""The page of one run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bnt.plotting import _brain as brain
from bnt.plotting import _charts as figures
from bnt.plotting._charts import shown_name
from bnt.report import _caveats as cautions
from bnt.report import _commands as commands
from bnt.report import _evidence as evidence
from bnt.report._explanations_section import Explanation, edge_matrix, read_explanation
from bnt.report._page import Page
from bnt.splits import SplitName, read_splits
from bnt.training._config import RunConfig
from bnt.training._run import RunResult, load_result


def run_page(folder: Path) -> Page:
    """Return the page of one finished run."""
    result = load_result(folder)
    config, report = result.config, result.report
    cohort = evidence.look_up_cohort(config.cohort)
    siblings = same_split(folder, config)
    leak = evidence.leaks(folder, cohort)
    page = Page(f"{config.model} predicts {config.label}", lead(result, siblings))
    explanation = read_explanation(folder / "explain")
    doubts = explanation.warnings if explanation is not None else []
    chosen = bool(report["epochs"]) and config.recipe.select != "last"  # linear models have no epochs
    page.warnings(cautions.of_run(report, config.split, leak, siblings is not None, chosen) + doubts)
    page.notice(cautions.NOT_A_DEVICE)
    glance(page, result, cohort, leak)
    tested_once(page, result, cohort, siblings)
    training(page, folder, config)
    if explanation is not None:
        explained(page, folder, cohort, explanation)
    again(page, folder, result)
    return page


def interval_text(metrics: dict[str, Any], name: str) -> str:
    """Return a metric with its interval, where it has one, in words."""
    low, high = metrics.get(f"{name}_ci", (np.nan, np.nan))
    span = f" (95 % interval {low:.3f} to {high:.3f})" if np.isfinite([low, high]).all() else ""
    return f"{metrics[name]:.3f}{span}"


def lead(result: RunResult, siblings: pd.DataFrame | None) -> str:
    """Return the result and what it must be held against, in two sentences."""
    metrics, n = result.report["test"], result.report["n"]["test"]
    metric = "r" if result.config.task.kind == "regression" else "auroc"
    kind = " (mean of one class against the rest)" if "auroc" in metrics and "sensitivity" not in metrics else ""
    text = f"{shown_name(metric)} {interval_text(metrics, metric)}{kind} on {n} test subjects, scored once."
    if "n_positive" in metrics:
        share = max(metrics["n_positive"], n - metrics["n_positive"]) / n
        text += f" Guessing has an AUROC of 0.500; the larger class alone gives accuracy {share:.3f}, the model "
        text += f"{metrics['accuracy']:.3f}."
    elif metric == "r":
        text += " Guessing has r = 0."
    if siblings is not None and len(siblings) > 1:
        others = siblings[siblings["run"] != Path(result.folder).resolve().name]
        said = ", ".join(f"{m} {v:.3f}" for m, v in zip(others["model"], others[metric]))
        text += f" Others on the same split: {said}."
    return text


def same_split(folder: Path, config: RunConfig) -> pd.DataFrame | None:
    """Return what the study's other models scored on the same split and seed; None where there is no study."""
    from bnt.studies._results import run_table, score_name

    study = folder.resolve().parent.parent
    if not (study / "study.json").is_file():
        return None
    runs = run_table(study)
    if runs.empty or folder.resolve().name not in set(runs["run"]):
        return None
    here = runs[(runs["split"] == config.split) & (runs["seed"] == config.seed)]
    columns = [c for c in (score_name(runs), "accuracy", "sensitivity", "specificity", "mse") if c in here]
    table = here[["variant", *columns, "n_parameters", "cpu_seconds", "run"]]
    return table.rename(columns={"variant": "model"}).reset_index(drop=True)


def glance(page: Page, result: RunResult, cohort: evidence.Cohort, leak: str | None) -> None:
    """Say what was done with whom."""
    config, report = result.config, result.report
    n, facts = report["n"], cohort.facts
    page.heading("At a glance")
    guard = {None: "passed before training", "": "no subject, group or scan on two sides (checked again)"}
    page.facts(
        [
            ("Cohort", " · ".join(str(x) for x in (facts.get("source", {}).get("name", ""), config.cohort) if x)),
            ("Brain", f"{config.n_rois} ROIs{' of ' + facts['atlas'] if facts.get('atlas') else ''}, {config.kind}"),
            ("Split", f"{config.split} · {n['train']} training, {n['validation']} validation, {n['test']} test"),
            ("Leak guard", guard.get(leak, "LEAK")),
            ("Recipe", f"{config.recipe_name}, seed {config.seed}"),
            ("Parameters", f"{report['n_parameters']:,}"),
            ("Time", f"{report['seconds']:,.1f} s, {report['cpu_seconds']:,.1f} s of processor time"),
            ("Memory", f"{report['peak_memory_mb']:,} MB at the most"),
        ]
    )
    counts = evidence.parts_by_class(result.folder, cohort, config.label)
    if counts is not None:
        page.table(counts, f"Subjects by part and {config.label}, and the number of sites in each part.", "parts")
    split = read_splits(result.folder / "splits.csv")[0]
    ids = {name for part in split.parts.values() for name in part}
    sites = evidence.sites_by_class(cohort, config.label, ids)
    if sites is not None:
        page.table(sites, f"Subjects of all parts by site and {config.label}.", "sites-by-class")


def metric_table(metrics: dict[str, Any]) -> pd.DataFrame:
    """Return a run's metrics as rows."""
    rows = []
    for name, value in metrics.items():
        if name.endswith("_ci") or name in ("n", "n_positive"):
            continue
        low, high = metrics.get(f"{name}_ci", (np.nan, np.nan))
        rows.append({"metric": shown_name(name), "value": value, "95 % from": low, "to": high})
    return pd.DataFrame(rows)


def tested_once(page: Page, result: RunResult, cohort: evidence.Cohort, siblings: pd.DataFrame | None) -> None:
    """Show what the test part said."""
    config, report = result.config, result.report
    test = result.predictions[result.predictions["part"] == "test"]
    page.heading("Result")
    positive = report["positive_class"]
    who = "" if positive is None else f" Positive is {config.label} = {cohort.class_name(config.label, positive)}."
    caption = f"Test metrics with 95 % intervals (AUROC: DeLong; proportions: Wilson; r: Fisher).{who}"
    page.table(metric_table(report["test"]), caption, "test-metrics")
    if siblings is not None and len(siblings) > 1:
        shown = siblings.drop(columns="run").rename(columns={c: shown_name(c) for c in siblings.columns})
        shown = shown.rename(columns={"n parameters": "parameters", "cpu seconds": "CPU s"})
        page.table(shown, "The study's models on the same split and seed.", "same-split", siblings)
    binary = evidence.binary_columns(test)
    if binary is not None and 0 < binary[0].sum() < len(binary[0]):
        curve = pd.DataFrame({"positive": binary[0].astype(int), "probability": binary[1]})
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
                "AUROC of the test subjects of each site (their number in brackets), with 95 % intervals; few "
                "subjects make wide ones. Sites with one class only are left out; the dotted line is chance.",
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


def training(page: Page, folder: Path, config: RunConfig) -> None:
    """Show the epochs, where there are any."""
    lines = evidence.read_lines(folder)
    if not lines:
        return
    page.heading("Training")
    name = "validation AUROC" if config.task.kind == "classification" else "validation squared error"
    table = pd.DataFrame(lines)
    page.pair(
        [
            (figures.loss_curve(lines), "Training loss by epoch, one line a stage of training.", table, "loss"),
            (
                figures.score_curve(lines, name),
                "Score of the validation part by epoch; a ring marks the epoch whose weights were tested.",
                table,
                "validation",
            ),
        ]
    )


def explained(page: Page, folder: Path, cohort: evidence.Cohort, found: Explanation) -> None:
    """Show what ``bnt explain`` left in the run's folder."""
    page.heading("What the model saw")
    for text in found.sentences:
        page.paragraph(text)
    on_the_brain(page, cohort, found)
    for picture in found.pictures:
        page.picture(picture.png, picture.caption, picture.data, f"explain-{picture.name}")
    if found.left_out:
        page.paragraph(f"{found.left_out} more pictures are in {folder / 'explain'}.", soft=True)


def on_the_brain(page: Page, cohort: evidence.Cohort, found: Explanation) -> None:
    """Show the strongest edges where the ROIs' places are known."""
    if found.edges is None or cohort.rois is None:
        return
    matrix, places = edge_matrix(found.edges, cohort.rois), brain.coordinates(cohort.rois)
    if matrix is None or places is None:
        return
    known = np.isfinite(places).all(axis=1)
    matrix, places = matrix[np.ix_(known, known)], places[known]
    shown = brain.strongest(matrix)
    if not np.any(shown):
        return
    names = cohort.rois.loc[known, "label"].astype(str).to_numpy()
    rows, columns = np.nonzero(np.triu(shown))
    data = pd.DataFrame({"roi_a": names[rows], "roi_b": names[columns], "value": shown[rows, columns]})
    if "connectome" not in [picture.name for picture in found.pictures]:
        page.figure(
            brain.glass_brain(matrix, places),
            f"The {len(data)} connections that {found.strongest}, from three sides. {found.signs}",
            data,
            "glass-brain",
            paper=True,
        )
    page.frame(
        brain.connectome_html(matrix, places),
        f"The {len(data)} connections that {found.strongest}, in three dimensions: drag to turn, scroll to zoom. "
        f"{found.signs}",
        data.to_csv(index=False),
        "connectome",
    )


def again(page: Page, folder: Path, result: RunResult) -> None:
    """Say how to repeat the run to the same bits."""
    config, report = result.config, result.report
    page.heading("How to make it again")
    page.paragraph("Same versions, same thread count, same device: the same weights, bit by bit.")
    above = folder.resolve().parent.parent / "study.json"
    table = json.loads(above.read_text())["protocol"] if above.is_file() else "splits.csv"
    if not above.is_file() and SplitName.parse(config.split).seed is None:
        page.paragraph("The split came from a table: save splits.csv from below first.")
    page.code(commands.train_command(config, table))
    saved = commands.split_table({config.split: folder})
    if saved:
        page.file(
            saved,
            "splits.csv",
            "Who was in which part; --protocol takes this table as well:",
        )
    page.file(
        (folder / "config.toml").read_text(encoding="utf-8"), "config.toml", "Every setting of the run:", "text/plain"
    )
    lines = [f"{k} {v}" for k, v in report["versions"].items()]
    page.code("\n".join([*lines, f"weights sha256 {report['weights_sha256']}", f"data sha256 {config.data_sha256}"]))
