"""Contents of reports: tables of runs and studies, the repeated leak check, and caveats."""

from __future__ import annotations

import json
import warnings as python_warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bnt._words import counted, shown_name, spoken
from bnt.cohort import load_cohort
from bnt.cohort._beside import root_of
from bnt.cohort._files import read_json
from bnt.cohort._inspect import people_of
from bnt.cohort._store import DESCRIBED, canonical_kind
from bnt.connectivity import KINDS
from bnt.errors import BadInput
from bnt.splits import read_splits
from bnt.splits._split import PARTS, find_leak
from bnt.studies._chance import MOST_NAMED, adjusted_notes
from bnt.training._task import auroc, auroc_interval

MOST_COLUMNS = 10  # of classes in a table
SMALL_TEST = 100
FEW_OF_A_CLASS = 10  # people in a test set
FEW_SPLITS = 10
UNSTABLE_SD = 0.05  # of an AUROC over splits: Hanley-McNeil gives 0.034 for 203 test subjects and 0.049 for 100


@dataclass
class CohortFacts:
    """What a page says of a cohort that is still where it was; empty where it is gone."""

    path: str
    participants: pd.DataFrame | None = None
    identities: pd.DataFrame | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    rois: pd.DataFrame | None = None

    def class_name(self, label: str, value: Any) -> str:
        """Return a class with its meaning: ``1 ASD``."""
        if isinstance(value, float) and value == int(value):
            value = int(value)
        meaning = self.facts.get("levels", {}).get(label, {}).get(str(value), "")
        return f"{value} {meaning}".strip() if meaning and meaning != str(value) else str(value)

    def described(self, path: str) -> str:
        """Return the cohort's name and path."""
        return " · ".join(str(x) for x in (self.facts.get("source", {}).get("name", ""), path) if x)

    def people(self) -> str:
        """Return of how many people the rows are scans, where people have several."""
        if self.participants is None or (n := len(set(people_of(self.participants)))) == len(self.participants):
            return ""
        return f" scans of {n:,} people; counts, intervals and tests are of people"

    def connectomes(self, n_rois: int, kind: str) -> str:
        """Return the number of ROIs, the atlas where it is known, and the kind of connectivity."""
        atlas = self.facts.get("atlas")
        correlation = KINDS[canonical_kind(kind)].description.rpartition(", ")[0]  # without what the diagonal is
        return f"{n_rois} ROIs{f' of {atlas}' if atlas else ''}, {correlation}"

    def other_atlases(self) -> str:
        """Return the atlases beside the cohort's own, with their numbers of ROIs."""
        found = []
        for name in self.facts.get("atlases", [])[1:]:
            file = root_of(Path(self.path)) / f"atlas-{name}" / "cohort.json"
            n_rois = read_json(file, "write the cohort again").get("n_rois", "?") if file.is_file() else "?"
            found.append(f"{name} ({n_rois} ROIs)")
        return ", ".join(found)


def look_up_cohort(path: str) -> CohortFacts:
    """Return what a page needs of a cohort; empty where it is gone, or no longer one."""
    found = CohortFacts(path)
    if not path or not (Path(path) / "cohort.json").is_file():
        return found
    try:
        cohort = load_cohort(path)
    except BadInput:
        return found
    facts = {name: getattr(cohort, name) for name in (*DESCRIBED, "atlases")}
    return CohortFacts(path, cohort.participants, cohort.identities, facts, cohort.rois)


def binary_columns(predictions: pd.DataFrame) -> tuple[np.ndarray, np.ndarray] | None:
    """Return who is positive and their probabilities, or None where the task is not binary."""
    columns = [c for c in predictions.columns if c.startswith("p_")]
    if len(columns) != 2:
        return None
    positive = class_keys(predictions["label"]) == columns[1].removeprefix("p_")
    return positive, predictions[columns[1]].to_numpy(dtype=float)


def class_keys(label: pd.Series) -> np.ndarray:
    """Return classes as the columns of predictions name them: 1.0 and a column named p_1 mean the same."""
    return (label.astype(np.int64) if label.dtype.kind == "f" else label).astype(str).to_numpy()


def per_site_table(predictions: pd.DataFrame) -> pd.DataFrame:
    """Return each site's AUROC with its interval, largest sites first; sites with one class only are left out."""
    rows = []
    for site, group in predictions.groupby("site", sort=True):
        found = binary_columns(group)
        if found is None or not 0 < found[0].sum() < len(group):
            continue
        with python_warnings.catch_warnings():
            python_warnings.simplefilter("ignore", UserWarning)
            low, high = auroc_interval(*found)
        rows.append({"site": site, "n": len(group), "auroc": auroc(*found), "low": low, "high": high})
    table = pd.DataFrame(rows, columns=["site", "n", "auroc", "low", "high"])
    return table.sort_values(["n", "site"], ascending=[False, True]).reset_index(drop=True)


def class_counts(table: pd.DataFrame, by: str, cohort: CohortFacts, label: str) -> pd.DataFrame | None:
    """Return subjects per row of ``by`` and class, with the classes' names and the total."""
    if label not in table or label == by or table[label].nunique() > MOST_COLUMNS:
        return None
    counts = table.pivot_table(index=by, columns=label, values="participant_id", aggfunc="count", fill_value=0)
    counts.columns = pd.Index([cohort.class_name(label, c) for c in counts.columns])
    return counts.assign(total=counts.sum(axis=1))


def parts_by_class(folder: Path, cohort: CohortFacts, label: str) -> pd.DataFrame | None:
    """Return people per set and class of one run, where the cohort is still at hand."""
    people = cohort.participants
    if people is None or label not in people or not (folder / "splits.csv").is_file():
        return None
    split = read_splits(folder / "splits.csv")[0]
    sides = [(name, part) for part, names in split.parts.items() for name in names]
    table = pd.DataFrame(sides, columns=["participant_id", "part"])
    table = table.merge(people, on="participant_id", suffixes=("", "_given"))
    table = table.assign(person=people_of(table)).drop_duplicates(["person", "part", label])
    counts = class_counts(table, "part", cohort, label)
    if counts is None:
        return None
    sites = table.groupby("part")["site"].nunique()
    return counts.assign(sites=sites).reindex(list(PARTS)).rename_axis("set").reset_index()


def sites_by_class(cohort: CohortFacts, label: str, ids: set[str] | None = None) -> pd.DataFrame | None:
    """Return people per site and class, of everyone or of ``ids``."""
    people = cohort.participants
    if people is None or label not in people:
        return None
    if ids is not None:
        people = people[people["participant_id"].isin(ids)]
    people = people.assign(person=people_of(people)).drop_duplicates(["person", "site", label])
    counts = class_counts(people.dropna(subset=[label]), "site", cohort, label)
    if counts is None:
        return None
    total = counts.sum().to_frame().T.set_axis(["all sites"])
    return pd.concat([counts, total]).rename_axis("site").reset_index()


def leaks(folder: Path, cohort: CohortFacts) -> str | None:
    """Return a leak between the sets of a run in words, an empty text where there is none, None if unknown.

    Checked again from the files on disk: a subject, a family or a scan in two sets.
    """
    file = folder / "splits.csv"
    if cohort.identities is None or not file.is_file():
        return None
    return find_leak(read_splits(file)[0], cohort.identities).rstrip(".")


def named_leak(leak: str | None, with_ids: bool) -> str | None:
    """Return a leak as a page may say it: without the names of subjects, unless they are asked for."""
    return leak if not leak or with_ids else "a subject, a family or a scan is in two sets (--with-ids names them)"


def guard_text(leak: str | None) -> str:
    """Return the leak guard's finding in a few words; see :func:`leaks`."""
    guard = {None: "passed before training", "": "no subject, family or scan in two sets (checked again)"}
    return guard.get(leak, "LEAK")


def read_lines(folder: Path) -> list[dict[str, Any]]:
    """Return the epochs of a run so far; a line that is still being written is left out."""
    file, lines = folder / "metrics.jsonl", []
    for text in file.read_text(errors="replace").splitlines() if file.is_file() else []:
        try:
            lines.append(json.loads(text))
        except (ValueError, RecursionError):
            break
        if not isinstance(lines[-1], dict):
            lines.pop()
            break
    return lines


def curve_table(folder: Path, planned: list[tuple[str, str]]) -> pd.DataFrame:
    """Return variant, run, stage, epoch, validation score and loss of every run that has begun, all members of it.

    Parameters
    ----------
    folder : path
        The study's.
    planned : list of (variant, run)
    """
    columns = ["stage", "epoch", "val_score", "loss"]
    rows = [
        {"variant": variant, "run": run, **{name: line.get(name) for name in columns}}
        for variant, run in planned
        for line in read_lines(folder / "runs" / run)
        if line.get("val_score") is not None
    ]
    return pd.DataFrame(rows, columns=["variant", "run", *columns])


# -- caveats ---------------------------------------------------------------------------------------


def _protocol_caveats(protocol: str) -> list[str]:
    """Return what is wrong with a protocol that we offer only to repeat published numbers."""
    if protocol.startswith("released"):
        return [
            "Protocol `released` repeats the authors' splitter: the training set never changes, and the set called "
            "validation is larger than the test set. Compare its numbers with the paper's only."
        ]
    return []


def _leak_caveats(leak: str | None) -> list[str]:
    """Return the leak guard's finding where it is bad news."""
    if leak is None:
        return ["The cohort has moved: the leak guard passed before training and could not be repeated for this page."]
    return [f"LEAK: {leak}. Do not use the scores of this split."] if leak else []


def _site_caveats(made: dict[str, Any]) -> list[str]:
    """Return the caution of a run's report or of a study about classes whose share differs between sites."""
    return [str(made["site_caution"])] if made.get("site_caution") else []


def run_caveats(report: dict[str, Any], split: str, leak: str | None, in_study: bool, chosen: bool) -> list[str]:
    """Return the caveats of one run; ``chosen`` says whether its epoch was chosen on the validation set."""
    found = _leak_caveats(leak) + _site_caveats(report)
    n_test = report["n"]["test"]
    if not in_study:
        changes = "changes an AUROC by 3 to 5 points" if "auroc" in report["test"] else "gives another score"
        found.append(f"One split: another split of these subjects {changes}; use bnt compare for a claim.")
    if n_test < SMALL_TEST:
        found.append(f"The test set has {n_test} subjects: the interval is wide, and matters more than the number.")
    if report.get("never_predicted"):
        never = report["never_predicted"]
        which = f"Class {never[0]} is" if len(never) == 1 else f"Classes {', '.join(never)} are"
        found.append(f"{which} never predicted in the test set.")
    found += report.get("new_sites", [])
    test = report["test"]
    low, high = test.get("auroc_ci", (np.nan, np.nan))
    if low <= 0.5 <= high:
        found.append("The interval of the AUROC includes 50 %: this run is not distinguishable from guessing.")
    low, high = test.get("r_ci", (np.nan, np.nan))
    if low <= 0 <= high:
        found.append("The interval of r includes 0: this run is not distinguishable from guessing.")
    score = "auroc" if "auroc" in test else "r"
    if chosen and report["validation"].get(score, 0) - test[score] > 0.1 and not report["refit_on_validation"]:
        found.append(
            f"The validation score ({spoken(report['validation'][score], score)}) is far above the test score: "
            "choosing the epoch overfitted the validation set."
        )
    return found + _protocol_caveats(split)


def rare_caveat(rare: dict[str, int], where: str, of: str = "") -> list[str]:
    """Return that results for these classes, with their numbers of people, are uncertain; empty without any."""
    named = ", ".join(f"“{name}” ({n:,}{of})" for name, n in rare.items())
    return [f"Fewer than {FEW_OF_A_CLASS} {where} in class {named}: such results are very uncertain."] if rare else []


def _rare_caveats(study: dict[str, Any], runs: pd.DataFrame, cohort: CohortFacts) -> list[str]:
    """Return the classes with so few people in a test set that their recall and AUROC say little."""
    people, label = cohort.participants, study["label"]
    if people is None or label not in people or "accuracy" not in runs:
        return []
    counts = people.assign(person=people_of(people)).drop_duplicates(["person", label])[label].value_counts()
    share = float(runs["n_test"].mean()) / max(int(study["n_subjects"]), 1)
    rare = {cohort.class_name(label, name): int(n) for name, n in counts.items() if n * share < FEW_OF_A_CLASS}
    return rare_caveat(rare, "people per test set", " in all") if len(counts) <= MOST_COLUMNS else []


def study_caveats(
    study: dict[str, Any], runs: pd.DataFrame, planned: int, leak: str | None, cohort: CohortFacts
) -> list[str]:
    """Return the caveats of a study."""
    found = _leak_caveats(leak) + _site_caveats(study) + _protocol_caveats(study["protocol"])
    if len(runs) < planned:
        found.append(f"{len(runs)} of {planned} runs are finished: the tables show those.")
    if len(study["splits"]) < FEW_SPLITS:
        what = "the mean over them is uncertain" if len(study["variants"]) == 1 else "small differences can be chance"
        found.append(f"{counted(len(study['splits']), 'split')}: {what}; use 20.")
    if runs.empty:
        return found
    if runs["n_test"].min() < SMALL_TEST:
        found.append(f"The test sets have {runs['n_test'].min()} subjects: single scores are very uncertain.")
    found += _rare_caveats(study, runs, cohort)
    cautions = [sentence for sentence in adjusted_notes(runs) if sentence.startswith("Caution")]
    found += [sentence.removeprefix("Caution: ") for sentence in cautions]
    if "auroc" in runs:
        spread = runs.groupby("variant", sort=False)["auroc"].std()
        shaky = spread[spread > UNSTABLE_SD]
        if len(shaky):
            names = ", ".join(f"{name} (SD {100 * sd:.1f} points)" for name, sd in shaky.head(MOST_NAMED).items())
            names += f" and {len(shaky) - MOST_NAMED} more" if len(shaky) > MOST_NAMED else ""
            found.append(f"Unstable over splits: {names}. A single split of such a model is not reliable.")
    return found


def covariate_caveat(summary: pd.DataFrame, covariates: pd.DataFrame, metric: str) -> list[str]:
    """Return a caveat about covariates or sites that alone score as high as the best model."""
    if covariates.empty or metric not in covariates or not summary[metric].notna().any():
        return []
    best = summary.sort_values(metric, ascending=False).iloc[0]
    alone = covariates[covariates[metric] >= best[metric]]
    said = [f"{row['variant']} ({spoken(row[metric], metric)})" for _, row in alone.iterrows()]
    if not said:
        return []
    return [
        f"Without connectomes, these predict at least as well as the best model, {best['variant']} "
        f"({shown_name(metric)} {spoken(best[metric], metric)}): {', '.join(said)}. Its predictions may follow them."
    ]
