"""Predict new subjects with a finished run.

SOURCE is a cohort, or anything that `bnt import` reads: a folder of derivatives, or one scan's file.
Each row has the probability of each class; the interval of a calibrated probability of the last class, from subjects
held out from training (the model's own may lie outside where it is badly calibrated); the classes that cannot be ruled
out at 90 %; what about the scan is unlike the training data; and, with --explain, the connections that moved the
prediction most.
Research use only: the probabilities must not decide about the care of any person.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

if TYPE_CHECKING:
    from bnt.cohort import Cohort


@dataclass(frozen=True)
class Options:
    """Options of ``bnt predict``."""

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A folder made by `bnt train`, or one of the runs of a study (STUDY/runs/...)."""
    source: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE")]
    """A cohort, a folder of derivatives, or one file."""
    out: Path | None = None
    """Write the table here (CSV) instead of printing it."""
    atlas: str | None = None
    """Which atlas, where a folder holds several."""
    participants: Path | None = None
    """A table with the sites (and confounds) of the new subjects, where SOURCE is not a cohort."""
    content: Literal["auto", "series", "matrix"] | None = None
    """What to read where derivatives have both; as for the training cohort without it, where that is still there."""
    runs: Literal["average", "first", "separate", "concatenate"] | None = None
    """What to do with several runs; as for the training cohort without it, where that is still there."""
    min_volumes: int = 20
    """Shortest scan that is taken, where SOURCE is not a cohort."""
    model_file: Path | None = None
    """The file of a model of your own, if you trust it: it is run. Not needed where you trained with it yourself."""
    explain: bool = False
    """Name the connections that moved each prediction most."""
    top: int = 5
    """How many connections to name."""


def run(options: Options) -> None:
    """Print or write one row per subject."""
    from bnt._progress import say
    from bnt.cohort import load_cohort
    from bnt.cohort._files import write_atomic
    from bnt.errors import BadInput
    from bnt.predict._subjects import NOT_AVAILABLE, explained_target, subject_table
    from bnt.training._trained import TrainedRun

    if options.top < 1:
        raise BadInput(f"--top is {options.top}: give a number of connections from 1.")
    if options.out is not None and (options.out.is_dir() or not options.out.absolute().parent.is_dir()):
        raise BadInput(f"--out {options.out} is a folder, or its folder does not exist: give a file to write.")
    refuse_study(options.run)
    trained = TrainedRun(options.run, model_file=options.model_file)
    n_top = options.top if options.explain else 0
    if (options.source / "cohort.json").is_file():
        table = subject_table(trained, load_cohort(options.source), n_top)
    else:
        from bnt.sources import read_cohort

        if not options.source.exists():
            raise BadInput(f"{options.source} does not exist: give a cohort, a folder of derivatives or one file.")
        cohort = read_cohort(
            options.source,
            like=training_cohort(trained.config.cohort),
            kind=trained.config.kind,
            content=options.content,
            runs=options.runs,
            atlas=options.atlas,
            participants=options.participants,
            min_volumes=options.min_volumes,
        )
        table = subject_table(trained, cohort, n_top)
    if options.explain and not table["top_connections"].str.startswith(NOT_AVAILABLE).all():
        say(f"Signed numbers behind connections are what each adds to {explained_target(trained)}.")
    unlike = ~table["unlike_training"].isin(["", "site not known"])
    if unlike.any():
        first = table.loc[unlike].iloc[0]
        say(
            f"{unlike.sum()} of {len(table)} scans may be unlike the training data; "
            f"the first is {first['participant_id']}: {first['unlike_training']}."
        )
    seen = table["seen_in"].isin(["train", "validation"])
    if seen.any():
        say(
            f"{seen.sum()} of {len(table)} subjects have the names of subjects that the run was trained or selected on "
            "(column seen_in): if they are the same, their predictions are too good."
        )
    text = table.to_csv(index=False, float_format="%.6f")
    if options.out is None:
        print(text, end="")
    else:
        try:
            write_atomic(options.out, text)
        except OSError as error:
            raise BadInput(f"{options.out} cannot be written: {error.strerror}.") from error
        print(f"{len(table)} subjects in {options.out}")


def training_cohort(folder: str) -> Cohort | None:
    """Return the training cohort, where it still is: new scans are read in the same way."""
    from bnt.cohort import load_cohort
    from bnt.errors import BadInput

    try:
        return load_cohort(folder) if folder else None
    except BadInput:
        return None


def refuse_study(folder: Path) -> None:
    """Refuse a study, which holds many runs, and name one of them."""
    from bnt.errors import BadInput

    if (folder / "config.toml").is_file() or not (folder / "study.json").is_file():
        return
    runs = sorted(file.parent for file in (folder / "runs").glob("*/DONE"))
    if not runs:
        raise BadInput(f"{folder} is a study, not a run, and none of the runs in {folder / 'runs'} is finished yet.")
    count = f"{len(runs)} finished run{'s' * (len(runs) != 1)}"
    raise BadInput(f"{folder} is a study of {count}: give one of them, for example {runs[0]}.")
