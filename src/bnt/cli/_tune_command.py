"""Tune a model inside the training part: the paper's grid (appendix F), your own, or a free search with Optuna.

Settings are compared on validation subjects; the test part is scored once, with the chosen setting and with the model
as it is. After an interruption the same command resumes. STUDY holds trials.csv, chosen.csv and the study's tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from bnt.cli._options import Machine, Target, Training
from bnt.cli._studying import Splits, carry_out, make_splits, print_failures, study_settings

if TYPE_CHECKING:
    import pandas as pd

    from bnt.studies._tuning import Tuning


@dataclass(frozen=True)
class Options:
    """Options of ``bnt tune``."""

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
    splitting: Annotated[Splits, tyro.conf.arg(name="")] = Splits(splits=1)
    seed: int = 0
    """Seed of training and of the search."""
    target: Annotated[Target, tyro.conf.arg(name="")] = Target()
    training: Annotated[Training, tyro.conf.arg(name="")] = Training()
    baseline: bool = True
    """Also test the model without tuning."""
    machine: Annotated[Machine, tyro.conf.arg(name="")] = Machine()


def run(options: Options) -> int:
    """Search, choose on validation, test once, and print the result."""
    import pandas as pd

    from bnt._progress import say
    from bnt.cli._parsing import parse_variant
    from bnt.cohort import load_cohort
    from bnt.studies import Tuning
    from bnt.studies._grids import GRID_EPOCHS, family_of

    cohort = load_cohort(options.cohort)
    target, training, machine = options.target, options.training, options.machine
    changes = training.changes()
    if options.search == "grid" and not options.grid and changes["epochs"] is None:
        changes["epochs"] = GRID_EPOCHS.get(family_of(options.model.partition(":")[0]))
    splits = make_splits(options.splitting, cohort, target.label)
    tuning = Tuning(
        options.out,
        cohort,
        target.label,
        parse_variant(options.model, training.recipe, changes),
        splits,
        search=options.search,
        grid=parse_grid(options.grid),
        n_trials=options.trials,
        baseline=options.baseline,
        seed=options.seed,
        **study_settings(target, options.splitting, machine),
    )
    for sentence in tuning.study.cautions:
        say(sentence)
    tuning.check()
    count = f"{len(splits)} split{'s' if len(splits) != 1 else ''}"
    say(f"{tuning.n_trials()} trials over {count} ({tuning.source}){how_long(tuning, options)}.")
    failures = carry_out(tuning, machine)
    trials = pd.read_csv(options.out / "trials.csv")
    print(trial_table(trials))
    impossible = trials[trials["status"] == "impossible"].groupby("setting", sort=False)["reason"].first()
    for setting, reason in impossible.items():
        print(f"impossible: {setting}: {reason}")
    for _, row in pd.read_csv(options.out / "chosen.csv").iterrows():
        print(f"chosen on {row['split']}: {row['setting']} (validation {row['validation_score']:.3f})")
    if (options.out / "summary.md").is_file():
        print("\nTested once:\n\n" + (options.out / "summary.md").read_text())
    print(f"Tables: {options.out}/trials.csv, chosen.csv, summary.csv.  Page: bnt report {options.out}")
    for split in tuning.lost():
        print(f"{split} was not tested, because one of its trials was lost: repeat the command to resume.")
    return print_failures(failures)


def how_long(tuning: Tuning, options: Options) -> str:
    """Return about how long a search of a network will take, in words; nothing for other models, or where none is left.

    A step of the model as it is is measured; settings make it larger or smaller.
    """
    from bnt.errors import BadInput
    from bnt.models import find_entry
    from bnt.studies._engine import is_done
    from bnt.studies._step_time import BEYOND_STEPS, most_steps, step_seconds
    from bnt.studies._wording import duration

    base = tuning.base
    if not find_entry(base.model).trains_in_epochs:
        return ""
    finals = [job for job in tuning.study.jobs() if not is_done(job)]
    done = sum(1 for _ in (options.out / "trials" / "runs").glob("*/DONE"))
    inner, outer = (
        most_steps(base.recipe, len(split.train), len(split.validation))
        for split in (tuning.inner.splits[0], tuning.study.splits[0])
    )
    steps = max(0, tuning.n_trials() - done) * inner + len(finals) * outer
    if not steps:
        return ""
    try:
        step = step_seconds(tuning.study.cohort, base, threads=options.machine.threads, device=options.machine.device)
        seconds = steps * BEYOND_STEPS * step / options.machine.processes()
    except BadInput:  # it cannot be made as it is, and --no-baseline asks for its settings only
        return ""
    return f": about {duration(seconds)} with {base.recipe.epochs} epochs each, at the speed of the model as it is"


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
