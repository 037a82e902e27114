"""The folder of a validation: JSON, tables, and its page; ``templates/validation.html`` has the page's words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bnt.cohort._files import new_folder, write_atomic
from bnt.plotting import _charts as charts
from bnt.plotting import _predicted as curves
from bnt.plotting._words import heading, shown, shown_name, spoken, spoken_interval
from bnt.predict._validation import Validation
from bnt.report._render import Chart, render, shareable

MARKER = "validation.json"
IDEAL = {"auroc": "100 (chance 50)", "calibration_slope": "1", "calibration_intercept": "0", "brier": "0", "mae": "0"}
POWER = {
    "auroc_interval_width": "Width of the 95 % interval of the AUROC",
    "smallest_auroc_above_chance": "Smallest AUROC that so many people tell from chance",
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
                "95 % from": shown(e.low, name),
                "to": shown(e.high, name),
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
    span = f" ({spoken_interval(value.low, value.high, name)})" if np.isfinite(value.low) else ""
    text = f"{shown_name(name)} {spoken(value.value, name)}{span} in {n} people that the run has not seen."
    own = found.own_test.get(name)
    if own is not None:
        text += f" In its own test part ({found.own_test['n']} people) it was {spoken(own.value, name)}."
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
        ("Seen people refused by", facts["people_checked_by"]),
    ]


def shown_groups(table: pd.DataFrame) -> pd.DataFrame | None:
    """Return the subgroups with their most important estimates as text; None where there are none."""
    if table.empty:
        return None
    counts = [c for c in ("by", "group", "n", "n_positive") if c in table]
    groups = table[counts].rename(columns={"n_positive": "positive"})
    for name in ("auroc", "sensitivity", "specificity", "r2", "mae"):  # the file has all of them
        if name in table:
            groups[heading(name)] = [
                f"{shown(v, name)} [{shown(low, name)}, {shown(high, name)}]"
                if np.isfinite([v, low, high]).all()
                else ""
                for v, low, high in zip(table[name], table[f"{name}_low"], table[f"{name}_high"])
            ]
    return groups


def unlike_table(unlike: dict[str, Any], n: int) -> pd.DataFrame:
    """Return what about these people is unlike the training data, and of how many."""
    rows = [{"unlike training": "any of the below", "people": unlike["people"], "of": n}]
    rows += [{"unlike training": reason, "people": count, "of": n} for reason, count in unlike["reasons"].items()]
    return pd.DataFrame(rows)


def people_charts(found: Validation) -> dict[str, Chart | None]:
    """Return ROC, calibration and decision curve, or scores, and the subgroups' AUROCs."""
    made: dict[str, Chart | None] = dict.fromkeys(("roc", "calibration", "decision", "scores", "groups"))
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
    if "auroc_low" in found.subgroups and found.subgroups["auroc_low"].notna().any():
        table = found.subgroups.dropna(subset="auroc_low")
        names = table["by"] + " " + table["group"].astype(str)
        areas = pd.DataFrame({"site": names, "n": table["n"], "auroc": table["auroc"]})
        areas = areas.assign(low=table["auroc_low"], high=table["auroc_high"]).reset_index(drop=True)
        made["groups"] = Chart(charts.per_site_plot(areas), areas.rename(columns={"site": "group"}))
    return made
