"""Tables and figures about predictions, for the test subjects of a run or study and for external validations.

Curves of two classes, confusion of several, scores against the truth. ``templates/tested.html`` and
``templates/validation.html`` have the words.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bnt._words import heading, shown, shown_name, span, spoken, spoken_interval
from bnt.cohort._files import new_folder, without_folders, write_atomic
from bnt.plotting import _charts as charts
from bnt.plotting import _predicted as curves
from bnt.predict._validation import UNCHECKED, Validation
from bnt.report import _evidence as evidence
from bnt.report._render import Chart, render, shareable
from bnt.training._task import auroc_interval, auroc_or_nan, proportion_interval

MARKER = "validation.json"
IDEAL = {"auroc": "100 (chance 50)", "calibration_slope": "1", "calibration_intercept": "0", "brier": "0"}
IDEAL |= {"r": "1", "r2": "1", "mae": "0", "accuracy": "100"}
INTERVALS = {  # how those of a validation are made, by the kind of prediction
    "two": "AUROC: DeLong; calibration slope: likelihood ratio; calibration intercept: sandwich estimator; "
    "proportions: Wilson; means: Student",
    "several": "proportions: Wilson; means: Student",
    "score": "R²: delta method; r: Fisher; others: Student",
}
POWER = {
    "auroc_interval_width": "Width of the 95 % interval of the AUROC",
    "smallest_auroc_above_chance": "Smallest AUROC that can be distinguished from chance",
    "smallest_drop_from_own_test": "Smallest drop from the run's own test AUROC that can be detected",
    "r2_interval_width": "Width of the 95 % interval of R²",
    "smallest_correlation": "Smallest correlation that can be distinguished from 0",
}
MOST_LINES = 8  # models in one figure before it cannot be read
MOST_PANELS = 3  # models beside each other
MOST_SITES = 30
MOST_CLASSES = 12
NOTHING: dict[str, Any] = dict.fromkeys(
    ("roc", "calibration", "decision", "sites", "confusion", "recalls", "recalls_full", "scores")
)


def chosen_models(summary: pd.DataFrame, most: int) -> list[str]:
    """Return the first model of a study and the best others, in the study's order."""
    metric = "auroc" if "auroc" in summary else "r"
    best = summary.iloc[1:].sort_values(metric, ascending=False)["variant"].head(most - 1).tolist()
    return [v for v in summary["variant"] if v == summary["variant"].iloc[0] or v in best]


def of_subjects(
    tables: Mapping[str, pd.DataFrame],
    few: Sequence[str],
    order: Sequence[str],
    label: str,
    class_name: Callable[[Any], str],
) -> dict[str, Any]:
    """Return charts and tables of test predictions.

    Parameters
    ----------
    tables : mapping of str to DataFrame
        For each model one row per person: label, site, and ``p_<class>`` or ``predicted``.
    few : sequence of str
        Models that are drawn where there is room for a few only.
    order : sequence of str
        All models of the study, so that each has one colour.
    class_name : callable
        Gives a class its name.
    """
    shown = {name: without_folders(name) for name in order}
    common: dict[str, Any] = {
        "n_models": len(tables),
        "left_out": len(order) - len(tables),
        "n_few": len([name for name in few if name in tables]),
        "n_order": len(order),
        "few": ", ".join(shown[name] for name in few if name in tables),
    }
    tables = {shown[name]: table for name, table in tables.items()}
    few, order = [shown[name] for name in few if shown[name] in tables], [shown[name] for name in order]
    first = next(iter(tables.values()))
    if "predicted" in first:
        return NOTHING | common | scores(tables, few, order, label)
    binary = {name: found for name, table in tables.items() if (found := evidence.binary_columns(table)) is not None}
    both = {name: found for name, found in binary.items() if 0 < found[0].sum() < len(found[0])}
    if both:
        return NOTHING | common | two_classes({name: tables[name] for name in both}, both, few, order)
    return NOTHING | common | ({} if binary else several_classes(tables, few, class_name))


def scores(tables: dict[str, pd.DataFrame], few: Sequence[str], order: Sequence[str], label: str) -> dict[str, Any]:
    """Return predictions against the truth."""
    pairs = {name: tuple(tables[name][c].to_numpy(float) for c in ("label", "predicted")) for name in few}
    data = pd.concat([tables[name][["label", "predicted"]].assign(model=name) for name in few])
    return {"scores": Chart(curves.predicted_scores(pairs, label, order=order), data)}  # type: ignore[arg-type]


def two_classes(
    tables: dict[str, pd.DataFrame],
    both: dict[str, tuple[np.ndarray, np.ndarray]],
    few: Sequence[str],
    order: Sequence[str],
) -> dict[str, Any]:
    """Return ROC, calibration, decision curves and sites."""
    data = pd.concat(
        [pd.DataFrame({"model": k, "positive": p.astype(int), "probability": q}) for k, (p, q) in both.items()]
    )
    some = {name: both[name] for name in few if name in both}
    found: dict[str, Any] = {
        "roc": Chart(curves.roc_curves(both, order=order), data),
        "calibration": Chart(curves.calibration_curves(some, order=order), data[data["model"].isin(list(some))]),
        "decision": Chart(curves.decision_curves(some, order=order), curves.decision_table(both)),
    }
    by_site = {name: evidence.per_site_table(table) for name, table in tables.items()}
    sure = {name: by_site[name].dropna(subset="low") for name in few if name in by_site}
    drawn = {name: table.head(MOST_SITES) for name, table in sure.items() if len(table) > 1}
    if drawn:
        every = pd.concat([table.assign(model=name) for name, table in by_site.items()])
        one = len(order) == 1
        figure = charts.per_site_plot(drawn[few[0]]) if one else charts.per_site_plot(drawn, order=order)
        found["sites"] = Chart(figure, every)
        found["sites_left_out"] = len(by_site[few[0]]) - len(next(iter(drawn.values())))
        found["most_sites"] = MOST_SITES
    return found


def several_classes(
    tables: dict[str, pd.DataFrame], few: Sequence[str], class_name: Callable[[Any], str]
) -> dict[str, Any]:
    """Return confusion matrices, and recall and AUROC of each class."""
    columns = [c for c in next(iter(tables.values())).columns if c.startswith("p_")]
    if not 2 < len(columns) <= MOST_CLASSES:
        return {}
    keys = [c.removeprefix("p_") for c in columns]
    names = [class_name(key) for key in keys]
    counts, rows = {}, []
    for model, table in tables.items():
        truth = evidence.class_keys(table["label"])
        probabilities = table[columns].to_numpy(float)
        called = np.array(keys)[probabilities.argmax(axis=1)]
        counts[model] = np.array([[int(((truth == a) & (called == b)).sum()) for b in keys] for a in keys])
        for k, key in enumerate(keys):
            n, hits = int(counts[model][k].sum()), int(counts[model][k, k])
            low, high = proportion_interval(hits, n)
            row = {"model": model, "class": names[k], "n": n, "recall": hits / n if n else np.nan}
            row |= {"recall_low": low, "recall_high": high, "predicted": int(counts[model][:, k].sum())}
            row["auroc"] = auroc_or_nan(truth == key, probabilities[:, k])
            row["auroc_low"], row["auroc_high"] = auroc_interval(truth == key, probabilities[:, k])
            rows.append(row)
    full = pd.DataFrame(rows)
    shown = full[full["model"].isin(list(few))]
    table = pd.DataFrame(
        {
            "model": shown["model"],
            "class": shown["class"],
            "people": shown["n"],
            "predicted": shown["predicted"],
            "recall (%)": [percent_span(*v) for v in zip(shown["recall"], shown["recall_low"], shown["recall_high"])],
            "AUROC, one against the rest (%)": [
                percent_span(*v) for v in zip(shown["auroc"], shown["auroc_low"], shown["auroc_high"])
            ],
        }
    )
    chart = Chart(curves.confusion_matrices({name: counts[name] for name in few}, names), long_counts(counts, names))
    return {
        "confusion": chart,
        "recalls": table.drop(columns="model") if len(few) == 1 else table,
        "recalls_full": full,
        "numbered": not curves.fit_below(names),
    }


def percent_span(value: float, low: float, high: float) -> str:
    """Return ``75.3 [70.1, 80.4]`` of shares of 1."""
    if not np.isfinite(value):
        return ""
    span = f" [{100 * low:.1f}, {100 * high:.1f}]" if np.isfinite([low, high]).all() else ""
    return f"{100 * value:.1f}{span}"


def long_counts(counts: dict[str, np.ndarray], names: Sequence[str]) -> pd.DataFrame:
    """Return confusion matrices as rows: model, true class, predicted class, people."""
    rows = [
        {"model": model, "true": names[i], "predicted": names[j], "people": int(table[i, j])}
        for model, table in counts.items()
        for i, j in np.ndindex(table.shape)
    ]
    return pd.DataFrame(rows)


def write_validation(found: Validation, folder: str | Path, *, overwrite: bool = False) -> Path:
    """Write a validation to a folder, completely or not at all; return the path of its report.

    Parameters
    ----------
    found : Validation
        From :func:`bnt.predict.validate_run`.
    folder : path
        The folder to make, with ``validation.json``, ``people.csv``, ``subgroups.csv`` and ``validation.html``.
    overwrite : bool
        Replace an existing validation.

    Examples
    --------
    >>> import bnt
    >>> from bnt.predict import validate_run
    >>> from bnt.report import write_validation
    >>> from bnt.training import TrainedRun
    >>> elsewhere = bnt.simulate_cohort(n_subjects=60, n_rois=20, n_sites=1, seed=7)
    >>> found = validate_run(TrainedRun("run"), elsewhere, allow_same_ids=True)
    >>> write_validation(found, "elsewhere", overwrite=True).name
    'validation.html'
    """
    folder = Path(folder)
    folders, ids = [found.facts["run"], found.facts["cohort"]], found.people["participant_id"].astype(str).tolist()
    page = render("validation.html", **shareable(validation_page(found), folders, ids))
    with new_folder(folder, overwrite=overwrite, marker=MARKER) as work:
        write_atomic(work / MARKER, json.dumps(found.to_dict(), indent=2) + "\n")
        write_atomic(work / "people.csv", found.people.to_csv(index=False))
        write_atomic(work / "subgroups.csv", found.subgroups.to_csv(index=False))
        write_atomic(work / "validation.html", page)
    return folder / "validation.html"


def validation_page(found: Validation) -> dict[str, Any]:
    """Return the values of ``validation.html``."""
    facts = found.facts
    metrics = pd.DataFrame(
        [
            {
                "metric": heading(name),
                "value": shown(e.value, name),
                "95 % interval": span(e.low, e.high, name),
                "ideal": IDEAL.get(name, ""),
            }
            for name, e in found.metrics.items()
        ]
    )
    power = [
        (f"{words} (%)" if "AUROC" in words else words, shown(found.power[name], "auroc" if "AUROC" in words else name))
        for name, words in POWER.items()
        if np.isfinite(found.power.get(name, np.nan))
    ]
    unlike = facts.get("unlike_training")
    kind = "score" if facts["task"] == "regression" else "several" if facts["positive"] is None else "two"
    return {
        "title": f"{facts['model']} predicts {facts['label']} of people from elsewhere",
        "lead": lead(found),
        "caveats": found.findings,
        "refresh": 0,
        "overview": overview(found),
        "metrics": metrics,
        "intervals": INTERVALS[kind],
        "calibrated": "calibration_slope" in found.metrics,
        "threshold": "" if facts["threshold"] is None else f"{facts['threshold']:.3g}",
        "positive": "" if facts["positive"] is None else f"{facts['label']} = {facts['positive']}",
        "power": pd.DataFrame(power, columns=["quantity", "value"]) if power else None,
        "subgroups": shown_groups(found.subgroups),
        "subgroups_full": found.subgroups,
        "unlike": None if unlike is None else unlike_table(unlike, facts["n"]),
        **people_charts(found),
    }


def lead(found: Validation) -> str:
    """Return the result in two sentences."""
    name = "auroc" if "auroc" in found.metrics else "r2"
    value, n = found.metrics[name], found.facts["n"]
    span = f" ({spoken_interval(value.low, value.high, name)})" if np.isfinite(value.low) else ""
    unseen = "" if found.facts["people_checked_by"] == UNCHECKED else " that the run has not seen"
    text = f"{shown_name(name)} {spoken(value.value, name)}{span} in {n} people{unseen}."
    own = found.own_test.get(name)
    if own is not None:
        text += f" In its own test set ({found.own_test['n']} people) it was {spoken(own.value, name)}."
    gap = found.own_test.get("auroc_difference")
    if gap is not None and np.isfinite(gap.low):
        text += f" The difference is {shown(gap.value, name, '+')} points"
        text += f" ({spoken_interval(gap.low, gap.high, name, '+')})."
    return text


def overview(found: Validation) -> list[tuple[str, str]]:
    """Return what was validated on whom, as names and values."""
    facts = found.facts
    done = ", ".join(f"{name} {value}" for name, value in facts["adjustments"].items())
    scans = f" ({facts['n_scans']:,} scans, averaged within a person)" if facts["n_scans"] > facts["n"] else ""
    return [
        ("Run", facts["run"]),
        ("Cohort", facts["cohort"]),
        ("People", f"{facts['n']:,}{scans} of {facts['n_sites']} site{'s' * (facts['n_sites'] != 1)}"),
        ("Positive", f"{facts['n_positive']:,}" if "n_positive" in facts else ""),
        ("Adjustments of the run", done),
        ("New sites", " ".join(facts["new_sites"])),
        ("Training people excluded by", facts["people_checked_by"]),
    ]


def shown_groups(table: pd.DataFrame) -> pd.DataFrame | None:
    """Return the subgroups with their most important estimates as text; None where there are none."""
    if table.empty:
        return None
    counts = [c for c in ("by", "group", "n", "n_positive") if c in table]
    groups = table[counts].rename(columns={"n_positive": "positive"})
    several = ["accuracy"] if "auroc" in table and "sensitivity" not in table else []
    for name in ("auroc", *several, "sensitivity", "specificity", "r2", "mae"):  # the file has all of them
        if name in table:
            spans = zip(table[f"{name}_low"], table[f"{name}_high"])
            ends = [[shown(end, name) for end in pair] for pair in spans]
            texts = [f" [{low}, {high}]" if low and high else "" for low, high in ends]
            groups[heading(name)] = [shown(v, name) + text for v, text in zip(table[name], texts)]
    return groups


def unlike_table(unlike: dict[str, Any], n: int) -> pd.DataFrame:
    """Return what about these people is unlike the training data, and of how many."""
    rows = [{"unlike training": "any of these", "people": unlike["people"], "of": n}]
    rows += [{"unlike training": reason, "people": count, "of": n} for reason, count in unlike["reasons"].items()]
    return pd.DataFrame(rows)


def people_charts(found: Validation) -> dict[str, Any]:
    """Return ROC, calibration and decision curve, or scores, or confusion and recalls, and the subgroups' AUROCs."""
    made: dict[str, Any] = NOTHING | {"groups": None}
    facts, people = found.facts, found.people
    if facts["task"] == "regression":
        label, predicted = (people[c].to_numpy(float) for c in ("label", "predicted"))
        made["scores"] = Chart(
            curves.predicted_scores({facts["model"]: (label, predicted)}, facts["label"]),
            people[["label", "predicted"]],
        )
    elif facts["positive"] is not None:
        positive = (people["label"] == facts["positive"]).to_numpy()
        probability = people[f"p_{facts['positive']}"].to_numpy(float)
        if 0 < positive.sum() < len(positive):
            curve = pd.DataFrame({"positive": positive.astype(int), "probability": probability})
            both = {facts["model"]: (positive, probability)}
            made["roc"] = Chart(curves.roc_curves(both), curve)
            made["calibration"] = Chart(curves.calibration_curves(both), curve)
            made["decision"] = Chart(curves.decision_curves(both), curves.decision_table(both))
    else:
        made |= several_classes({facts["model"]: people}, [facts["model"]], str)
    if "auroc_low" in found.subgroups and found.subgroups["auroc_low"].notna().any():
        table = found.subgroups.dropna(subset="auroc_low")
        names = table["by"] + " " + table["group"].astype(str)
        areas = pd.DataFrame({"site": names, "n": table["n"], "auroc": table["auroc"]})
        areas = areas.assign(low=table["auroc_low"], high=table["auroc_high"]).reset_index(drop=True)
        made["groups"] = Chart(charts.per_site_plot(areas), areas.rename(columns={"site": "group"}))
    return made
