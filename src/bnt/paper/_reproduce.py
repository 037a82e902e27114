"""Every table and figure of the paper by name, made one at a time or all together."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from bnt.cohort._files import held
from bnt.errors import BadInput
from bnt.paper._ablations import features, table2
from bnt.paper._cost import complexity, parameters, runtime
from bnt.paper._curves import curves, learning_curve
from bnt.paper._figures import difference, figure3a, figure3b, figure4
from bnt.paper._grid import check_output, open_output, write_facts, write_outputs
from bnt.paper._plan import Plan
from bnt.paper._table1 import table1
from bnt.paper._theory_report import theory
from bnt.training._config import data_digest
from bnt.training._run import versions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Name -> the function that makes its table, Markdown and figure; cheap ones first, so that `all` shows something early.
PARTS: dict[str, Callable[[Plan], tuple[pd.DataFrame, str, Figure]]] = {
    "parameters": parameters,
    "theory": theory,
    "runtime": runtime,
    "complexity": complexity,
    "table1": table1,
    "figure4": figure4,
    "difference": difference,
    "figure3b": figure3b,
    "features": features,
    "curves": curves,
    "table2": table2,
    "figure3a": figure3a,
    "learning-curve": learning_curve,
}
WITHOUT_LABEL = ("parameters", "theory", "runtime", "complexity")  # nothing is predicted in them


def reproduce(what: str, plan: Plan) -> list[Path]:
    """Reproduce one table or figure of the paper, or all; return the files.

    Parameters
    ----------
    what : str
        A name of :data:`PARTS`, or ``all``: each part then has its own folder in ``plan.out``.
    plan : Plan

    Returns
    -------
    list of path
        ``WHAT.csv``, ``WHAT.md``, ``WHAT.png`` and ``WHAT.pdf`` of each part.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.load_cohort("cohort")
    >>> from pathlib import Path
    >>> from bnt.paper import Plan, reproduce
    >>> plan = Plan(cohort, Path("parameters"), say=lambda line: None)
    >>> sorted(file.name for file in reproduce("parameters", plan))
    ['parameters.csv', 'parameters.md', 'parameters.pdf', 'parameters.png']
    """
    if what != "all":
        return _one(what, plan)
    if plan.only:
        raise BadInput("only chooses rows of one table: name the table instead of all.", parameter="only")
    files: list[Path] = []
    refused: list[str] = []
    for name in PARTS:
        plan.say(f"{name}:")
        try:
            files += _one(name, replace(plan, out=plan.out / name, together=True))
        except BadInput as error:  # the other parts can still be made
            plan.say(str(error))
            refused.append(f"{name} ({str(error).rstrip('.')})")
    if refused:
        raise BadInput(f"{len(refused)} of {len(PARTS)} parts could not be made: {'; '.join(refused)}.")
    return files


def _one(what: str, plan: Plan) -> list[Path]:
    if what not in PARTS:
        raise BadInput(f"Unknown part {what!r}: choose one of {', '.join(PARTS)} or all.", parameter="what")
    plan = replace(plan, what=what)
    if what not in WITHOUT_LABEL:
        plan.check_binary()
    check_output(plan.out, what)
    started = time.monotonic()
    table, text, figure = PARTS[what](plan)
    folder = open_output(plan.out, what)
    with held(folder / ".lock"):
        files = write_outputs(folder, what, table, text, figure)
        write_facts(folder, facts(what, plan) | {"seconds": round(time.monotonic() - started, 1)})
    return files


def facts(what: str, plan: Plan) -> dict[str, Any]:
    """Return what decides the numbers: command, cohort, protocol, recipe, seeds and versions."""
    label = None if what in WITHOUT_LABEL else plan.label
    return {
        "what": what,
        "command": plan.command,
        "cohort": str(plan.cohort.path),
        "data_sha256": data_digest(plan.cohort, *([label] if label else [])),
        "label": label,
        "protocol": plan.protocol,
        "preset": plan.preset,
        "n_splits": plan.n_splits,
        "split_seed": plan.split_seed,
        "seeds": list(plan.seeds),
        "recipe": asdict(plan.recipe),
        "versions": versions(),
    }
