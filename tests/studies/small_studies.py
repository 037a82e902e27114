"""Tiny studies: networks that train in seconds, and long enough to be interrupted."""

from __future__ import annotations

import json
import os
from pathlib import Path

from bnt.cohort import Cohort
from bnt.splits import named_splits
from bnt.studies._job import Job, Variant
from bnt.studies._study import Study
from bnt.training._recipe import Recipe

TINY = {"n_layers": 1, "n_heads": 2, "ffn": 8, "n_clusters": 2}
LOGISTIC = Variant("logistic", "logistic")


def tiny(name: str = "bnt", epochs: int = 40, **options: object) -> Variant:
    """A network that learns something in a few milliseconds an epoch."""
    return Variant(name, "bnt", {**TINY, **options}, "default", Recipe(epochs=epochs, lr=1e-3, ema=0.9))


def make_study(folder: Path, cohort: Cohort, variants: list[Variant], n_splits: int = 2, **settings: object) -> Study:
    """A study of the small cohort."""
    splits = named_splits(cohort, "diagnosis", "site-stratified", n_splits=n_splits)
    return Study(folder, cohort, "diagnosis", variants, splits, protocol="site-stratified", **settings)


def weights(folder: Path) -> dict[str, str]:
    """Each finished run's digest of its weights."""
    reports = sorted((folder / "runs").glob("*/report.json"))
    return {file.parent.name: json.loads(file.read_text())["weights_sha256"] for file in reports}


def note_process(job: Job) -> None:
    """Work that writes down who did it; a variant called fails does."""
    file = Path(job.folder).with_suffix(".process")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(str(os.getpid()))
    if job.variant.name == "fails":
        raise ValueError("it was told to fail")
