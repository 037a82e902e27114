"""What stands around the models of a study: what age, sex, motion and site predict alone, and what adjustments did.

The connectome has to add to what is known without it. Logistic regression (linear regression for a score) of the label
on columns of ``participants.tsv``, fitted on the training part and scored on the test part of each split. These rows
stand below the models of a study; no test counts them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bnt.cohort import Cohort
from bnt.cohort._files import readable, write_atomic
from bnt.splits import Split
from bnt.studies._wording import percent
from bnt.training._adjustments import names_of

FILE = "covariates.csv"
USUAL = ("age", "sex", "mean_fd")
MOTION = "mean_fd"


def covariate_sets(cohort: Cohort, label: str, confounds: str = "") -> dict[str, tuple[str, ...]]:
    """Return which columns predict alone, by the name of their row.

    Confounds are those given, or else age, sex and mean_fd where the cohort has them; the label itself is left out, as
    are columns that are empty or hold one value.
    """
    people = cohort.participants

    def usable(name: str) -> bool:
        return name != label and name in people and people[name].nunique() > 1

    wanted = [name for name in (names_of(confounds) or USUAL) if usable(name)]
    found: dict[str, tuple[str, ...]] = {}
    if wanted:
        found[f"confounds only ({'+'.join(wanted)})"] = tuple(wanted)
    if usable(MOTION) and wanted != [MOTION]:
        found[f"motion only ({MOTION})"] = (MOTION,)
    if usable("site") and wanted != ["site"]:
        found["site only"] = ("site",)
    return found


def covariate_table(
    cohort: Cohort,
    label: str,
    splits: Sequence[Split],
    sets: dict[str, tuple[str, ...]],
    task: str,
    positive: str | None,
) -> pd.DataFrame:
    """Return one row per set of columns and split: its test metrics, of people and not of scans, as those of models."""
    from bnt.cohort._inspect import people_of
    from bnt.training._task import averaged, task_for

    y, rows, people = cohort.labels(label), [], people_of(cohort.participants)
    for name, columns in sets.items():
        for split in splits:
            train, _, test = split.rows(cohort)
            what = task_for(y, task, train, positive)
            predicted = _predicted(cohort, columns, what, y, train, test)
            found = averaged(y[test], predicted, people[test], what.kind == "classification")
            metrics = {k: v for k, v in what.metrics(*found).items() if isinstance(v, float)}
            rows.append({"variant": name, "split": split.name, "n_test": len(set(people[test])), **metrics})
    return pd.DataFrame(rows)


def _predicted(
    cohort: Cohort, columns: tuple[str, ...], task: Any, y: np.ndarray, train: np.ndarray, test: np.ndarray
) -> np.ndarray:
    """Return class probabilities (n, C), or scores (n, 1), of the test part."""
    from sklearn.linear_model import LinearRegression, LogisticRegression

    from bnt.models.classical._inputs import Confounds

    people = cohort.participants
    confounds = Confounds(columns).fit(people.iloc[train], np.ones(len(train)))
    x, new = (confounds.design(people.iloc[rows]) for rows in (train, test))
    sd = x.std(axis=0)
    x, new = x / np.where(sd > 0, sd, 1), new / np.where(sd > 0, sd, 1)
    target = task.encode(y[train])
    if task.kind == "regression":
        return (LinearRegression().fit(x, target).predict(new) * task.sd + task.mean)[:, None]
    return LogisticRegression(C=1.0, max_iter=2000).fit(x, target).predict_proba(new)


def write_covariates(folder: str | Path, table: pd.DataFrame) -> None:
    """Keep the rows beside the study's tables; those of splits that it had before stay."""
    file = Path(folder) / FILE
    if file.is_file():
        here = set(zip(table["variant"], table["split"])) if len(table) else set()
        with readable(file, "remove it; the runs beside it are kept"):
            old = pd.read_csv(file)
            kept = [i for i, key in enumerate(zip(old["variant"], old["split"])) if key not in here]
        table = pd.concat([old.iloc[kept], table], ignore_index=True)
    write_atomic(file, table.to_csv(index=False))


def read_covariates(folder: str | Path, splits: Sequence[str]) -> pd.DataFrame:
    """Return mean and SD of each row's metrics over the splits of a study; empty where there are none."""
    file = Path(folder) / FILE
    if not file.is_file():
        return pd.DataFrame()
    with readable(file, "remove it, and repeat the bnt compare command"):
        table = pd.read_csv(file)
        table = table[table["split"].isin(list(splits))]
        rows = []
        for name, group in table.groupby("variant", sort=False):
            row: dict[str, Any] = {"variant": name, "n_splits": len(group)}
            for metric in group.columns.drop(["variant", "split", "n_test"]):
                row |= {metric: group[metric].mean(), f"{metric}_sd": group[metric].std(), f"{metric}_n": len(group)}
            rows.append(row)
    return pd.DataFrame(rows)


def adjusted_columns(report: dict[str, Any]) -> dict[str, Any]:
    """Return what adjustments did in a run, as columns of the table of runs; none where there were none."""
    found: dict[str, Any] = {"threshold": report["threshold"]} if "threshold" in report else {}
    told = report.get("site_accuracy")
    if told:
        found |= {"site_accuracy_before": told["before"]["accuracy"], "site_accuracy_after": told["after"]["accuracy"]}
        found |= {"site_chance": told["before"]["chance"], "n_told_sites": told["before"]["n_sites"]}
    if report.get("never_predicted"):
        found["never_predicted"] = ", ".join(report["never_predicted"])
    return found


def adjusted_notes(runs: pd.DataFrame) -> list[str]:
    """Return what adjustments did, and which classes are never predicted, in sentences."""
    found = []
    if "site_accuracy_before" in runs:
        for variant, group in runs.dropna(subset="site_accuracy_before").groupby("variant", sort=False):
            before, after, chance = (group[f"site_{c}"].mean() for c in ("accuracy_before", "accuracy_after", "chance"))
            found.append(
                f"{variant}: a linear classifier tells the site of test subjects with accuracy {percent(before, 1)} "
                f"before and {percent(after, 1)} after harmonising (the largest site alone: {percent(chance, 1)})."
            )
    if "never_predicted" in runs:
        for variant, group in runs.dropna(subset="never_predicted").groupby("variant", sort=False):
            every = sorted({name for text in group["never_predicted"] for name in text.split(", ")})
            many = int((runs["variant"] == variant).sum())
            found.append(
                f"Caution: {variant} never predicts {', '.join(every)} in {len(group)} of {many} runs; --class-weight "
                "balanced or --threshold validation may help."
            )
    return found
