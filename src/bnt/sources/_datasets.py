"""Public data sets of images that nilearn offers, as cohorts: ADHD-200 (40 people) and the development data set (155).

Both come as preprocessed images in MNI space, so that any atlas can be used. ADHD-200's are of the Athena pipeline,
with one table of regressors per scan, all of which are removed; the development data set's are of fMRIPrep.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bnt.cohort import Cohort
from bnt.cohort._files import refuse_existing
from bnt.connectivity import kind_of
from bnt.errors import BadInput
from bnt.sources._atlas import downloading, find_atlas
from bnt.sources._extract import Denoising, Extraction, Images
from bnt.sources._ingest import Rules
from bnt.sources._several import found_with, ingest_atlases

DATASETS = ("adhd200", "development")
DEFAULT_ATLAS = "schaefer_2018:100"
AGAIN = "connect and run the same command again; what is in the cache is used"
LEVELS = {"adhd200": {"diagnosis": {"0": "control", "1": "ADHD"}}}
TERMS = {
    "adhd200": "cite the ADHD-200 consortium; preprocessed by the Athena pipeline (Bellec et al. 2017)",
    "development": "cite Richardson et al. (2018), OpenNeuro ds000228",
}


def fetch_images(
    dataset: str,
    out: str | Path,
    data_dir: str | Path | None = None,
    *,
    atlas: tuple[str, ...] = (),
    kind: str = "pearson",
    limit: int | None = None,
    denoising: Denoising | None = None,
    jobs: int = 0,
    dtype: str = "float32",
    overwrite: bool = False,
) -> Cohort:
    """Make a cohort of a public data set of images.

    Parameters
    ----------
    dataset : {"adhd200", "development"}
    out : path
    data_dir : path, optional
        Where nilearn keeps its data sets; what is there is used, the rest is downloaded.
    atlas : tuple of str
        One or several atlases, see :func:`bnt.sources._atlas.find_atlas`; Schaefer's 100 without any.
    kind, dtype, overwrite
        As in :func:`bnt.import_cohort`.
    limit : int, optional
        Only the first so many people, as nilearn chooses them.
    denoising : Denoising, optional
    jobs : int
        Processes; 0 is one per core.
    """
    if dataset not in DATASETS:
        raise BadInput(f"dataset is {dataset!r}: choose one of {', '.join(DATASETS)}.", "dataset")
    if limit is not None and limit < 1:
        raise BadInput(f"limit is {limit}: give 1 or more.", "limit")
    kind, out = kind_of(kind).name, Path(out)
    refuse_existing(out, overwrite, "cohort.json")
    atlases = tuple(find_atlas(word, data_dir=data_dir) for word in atlas or (DEFAULT_ATLAS,))
    images, people = (_adhd if dataset == "adhd200" else _development)(data_dir, limit)
    how = denoising or Denoising()
    facts = {"name": dataset, "reader": dataset, "terms": TERMS[dataset]}
    columns = {str(row["participant_id"]): {str(k): v for k, v in row.items()} for row in people.to_dict("records")}
    extraction = Extraction(tuple(images), atlases, how)
    founds = [
        found_with(replace(extraction, atlases=(one,)), one, kind, facts, levels=LEVELS.get(dataset)) for one in atlases
    ]
    founds = [replace(f, scans=[replace(scan, columns=columns[scan.participant]) for scan in f.scans]) for f in founds]
    return ingest_atlases(founds, Rules(), dataset, out=out, jobs=jobs, dtype=dtype, overwrite=overwrite)


def _adhd(data_dir: str | Path | None, limit: int | None) -> tuple[list[Images], pd.DataFrame]:
    """Return ADHD-200's images and its phenotypes; ``diagnosis`` is 1 for ADHD and 0 for typically developing."""
    from nilearn.datasets import fetch_adhd

    with downloading("ADHD-200", AGAIN):
        found = fetch_adhd(limit, data_dir=_text(data_dir), verbose=0)
    table = found["phenotypic"].reset_index(drop=True)
    table = table.set_index(table["Subject"].astype(str))
    names = [Path(file).parent.name for file in found["func"]]
    rows = table.loc[names]
    people = pd.DataFrame(
        {
            "participant_id": names,
            "site": rows["site"].astype(str).to_numpy(),
            "diagnosis": pd.to_numeric(rows["adhd"]).to_numpy(dtype=np.int64),
        }
    )
    for theirs, ours in (("age", "age"), ("sex", "sex"), ("handedness", "handedness"), ("MeanFD", "mean_fd")):
        if theirs in rows:
            people[ours] = rows[theirs].to_numpy()
    files = zip(names, found["func"], found["confounds"])
    return [Images(n, "", Path(f), confounds=Path(c), t_r=float(found["t_r"])) for n, f, c in files], people


def _development(data_dir: str | Path | None, limit: int | None) -> tuple[list[Images], pd.DataFrame]:
    """Return the development data set's images and its table; ``child_adult`` and ``age`` are to be predicted."""
    from nilearn.datasets import fetch_development_fmri

    with downloading("The development data set", AGAIN):
        found = fetch_development_fmri(limit, reduce_confounds=False, data_dir=_text(data_dir), verbose=0)
    table: Any = found["phenotypic"]
    people = table.rename(columns=lambda name: {"Gender": "sex"}.get(name, name.lower())).reset_index(drop=True)
    by_name = {Path(file).name.split("_")[0]: Path(file) for file in found["func"]}
    names = people["participant_id"].astype(str).tolist()
    return [Images(name, "", by_name[name], t_r=float(found["t_r"])) for name in names], people


def _text(data_dir: str | Path | None) -> str | None:
    return None if data_dir is None else str(data_dir)
