"""What ``bnt compare`` and ``bnt tune`` share: their options, their splits, and how their runs are carried out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bnt.cli._options import Machine, Splitting, Target

if TYPE_CHECKING:
    from bnt.cohort import Cohort
    from bnt.splits import Split
    from bnt.studies import Study, Tuning


@dataclass(frozen=True)
class Splits(Splitting):
    """Who is trained on, selected on and tested on, several times."""

    splits: int = 5
    """Number of splits of the protocol; of a table, its first columns. Leave-one-site-out always has one per site."""
    split_names: tuple[str, ...] = ()
    """Splits to use in place of the first ones: columns of a table (seed100 seed101), split7 of a protocol, sites to
    leave out."""


def make_splits(options: Splits, cohort: Cohort, label: str) -> list[Split]:
    """Return the splits that the options ask for; say where they are fewer, or leave subjects out."""
    from bnt._progress import say
    from bnt.splits import named_splits
    from bnt.splits._protocols import split_notices

    asked: dict[str, Any] = {"n_splits": options.splits, "names": options.split_names}
    found = named_splits(cohort, label, options.protocol, seed=options.split_seed, **asked)
    for sentence in split_notices(cohort, options.protocol, found, **asked):
        say(sentence)
    return found


def study_settings(target: Target, splitting: Splitting, machine: Machine) -> dict[str, Any]:
    """Return the settings of a :class:`~bnt.studies.Study` that the shared options give."""
    from bnt.cli._parsing import typed

    return {
        "task": target.task,
        "positive": target.positive,
        "protocol": splitting.protocol,
        "threads": machine.threads,
        "device": machine.device,
        "command": typed(),
    }


def carry_out(study: Study | Tuning, machine: Machine) -> dict[str, str]:
    """Run what is not done yet, with a board that shows it; return why runs failed."""
    from bnt.cli._board import Board

    with Board() as board:
        return study.run(engine=machine.engine, n_processes=machine.processes(), address=machine.address, watch=board)


def print_failures(failures: dict[str, str]) -> int:
    """Print why runs failed; return the exit code."""
    for name, reason in failures.items():
        print(f"failed: {name}: {reason}")
    return 1 if failures else 0
