"""Tune a model inside the training part: the paper's grid (appendix F), your own, or a free search with Optuna.

Settings are compared on validation subjects; the test part is scored once, with the chosen setting, beside the model
as it is. Given again after an interruption it goes on. STUDY then holds trials.csv, chosen.csv and the study's tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

if TYPE_CHECKING:
    import pandas as pd

    from bnt.studies._tuning import Tuning


@dataclass(frozen=True)
class Options:
    """Options of ``bnt tune``."""

    cohort: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="COHORT")]
    """The cohort's folder."""
    out: Path
    """The study's folder."""
    model: str = "bnt"
    """A model of `bnt models`, perhaps with options that are not searched: "vanilla:readout=mean"."""
    search: Literal["grid", "free"] = "grid"
    """The paper's grid, or Optuna (extra [hpo])."""
    grid: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE,VALUE ...")] = ()
    """A grid of your own in place of the paper's, every combination of options and fields of the recipe:
    n_clusters=4,10 recipe.lr=1e-3,1e-4."""
    trials: int = 20
    """Trials a split of a free search."""
    splits: int = 1
    """How many splits; each is tuned on its own."""
    split_names: tuple[str, ...] = ()
    """Columns of a table of splits to use."""
    protocol: str = "site-stratified"
    """Who is trained, selected and tested on: site-stratified, random, kfold, leave-one-site-out, released,
    or a table of splits."""
    split_seed: int = 0
    """Seed of the splits (not for a table)."""
    seed: int = 0
    """Seed of training and of the search."""
    label: str = "diagnosis"
    """Column of participants.tsv to predict."""
    task: Literal["auto", "classification", "regression"] = "auto"
    """Whether the label is a class or a score."""
    recipe: str = "default"
    """How networks are trained: default, paper, released, or best (default, refitted on training and validation)."""
    epochs: int | None = None
    """Epochs, in place of the recipe's."""
    change: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE ...")] = ()
    """Fields of the recipe to change, for example epochs=20."""
    baseline: bool = True
    """Test the model as it is beside the tuned one."""
    engine: Literal["local", "ray"] = "local"
    """Processes of this machine, or a Ray cluster."""
    jobs: int = 0
    """Processes at a time (local); 0 is one a core."""
    threads: int = 1
    """CPU threads of each run."""
    device: str = "cpu"
    """cpu or cuda."""
    address: str | None = None
    """Address of the Ray cluster; none starts one here."""


def run(options: Options) -> int:
    """Search, choose on validation, test once, and print what was found."""
    import pandas as pd

    from bnt._progress import say
    from bnt.cli._board import Board
    from bnt.cli._compare_command import process_count
    from bnt.cli._parsing import parse_settings, parse_variant, typed
    from bnt.cohort import load_cohort
    from bnt.splits import named_splits
    from bnt.splits._protocols import split_notices
    from bnt.studies._grids import GRID_EPOCHS, family_of
    from bnt.studies._tuning import Tuning

    cohort = load_cohort(options.cohort)
    changes = {"epochs": options.epochs, **parse_settings(options.change, "--change")}
    if options.search == "grid" and not options.grid and changes["epochs"] is None:
        changes["epochs"] = GRID_EPOCHS.get(family_of(options.model.partition(":")[0]))
    base = parse_variant(options.model, options.recipe, changes)
    splits = named_splits(
        cohort,
        options.label,
        options.protocol,
        n_splits=options.splits,
        names=options.split_names,
        seed=options.split_seed,
    )
    for sentence in split_notices(cohort, options.protocol, splits, n_splits=options.splits, names=options.split_names):
        say(sentence)
    tuning = Tuning(
        options.out,
        cohort,
        options.label,
        base,
        splits,
        search=options.search,
        grid=parse_grid(options.grid),
        n_trials=options.trials,
        baseline=options.baseline,
        seed=options.seed,
        task=options.task,
        protocol=options.protocol,
        threads=options.threads,
        device=options.device,
        command=typed(),
    )
    for sentence in tuning.study.cautions:
        say(sentence)
    tuning.check()
    processes = process_count(options.jobs, options.threads)
    say(
        f"{tuning.n_trials()} trials over {len(splits)} split{'s' if len(splits) != 1 else ''} ({tuning.source})"
        f"{how_long(tuning, options, processes)}."
    )
    with Board() as board:
        failures = tuning.run(engine=options.engine, n_processes=processes, address=options.address, watch=board)
    trials = pd.read_csv(options.out / "trials.csv")
    print(trial_table(trials))
    for setting, reason in (
        trials[trials["status"] == "impossible"].groupby("setting", sort=False)["reason"].first().items()
    ):
        print(f"impossible: {setting}: {reason}")
    chosen = pd.read_csv(options.out / "chosen.csv")
    for _, row in chosen.iterrows():
        print(f"chosen on {row['split']}: {row['setting']} (validation {row['validation_score']:.3f})")
    if (options.out / "summary.md").is_file():
        print("\nTested once:\n\n" + (options.out / "summary.md").read_text())
    print(f"Tables: {options.out}/trials.csv, chosen.csv, summary.csv.  Page: bnt report {options.out}")
    for name, reason in failures.items():
        print(f"failed: {name}: {reason}")
    for split in tuning.lost():
        print(f"{split} was not tested, because a trial of it was lost: give the command again to go on.")
    return 1 if failures else 0


def how_long(tuning: Tuning, options: Options, processes: int) -> str:
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
        step = step_seconds(tuning.study.cohort, base, threads=options.threads, device=options.device)
        seconds = steps * BEYOND_STEPS * step / max(1, processes)
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
