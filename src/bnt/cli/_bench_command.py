"""Measure speed and memory on this machine: reading cohorts, connectivity, training, models.

Each benchmark prints a table; --csv also writes it. Nothing is asserted: the numbers are those of this machine, now.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

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


def print_table(rows: list[dict[str, Any]]) -> None:
    """Print rows as a table, numbers to the right; columns are the keys in order of appearance."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[_shown(row.get(column)) for column in columns] for row in rows]
    widths = [max(len(c), *(len(line[i]) for line in cells)) for i, c in enumerate(columns)]
    right = [all(isinstance(row.get(c), int | float | None) for row in rows) for c in columns]
    for line in [columns, *cells]:
        parts = [v.rjust(w) if r else v.ljust(w) for v, w, r in zip(line, widths, right)]
        print("  ".join(parts).rstrip())


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)
