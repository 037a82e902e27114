"""Train one model on one split: train, select on validation, test once.

The folder RUN then holds the configuration, the split, every epoch's metrics, predictions, weights,
a report and a model card. Killed at any moment, the same command with --resume goes on to the same result.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Annotated, Literal

import tyro


@dataclass(frozen=True)
class Options:
    """Options of ``bnt train``."""

    cohort: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="COHORT")]
    """The cohort's folder."""
    out: Path
    """The run's folder, to be made."""
    model: str = "bnt"
    """A model of `bnt models`."""
    label: str = "diagnosis"
    """Column of participants.tsv to predict."""
    task: Literal["auto", "classification", "regression"] = "auto"
    """Whether the label is a class or a score."""
    positive: str | None = None
    """The positive class of two (sensitivity is its recall); the last in sorted order without it."""
    recipe: str = "default"
    """How to train: default, paper, released, or best (default, then refitted on training and validation)."""
    protocol: str = "site-stratified"
    """Who is trained, selected and tested on: site-stratified, random, kfold, leave-one-site-out, released,
    or a table of splits."""
    split: str = "0"
    """Which split: its number or, in a table, its column."""
    split_seed: int = 0
    """Seed of the splits (not for a table)."""
    seed: int = 0
    """Seed of initialisation, batches, dropout and mixup."""
    option: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE ...")] = ()
    """Options of the model, for example n_clusters=10 (see `bnt models MODEL`)."""
    epochs: int | None = None
    """Epochs, in place of the recipe's."""
    change: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE ...")] = ()
    """Fields of the recipe to change, for example epochs=20 lr=1e-3."""
    threads: int = 0
    """CPU threads; 0 is what OMP_NUM_THREADS says, or all cores."""
    device: str = "auto"
    """cpu, cuda, or auto: cuda when there is one."""
    bf16: bool = False
    """Autocast to bfloat16, for GPUs that have it."""
    resume: bool = False
    """Go on with an interrupted run."""
    overwrite: bool = False
    """Replace a run that is there."""
    track: Annotated[tuple[Literal["tensorboard", "mlflow", "wandb"], ...], tyro.conf.arg(metavar="TRACKER ...")] = ()
    """Also write every epoch for tensorboard, mlflow or wandb (offline): files on this machine only."""
    track_dir: Path | None = None
    """Where trackers write; a folder such as tensorboard-log beside the run without it."""


def run(options: Options) -> None:
    """Train, and print what the test said."""
    import os

    import torch

    from bnt.cli._board import EpochLine
    from bnt.cli._parsing import parse_settings
    from bnt.cohort import load_cohort
    from bnt.splits import choose_split
    from bnt.training import find_recipe
    from bnt.training._run import describe, train_run
    from bnt.training._tracking import Tracking

    cohort = load_cohort(options.cohort)
    changes = {"epochs": options.epochs, **parse_settings(options.change, "--change")}
    recipe = find_recipe(options.recipe, options.model, **changes)
    name, split = choose_split(cohort, options.label, options.protocol, which=options.split, seed=options.split_seed)
    device = options.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    config = describe(
        cohort,
        options.label,
        split,
        model=options.model,
        options=parse_settings(options.option, "--option"),
        recipe=recipe,
        recipe_name=options.recipe,
        seed=options.seed,
        split_name=name,
        threads=options.threads or int(os.environ.get("OMP_NUM_THREADS") or len(os.sched_getaffinity(0))),
        device=device,
        bf16=options.bf16,
        task=options.task,
        positive=options.positive,
    )
    with (
        EpochLine() as line,
        Tracking(options.track, config, options.out, folder=options.track_dir, watch=line) as watch,
    ):
        result = train_run(
            cohort, split, config, options.out, resume=options.resume, overwrite=options.overwrite, watch=watch
        )
        watch.tested(result.report)
    print(headline(result.report, config.label))


def headline(report: dict, label: str) -> str:
    """Return the test result in two lines."""
    test = report["test"]

    def shown(name: str) -> str:
        if not isfinite(test[name]):
            return f"{name} undefined ({'constant values' if name == 'r' else 'a class is missing'} in the test part)"
        interval = test.get(f"{name}_ci")
        span = f" [{interval[0]:.3f}, {interval[1]:.3f}]" if interval else ""
        return f"{name} {test[name]:.3f}{span}"

    names = [n for n in ("auroc", "accuracy", "sensitivity", "specificity", "mse", "mae", "r") if n in test]
    positive = report["positive_class"]
    who = f" (positive class: {label} = {positive})" if positive is not None else ""
    return (
        f"{report['model']} on {report['n']['test']} test subjects{who}, 95 % intervals in brackets\n"
        f"{', '.join(shown(n) for n in names)}; {report['seconds']:.0f} s"
    )
