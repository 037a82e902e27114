"""Make a cohort from a public data set, through nilearn.

`bnt fetch abide OUT` makes the paper's 1,009 subjects of ABIDE I (C-PAC, band-pass filtered, no global
signal regression, Craddock-200). Files that are in --data-dir are used, the rest is downloaded there;
after an interruption the same command goes on where it stopped.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

KINDS = "{pearson,shrunk-z,fisher-z,ledoit-wolf,partial}"


@dataclass
class Options:
    """What to fetch, and where to put it."""

    dataset: tyro.conf.Positional[Literal["abide"]]
    """The data set."""
    out: tyro.conf.Positional[Path]
    """The cohort's folder."""
    data_dir: Path | None = None
    """Where nilearn keeps its data sets (its own default when not given)."""
    subjects: Literal["paper", "all", "quality-checked"] = "paper"
    """The paper's 1,009 (100 volumes or more), all 1,035, or the 871 that passed every rater."""
    kind: Annotated[str, tyro.conf.arg(metavar=KINDS)] = "pearson"
    """Connectivity to compute; shrunk-z is the authors' input."""
    duplicates: Literal["group", "drop"] = "group"
    """A scan that is in the release twice: keep both in one group, or keep the first."""
    pipeline: Literal["cpac", "ccs", "dparsf", "niak"] = "cpac"
    """Preprocessing pipeline."""
    derivative: Literal[
        "rois_cc200", "rois_cc400", "rois_aal", "rois_ho", "rois_ez", "rois_tt", "rois_dosenbach160"
    ] = "rois_cc200"
    """Atlas of the series."""
    band_pass: bool = True
    """Series filtered to 0.01-0.1 Hz."""
    global_signal_regression: bool = False
    """Series with the global signal regressed out."""
    limit: int | None = None
    """Only the first so many subjects of the release's table."""
    dtype: Literal["float32", "float16"] = "float32"
    """How connectomes are stored."""
    overwrite: bool = False
    """Replace a cohort that is there already."""


def run(options: Options) -> int:
    """Fetch, and say in a few lines what came out of it."""
    from bnt.sources._abide import fetch_abide

    arguments = {name: value for name, value in vars(options).items() if name != "dataset"}
    cohort = fetch_abide(**arguments)
    labels = cohort.labels("diagnosis")
    sites = len(set(cohort.sites))
    print(
        f"{options.out}: {len(cohort)} subjects, {(labels == 1).sum()} ASD and {(labels == 0).sum()} controls, "
        f"{sites} sites, {cohort.n_rois} ROIs, {cohort.kind} connectomes"
    )
    short = [f for f in cohort.findings if f["check"] == "too short"]
    if short:
        print(f"  {len(short)} scans of fewer than 100 volumes left out, such as {short[0]['participant_id']}")
    for finding in cohort.findings:
        if finding["check"] == "same scan":
            done = "left out" if options.duplicates == "drop" else "both kept, in one group"
            print(f"  {finding['participant_id']} is the same scan as {finding['value']}, byte for byte: {done}")
    missing = cohort.participants["n_missing_rois"]
    print(f"  {(missing > 0).sum()} subjects have {missing.sum()} constant ROIs in all; their edges are 0")
    print(f"Look at it with: bnt info {options.out}")
    return 0
