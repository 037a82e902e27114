"""Benchmarks of speed and memory: the list of benchmarks by name, and their shared functions."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from bnt.errors import BadInput

MODULES = {"data": "_cohorts", "connectivity": "_cohorts", "train": "_train", "models": "_models", "study": "_cohorts"}
BENCHMARKS = tuple(MODULES)


@dataclass(frozen=True)
class BenchSettings:
    """Settings of the benchmarks; each reads those that concern it."""

    cohort: Path | None = None
    """A cohort with time series to measure on; by default one is simulated."""
    subjects: int | None = None
    """Number of subjects; each benchmark has its own default (data: 7901)."""
    rois: int | None = None
    """Number of ROIs; each benchmark has its own default (data: 360)."""
    models: tuple[str, ...] = ()
    """Models to measure: by default all networks (models), or tangent-logistic (study)."""
    against: Literal["ml4fmri"] | None = None
    """Package whose models are measured in place of bnt, each against ours of that name (models)."""
    splits: int | None = None
    """Splits of the study; 20 by default (study)."""
    user_splits: int = 2
    """Splits that the user's code with nilearn is measured on; its time for all is in proportion. 0 leaves it out and
    lists our runs one by one (study)."""
    threads: int = 1
    """CPU threads, the same for all sides."""
    repeats: int = 3
    """How often each side is timed, in turns; the best counts."""
    folder: Path | None = None
    """Folder for temporary files; by default the system's."""


def run_benchmark(name: str, settings: BenchSettings) -> list[dict[str, Any]]:
    """Run one benchmark and return its table, one dictionary per row."""
    if name not in BENCHMARKS:
        raise BadInput(f"Unknown benchmark {name!r}: choose one of {', '.join(BENCHMARKS)}.")
    return getattr(import_module(f"bnt.bench.{MODULES[name]}"), name)(settings)


def peak_memory() -> float:
    """Return the largest resident memory of this process so far, in MB.

    Linux keeps it per process; ``ru_maxrss`` would include what the parent held when it started this process.
    """
    status = Path("/proc/self/status")
    if status.is_file():
        return int(status.read_text().partition("VmHWM:")[2].split()[0]) / 1024
    import resource

    unit = 1024**2 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
