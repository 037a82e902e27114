"""Write one self-contained HTML page about a run or a study: no network, opens from disk.

With --watch the page of a study is kept current while it runs, and a browser that shows it reads it again by itself;
the command ends when the study does.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Options:
    """Options of ``bnt report``."""

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="STUDY_OR_RUN")]
    """A folder made by `bnt compare` or `bnt train`."""
    out: Path | None = None
    """The page to write; report.html in the folder by default."""
    watch: bool = False
    """Keep the page of a study current until all its runs are finished."""
    every: float = 10.0
    """Seconds between two looks (with --watch)."""


def run(options: Options) -> None:
    """Write the page and say where it is."""
    from bnt.report._build import watch_report, write_report

    if options.watch:
        from bnt._progress import say

        target = watch_report(options.folder, options.out, every=options.every, say=say)
    else:
        target = write_report(options.folder, options.out)
    print(f"{target} ({target.stat().st_size / 1e6:.1f} MB)")
