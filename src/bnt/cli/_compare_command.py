"""Compare models fairly: the same splits, the same seeds, the test part scored once, and proper statistics.

After an interruption the same command resumes and ends at the same numbers; with more models or splits it adds them to
the study.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from bnt.cli._options import Machine, Target, Training
from bnt.cli._studying import Splits, carry_out, make_splits, print_failures, study_settings

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd


@dataclass(frozen=True)
class Options:
    """Options of ``bnt compare``."""

    cohort: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="COHORT")]
    """The cohort's folder."""
    out: Path
    """Folder of the study."""
    models: tuple[str, ...] = ("bnt", "svm")
    """Models of `bnt models`, each with options if need be: bnt "bnt:n_clusters=4,recipe.lr=1e-3" svm. The first is the
    reference unless --reference names another."""
    splitting: Annotated[Splits, tyro.conf.arg(name="")] = Splits()
    seeds: tuple[int, ...] = (0,)
    """Seeds of training; scores are averaged over them within a split."""
    target: Annotated[Target, tyro.conf.arg(name="")] = Target()
    training: Annotated[Training, tyro.conf.arg(name="")] = Training()
    reference: str = ""
    """The model that the others are compared with, as --models names it."""
    permutations: int = 0
    """Draws of the permutation tests (of each difference, and of each model against chance); 0 leaves them out."""
    machine: Annotated[Machine, tyro.conf.arg(name="")] = Machine()


def run(options: Options) -> int:
    """Run the study and print its table."""
    from bnt._progress import say
    from bnt.cli._parsing import parse_variant
    from bnt.cohort import load_cohort
    from bnt.studies import Study, run_table
    from bnt.studies._results import write_tables
    from bnt.studies._wording import duration

    cohort = load_cohort(options.cohort)
    target, training, machine = options.target, options.training, options.machine
    variants = [parse_variant(word, training.recipe, training.changes()) for word in options.models]
    names = [v.name for v in variants]
    splits = make_splits(options.splitting, cohort, target.label)
    settings = study_settings(target, options.splitting, machine)
    study = Study(options.out, cohort, target.label, variants, splits, seeds=options.seeds, **settings)
    check_permutations(options.permutations, cohort.labels(target.label), target.label, target.task)
    reference = check_reference(options, names)
    for sentence in study.cautions:
        say(sentence)
    processes = machine.processes()
    waiting, seconds = len(study.todo()), study.estimate(processes)
    if waiting:
        cost = "" if seconds is None or machine.engine == "ray" else f", about {duration(seconds)}"
        where = "on Ray" if machine.engine == "ray" else f"{min(processes, waiting)} at a time"
        say(f"{waiting} of {len(study.jobs())} runs to do, {where}{cost}.")
    else:
        say(f"All {len(study.jobs())} runs are done already.")
    failures = carry_out(study, machine)
    finished = run_table(options.out)
    done = [] if finished.empty else finished["variant"].unique().tolist()
    if done:
        chosen = reference if reference in done else next((name for name in names if name in done), done[0])
        _, summary, comparisons = write_tables(options.out, chosen, options.permutations)
        print((options.out / "summary.md").read_text())
        print(explanation(chosen, finished["split"].nunique(), comparisons, options.permutations))
        if "p_chance" in summary:
            chance = summary.dropna(subset="p_chance")
            shown = ", ".join(f"{v} p = {p:.4f}" for v, p in zip(chance["variant"], chance["p_chance"]))
            print(f"Against chance (labels permuted within sites): {shown}")
        print(f"Tables: {options.out}/runs.csv, summary.csv, comparisons.csv.  Page: bnt report {options.out}")
    return print_failures(failures)


def check_reference(options: Options, names: list[str]) -> str:
    """Return the variant to compare with: as given, of this command or of the study as it was before."""
    from bnt.errors import BadInput
    from bnt.studies._results import read_study

    known = list(names)
    if (options.out / "study.json").is_file():
        known += [variant["name"] for variant in read_study(options.out)["variants"]]
    if options.reference and options.reference not in known:
        raise BadInput(f"--reference {options.reference!r} is not among the models {', '.join(names)}.")
    return options.reference or names[0]


def check_permutations(n: int, y: np.ndarray, label: str, task: str) -> None:
    """Refuse permutation tests that cannot be done: they are of AUROCs of two classes."""
    from bnt.errors import BadInput
    from bnt.training._task import task_for

    if n < 0:
        raise BadInput(f"--permutations is {n}: give 0 for none, or for example 10000.")
    if not n:
        return
    found = task_for(y, task)
    if found.n_outputs != 2:
        what = "is a score" if found.kind == "regression" else f"has {found.n_outputs} classes"
        raise BadInput(f"--permutations is {n} and label {label!r} {what}: the tests are of two classes, leave it out.")


def explanation(reference: str, n_splits: int, comparisons: pd.DataFrame, permutations: int) -> str:
    """Return how to read the table, in a sentence or two: of what is in it and beside it."""
    text = f"Means ± SD over {n_splits} split{'s' if n_splits != 1 else ''}"
    if not len(comparisons):
        return f"{text}."
    text += (
        f"; differences from {reference} are paired, with the Nadeau-Bengio correction for shared subjects and Holm's "
        "for several models. comparisons.csv also has the paper's plain t-test (p_plain)"
    )
    text += " and DeLong's test on pooled predictions." if "p_delong" in comparisons else "."
    return text + (f" Permutation tests: {permutations} draws." if "p_permutation" in comparisons else "")
