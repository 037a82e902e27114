"""Tests against chance with labels permuted within sites, and scores of age, sex, motion and site alone.

Predictions can stay as they are, which tests the predictions; or the model is fitted anew with the permuted labels on
every split, which tests all that was done to make them. The second needs ``draws`` more fits of every run: each run has
a file ``permuted/<run>/draws.csv``, one line per draw, so that an interrupted test resumes where it was.

The connectome has to add to what is known without it. Logistic regression (linear regression for a score) of the label
on columns of ``participants.tsv``, fitted on the training set and scored on the test set of each split. These rows
stand below the models of a study; no test counts them.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bnt._words import percent, say
from bnt.cohort import Cohort
from bnt.cohort._files import held, readable, write_atomic
from bnt.cohort._inspect import people_of
from bnt.errors import BadInput
from bnt.explain._stability import shuffled_within
from bnt.models import find_entry
from bnt.models.classical._inputs import numbers_of
from bnt.splits import Split
from bnt.studies._job import Job, Variant, configure
from bnt.studies._results import per_split, pooled_predictions, positives, score_name
from bnt.studies._statistics import permutation_test
from bnt.training._config import RunConfig
from bnt.training._recipe import names_of
from bnt.training._task import Task, task_for

if TYPE_CHECKING:
    from bnt.studies._engine import Failures, Watcher
    from bnt.studies._study import Study

FOLDER, FILE = "permuted", "draws.csv"
COLUMNS = ["draw", "score", "config"]
SEED = 19_790_101  # of all draws: every model and every split sees the same permuted labels


def permuted_labels(cohort: Cohort, label: str, draw: int) -> np.ndarray:
    """Return the labels of a draw: those of people are permuted within their sites; scans follow their person."""
    y = cohort.labels(label)
    people, first, whose = np.unique(people_of(cohort.participants).astype(str), return_index=True, return_inverse=True)
    own = y[first]
    changing = np.flatnonzero(own[whose] != y)
    if changing.size:
        raise BadInput(
            f"{label!r} differs between scans of {people[whose[changing[0]]]}, so that labels of people cannot be "
            "permuted: leave --refit-permuted out, or select one scan per person.",
            "refit_permuted",
        )
    return shuffled_within(own, cohort.sites[first].astype(str), np.random.default_rng([SEED, draw]))[whose]


def permuted_score(cohort: Cohort, config: RunConfig, split: Split, draw: int) -> float:
    """Fit a run's model with permuted labels and return its test AUROC, or r; NaN where a set lacks a class."""
    from bnt.training._learner import make_learner
    from bnt.training._run import prediction_table
    from bnt.training._trained import of_people

    y, task = permuted_labels(cohort, config.label, draw), config.task
    train, val, test = split.rows(cohort)
    if task.kind == "regression":
        task = task_for(y, task.kind, train)  # mean and SD are of the training set
    elif _lacks_a_class(config, task, y, train, val):
        return float("nan")
    learner = make_learner(replace(config, task=task))
    learner.fit(cohort, y, train, val)
    people = people_of(cohort.participants)
    table = of_people(prediction_table(task, cohort, y, val[:0], test, learner.predict(cohort, test), people))
    truth = table["label"].to_numpy()
    if task.kind == "regression":
        predicted = table["predicted"].to_numpy()
        return float(np.corrcoef(truth, predicted)[0, 1]) if np.ptp(predicted) and np.ptp(truth) else float("nan")
    return task.score(truth, table[[f"p_{name}" for name in task.classes]].to_numpy())


def _lacks_a_class(config: RunConfig, task: Task, y: np.ndarray, train: np.ndarray, val: np.ndarray) -> bool:
    selects = find_entry(config.model).trains_in_epochs and config.recipe.select != "last"
    return any(len(np.unique(task.encode(y[part]))) < task.n_outputs for part in ([train, val] if selects else [train]))


def read_draws(folder: Path, config: str) -> list[float]:
    """Return the scores of draws 0, 1, 2, ... that a run has; a line that was cut off, or of another run, ends them."""
    found: list[float] = []
    file = folder / FILE
    if file.is_file():
        for row in csv.reader(file.read_text(errors="replace").splitlines()[1:]):
            try:
                number, score = int(row[0]), float(row[1])
            except (ValueError, IndexError):
                break
            if number != len(found) or row[2:] != [config]:
                break
            found.append(score)
    return found


def run_draws(job: Job, cohort: Cohort) -> None:
    """Fit a run's model anew until its file has all draws, one line after each."""
    import torch

    config, folder = configure(job, cohort), Path(job.folder)
    torch.set_num_threads(job.threads)
    digest = config.digest()
    folder.mkdir(parents=True, exist_ok=True)
    done = read_draws(folder, digest)
    lines = [",".join(COLUMNS), *(f"{k},{score!r},{digest}" for k, score in enumerate(done))]
    write_atomic(folder / FILE, "\n".join(lines) + "\n")
    with open(folder / FILE, "a") as handle:
        for draw in range(len(done), job.draws):
            handle.write(f"{draw},{permuted_score(cohort, config, job.split, draw)!r},{digest}\n")
            handle.flush()


def refitted_names(asked: Sequence[str], variants: Sequence[Variant]) -> list[str]:
    """Return the variants that ``--refit-permuted`` asks for: by name, ``classical`` (no epochs) or ``all``."""
    known = [v.name for v in variants]
    groups = {"all": known, "classical": [v.name for v in variants if not find_entry(v.model).trains_in_epochs]}
    unknown = next((word for word in asked if word not in groups and word not in known), None)
    if unknown is not None:
        raise BadInput(f"--refit-permuted {unknown!r} is not one of all, classical, {', '.join(known)}.")
    chosen = {name for word in asked for name in groups.get(word, [word])}
    if asked and not chosen:
        raise BadInput(f"--refit-permuted {' '.join(asked)}: no model of {', '.join(known)} is classical; name some.")
    return [name for name in known if name in chosen]


def run_permuted(
    study: Study, names: Sequence[str], draws: int, *, watch: Watcher | None = None, **engine: Any
) -> Failures:
    """Fit these variants of a study anew with permuted labels, on all its splits and seeds; return the failures."""
    from bnt.studies._engine import run_jobs

    permuted_labels(study.cohort, study.label, 0)  # refuses what cannot be permuted
    runs = study.folder.resolve() / FOLDER
    jobs = [
        replace(job, folder=str(runs / job.name), draws=draws) for job in study.jobs() if job.variant.name in set(names)
    ]
    waiting = [job for job in jobs if len(_draws_of(study, job)) < draws]
    return run_jobs(waiting, watch=watch, **engine)


def _draws_of(study: Study, job: Job) -> list[float]:
    return read_draws(Path(job.folder), configure(job, study.cohort_of(job.variant)).digest())


def refit_p(folder: Path, runs: pd.DataFrame, variant: str, draws: int) -> float:
    """Return (b + 1) / (m + 1): of m draws, b have a mean score over splits as high as the observed one.

    A draw that no split has a score of counts among b. NaN where a run has not all draws.
    """
    from bnt.training._config import read_config

    mine = runs[runs["variant"] == variant]
    metric = score_name(runs)
    null = []
    for name in mine["run"]:
        digest = read_config(folder / "runs" / name).digest()
        found = read_draws(folder / FOLDER / name, digest)[:draws]
        if len(found) < draws:
            return float("nan")
        null.append(found)
    by_split = pd.DataFrame(np.array(null)).groupby(mine["split"].to_numpy(), sort=False).mean()
    scores = by_split.mean().to_numpy()  # over the splits that have one, as the observed mean
    observed = float(per_split(mine, metric)[variant].mean())
    beaten = int((~(scores < observed - 1e-12)).sum())
    return (beaten + 1) / (draws + 1)


def predictions_p(folder: Path, runs: pd.DataFrame, variant: str, draws: int) -> float:
    """Return the p-value with predictions as they are, of two classes; NaN for others."""
    pooled = pooled_predictions(folder, runs, variant)
    binary = positives(pooled)
    if binary is None:
        return float("nan")
    column, positive = binary
    return permutation_test(
        positive, pooled[column].to_numpy(), draws, strata=pooled["site"].fillna("").astype(str).to_numpy()
    )


def chance_table(
    folder: Path, runs: pd.DataFrame, variants: Sequence[str], draws: int, refitted: Sequence[str] = ()
) -> pd.DataFrame:
    """Return p against chance of each variant, how it was found (``refit`` or ``predictions``), and the draws."""
    tests = ["refit" if name in refitted else "predictions" for name in variants]
    found = [
        (refit_p if test == "refit" else predictions_p)(folder, runs, name, draws)
        for name, test in zip(variants, tests)
    ]
    return pd.DataFrame({"p_chance": found, "chance_test": tests, "chance_draws": draws})


def chance_words(summary: pd.DataFrame) -> str:
    """Return how p against chance was found, for the end of a sentence; empty where there is none."""
    if "p_chance" not in summary:
        return ""
    table = summary.dropna(subset="p_chance")
    tests = table["chance_test"] if "chance_test" in table else pd.Series("predictions", index=table.index)
    draws = f", {int(table['chance_draws'].iloc[0]):,} draws" if "chance_draws" in table and len(table) else ""
    again = table.loc[tests == "refit", "variant"].tolist()
    if not again:
        how = "models not refitted"
    elif len(again) == len(table):
        how = "models refitted in each draw"
    else:
        how = f"{', '.join(again)} refitted in each draw, the others not"
    return f"labels permuted within sites{draws}, {how}"


COVARIATES = "covariates.csv"
USUAL = ("age", "sex", "mean_fd")
MOST_NAMED = 5  # models in one sentence
MOTION = "mean_fd"


def covariate_sets(cohort: Cohort, label: str, confounds: str = "") -> dict[str, tuple[str, ...]]:
    """Return which columns predict alone, by the name of their row.

    Confounds are those given, or else age, sex and mean_fd where the cohort has them; the label itself is left out, as
    are columns that are empty, hold one value, or can be no confound.
    """
    people = cohort.participants

    def usable(name: str) -> bool:
        if name == label or name not in people or people[name].nunique() < 2:
            return False
        try:
            numbers_of(people[name], name)
        except BadInput as error:
            say(f"{error} What it predicts alone is not shown.")
            return False
        return True

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
    """Return class probabilities (n, C), or scores (n, 1), of the test set."""
    from sklearn.linear_model import LinearRegression, LogisticRegression

    from bnt.models.classical._inputs import Confounds

    people = cohort.participants
    confounds = Confounds(columns).fit(people.iloc[train], np.ones(len(train)))
    x, new = (confounds.design(people.iloc[rows]) for rows in (train, test))
    if not x.shape[1]:  # one value in training, such as the only site that is not left out: nothing but the intercept
        x, new = np.zeros((len(x), 1)), np.zeros((len(new), 1))
    sd = x.std(axis=0)
    x, new = x / np.where(sd > 0, sd, 1), new / np.where(sd > 0, sd, 1)
    target = task.encode(y[train])
    if task.kind == "regression":
        return (LinearRegression().fit(x, target).predict(new) * task.sd + task.mean)[:, None]
    return LogisticRegression(C=1.0, max_iter=2000).fit(x, target).predict_proba(new)


def write_covariates(folder: str | Path, table: pd.DataFrame) -> None:
    """Keep the rows beside the study's tables; those of splits that it had before stay."""
    file = Path(folder) / COVARIATES
    with held(Path(folder) / ".lock"):
        if file.is_file():
            here = set(zip(table["variant"], table["split"])) if len(table) else set()
            with readable(file, "remove it; the runs beside it are kept"):
                old = pd.read_csv(file)
                kept = [i for i, key in enumerate(zip(old["variant"], old["split"])) if key not in here]
            table = pd.concat([old.iloc[kept], table], ignore_index=True)
        write_atomic(file, table.to_csv(index=False))


def read_covariates(folder: str | Path, splits: Sequence[str]) -> pd.DataFrame:
    """Return mean and SD of each row's metrics over the splits of a study; empty where there are none."""
    file = Path(folder) / COVARIATES
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


def adjusted_notes(runs: pd.DataFrame) -> list[str]:
    """Return what adjustments did, and which classes are never predicted, in sentences."""
    found = []
    if "site_accuracy_before" in runs:
        for variant, group in runs.dropna(subset="site_accuracy_before").groupby("variant", sort=False):
            before, after, chance = (group[f"site_{c}"].mean() for c in ("accuracy_before", "accuracy_after", "chance"))
            found.append(
                f"{variant}: a linear classifier predicts the site of test subjects with accuracy {percent(before, 1)} "
                f"before and {percent(after, 1)} after harmonisation (always the largest site: {percent(chance, 1)})."
            )
    if "never_predicted" in runs:
        silent: dict[str, list[str]] = {}  # models that leave out the same classes share a sentence
        for variant, group in runs.dropna(subset="never_predicted").groupby("variant", sort=False):
            times = Counter(name for text in group["never_predicted"] for name in text.split(", "))
            many = int((runs["variant"] == variant).sum())
            every = ", ".join(f"{name} in {times[name]} of {many} runs" for name in sorted(times))
            silent.setdefault(every, []).append(str(variant))
        also = " or --threshold validation" if "sensitivity" in runs else ""  # which two classes have
        for every, names in silent.items():
            named = ", ".join(names[:MOST_NAMED])
            named += f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
            verb = "predicts" if len(names) == 1 else "predict"
            found.append(f"Caution: {named} {verb} nobody as {every}; --class-weight balanced{also} may help.")
    return found
