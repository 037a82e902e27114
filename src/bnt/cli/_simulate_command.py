"""Make a multi-site cohort with planted modules, site shifts and a known class effect.

BOLD-like series between 0.01 and 0.1 Hz; the defaults look like ABIDE. Subjects are written a few at a time, so
the size is bounded by the disk, not by memory. The same seed gives the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

KINDS = "{pearson,shrunk-z,fisher-z,ledoit-wolf,partial}"


@dataclass
class Options:
    """How large, how different, and where to."""

    out: tyro.conf.Positional[Path]
    """The cohort's folder."""
    subjects: int = 400
    """Number of subjects."""
    rois: int = 100
    """Number of ROIs."""
    sites: int = 8
    """Number of sites, of different sizes, scanners and scan lengths."""
    effect: float = 0.95
    """Cohen's d of the classes in each planted module pair; 0 plants nothing."""
    seed: int = 0
    """The same seed gives the same cohort."""
    modules: int = 7
    """Number of networks the ROIs belong to."""
    effect_pairs: Annotated[tuple[str, ...], tyro.conf.arg(metavar="MODULE:MODULE[:+]")] = ()
    """Where the effect is, such as Default:Visual, weaker in the positive class, or Default:Visual:+, stronger."""
    volumes: int | None = None
    """Volumes of every scan (each site has its own number when not given)."""
    sex_effect: float = 0.95
    """Cohen's d of men and women, in module pairs of its own."""
    male_share: float = 0.85
    """Share of men."""
    kind: Annotated[str, tyro.conf.arg(metavar=KINDS)] = "pearson"
    """Connectivity to compute; shrunk-z is the authors' input."""
    series: bool = True
    """Keep the time series beside the connectomes."""
    dtype: Literal["float32", "float16"] = "float32"
    """How connectomes are stored."""
    overwrite: bool = False
    """Replace a cohort that is there already."""


def run(options: Options) -> int:
    """Simulate, and say what was planted."""
    from bnt.sources._simulate import simulate_cohort

    cohort = simulate_cohort(
        options.subjects,
        options.rois,
        options.sites,
        options.effect,
        options.seed,
        options.modules,
        options.volumes,
        options.effect_pairs or None,
        kind=options.kind,
        sex_effect=options.sex_effect,
        male_share=options.male_share,
        series=options.series,
        out=options.out,
        dtype=options.dtype,
        overwrite=options.overwrite,
    )
    labels = cohort.labels("diagnosis")
    print(
        f"{options.out}: {len(cohort)} subjects ({(labels == 1).sum()} patients, {(labels == 0).sum()} controls), "
        f"{options.sites} sites, {cohort.n_rois} ROIs"
    )
    weaker = {-1: "weaker", 1: "stronger"}
    planted = [
        f"{a}-{b} ({weaker[d]} in patients)"
        for (a, b), d in zip(cohort.source["effect_pairs"], cohort.source["effect_directions"])
    ]
    if options.effect and planted:
        print(f"  planted, d = {options.effect:g} each: {', '.join(planted)}")
    else:
        print("  no class effect planted")
    print(f"Look at it with: bnt info {options.out}")
    return 0
