"""What the predictions of test subjects show, for one run and for a study: curves of two classes, confusion of several,
scores against the truth. ``templates/tested.html`` has the words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from bnt.cohort._files import without_folders
from bnt.plotting import _charts as charts
from bnt.plotting import _predicted as predicted
from bnt.report import _evidence as evidence
from bnt.report._render import Chart
from bnt.training._task import auroc_interval, auroc_or_nan, proportion_interval

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
    label : str
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
    return {"scores": Chart(predicted.predicted_scores(pairs, label, order=order), data)}  # type: ignore[arg-type]


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
        "roc": Chart(predicted.roc_curves(both, order=order), data),
        "calibration": Chart(predicted.calibration_curves(some, order=order), data[data["model"].isin(list(some))]),
        "decision": Chart(predicted.decision_curves(some, order=order), predicted.decision_table(both)),
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
    chart = Chart(predicted.confusion_matrices({name: counts[name] for name in few}, names), long_counts(counts, names))
    return {
        "confusion": chart,
        "recalls": table.drop(columns="model") if len(few) == 1 else table,
        "recalls_full": full,
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
