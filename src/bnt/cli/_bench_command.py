"""Measure how fast it is here: reading cohorts, connectivity, training, models.

Each benchmark prints a table; --csv keeps it. Nothing is asserted: the numbers are those of this machine, now.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tyro

BENCHMARKS = ("data", "connectivity", "train", "models")


@dataclass(frozen=True)
class Options:
    """Options of ``bnt bench``; a benchmark reads those that concern it."""

    what: tyro.conf.Positional[Literal["data", "connectivity", "train", "models", "all"]] = "all"
    """Which benchmark."""
    cohort: Path | None = None
    """A cohort with time series to measure on; simulated if not given."""
    subjects: int | None = None
    """Number of subjects; each benchmark has its own default (data: 7901)."""
    rois: int | None = None
    """Number of ROIs; each benchmark has its own default (data: 360)."""
    models: tuple[str, ...] = ()
    """Models to measure (models); all networks if not given."""
    threads: int = 1
    """CPU threads, the same for all sides."""
    repeats: int = 3
    """How often each side is timed, in turns; the best counts."""
    folder: Path | None = None
    """Where to put temporary files; the system's folder for them if not given."""
    csv: Path | None = None
    """Table to write; with several benchmarks its name is added to the file's."""


def run(options: Options) -> None:
    """Run the benchmarks asked for and print their tables."""
    from importlib import import_module
    from importlib.util import find_spec

    from bnt._progress import say
    from bnt.errors import BadInput

    there = [name for name in BENCHMARKS if find_spec(f"bnt.bench._{name}") is not None]
    wanted = there if options.what == "all" else [options.what]
    for name in wanted:
        if name not in there:
            raise BadInput(f"There is no benchmark {name!r} in this version: choose one of {', '.join(there)}.")
    for name in wanted:
        say(f"Benchmark: {name}")
        rows = import_module(f"bnt.bench._{name}").run(options)
        print_table(rows)
        if options.csv is not None:
            path = options.csv
            if len(wanted) > 1:
                path = path.with_name(f"{path.stem}-{name}{path.suffix}")
            write_csv(path, rows)


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)


def print_table(rows: list[dict[str, Any]]) -> None:
    """Print rows as a table, numbers to the right; columns are the keys in order of appearance."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[_shown(row.get(column)) for column in columns] for row in rows]
    widths = [max(len(c), *(len(line[i]) for line in cells)) for i, c in enumerate(columns)]
    right = [all(isinstance(row.get(c), int | float | None) for row in rows) for c in columns]

    def line(values: list[str]) -> str:
        parts = [v.rjust(w) if r else v.ljust(w) for v, w, r in zip(values, widths, right)]
        return "  ".join(parts).rstrip()

    print(line(columns))
    for row in cells:
        print(line(row))


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows as a comma-separated table, whole or not at all."""
    from csv import DictWriter
    from io import StringIO

    from bnt.cohort._files import write_atomic
    from bnt.errors import BadInput

    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = StringIO(newline="")
    writer = DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    try:
        write_atomic(path, text.getvalue())
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}.") from error
