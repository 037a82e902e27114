"""Train one model on one split: train, select on validation, test once.

The folder RUN then holds the configuration, the split, the metrics of every epoch, predictions, weights, a report and a
model card. After an interruption the same command with --resume ends at the same result.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Annotated, Literal

import tyro

from bnt.cli._options import Settings, Splitting, Target, Training


@dataclass(frozen=True)
class Options:
    """Options of ``bnt train``."""

    cohort: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="COHORT")]
    """The cohort's folder."""
    out: Path
    """Folder of the run, which is created."""
    model: str = "bnt"
    """A model of `bnt models`."""
    option: Settings = ()
    """Options of the model, for example n_clusters=10 (see `bnt models MODEL`)."""
    target: Annotated[Target, tyro.conf.arg(name="")] = Target()
    split: str = "0"
    """Which split: its number or, in a table, its column."""
    splitting: Annotated[Splitting, tyro.conf.arg(name="")] = Splitting()
    seed: int = 0
    """Seed of initialisation, batches, dropout and mixup."""
    training: Annotated[Training, tyro.conf.arg(name="")] = Training()
    threads: int = 0
    """CPU threads; 0 is what OMP_NUM_THREADS says, or all cores."""
    device: str = "auto"
    """cpu, cuda, or auto: cuda where there is one."""
    bf16: bool = False
    """Autocast to bfloat16, for GPUs that have it."""
    resume: bool = False
    """Resume an interrupted run."""
    overwrite: bool = False
    """Replace an existing run."""
    track: Annotated[tuple[Literal["tensorboard", "mlflow", "wandb"], ...], tyro.conf.arg(metavar="TRACKER ...")] = ()
    """Also write every epoch for tensorboard, mlflow or wandb (offline): files on this machine only."""
    track_dir: Path | None = None
    """Where trackers write; by default a folder such as tensorboard-log beside the run."""


def run(options: Options) -> None:
    """Train, and print the test result."""
    import os

    import torch

    from bnt.cli._board import EpochLine
    from bnt.cli._parsing import parse_settings
    from bnt.cohort import load_cohort
    from bnt.splits._protocols import choose_split
    from bnt.training import find_recipe
    from bnt.training._describe import describe
    from bnt.training._run import train_run
    from bnt.training._tracking import Tracking

    cohort = load_cohort(options.cohort)
    target, splitting, training = options.target, options.splitting, options.training
    recipe = find_recipe(training.recipe, options.model, **training.changes())
    split = choose_split(cohort, target.label, splitting.protocol, which=options.split, seed=splitting.split_seed)
    device = options.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    config = describe(
        cohort,
        target.label,
        split,
        model=options.model,
        options=parse_settings(options.option, "--option"),
        recipe=recipe,
        recipe_name=training.recipe,
        seed=options.seed,
        threads=options.threads or int(os.environ.get("OMP_NUM_THREADS") or len(os.sched_getaffinity(0))),
        device=device,
        bf16=options.bf16,
        task=target.task,
        positive=target.positive,
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
