"""Write one self-contained HTML page about a run or a study: no network, opens from disk."""

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
    """The page to write; report.html in the folder without it."""


def run(options: Options) -> None:
    """Write the page and say where it is."""
    from bnt.report.build import write_report

    target = write_report(options.folder, options.out)
    print(f"{target} ({target.stat().st_size / 1e6:.1f} MB)")
