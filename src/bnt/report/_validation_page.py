"""The folder of a validation: JSON, tables, and its page; ``templates/validation.html`` has the page's words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bnt.cohort._files import new_folder, write_atomic
from bnt.plotting import _charts as charts
from bnt.plotting._charts import shown_name
from bnt.predict._validation import Validation
from bnt.report._render import Chart, render
from bnt.report._run_page import named_columns

MARKER = "validation.json"
IDEAL = {"auroc": "1 (chance 0.5)", "calibration_slope": "1", "calibration_intercept": "0", "brier": "0", "mae": "0"}
POWER = {
    "auroc_interval_width": "Width of the 95 % interval of the AUROC",
    "smallest_auroc_above_chance": "Smallest AUROC that these numbers tell from 0.5",
    "smallest_drop_from_own_test": "Smallest fall from the run's own test AUROC that they show",
    "r2_interval_width": "Width of the 95 % interval of R²",
    "smallest_correlation": "Smallest correlation that these numbers tell from 0",
}


def write_validation(found: Validation, folder: str | Path, *, overwrite: bool = False) -> Path:
    """Write a validation as a folder, whole or not at all; return where its page is.

    Parameters
    ----------
    found : Validation
        From :func:`bnt.predict.validate_run`.
    folder : path
        A folder that does not exist: ``validation.json``, ``people.csv``, ``subgroups.csv``, ``validation.html``.
    overwrite : bool
        Replace a validation that is there.

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
    page = render("validation.html", **validation_page(found))
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
                "metric": shown_name(name),
                "value": e.value,
                "95 % from": e.low,
                "to": e.high,
                "ideal": IDEAL.get(name, ""),
            }
            for name, e in found.metrics.items()
        ]
    )
    power = [(words, found.power[name]) for name, words in POWER.items() if np.isfinite(found.power.get(name, np.nan))]
    unlike = facts.get("unlike_training")
    return {
        "title": f"{facts['model']} predicts {facts['label']} of people from elsewhere",
        "lead": lead(found),
        "caveats": found.findings,
        "refresh": 0,
        "overview": overview(found),
        "metrics": metrics,
        "threshold": "" if facts["threshold"] is None else f"{facts['threshold']:.3g}",
        "positive": "" if facts["positive"] is None else f"{facts['label']} = {facts['positive']}",
        "power": pd.DataFrame(power, columns=["what a sample of this size can show", "value"]) if power else None,
        "subgroups": shown_groups(found.subgroups),
        "subgroups_full": found.subgroups,
        "unlike": None if unlike is None else unlike_table(unlike, facts["n"]),
        **people_charts(found),
    }


def lead(found: Validation) -> str:
    """Return the result in two sentences."""
    name = "auroc" if "auroc" in found.metrics else "r2"
    value, n = found.metrics[name], found.facts["n"]
    span = f" (95 % interval {value.low:.3f} to {value.high:.3f})" if np.isfinite(value.low) else ""
    text = f"{shown_name(name)} {value.value:.3f}{span} in {n} people that the run has not seen."
    own = found.own_test.get(name)
    if own is not None:
        text += f" In its own test part ({found.own_test['n']} people) it was {own.value:.3f}."
    gap = found.own_test.get("auroc_difference")
    if gap is not None and np.isfinite(gap.low):
        text += f" The difference is {gap.value:+.3f} (95 % interval {gap.low:+.3f} to {gap.high:+.3f})."
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
        ("Seen people refused by", facts["people_checked_by"]),
    ]


def shown_groups(table: pd.DataFrame) -> pd.DataFrame | None:
    """Return the subgroups with their most important estimates as text; None where there are none."""
    if table.empty:
        return None
    counts = [c for c in ("by", "group", "n", "n_positive") if c in table]
    shown = table[counts].rename(columns={"n_positive": "positive"})
    for name in ("auroc", "sensitivity", "specificity", "r2", "mae"):  # the file has all of them
        if name in table:
            shown[shown_name(name)] = [
                f"{v:.2f} [{low:.2f}, {high:.2f}]" if np.isfinite([v, low, high]).all() else ""
                for v, low, high in zip(table[name], table[f"{name}_low"], table[f"{name}_high"])
            ]
    return named_columns(shown)


def unlike_table(unlike: dict[str, Any], n: int) -> pd.DataFrame:
    """Return what about these people is unlike the training data, and of how many."""
    rows = [{"unlike training": "any of the below", "people": unlike["people"], "of": n}]
    rows += [{"unlike training": reason, "people": count, "of": n} for reason, count in unlike["reasons"].items()]
    return pd.DataFrame(rows)


def people_charts(found: Validation) -> dict[str, Chart | None]:
    """Return ROC and calibration, or scores, and the subgroups' AUROCs."""
    made: dict[str, Chart | None] = dict.fromkeys(("roc", "calibration", "scores", "groups"))
    facts, people = found.facts, found.people
    if facts["task"] == "regression":
        label, predicted = (people[c].to_numpy(float) for c in ("label", "predicted"))
        made["scores"] = Chart(
            charts.predicted_scores(label, predicted, facts["label"]), people[["label", "predicted"]]
        )
    elif facts["positive"] is not None:
        positive = (people["label"] == facts["positive"]).to_numpy()
        probability = people[f"p_{facts['positive']}"].to_numpy(float)
        if 0 < positive.sum() < len(positive):
            curve = pd.DataFrame({"positive": positive.astype(int), "probability": probability})
            both = {facts["model"]: (positive, probability)}
            made["roc"] = Chart(charts.roc_curves(both), curve)
            made["calibration"] = Chart(charts.calibration_curves(both), curve)
    if "auroc_low" in found.subgroups and found.subgroups["auroc_low"].notna().any():
        table = found.subgroups.dropna(subset="auroc_low")
        names = table["by"] + " " + table["group"].astype(str)
        shown = pd.DataFrame({"site": names, "n": table["n"], "auroc": table["auroc"]})
        shown = shown.assign(low=table["auroc_low"], high=table["auroc_high"]).reset_index(drop=True)
        made["groups"] = Chart(charts.per_site_plot(shown), shown.rename(columns={"site": "group"}))
    return made
