"""Writes the page of a run or a study, once or while the study runs; the contents of the page of a run.

``templates/run.html`` has the text, and ``_study_page`` the contents of the page of a study.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bnt._words import heading, is_share, percent, shown, shown_name, span, spoken, spoken_interval
from bnt.cohort._files import holder, readable, without_folders, writable, write_atomic
from bnt.errors import BadInput
from bnt.plotting import _brain as brain
from bnt.plotting import _charts as charts
from bnt.report import _evidence as evidence
from bnt.report._explained import Explanation, edge_matrix, read_explanation
from bnt.report._render import Chart, render, shareable, split_table, train_command
from bnt.report._study_page import planned_runs, study_page
from bnt.report._tested import of_subjects
from bnt.splits import read_splits
from bnt.splits._split import SplitName
from bnt.studies._results import read_study, run_table, score_name
from bnt.training._config import RunConfig
from bnt.training._trained import RunResult, load_result, of_people

LARGEST = 15_000_000  # bytes of a page


def write_report(
    folder: str | Path, out: str | Path | None = None, *, refresh: int = 0, with_ids: bool = False
) -> Path:
    """Write ``report.html`` into the folder of a run or a study, or to ``out``; return its path.

    Parameters
    ----------
    folder : path
        A folder made by ``bnt train`` or ``bnt compare``.
    out : path, optional
        The file to write.
    refresh : int
        Seconds after which a browser reloads the report of an unfinished study; 0 is never. With 0, an unfinished study
        needs at least one finished run.
    with_ids : bool
        Also write the ids of subjects (the table of splits) and full paths. Without them the report can be shared.

    Examples
    --------
    >>> from bnt.report import write_report
    >>> write_report("study").name
    'report.html'
    """
    folder = Path(folder)
    target = Path(out) if out is not None else folder / "report.html"
    with readable(folder, "repeat the command that made it"):
        if (folder / "study.json").is_file():
            text = render("study.html", **study_page(folder, refresh, with_ids))
        elif (folder / "config.toml").is_file():
            text = render("run.html", **run_page(folder, with_ids))
        else:
            raise BadInput(f"{folder} is neither a run nor a study: give a folder made by bnt train or bnt compare.")
    if len(text.encode()) > LARGEST:
        raise BadInput(f"The page of {folder} would be {len(text) / 1e6:.0f} MB: remove pictures from explain/.")
    with writable(target):
        write_atomic(target, text)
    return target


def state(folder: Path) -> tuple[int, int, int]:
    """Return how many runs of a study are finished, how many are planned, and how many bytes of epochs there are."""
    planned = planned_runs(read_study(folder))
    done = sum((folder / "runs" / run / "DONE").is_file() for _, _, run in planned)
    lines = [folder / "runs" / run / "metrics.jsonl" for _, _, run in planned]
    return done, len(planned), sum(file.stat().st_size for file in lines if file.is_file())


def watch_report(
    folder: str | Path,
    out: str | Path | None = None,
    *,
    every: float = 10.0,
    say: Callable[[str], None] = print,
    with_ids: bool = False,
) -> Path:
    """Update the report of a study until all its runs are finished or its command has ended; return its path.

    Parameters
    ----------
    folder : path
        The folder of a study, which may not have started yet.
    out : path, optional
        The file to write.
    every : float
        Seconds between two checks; the report is written again only if something has changed.
    say : callable
        Called with a line whenever a run has finished.
    with_ids : bool
        As in :func:`write_report`.

    Examples
    --------
    >>> from bnt.report import watch_report
    >>> watch_report("study", every=1, say=lambda line: None).name  # returns when the study is finished
    'report.html'
    """
    folder = Path(folder)
    if (folder / "config.toml").is_file() and not (folder / "study.json").is_file():
        raise BadInput(f"{folder} is one run: only a study can be watched.", "watch")
    if every <= 0:
        raise BadInput(f"every is {every:g}: give a number of seconds above 0.", "every")
    last: tuple[int, int, int] | None = None
    waited = seen = False
    while True:
        if not (folder / "study.json").is_file():
            if not waited:
                say(f"{folder} has no study yet: waiting for it.")
            waited = True
            time.sleep(every)
            continue
        running = bool(holder(folder / ".lock"))  # read before the runs: what ends in between is seen at the next look
        now = state(folder)
        if now != last:
            target = write_report(folder, out, refresh=max(5, round(every)), with_ids=with_ids)
            if last is None or now[0] != last[0]:
                say(f"{now[0]} of {now[1]} runs finished: {target}")
            last = now
        if now[0] == now[1]:
            return target
        if seen and not running:
            say(f"The study has ended with {now[0]} of {now[1]} runs finished; run its command again to resume.")
            return write_report(folder, out, with_ids=with_ids) if now[0] else target
        seen = seen or running
        time.sleep(every)


def run_page(folder: Path, with_ids: bool = False) -> dict[str, Any]:
    """Return the values of ``run.html`` for one finished run; ``with_ids`` names subjects and folders."""
    result = load_result(folder)
    config, report = result.config, result.report
    cohort = evidence.look_up_cohort(config.cohort)
    siblings = same_split(folder, config)
    leak = evidence.named_leak(evidence.leaks(folder, cohort), with_ids)
    explained = read_explanation(folder / "explain")
    chosen = bool(report["epochs"]) and config.recipe.select != "last"  # linear models have no epochs
    caveats = evidence.run_caveats(report, config.split, leak, siblings is not None, chosen)
    positive = report["positive_class"]
    split = read_splits(folder / "splits.csv")[0]
    several = siblings if siblings is not None and len(siblings) > 1 else None
    page = {
        "title": f"Prediction of {config.label} with {config.model}",
        "lead": lead(result, several),
        "caveats": caveats + rare_classes(result, cohort) + (explained.warnings if explained is not None else []),
        "refresh": 0,
        "label": config.label,
        "overview": overview(result, cohort, leak),
        "parts": evidence.parts_by_class(folder, cohort, config.label),
        "sites_by_class": evidence.sites_by_class(cohort, config.label, {n for p in split.parts.values() for n in p}),
        "metrics": metric_table(report["test"]),
        "regression": config.task.kind == "regression",
        "validation_score": validation_score(config),
        "positive": "" if positive is None else cohort.class_name(config.label, positive),
        "siblings": None if several is None else named_columns(several.drop(columns="run")),
        "siblings_full": several,
        "tested": tested_charts(result, cohort),
        "several": False,
        **training_charts(folder, config),
        "explained": explained,
        "brain": None if explained is None else on_the_brain(cohort, explained),
        **reproducibility(folder, result, with_ids),
    }
    if with_ids:
        return page
    return shareable(page, [config.cohort, folder], [name for part in split.parts.values() for name in part])


def interval_text(metrics: dict[str, Any], name: str) -> str:
    """Return a metric with its interval, where it has one."""
    low, high = metrics.get(f"{name}_ci", (np.nan, np.nan))
    span = spoken_interval(low, high, name)
    return spoken(metrics[name], name) + (f" ({span})" if span else "")


def lead(result: RunResult, siblings: pd.DataFrame | None) -> str:
    """Return the result and what to compare it with, in two sentences."""
    metrics, n = result.report["test"], result.report["n"]["test"]
    metric = "r" if result.config.task.kind == "regression" else "auroc"
    kind = " (mean of one class against the rest)" if "auroc" in metrics and "sensitivity" not in metrics else ""
    text = f"{shown_name(metric)} {interval_text(metrics, metric)}{kind} on {n} test subjects, scored once."
    if metric == "auroc":
        test = of_people(result.predictions[result.predictions["part"] == "test"])
        share = float(test["label"].value_counts(normalize=True).max())
        text += " Guessing has an AUROC of 50 %; always predicting the largest class has an accuracy of "
        text += f"{spoken(share, 'accuracy')}, the model {spoken(metrics['accuracy'], 'accuracy')}."
    elif metric == "r":
        text += " Guessing has r = 0."
    if result.report.get("site_caution") and "auroc_within_site" in metrics:
        text += f" Within sites the AUROC is {spoken(metrics['auroc_within_site'], 'auroc')}."
    if siblings is not None:
        others = siblings[siblings["run"] != Path(result.folder).resolve().name]
        scores = ", ".join(f"{m} {spoken(v, metric)}" for m, v in zip(others["model"], others[metric]))
        text += f" Others on the same split: {scores}."
    return text


def rare_classes(result: RunResult, cohort: evidence.CohortFacts) -> list[str]:
    """Return a caveat about classes with few test people; empty for a score."""
    if result.config.task.kind == "regression":
        return []
    test = of_people(result.predictions[result.predictions["part"] == "test"])
    counts = {cohort.class_name(result.config.label, c): int(n) for c, n in test["label"].value_counts().items()}
    return evidence.rare_caveat({name: n for name, n in counts.items() if n < evidence.FEW_OF_A_CLASS}, "test people")


def same_split(folder: Path, config: RunConfig) -> pd.DataFrame | None:
    """Return what the study's models scored on the same split and seed; None where there is no study."""
    study = folder.resolve().parent.parent
    if not (study / "study.json").is_file():
        return None
    runs = run_table(study)
    if runs.empty or folder.resolve().name not in set(runs["run"]):
        return None
    here = runs[(runs["split"] == config.split) & (runs["seed"] == config.seed)]
    columns = [
        c for c in (score_name(runs), "accuracy", "sensitivity", "specificity", "r2", "mae", "medae") if c in here
    ]
    table = here[["variant", *columns, "n_parameters", "cpu_seconds", "run"]]
    return table.rename(columns={"variant": "model"}).reset_index(drop=True)


def named_columns(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with the names of metrics that a page shows."""
    special = {"n_parameters": "parameters", "cpu_seconds": "CPU s"}
    found = table.copy()
    for column in [c for c in table.columns if is_share(str(c)) and pd.api.types.is_numeric_dtype(table[c])]:
        found[column] = [shown(value, column) for value in table[column]]
    return found.rename(columns={c: special.get(c, heading(c)) for c in table.columns})


def split_words(name: str) -> str:
    """Return the name of a split in words: ``split0 of site-stratified (seed 0)``."""
    split = SplitName.parse(name)
    source = f" of {without_folders(split.source)}" if split.source else ""
    return f"{split.short}{source}{'' if split.seed is None else f' (seed {split.seed})'}"


def overview(result: RunResult, cohort: evidence.CohortFacts, leak: str | None) -> list[tuple[str, str]]:
    """Return what was done with whom, as names and values."""
    config, report = result.config, result.report
    n = report["n"]
    return [
        ("Cohort", cohort.described(config.cohort)),
        ("Connectomes", cohort.connectomes(config.n_rois, config.kind)),
        (
            "Split",
            f"{split_words(config.split)} · {n['train']} training, {n['validation']} validation, {n['test']} test",
        ),
        ("Leak guard", evidence.guard_text(leak)),
        ("Recipe", f"{config.recipe_name}, seed {config.seed}"),
        ("Adjustments", ", ".join(config.adjustments.described())),
        ("Threshold", f"{report['threshold']:.3g}, chosen on validation" if "threshold" in report else ""),
        ("Site predicted from edges (test)", site_words(report)),
        ("Parameters", f"{report['n_parameters']:,}"),
        ("Time", time_words(report)),
        ("Peak memory", f"{report['peak_memory_mb']:,} MB"),
    ]


def time_words(report: dict[str, Any]) -> str:
    """Return how long a run took, and what other runs of its study spent on what it used too."""
    said = f"{report['seconds']:,.1f} s ({report['cpu_seconds']:,.1f} s of CPU time)"
    shared = report.get("cpu_seconds_shared", 0.0)
    return f"{said}, and {shared:,.1f} s that earlier runs of the study spent for it" if shared else said


def site_words(report: dict[str, Any]) -> str:
    """Return how well the site of test subjects is predicted before and after harmonising; else empty."""
    accuracy = report.get("site_accuracy")
    if not accuracy:
        return ""
    before, after = accuracy["before"], accuracy["after"]
    return (
        f"accuracy {percent(before['accuracy'], 1)} before, {percent(after['accuracy'], 1)} after "
        f"(always the largest site: {percent(before['chance'], 1)})"
    )


def metric_table(metrics: dict[str, Any]) -> pd.DataFrame:
    """Return a run's metrics as rows."""
    rows = []
    for name, value in metrics.items():
        if name.endswith("_ci") or name in ("n", "n_positive"):
            continue
        low, high = metrics.get(f"{name}_ci", (np.nan, np.nan))
        rows.append({"metric": heading(name), "value": shown(value, name), "95 % interval": span(low, high, name)})
    return pd.DataFrame(rows)


def tested_charts(result: RunResult, cohort: evidence.CohortFacts) -> dict[str, Any]:
    """Return the charts of the test set."""
    config = result.config
    test = of_people(result.predictions[result.predictions["part"] == "test"])
    named = [config.model]
    return of_subjects({config.model: test}, named, named, config.label, lambda c: cohort.class_name(config.label, c))


def validation_score(config: RunConfig) -> str:
    """Return what networks are selected by."""
    return "AUROC" if config.task.kind == "classification" else "mean squared error"


def training_charts(folder: Path, config: RunConfig) -> dict[str, Chart | None]:
    """Return loss and validation score by epoch, where there are epochs."""
    lines = evidence.read_lines(folder)
    if not lines:
        return {"loss": None, "validation": None}
    table = pd.DataFrame(lines)
    return {
        "loss": Chart(charts.loss_curve(lines), table),
        "validation": Chart(charts.score_curve(lines, f"validation {validation_score(config)}"), table),
    }


def on_the_brain(cohort: evidence.CohortFacts, found: Explanation) -> dict[str, Any] | None:
    """Return the strongest edges on the brain, where the ROIs' places are known."""
    if found.edges is None or cohort.rois is None:
        return None
    matrix, places = edge_matrix(found.edges, cohort.rois), brain.coordinates(cohort.rois)
    if matrix is None or places is None:
        return None
    known = np.isfinite(places).all(axis=1)
    matrix, places = matrix[np.ix_(known, known)], places[known]
    shown = brain.strongest(matrix)
    if not np.any(shown):
        return None
    names = cohort.rois.loc[known, "label"].astype(str).to_numpy()
    rows, columns = np.nonzero(np.triu(shown))
    data = pd.DataFrame({"roi_a": names[rows], "roi_b": names[columns], "value": shown[rows, columns]})
    drawn = any(picture.name == "connectome" for picture in found.pictures)
    return {
        "n_edges": len(data),
        "data": data,
        "glass": None if drawn else Chart(brain.glass_brain(matrix, places), data),
        "view": brain.connectome_html(matrix, places),
    }


def reproducibility(folder: Path, result: RunResult, with_ids: bool) -> dict[str, Any]:
    """Return how to repeat the run bit by bit."""
    config, report = result.config, result.report
    above = folder.resolve().parent.parent / "study.json"
    table = read_study(above.parent)["protocol"] if above.is_file() else "splits.csv"
    versions = [f"{k} {v}" for k, v in report["versions"].items()]
    digests = [f"weights sha256 {report['weights_sha256']}", f"data sha256 {config.data_sha256}"]
    return {
        "needs_table": not above.is_file() and SplitName.parse(config.split).seed is None,
        "command": train_command(config, table),
        "splits": (split_table({config.split: folder}) or None) if with_ids else None,
        "settings": (folder / "config.toml").read_text(encoding="utf-8"),
        "versions": "\n".join([*versions, *digests]),
    }
