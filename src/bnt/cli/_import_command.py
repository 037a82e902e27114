"""Make a cohort from XCP-D or C-PAC derivatives, CIFTI files, tables or arrays.

Every scan is checked; the cohort appears when all have passed, or not at all.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

KINDS = "{pearson,shrunk-z,fisher-z,ledoit-wolf,partial}"


@dataclass
class Options:
    """Options of ``bnt import``."""

    source: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="SOURCE")]
    """A folder of derivatives or files, or one file (.1D .tsv .csv .npy .npz .mat .ptseries.nii .pconn.nii)."""
    out: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="OUT")]
    """The cohort to make."""
    participants: Path | None = None
    """Table of labels (.tsv or .csv). For derivatives, participants.tsv of the BIDS root is found."""
    kind: Annotated[str | None, tyro.conf.arg(metavar=KINDS)] = None
    """Of series: the connectivity to compute. Of matrices: what their numbers are. Unless given: pearson,
    and shrunk-z for the authors' abide.npy."""
    format: Literal["auto", "xcpd", "cpac", "cifti", "files", "authors"] = "auto"
    """The reader; auto tells by the names of the files."""
    atlas: str | None = None
    """Which atlas, where the files are of several."""
    runs: Literal["average", "first", "separate", "concatenate"] = "average"
    """Several sessions or runs of a participant: mean of Fisher z, the first, each a row, or joined series."""
    content: Literal["auto", "series", "matrix"] = "auto"
    """What the files hold. auto: a square symmetric array is a matrix; derivatives with both give series."""
    pattern: str | None = None
    """Take only files whose name matches, such as '*_task-rest_*'."""
    variable: str | None = None
    """The array to take from .npz and .mat files."""
    rois: Path | None = None
    """Table of ROIs (label, x, y, z, network), in the order of the scans or with their labels."""
    id_column: str = "participant_id"
    """Column of the participants table that names participants as the files do."""
    site_column: str | None = None
    """Column of sites; site and SITE_ID are found."""
    group_column: str | None = None
    """Column of those who must stay together in splits, such as a family."""
    min_volumes: int = 20
    """A run with fewer volumes is refused."""
    drop_short: bool = False
    """Leave runs with too few volumes out instead."""
    drop_unlisted: bool = False
    """Leave scans out that the participants table does not list, instead of refusing them."""
    allow_asymmetric: bool = False
    """Average the halves of matrices that are not symmetric, and note it in the cohort."""
    dtype: Literal["float32", "float16"] = "float32"
    """How connectomes are stored."""
    overwrite: bool = False
    """Replace a cohort that is there already."""


def run(options: Options) -> int | None:
    """Import and say what came of it."""
    from bnt.sources._ingest import import_cohort

    cohort = import_cohort(**asdict(options))
    missing = cohort.participants["n_missing_rois"]
    print(f"{cohort!r}")
    if missing.any():
        print(f"{int((missing > 0).sum())} subjects lack {int(missing.sum())} ROIs in all; their edges are 0.")
    for check in sorted({f["check"] for f in cohort.findings}):
        print(f"{check}: {sum(f['check'] == check for f in cohort.findings)} (listed in {options.out}/cohort.json)")
    print(f"Written to {options.out}.")
    return 0
