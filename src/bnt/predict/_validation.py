"""External validation of a run: discrimination, calibration and subgroups, with intervals.

Nothing is fitted to the new labels: model, adjustments and threshold are those of the run.
:mod:`bnt.predict._transport` has the statistics.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from bnt._words import shown
from bnt.cohort import Cohort, load_cohort
from bnt.cohort._files import jsonable
from bnt.cohort._inspect import people_of
from bnt.errors import BadInput
from bnt.predict import _transport as transport
from bnt.predict._certainty import TrainingProfile
from bnt.predict._subjects import adapted
from bnt.predict._transport import Estimate
from bnt.training._run import outputs_of, prediction_table
from bnt.training._task import multiclass_metrics
from bnt.training._trained import TrainedRun, load_result, of_people

MANY_UNLIKE = 0.1
UNCHECKED = "nothing: the run keeps no list of its training people"
HALVES = {"age": "age", "mean_fd": "motion (mean FD)"}
GROUPS = ("site", "sex")
SUBGROUPS = ("sex", *HALVES)  # columns of people that groups are made by, beside the site
SHOWN = ("auroc", "calibration_slope", "calibration_intercept", "r2", "mae")


@dataclass
class Validation:
    """The results of :func:`validate_run`.

    Attributes
    ----------
    facts : dict
        Facts about the run and the cohort: model, label, numbers of people, threshold, treatment of new sites.
    metrics : dict of Estimate
    subgroups : DataFrame
        One row per subgroup: its number of people and its estimates.
    people : DataFrame
        One row per person: label, prediction, distance from the training data.
    own_test : dict
        AUROC (or r2) of the run's own test set and the difference from it, if both are available.
    power : dict
        Statistical power of a sample of this size.
    findings : list of str
        Conclusions in sentences, the most important first.

    Examples
    --------
    >>> import bnt
    >>> from bnt.predict import validate_run
    >>> from bnt.training import TrainedRun
    >>> elsewhere = bnt.simulate_cohort(n_subjects=60, n_rois=20, n_sites=1, seed=7)
    >>> found = validate_run(TrainedRun("run"), elsewhere, allow_same_ids=True)  # a Validation
    >>> found.facts["n"], "auroc" in found.to_dict()["metrics"]
    (60, True)
    """

    facts: dict[str, Any]
    metrics: dict[str, Estimate]
    subgroups: pd.DataFrame
    people: pd.DataFrame
    own_test: dict[str, Any] = field(default_factory=dict)
    power: dict[str, float] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for ``validation.json``; what is undefined is null."""
        return jsonable(
            {
                **self.facts,
                "metrics": {name: found._asdict() for name, found in self.metrics.items()},
                "own_test": self.own_test,
                "power": self.power,
                "subgroups": self.subgroups.to_dict("records"),
                "findings": self.findings,
            }
        )


def validate_run(
    trained: TrainedRun, cohort: Cohort, *, adapt: bool = False, allow_same_ids: bool = False
) -> Validation:
    """Validate a run on people that it has not seen.

    Parameters
    ----------
    trained : TrainedRun
    cohort : Cohort
        People with the run's label.
    adapt : bool
        Centre new sites on the training mean, from their unlabelled scans.
    allow_same_ids : bool
        Accept people whose ids equal those of training subjects, because ids such as ``sub-01`` occur in many studies.
        The same scan is always refused.

    Examples
    --------
    >>> import bnt
    >>> from bnt.predict import validate_run
    >>> from bnt.training import TrainedRun
    >>> elsewhere = bnt.simulate_cohort(n_subjects=60, n_rois=20, n_sites=1, seed=7)
    >>> found = validate_run(TrainedRun("run"), elsewhere, allow_same_ids=True)
    >>> found.metrics["auroc"].low <= found.metrics["auroc"].value
    True
    """
    config = trained.config
    trained.check(cohort)
    y = _labels(trained, cohort)
    checked = refuse_seen(trained, cohort, allow_same_ids)
    notes = trained.learner.notes(cohort)
    run, seen_cohort = trained, cohort
    if adapt:
        run, seen_cohort, said = adapted(trained, cohort)
        notes |= said
    scans = prediction_table(
        config.task,
        cohort,
        y,
        np.array([], dtype=int),
        np.arange(len(cohort)),
        run.learner.predict(seen_cohort),
        people_of(cohort.participants),
    ).drop(columns="part")
    scans = scans.assign(**{name: cohort.participants[name] for name in SUBGROUPS if name in cohort.participants})
    people = of_people(scans)
    facts: dict[str, Any] = {
        "run": str(trained.folder),
        "model": config.model,
        "label": config.label,
        "task": config.task.kind,
        "positive": config.task.classes[-1] if config.task.n_outputs == 2 else None,
        "cohort": str(cohort.path or ""),
        "n": count_people(people),
        "n_scans": len(scans),
        "n_sites": len(np.unique(cohort.sites.astype(str))),
        "adjustments": config.adjustments.to_dict(),
        "adapted": adapt,
        "new_sites": list(notes.values()),
        "people_checked_by": checked,
        "threshold": trained.threshold if config.task.n_outputs == 2 else None,
    }
    predicted = people[outputs_of(config.task)].to_numpy(float)
    labels = people["label"].to_numpy()
    found = Validation(facts, _metrics(trained, labels, predicted), _subgroups(trained, people), people)
    found.people = people.drop(columns=[c for c in SUBGROUPS if c in people])
    if config.task.kind != "regression":
        found.people["predicted"] = config.task.called(predicted, trained.threshold)
    _compare_with_own_test(found, trained, labels, predicted)
    unlike = _unlike(found, trained, cohort)
    found.findings = _findings(found, trained, unlike)
    return found


def count_people(people: pd.DataFrame) -> int:
    """Return how many people a table has: one whose class changes between scans has two rows and is one."""
    return int(people["person"].nunique()) if "person" in people else len(people)


# -- who -------------------------------------------------------------------------------------------


def _labels(trained: TrainedRun, cohort: Cohort) -> np.ndarray:
    """Return the labels in the run's own classes, or say which one it does not know."""
    task, y = trained.config.task, cohort.labels(trained.config.label)
    if task.kind == "regression":
        if y.dtype.kind not in "iuf":
            raise BadInput(f"Label {trained.config.label!r} contains words, but the run predicts a number.")
        return y.astype(float)
    known = {str(c).removesuffix(".0"): c for c in task.classes}
    strange = [v for v in y.tolist() if str(v).removesuffix(".0") not in known]
    if strange:
        raise BadInput(
            f"Label {trained.config.label!r} of {cohort.path or 'the cohort'} has the value {strange[0]!r}, the run "
            f"knows {', '.join(known)}: leave these people out with bnt select, or write their label as the run does."
        )
    found = [known[str(v).removesuffix(".0")] for v in y.tolist()]
    return np.array(found)


def trained_on(trained: TrainedRun) -> tuple[set[str], set[str]]:
    """Return ids (of people and of their scans) and scan digests that a run was trained or selected on, where known."""
    file = trained.folder / "splits.csv"
    if not file.is_file():
        return set(), set()
    parts = trained.splits().parts
    ids = {*parts["train"], *parts["validation"]}
    report = load_result(trained.folder).report
    ids |= set(report.get("seen_people", []))
    if report.get("seen_scans"):  # not of runs before 0.3.0
        return ids, set(report["seen_scans"].split())
    try:
        cohort = load_cohort(trained.config.cohort) if trained.config.cohort else None
    except BadInput:
        cohort = None
    if cohort is None:
        return ids, set()
    mine = np.isin(cohort.ids.astype(str), list(ids))
    return ids | set(people_of(cohort.participants)[mine]), set(cohort.digests[mine].tolist())


def refuse_seen(trained: TrainedRun, cohort: Cohort, allow_same_ids: bool) -> str:
    """Refuse people whom the run has learned from, by scan and by id; return what could be checked."""
    ids, scans = trained_on(trained)
    same = np.isin(cohort.digests.astype(str), list(scans)) if scans else np.zeros(len(cohort), dtype=bool)
    if same.any():
        raise BadInput(
            f"{int(same.sum())} of {len(cohort)} scans, the first of {cohort.ids[same][0]}, are scans that "
            f"{trained.folder} was trained or selected on: validate on other people."
        )
    people = people_of(cohort.participants).astype(str)
    named = np.isin(cohort.ids.astype(str), list(ids)) | np.isin(people, list(ids))
    if named.any() and not allow_same_ids:
        seen = np.unique(people[named])
        raise BadInput(
            f"{len(seen)} of {len(np.unique(people))} people, the first {people[named][0]}, have ids of people that "
            f"{trained.folder} was trained or selected on: leave them out with bnt select, or, if they are other "
            "people, allow the same ids.",
            "allow_same_ids",
        )
    if named.any():  # and allowed
        ids = set()
    known = [name for name, found in (("ids", ids), ("scans", scans)) if found]
    return " and ".join(known) or UNCHECKED


# -- how well --------------------------------------------------------------------------------------


def _metrics(trained: TrainedRun, y: np.ndarray, predicted: np.ndarray) -> dict[str, Estimate]:
    task = trained.config.task
    if task.kind == "regression":
        return transport.score_transport(y, predicted[:, 0])
    codes = task.encode(y)
    if task.n_outputs == 2:
        return transport.binary_transport(codes == 1, predicted[:, 1], trained.threshold)
    found = multiclass_metrics(codes, predicted)
    return {
        "auroc": Estimate(found["auroc"], np.nan, np.nan),
        "accuracy": Estimate(found["accuracy"], *found["accuracy_ci"]),
        "brier": transport.mean_of(((predicted - np.eye(task.n_outputs)[codes]) ** 2).sum(axis=1)),
    }


def _subgroups(trained: TrainedRun, table: pd.DataFrame) -> pd.DataFrame:
    """Return the estimates of each site and sex, and of the halves of age and motion, where there are two groups."""
    rows = []
    groups: dict[str, pd.Series] = {}
    for name in GROUPS:
        if name in table and table[name].nunique() > 1:
            groups[name] = table[name].astype(str).where(table[name].notna())
    for name, title in HALVES.items():
        values = pd.to_numeric(table[name], errors="coerce") if name in table else pd.Series(dtype=float)
        if name != trained.config.label and values.nunique() > 1:
            middle = float(values.median())
            half = pd.Series(np.where(values > middle, f"above {middle:.3g}", f"up to {middle:.3g}"))
            groups[title] = half.where(values.notna())
    task = trained.config.task
    for by, column in groups.items():
        for value in sorted(column.dropna().unique(), key=lambda v: (str(v).startswith("above "), v)):
            mine = table[(column == value).to_numpy()]
            y, predicted = mine["label"].to_numpy(), mine[outputs_of(task)].to_numpy(float)
            row: dict[str, Any] = {"by": by, "group": value, "n": count_people(mine)}
            if task.n_outputs == 2:
                row["n_positive"] = int((task.encode(y) == 1).sum())
            for name, found in _metrics(trained, y, predicted).items():
                row |= {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}
            rows.append(row)
    return pd.DataFrame(rows)


def _compare_with_own_test(found: Validation, trained: TrainedRun, y: np.ndarray, predicted: np.ndarray) -> None:
    """Fill in the run's own test set, the difference from it, and what this sample can show."""
    task = trained.config.task
    if task.kind == "regression":
        found.power = {"smallest_correlation": transport.detectable_correlation(len(y))}
        r2 = found.metrics["r2"]
        found.power["r2_interval_width"] = r2.high - r2.low
    if not (trained.folder / "predictions.csv").is_file():
        own = None
    else:
        table = load_result(trained.folder).predictions
        own = of_people(table[table["part"] == "test"])
    if task.kind == "regression":
        if own is not None:
            there = transport.score_transport(own["label"].to_numpy(float), own["predicted"].to_numpy(float))
            found.own_test = {"n": count_people(own), "r2": there["r2"], "mae": there["mae"]}
        return
    if task.n_outputs != 2:
        return
    positive = task.encode(y) == 1
    here = (int(positive.sum()), int((~positive).sum()))
    area = found.metrics["auroc"]
    found.facts["n_positive"] = here[0]
    found.power = {
        "auroc_interval_width": area.high - area.low,
        "smallest_auroc_above_chance": transport.detectable_auroc(*here),
    }
    if own is None or own.empty:
        return
    last = str(task.classes[-1]).removesuffix(".0")
    theirs = own["label"].astype(str).str.removesuffix(".0").to_numpy() == last
    score = own[f"p_{task.classes[-1]}"].to_numpy(float)
    there = transport.binary_transport(theirs, score, trained.threshold)
    difference, p = transport.auroc_difference((positive, predicted[:, 1]), (theirs, score))
    sizes = (int(theirs.sum()), int((~theirs).sum()))
    found.own_test = {"n": count_people(own), "auroc": there["auroc"], "auroc_difference": difference, "p": p}
    found.power["smallest_drop_from_own_test"] = transport.detectable_drop(there["auroc"].value, here, sizes)


def _unlike(found: Validation, trained: TrainedRun, cohort: Cohort) -> dict[str, int] | None:
    """Add each person's distance from the training data; return how often each reason is given."""
    profile = TrainingProfile.of(trained.folder, trained.config)
    if profile is None:
        found.facts["unlike_training"] = None
        return None
    scans = profile.compare(cohort).assign(person=people_of(cohort.participants))
    odd = scans[scans["unlike_training"] != ""]
    texts = odd.groupby("person", sort=False)["unlike_training"].agg(lambda found: "; ".join(dict.fromkeys(found)))
    means = scans.groupby("person", sort=False)[["distance", "as_far"]].mean()
    about = means.assign(unlike_training=texts.reindex(means.index, fill_value=""))
    found.people = found.people.join(about, on="person" if "person" in found.people else "participant_id")
    reasons = [{reason.partition(" (")[0] for reason in text.split("; ")} for text in texts]
    counts = pd.Series([reason for one in reasons for reason in sorted(one)], dtype=object).value_counts().to_dict()
    found.facts["unlike_training"] = {
        "people": len(texts),
        "connectomes": int(texts.str.contains("connectome", regex=False).sum()),
        "median_distance": float(scans["distance"].median()),
        "median_distance_of_training": float(np.median(profile.distances)),
        "reasons": {str(k): int(v) for k, v in counts.items()},
    }
    return {str(k): int(v) for k, v in counts.items()}


# -- in words --------------------------------------------------------------------------------------


def _span(found: Estimate, name: str = "", sign: str = "") -> str:
    return f"{shown(found.value, name, sign)} [{shown(found.low, name, sign)}, {shown(found.high, name, sign)}]"


def _findings(found: Validation, trained: TrainedRun, unlike: dict[str, int] | None) -> list[str]:
    """Return what the numbers say."""
    said, metrics, n = [], found.metrics, found.facts["n"]
    slope, shift = metrics.get("calibration_slope"), metrics.get("calibration_intercept")
    area = metrics.get("auroc")
    if area is not None and np.isfinite(area.low) and area.low <= 0.5 <= area.high:
        said.append(f"The AUROC, {_span(area, 'auroc')} %, is not distinguishable from guessing in these {n} people.")
    gap = found.own_test.get("auroc_difference")
    if gap is not None and gap.excludes(0):
        word = "lower" if gap.value < 0 else "higher"
        said.append(f"The AUROC is {word} than in the run's own test set, by {_span(gap, 'auroc', '+')} points.")
    if shift is not None and shift.excludes(0):
        what = "Probabilities of the positive class" if trained.config.task.kind != "regression" else "Predictions"
        said.append(
            f"{what} are too {'low' if shift.value > 0 else 'high'} here: calibration intercept {_span(shift)}."
        )
    if slope is not None and slope.excludes(1):
        word = "too extreme" if slope.value < 1 else "not extreme enough"
        said.append(f"Predictions are {word} here: calibration slope {_span(slope)}, ideal is 1.")
    for name, other in (("sensitivity", "negative"), ("specificity", "positive")):
        if name in metrics and metrics[name].value == 0:
            said.append(f"At threshold {trained.threshold:.3g} everyone is predicted {other}: it does not carry over.")
    if len(found.people) > n:
        both = len(found.people) - n
        said.append(f"{both} people have scans of two classes and count once in each, as two people would.")
    scans = (found.facts.get("unlike_training") or {}).get("connectomes", 0)
    if scans > MANY_UNLIKE * n:
        said.append(f"The connectomes of {scans} of {n} people are unlike those of training.")
    if unlike is None:
        said.append("How unlike the training data these people are is not known: the training cohort is not at hand.")
    if not found.facts["people_checked_by"].endswith("scans"):
        said.append(
            "Whether somebody here was in training could not be checked: the run keeps no list of its training people."
            if found.facts["people_checked_by"] == UNCHECKED
            else "That nobody here was in training was checked by ids only: the run keeps no scan digests and its "
            "cohort is not at hand."
        )
    return said
