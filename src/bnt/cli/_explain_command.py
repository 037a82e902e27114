"""Explain a finished run: attention by network, cluster assignments, edge attributions.

Writes tables (CSV), figures (PNG and PDF) and explain.json into DIR. What the model does not have is left out (a linear
model has no attention), and explain.json says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro


@dataclass(frozen=True)
class Options:
    """Options of ``bnt explain``."""

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A folder made by `bnt train`."""
    cohort: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="COHORT")]
    """The cohort's folder."""
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    """The folder to write."""
    method: Literal["auto", "integrated-gradients", "gradient", "pattern", "coefficients"] = "auto"
    """How edges are explained: integrated gradients (captum) or gradient times input for networks; patterns (Haufe) or
    standardised coefficients for linear models; patterns work for any model."""
    target: str | None = None
    """The class to explain; the last one by default."""
    subjects: Literal["test", "validation", "train", "all"] = "test"
    """Whose predictions are explained."""
    also: tuple[Path, ...] = ()
    """More runs of the same kind (other splits or seeds): how stable are clusters and edges over them?"""
    sanity: int = 0
    """Refit this many times on resampled training subjects, with true and with shuffled labels: the latter must give no
    stable map."""
    permutations: int = 1000
    """Permutations of every test."""
    seed: int = 0
    """Seed of permutations and resamples."""
    model_file: Path | None = None
    """The file of a model of your own, if you trust it: it is run. Not needed where you trained with it yourself."""
    overwrite: bool = False
    """Replace an existing explanation."""


def run(options: Options) -> None:
    """Write the explanation and print its main findings."""
    from bnt.cohort import load_cohort
    from bnt.cohort._files import new_folder
    from bnt.errors import BadInput
    from bnt.explain._writing import Explanation, chosen_rows
    from bnt.report._explained import checks, findings
    from bnt.training import TrainedRun

    if options.sanity == 1 or options.sanity < 0:
        raise BadInput(f"sanity is {options.sanity}: stability compares at least 2 refits.", parameter="sanity")
    trained = TrainedRun(options.run, model_file=options.model_file)
    also = [TrainedRun(path, model_file=options.model_file) for path in options.also]
    cohort = load_cohort(options.cohort)
    for one in (trained, *also):
        one.check(cohort)
    rows = chosen_rows(trained, cohort, options.subjects)
    method = None if options.method == "auto" else options.method
    with new_folder(options.out, overwrite=options.overwrite, marker="explain.json") as folder:
        work = Explanation(trained, cohort, rows, folder, options.permutations, options.seed)
        facts = {"run": str(options.run), "cohort": str(options.cohort), "subjects": options.subjects}
        facts |= work.write(method, options.target, also, options.sanity)
        work.summary(facts)
    print("\n".join([*findings(facts), *checks(facts)]))
    print(f"Tables, figures and explain.json in {options.out}")
