"""The commands compare and tune, which run studies. Each class is one command; its fields are the options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from bnt.cli._options import (
    Around,
    Machine,
    Splits,
    Target,
    Training,
    carry_out,
    make_splits,
    of_groups_that_fit,
    print_failures,
    say_task,
    start_early,
    study_settings,
)

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from bnt.cohort import Cohort
    from bnt.studies._tuning import Tuning


@dataclass(frozen=True)
class Compare:
    """Compare models fairly: the same splits, the same seeds, the test set scored once, and proper statistics.

    After an interruption the same command resumes and ends at the same numbers; with more models or splits it adds
    them to the study. Given while it runs, here or on another machine, it shares the work.
    """

    cohort: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="COHORT")]
    """The cohort's folder."""
    out: Path
    """Folder of the study."""
    models: tuple[str, ...] = ("bnt", "svm")
    """Models of `bnt models`, each with options if need be: bnt "bnt:n_clusters=4,recipe.lr=1e-3" svm; groups (all,
    paper, classical, series, 2023+) and patterns ("bnt*") stand for several. The first is the reference unless
    --reference names another."""
    atlas: tuple[str, ...] = ()
    """Of a cohort with several atlases: those to compare every model in, or all; one model in one of them is svm@msdl.
    atlas-ensemble reads all of them."""
    splitting: Annotated[Splits, tyro.conf.arg(name="")] = Splits()
    seeds: tuple[int, ...] = (0,)
    """Seeds of training; scores are averaged over them within a split."""
    target: Annotated[Target, tyro.conf.arg(name="")] = Target()
    training: Annotated[Training, tyro.conf.arg(name="")] = Training()
    around: Annotated[Around, tyro.conf.arg(name="")] = Around()
    covariates: bool = True
    """Also show what confounds, motion and site predict alone, in rows that are part of no test."""
    reference: str = ""
    """The model that the others are compared with, as --models names it."""
    permutations: int = 0
    """Draws of the permutation tests (of each difference, and of each model against chance); 0 leaves them out."""
    refit_permuted: tuple[str, ...] = ()
    """Models to refit with the permuted labels of every draw, on every split, in the test against chance: names as in
    --models, classical or all. For the others, labels are permuted against their finished predictions."""
    machine: Annotated[Machine, tyro.conf.arg(name="")] = Machine()

    def run(self) -> int:
        """Run the study and print its table."""
        start_early(self.machine, self.cohort, self.out, self.models)
        from bnt._words import duration, say
        from bnt.cli._parsing import parse_variant
        from bnt.cohort import load_cohort
        from bnt.models import expand_models
        from bnt.studies import Study, run_table
        from bnt.studies._chance import covariate_sets, covariate_table, refitted_names, write_covariates
        from bnt.studies._summary import write_tables

        cohort = load_cohort(self.cohort)
        target, training, machine = self.target, self.training, self.machine
        words = expand_models(self.models)
        if len(words) > len(self.models):
            say(f"{len(words)} models: {', '.join(words)}.")
        around = self.around.adjustments()
        for word in words:
            parse_variant(word, training.recipe, training.changes(), around)  # refuses words that mean nothing
        words = in_atlases(words, self.models, self.atlas, cohort)
        variants = [parse_variant(word, training.recipe, training.changes(), around) for word in words]
        splits = make_splits(self.splitting, cohort, target.label)
        variants = of_groups_that_fit(variants, self.models, cohort, min(len(split.train) for split in splits))
        names = [v.name for v in variants]
        settings = study_settings(target, self.splitting, machine)
        study = Study(self.out, cohort, target.label, variants, splits, seeds=self.seeds, **settings)
        refitted = refitted_names(self.refit_permuted, variants)
        check_permutations(self.permutations, refitted, cohort.labels(target.label), target.label, target.task)
        reference = check_reference(self, names)
        for sentence in study.cautions:
            say(sentence)
        processes = machine.processes()
        waiting, seconds = len(study.todo()), study.estimate(processes)
        say_task(cohort, target)
        if waiting:
            cost = "" if seconds is None or machine.engine != "local" else f", about {duration(seconds)}"
            say(f"{waiting} of {len(study.jobs())} runs to do, {machine.in_words(waiting)}{cost}.")
        else:
            say(f"All {len(study.jobs())} runs are done already.")
        failures = carry_out(study, machine)
        if refitted and not failures:
            say(f"{self.permutations} draws of permuted labels: refitting {', '.join(refitted)} on every split.")
            failures = carry_out(study, machine, refitted, self.permutations)
        finished = run_table(self.out)
        done = [] if finished.empty else finished["variant"].unique().tolist()
        if done:
            chosen = reference if reference in done else next((name for name in names if name in done), done[0])
            if self.covariates:
                sets = covariate_sets(cohort, target.label, self.around.confounds)
                alone = covariate_table(cohort, target.label, splits, sets, target.task, target.positive)
                write_covariates(self.out, alone)
            _, summary, comparisons = write_tables(self.out, chosen, self.permutations, refitted)
            print((self.out / "summary.md").read_text())
            if "auroc" in summary:
                print("Scores and differences are in per cent; the CSV files have shares of 1.")
            print(explanation(chosen, finished["split"].nunique(), comparisons, self.permutations))
            print(f"Tables: {self.out}/runs.csv, summary.csv, comparisons.csv.  Page: bnt report {self.out}")
        return print_failures(failures)


def in_atlases(words: list[str], typed: tuple[str, ...], atlases: tuple[str, ...], cohort: Cohort) -> list[str]:
    """Return models, each with every atlas asked for; those that name one, or read all, stay.

    A model that reads all atlases and is there through a group is left out where there is one atlas.
    """
    from bnt._words import say
    from bnt.errors import BadInput
    from bnt.models import find_entry
    from bnt.models._registry import is_own, split_word

    names = cohort.atlases if atlases == ("all",) else atlases
    unknown = next((name for name in names if name not in cohort.atlases), None)
    if unknown is not None:
        raise BadInput(f"{cohort.path} has no atlas {unknown!r}; it has {', '.join(cohort.atlases)}.", "atlas")
    out: list[str] = []
    for word in words:
        model, colon, text = split_word(word)
        reads_all = "@" not in model and not is_own(model) and find_entry(model).every_atlas
        if reads_all and len(cohort.atlases) == 1 and word not in typed:
            say(f"Skipped: {word}: it reads several atlases, and the cohort has one.")
            continue
        fixed = "@" in word.partition("=")[0] or reads_all or not names
        out += [word] if fixed else [f"{model}@{name}{colon}{text}" for name in names]
    if len(cohort.atlases) > 1 and not names and any("@" not in word for word in out):
        there = ", ".join(cohort.atlases)
        say(f"{cohort.path} has the atlases {there}: {cohort.atlas} is taken (--atlas all for all).")
    return out


def check_reference(options: Compare, names: list[str]) -> str:
    """Return the variant to compare with: as given, of this command or of the study as it was before."""
    from bnt.errors import BadInput
    from bnt.studies._results import read_study

    known = list(names)
    if (options.out / "study.json").is_file():
        known += [variant["name"] for variant in read_study(options.out)["variants"]]
    if options.reference and options.reference not in known:
        raise BadInput(f"--reference {options.reference!r} is not among the models {', '.join(names)}.")
    return options.reference or names[0]


def check_permutations(n: int, refitted: list[str], y: np.ndarray, label: str, task: str) -> None:
    """Refuse permutation tests that cannot be done: without refitting they are of AUROCs of two classes."""
    from bnt.errors import BadInput
    from bnt.training._task import task_for

    if n < 0:
        raise BadInput(f"--permutations is {n}: give 0 for none, or for example 10000.")
    if refitted and not n:
        raise BadInput("--refit-permuted needs a number of draws: add, for example, --permutations 200.")
    if not n or refitted:
        return
    found = task_for(y, task)
    if found.n_outputs != 2:
        what = "is a score" if found.kind == "regression" else f"has {found.n_outputs} classes"
        raise BadInput(
            f"--permutations is {n} and label {label!r} {what}: without refitting, the tests are for two classes only; "
            "add --refit-permuted with the models to refit (for example all), or leave --permutations out."
        )


def explanation(reference: str, n_splits: int, comparisons: pd.DataFrame, permutations: int) -> str:
    """Return how to read the table, in a sentence or two: of what is in it and beside it."""
    if n_splits == 1:
        return "One split: scores have no SD, and differences no interval."
    text = f"Means ± SD over {n_splits} splits"
    if not len(comparisons):
        return f"{text}."
    text += (
        f"; differences from {reference} are paired, with the Nadeau-Bengio correction for shared subjects and Holm's "
        "for several models. comparisons.csv also has the paper's plain t-test (p_plain)"
    )
    text += " and DeLong's test on pooled predictions." if "p_delong" in comparisons else "."
    return text + (f" Permutation tests: {permutations} draws." if "p_permutation" in comparisons else "")


@dataclass(frozen=True)
class Tune:
    """Tune a model inside the training set: the paper's grid (appendix F), your own, or a free search with Optuna.

    Settings are compared on validation subjects or, with --protocol nested, over inner folds; the test set is scored
    once, with the chosen setting and with the model as it is. After an interruption the same command resumes. STUDY
    holds trials.csv, chosen.csv and the study's tables.
    """

    cohort: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="COHORT")]
    """The cohort's folder."""
    out: Path
    """Folder of the study."""
    model: str = "bnt"
    """A model of `bnt models`, with options that are not searched if need be: "vanilla:readout=mean"."""
    search: Literal["grid", "free"] = "grid"
    """The paper's grid, or Optuna (extra [hpo])."""
    grid: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE,VALUE ...")] = ()
    """Your own grid in place of the paper's, every combination of options and fields of the recipe:
    n_clusters=4,10 recipe.lr=1e-3,1e-4."""
    trials: int = 20
    """Trials per split of a free search."""
    inner_folds: int = 5
    """Inner folds that choose, with --protocol nested; other protocols choose on the validation set."""
    splitting: Annotated[Splits, tyro.conf.arg(name="")] = Splits(splits=1)
    seed: int = 0
    """Seed of training and of the search."""
    target: Annotated[Target, tyro.conf.arg(name="")] = Target()
    training: Annotated[Training, tyro.conf.arg(name="")] = Training()
    around: Annotated[Around, tyro.conf.arg(name="")] = Around()
    baseline: bool = True
    """Also test the model without tuning."""
    machine: Annotated[Machine, tyro.conf.arg(name="")] = Machine()

    def run(self) -> int:
        """Search, choose on validation, test once, and print the result."""
        from bnt._words import say
        from bnt.cli._parsing import parse_variant
        from bnt.cohort import load_cohort
        from bnt.studies import Tuning
        from bnt.studies._grids import GRID_EPOCHS, family_of
        from bnt.studies._tuning import read_search

        cohort = load_cohort(self.cohort)
        target, training, machine = self.target, self.training, self.machine
        changes = training.changes()
        if self.search == "grid" and not self.grid and changes["epochs"] is None:
            changes["epochs"] = GRID_EPOCHS.get(family_of(self.model.partition(":")[0]))
        splits = make_splits(self.splitting, cohort, target.label, inner=True)
        tuning = Tuning(
            self.out,
            cohort,
            target.label,
            parse_variant(self.model, training.recipe, changes, self.around.adjustments()),
            splits,
            search=self.search,
            grid=parse_grid(self.grid),
            n_trials=self.trials,
            inner_folds=self.inner_folds,
            baseline=self.baseline,
            seed=self.seed,
            **study_settings(target, self.splitting, machine),
        )
        tuning.check()
        say_task(cohort, target)
        for sentence in tuning.study.cautions:
            say(sentence)
        count = f"{len(splits)} split{'s' if len(splits) != 1 else ''}"
        count += f", each scored on {tuning.n_folds} inner folds" if tuning.n_folds > 1 else ""
        say(f"{tuning.n_trials()} trials over {count} ({tuning.source}){how_long(tuning, self)}.")
        failures = carry_out(tuning, machine)
        trials, chosen = read_search(self.out)
        print(trial_table(trials))
        impossible = trials[trials["status"] == "impossible"].groupby("setting", sort=False)["reason"].first()
        for setting, reason in impossible.items():
            print(f"Impossible: {setting}: {reason}")
        for _, row in chosen.iterrows():
            name = str(row["split"]).rpartition(":")[2]
            print(f"Chosen for {name}: {row['setting']} (validation score {row['validation_score']:.3f})")
        if (self.out / "summary.md").is_file():
            print("\nTested once:\n\n" + (self.out / "summary.md").read_text())
        print(f"Tables: {self.out}/trials.csv, chosen.csv, summary.csv.  Page: bnt report {self.out}")
        for split in tuning.lost():
            print(f"{split} was not tested, because one of its trials was lost: repeat the command to resume.")
        return print_failures(failures)


def how_long(tuning: Tuning, options: Tune) -> str:
    """Return about how long a search of a network will take, in words; nothing for other models, or where none is left.

    A step of the model as it is is measured; settings make it larger or smaller.
    """
    from bnt._words import counted, duration
    from bnt.errors import BadInput
    from bnt.models import find_entry
    from bnt.studies._engine import is_done
    from bnt.studies._job import BEYOND_STEPS, most_steps, step_seconds

    base = tuning.base
    if not find_entry(base.model).trains_in_epochs:
        return ""
    finals = [job for job in tuning.study.jobs() if not is_done(job)]
    done = sum(1 for _ in (options.out / "trials" / "runs").glob("*/DONE"))
    inner, outer = (
        most_steps(base.recipe, len(split.train), len(split.validation))
        for split in (tuning.inner.splits[0], tuning.study.splits[0])
    )
    steps = max(0, tuning.n_trials() * tuning.n_folds - done) * inner + len(finals) * outer
    if not steps:
        return ""
    try:
        step = step_seconds(tuning.study.cohort, base, threads=options.machine.threads, device=options.machine.device)
        seconds = steps * BEYOND_STEPS * step / options.machine.processes()
    except BadInput:  # it cannot be made as it is, and --no-baseline asks for its settings only
        return ""
    epochs = counted(base.recipe.epochs, "epoch")
    return f": about {duration(seconds)} with {epochs} each, at the speed of the model as it is"


def parse_grid(words: tuple[str, ...]) -> dict[str, list[Any]]:
    """Return ``("n_clusters=4,10",)`` as ``{"n_clusters": [4, 10]}``; values are read as those of ``--change``."""
    from bnt.cli._parsing import parse_settings, split_outside
    from bnt.errors import BadInput

    axes: dict[str, list[Any]] = {}
    for word in words:
        name, equals, text = word.partition("=")
        values = split_outside(text)
        if not name or not equals or not all(values):
            raise BadInput(f"--grid {word!r} is not name=value,value, for example --grid n_clusters=4,10.")
        if name in axes:
            raise BadInput(f"--grid names {name} twice: give all its values in one word.")
        axes[name] = [parse_settings((f"{name}={value}",), "--grid")[name] for value in values]
    return axes


def trial_table(trials: pd.DataFrame) -> str:
    """Return the settings and their mean validation score over splits, best first, ten at most."""
    done = trials[trials["status"] == "done"]
    means = done.groupby("setting", sort=False)["validation_score"].agg(["mean", "count"])
    means = means.sort_values("mean", ascending=False, kind="stable").head(10)
    lines = ["| setting | validation score | splits |", "|---|---|---|"]
    lines += [f"| {setting} | {row['mean']:.4f} | {row['count']:.0f} |" for setting, row in means.iterrows()]
    return "\n".join(lines) + "\n"
