"""Check the paper's two theorems by quadrature and Monte Carlo, and say in plain words what holds.

It says how long it will take, and needs no data.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Options:
    """Options of ``bnt theory``."""

    out: Path | None = None
    """Write theory.csv, theory.md, theory.png and theory.pdf to this folder."""


def run(options: Options) -> None:
    """Compute, print the short version, and write the page if asked to."""
    from bnt._progress import say
    from bnt.paper._theory_report import expected_seconds, find, short, write_theory
    from bnt.studies._wording import duration

    expected = duration(expected_seconds())
    say(f"Quadrature, Monte Carlo and gradient ascent: about {expected} at the speed just measured.")
    found = find() if options.out is None else write_theory(options.out)
    print(short(found))
    if options.out is not None:
        print(f"Page, numbers and figure: {options.out}/theory.md, theory.csv, theory.png, theory.pdf")
