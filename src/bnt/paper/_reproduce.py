"""Every table and figure of the paper as a study: one module each."""

from __future__ import annotations

import time
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bnt.errors import BadInput

if TYPE_CHECKING:
    from bnt.paper._plan import Plan

# What -> the module that makes it, cheap ones first so that `all` shows something early.
PARTS = {
    "parameters": "parameters",
    "theory": "",
    "runtime": "runtime",
    "complexity": "complexity",
    "table1": "table1",
    "figure4": "figure4",
    "difference": "difference",
    "figure3b": "figure3b",
    "features": "node_features",
    "curves": "curves",
    "table2": "table2",
    "figure3a": "figure3a",
    "learning-curve": "learning_curve",
}


WITHOUT_LABEL = ("parameters", "theory", "runtime", "complexity")  # nothing is predicted in them


def reproduce(what: str, plan: Plan) -> list[Path]:
    """Make one part of the paper, or all; return the files.

    Parameters
    ----------
    what : str
        A name of :data:`PARTS`, or ``all``: then each part has a folder of its own in ``plan.out``.
    plan : Plan

    Returns
    -------
    list of path
        ``WHAT.csv``, ``WHAT.md``, ``WHAT.png`` and ``WHAT.pdf`` of each part.
    """
    if what != "all":
        return _one(what, plan)
    if plan.only:
        raise BadInput("--only is about the rows of one table: name the table instead of all.")
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
    from bnt.paper._outputs import check_output, open_output, write_facts, write_outputs

    if what not in PARTS:
        raise BadInput(f"There is no {what!r} to reproduce; there are {', '.join(PARTS)} and all.")
    plan = replace(plan, what=what)
    if what not in WITHOUT_LABEL:
        plan.check_binary()
    check_output(plan.out, what)
    started = time.monotonic()
    if what == "theory":
        from bnt.paper._estimate_time import duration
        from bnt.paper._theory_report import expected_seconds, write_theory

        folder = plan.out
        expected = duration(expected_seconds())
        plan.say(f"Both theorems are checked by quadrature and sampling: about {expected} at the speed just measured.")
        write_theory(folder)
        files = [folder / f"theory.{ending}" for ending in ("csv", "md", "png", "pdf")]
    else:
        table, text, figure = import_module(f"bnt.paper._{PARTS[what]}").make(plan)
        folder = open_output(plan.out, what)
        files = write_outputs(folder, what, table, text, figure)
    write_facts(folder, facts(what, plan) | {"seconds": round(time.monotonic() - started, 1)})
    return files


def facts(what: str, plan: Plan) -> dict[str, Any]:
    """Return what decides the numbers: command, cohort, protocol, recipe, seeds and versions."""
    from dataclasses import asdict

    from bnt.training._run import data_digest, versions

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
