"""Predict new subjects with a finished run.

SOURCE is a cohort, or anything that `bnt import` reads: a folder of derivatives, or one scan's file.
Research use only: the probabilities must not decide about the care of any person.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro


@dataclass(frozen=True)
class Options:
    """Options of ``bnt predict``."""

    run: tyro.conf.Positional[Path]
    """A folder made by `bnt train`."""
    source: tyro.conf.Positional[Path]
    """A cohort, a folder of derivatives, or one file."""
    out: Path | None = None
    """Write the table here (CSV) instead of printing it."""
    atlas: str | None = None
    """Which atlas, where a folder holds several."""


def run(options: Options) -> None:
    """Print or write one row a subject."""
    import tempfile

    from bnt.cohort import load_cohort
    from bnt.cohort.atomic import write_atomic
    from bnt.errors import BadInput
    from bnt.training.trained import TrainedRun

    trained = TrainedRun(options.run)
    if (options.source / "cohort.json").is_file():
        table = trained.table(load_cohort(options.source))
    else:
        from bnt.data import import_cohort

        if not options.source.exists():
            raise BadInput(f"{options.source} does not exist: give a cohort, a folder of derivatives or one file.")
        with tempfile.TemporaryDirectory() as folder:
            cohort = import_cohort(
                options.source, Path(folder) / "cohort", kind=trained.config.kind, atlas=options.atlas
            )
            table = trained.table(cohort)
    text = table.to_csv(index=False, float_format="%.6f")
    if options.out is None:
        print(text, end="")
    else:
        write_atomic(options.out, text)
        print(f"{len(table)} subjects in {options.out}")
