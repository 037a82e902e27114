"""Measure speed and memory on this machine: reading cohorts, connectivity, training, models.

Each benchmark prints a table; --csv also writes it. Nothing is asserted: the numbers are those of this machine, now.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from bnt.bench._settings import BENCHMARKS, BenchSettings


@dataclass(frozen=True)
class Options:
    """Options of ``bnt bench``; a benchmark reads those that concern it."""

    what: tyro.conf.Positional[Literal["data", "connectivity", "train", "models", "all"]] = "all"
    """Which benchmark."""
    settings: Annotated[BenchSettings, tyro.conf.arg(name="")] = BenchSettings()
    csv: Path | None = None
    """Table to write; with several benchmarks, their names are added to the file's."""


def run(options: Options) -> None:
    """Run the benchmarks and print their tables."""
    import pandas as pd

    from bnt._progress import say
    from bnt.bench._settings import run_benchmark
    from bnt.cli._board import print_table
    from bnt.cohort._files import write_atomic
    from bnt.errors import BadInput

    names = BENCHMARKS if options.what == "all" else (options.what,)
    for name in names:
        say(f"Benchmark: {name}")
        rows = run_benchmark(name, options.settings)
        print_table(rows)
        if options.csv is not None:
            path = options.csv
            if len(names) > 1:
                path = path.with_name(f"{path.stem}-{name}{path.suffix}")
            try:
                write_atomic(path, pd.DataFrame(rows).to_csv(index=False))
            except OSError as error:
                raise BadInput(f"{path} cannot be written: {error.strerror}.", parameter="csv") from error
