"""Cohorts from images, with one or several atlases: fMRIPrep folders, and public data sets of nilearn.

Both come as preprocessed images in MNI space, so that any atlas can be used. ADHD-200's are of the Athena pipeline,
with one table of regressors per scan, all of which are removed; the development data set's are of fMRIPrep.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from hashlib import sha256
from io import BytesIO
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bnt import __version__
from bnt._words import say, track
from bnt.cohort import Cohort, load_cohort
from bnt.cohort._beside import write_together
from bnt.cohort._files import refuse_existing
from bnt.connectivity import kind_of
from bnt.errors import BadInput
from bnt.sources._atlas import Atlas, downloading, find_atlas, safe_name
from bnt.sources._extract import Denoising, Extraction, Images, find_images
from bnt.sources._ingest import Rules, ingest
from bnt.sources._names import Name, expanding, largest
from bnt.sources._readers import Found, roi_table
from bnt.sources._scan import Content, Scan


def find_fmriprep(
    names: Sequence[Name],
    source: Path,
    *,
    atlas: str | None,
    kind: str,
    facts: Mapping[str, Any],
    rois: str | Path | None = None,
    denoising: Denoising | None = None,
    data_dir: str | Path | None = None,
) -> Found:
    """Return the runs of a folder of fMRIPrep, to be read with an atlas."""
    if atlas is None:
        raise BadInput(
            f"{source} holds fMRIPrep's images: name the atlas to read them with, a file (atlas.nii.gz, "
            "atlas.dlabel.nii) or a name such as schaefer_2018:400.",
            "atlas",
        )
    how = denoising or Denoising()
    word = atlas.partition("=")[2] or atlas
    cifti = word.lower().endswith((".dlabel.nii",))
    if word.startswith("templateflow") and not any(n.file.name.endswith(".nii.gz") for n in names):
        cifti = True
    images, space = find_images(names, source, cifti, aroma=how.confounds_strategy == "ica_aroma")
    found = find_atlas(atlas, space=space, data_dir=data_dir)
    return found_with(Extraction(tuple(images), (found,), how), found, kind, facts, rois=rois)


def found_with(
    extraction: Extraction,
    atlas: Atlas,
    kind: str,
    facts: Mapping[str, Any],
    *,
    rois: str | Path | None = None,
    levels: Mapping[str, Mapping[str, str]] | None = None,
) -> Found:
    """Return the scans of an extraction for one of its atlases."""
    how = asdict(extraction.how)
    return Found(
        extraction.scans(atlas),
        kind,
        {**facts, "atlas_image": atlas.facts(), "denoising": how},
        atlas.name,
        partial(_rois_of, atlas, rois),
        {name: dict(codes) for name, codes in (levels or {}).items()},
        extraction,
    )


def _rois_of(atlas: Atlas, given: str | Path | None, labels: tuple[str, ...], n_rois: int) -> pd.DataFrame | None:
    return atlas.rois if given is None else roi_table(given, {}, labels, n_rois)


def same_people(found: Found, first: Found) -> Found:
    """Return the scans of another atlas with the columns that the first atlas' scans have been given."""
    columns = {(scan.participant, scan.run): scan.columns for scan in first.scans}
    people = {scan.participant: scan.columns for scan in reversed(first.scans)}
    kept = [
        replace(s, columns={**s.columns, **columns.get((s.participant, s.run), people[s.participant])})
        for s in found.scans
        if s.participant in people
    ]
    lacking = set(people) - {scan.participant for scan in kept}
    if lacking:
        raise BadInput(
            f"{sorted(lacking)[0]} has a scan of atlas {first.atlas} and none of {found.atlas}: atlases of one cohort "
            "have the same people; leave the scan out, or import the atlases apart.",
            "atlas",
        )
    shared = {key: first.source[key] for key in first.source if key not in found.source}
    return replace(found, scans=kept, source=found.source | shared)


def ingest_atlases(
    founds: Sequence[Found],
    rules: Rules,
    name: str,
    *,
    out: Path,
    jobs: int = 0,
    dtype: str = "float32",
    overwrite: bool = False,
    work: str | Path | None = None,
) -> Cohort:
    """Make one cohort of the same people's scans of one or several atlases.

    Images, and many files of numbers, are read first, several at a time; what was read lies beside ``out`` until it is
    there, so that an interrupted import resumes.

    Parameters
    ----------
    founds : sequence of Found
        One per atlas; the columns of their scans are those of the participants table.
    rules, name, out, dtype, overwrite
        As in :func:`bnt.sources._ingest.ingest`.
    jobs : int
        Processes that read; 0 is one per core.
    work : path, optional
        Where the series of images are kept; without it beside ``out``, until that is complete.
    """
    if jobs < 0:
        raise BadInput(f"jobs is {jobs}: give 0 for one per core, or more.", "jobs")
    names = [safe_name(found.atlas) for found in founds]
    twice = next((one for one in names if names.count(one) > 1), None)
    if twice is not None:
        raise BadInput(f"Two atlases are called {twice}: name one of them, --atlas NAME=FILE.", "atlas")
    extracts = out.with_name(f".{out.name}.extracted") if work is None else Path(work)
    founds = [read_ahead(found, extracts, jobs) for found in extracted(founds, extracts, jobs)]
    if len(founds) == 1:
        cohort = ingest(founds[0], rules, name, out=out, dtype=dtype, overwrite=overwrite)
    else:
        makers = {
            one: partial(_make, replace(found, atlas=one), rules, f"{name}, {one}", dtype)
            for one, found in zip(names, founds)
        }
        write_together(out, makers, overwrite=overwrite)
        cohort = load_cohort(out)
    if work is None:
        shutil.rmtree(extracts, ignore_errors=True)
    return cohort


def _make(found: Found, rules: Rules, name: str, dtype: str, folder: Path) -> None:
    ingest(found, rules, name, out=folder, dtype=dtype)


def extracted(founds: Sequence[Found], work: Path, jobs: int) -> list[Found]:
    """Read the images of all atlases, and return scans that open the series in the work folder."""
    every = [found.extraction for found in founds if found.extraction is not None]
    if not every:
        return list(founds)
    groups: dict[tuple[Any, Any], list[Atlas]] = {}  # NIfTI and CIFTI runs are other files
    for one in every:
        groups.setdefault((one.images, one.how), []).extend(a for a in one.atlases)
    for (images, how), atlases in groups.items():
        say(f"{len(images)} runs, {', '.join(a.name for a in atlases)}: {how.described()}.")
        Extraction(images, tuple(atlases), how).carry_out(work, jobs)
    return [
        found if found.extraction is None else replace(found, scans=_reopened(found, found.extraction, work))
        for found in founds
    ]


def _reopened(found: Found, extraction: Extraction, work: Path) -> list[Scan]:
    opened = {(scan.participant, scan.run): scan.load for scan in extraction.scans(extraction.atlases[0], work)}
    return [replace(scan, load=opened[scan.participant, scan.run]) for scan in found.scans]


# -- files of numbers ------------------------------------------------------------------------------------------

AHEAD_FILES = 100  # fewer are read sooner than processes start


def read_ahead(found: Found, work: Path, jobs: int) -> Found:
    """Read files of numbers, several at a time, into the work folder; return scans that open what lies there.

    Only what one file holds by itself is read ahead. A file that cannot be read ends it: whoever then asks for the
    scans in their order gets the error that one process would get.
    """
    own = Counter(scan.file for scan in found.scans)
    if found.extraction is not None or any(n > 1 or not file.is_file() for file, n in own.items()):
        return found
    places = [_place(work, scan) for scan in found.scans]
    waiting = [scan for scan, place in zip(found.scans, places) if not place.is_file()]
    n_jobs = min(jobs or len(os.sched_getaffinity(0)), len(waiting))
    if len(found.scans) - len(waiting):
        say(f"{len(found.scans) - len(waiting)} of {len(found.scans)} files were read before and are used.")
    if n_jobs > 1 and len(waiting) >= AHEAD_FILES:
        from joblib import Parallel, delayed, parallel_config

        work.mkdir(parents=True, exist_ok=True)
        failed: list[bool] = []
        with parallel_config(backend="loky", inner_max_num_threads=1):
            made = Parallel(n_jobs, return_as="generator_unordered")(
                delayed(_keep)(_place(work, scan), scan, largest()) for scan in takewhile(lambda _: not failed, waiting)
            )
        for well in track(made, "Reading files", len(waiting)):
            failed += [] if well else [True]
    opened = [replace(s, load=partial(_opened, place, s.load)) for s, place in zip(found.scans, places)]
    return replace(found, scans=opened)


def _place(work: Path, scan: Scan) -> Path:
    """Return where the content of a file is kept: its name tells the file, its state, and how it is read."""
    state = scan.file.stat()
    load: Any = scan.load
    how = [load.func.__qualname__, sorted(load.keywords.items())] if isinstance(load, partial) else []
    made_from = [str(scan.file.resolve()), state.st_size, state.st_mtime_ns, how, __version__]
    return work / f"{sha256(json.dumps(made_from, default=str).encode()).hexdigest()[:32]}.npz"


def _keep(file: Path, scan: Scan, max_expanded: float) -> bool:
    """Read a file and keep its content; whether it could be read."""
    try:
        with expanding(max_expanded):
            content = scan.load()
    except BadInput:
        return False
    named: dict[str, Any] = {"series": content.series, "matrix": content.matrix}
    named["labels"] = np.array(content.labels, dtype=str)
    buffer = BytesIO()
    np.savez(buffer, **{name: value for name, value in named.items() if value is not None})
    data = buffer.getvalue()
    temporary = file.with_name(f"{file.name}.{os.getpid()}.tmp")
    temporary.write_bytes(sha256(data).digest() + data)
    os.replace(temporary, file)
    return True


def _opened(file: Path, load: Callable[[], Content]) -> Content:
    """Return what is kept of a scan; it is read where nothing is, or it is damaged."""
    data = file.read_bytes() if file.is_file() else b""
    if sha256(data[32:]).digest() != data[:32]:
        return load()
    with np.load(BytesIO(data[32:]), allow_pickle=False) as kept:
        labels = tuple(map(str, kept["labels"]))
        return Content(kept.get("series"), kept.get("matrix"), labels)


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
    data_dir : path, optional
        Where nilearn keeps its data sets; what is there is used, the rest is downloaded.
    atlas : tuple of str
        One or several atlases, see :func:`bnt.sources._atlas.find_atlas`; Schaefer's 100 without any.
    kind, dtype, overwrite
        As in :func:`bnt.import_cohort`.
    limit : int, optional
        Only the first so many people, as nilearn chooses them.
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
