"""ABIDE I: finds or downloads the files of the Preprocessed Connectomes Project, and imports them.

``cc200.tsv`` describes the 200 ROIs of the Craddock-200 parcellation as the ABIDE Preprocessed
Connectomes Project used it, in the order of the columns of its ``*_rois_cc200.1D`` files:

``roi``
    The number in the header of those files, 1 to 200.
``x, y, z``
    Centroid in MNI space, millimetres.
``voxels``
    Size in the atlas image.
``network``
    The Yeo-7 network of the nearest cortical vertices; 27 ROIs are subcortical or cerebellar and
    4 are left unassigned. This assignment is approximate: a Craddock ROI may straddle networks.
``cole_anticevic12, aal, harvard_oxford``
    The Cole-Anticevic network, and the AAL and Harvard-Oxford region, that the ROI mostly falls in.

Provenance: computed from the Craddock-200 image of the PCP release of ABIDE I; the data set is free
for non-commercial research, and only these facts about its ROIs are shipped, no subject's data.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib.resources import files
from io import StringIO
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from bnt._words import say, track
from bnt.cohort import Cohort
from bnt.cohort._files import refuse_existing
from bnt.cohort._store import DTYPES
from bnt.connectivity import kind_of
from bnt.errors import BadInput
from bnt.sources._images import ingest_atlases
from bnt.sources._ingest import Rules
from bnt.sources._readers import Found, read_series
from bnt.sources._scan import Content, Scan

PHENOTYPE = "Phenotypic_V1_0b_preprocessed1.csv"
LEVELS = {"diagnosis": {"0": "control", "1": "ASD"}}
MISSING = (-9999, "-9999", "`", "")

# Column of the release -> column of ours.
_NUMBERS = {
    "AGE_AT_SCAN": "age",
    "func_mean_fd": "mean_fd",
    "FIQ": "fiq",
    "VIQ": "viq",
    "PIQ": "piq",
    "ADOS_TOTAL": "ados_total",
    "BMI": "bmi",
}
_CODES = {"SEX": ("sex", {1: "M", 2: "F"}), "EYE_STATUS_AT_SCAN": ("eye_status", {1: "open", 2: "closed"})}
# Who passed the visual inspection of all three raters: the rule of nilearn's quality_checked=True.
_RATINGS = {
    "qc_rater_1": ("OK",),
    "qc_anat_rater_2": ("OK", "maybe"),
    "qc_func_rater_2": ("OK", "maybe"),
    "qc_anat_rater_3": ("OK",),
    "qc_func_rater_3": ("OK",),
}


def read_phenotype(path: Path) -> pd.DataFrame:
    """Read the release's phenotype table as a participants table of the subjects who have a file.

    ``diagnosis`` is 1 for autism (DX_GROUP 1, the positive class) and 0 for controls (DX_GROUP 2).
    The code -9999 and empty cells become missing values.
    """
    try:
        raw = pd.read_csv(path, low_memory=False)
    except (OSError, ValueError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read as a table ({error}): delete it and fetch again.") from error
    wanted = {"FILE_ID", "SUB_ID", "SITE_ID", "DX_GROUP", *_NUMBERS, *_CODES, *_RATINGS, "HANDEDNESS_CATEGORY"}
    lacking = sorted(wanted - set(raw.columns))
    if lacking:
        raise BadInput(f"{path} has no column {lacking[0]}: delete it and fetch again.")
    raw = raw[raw["FILE_ID"] != "no_filename"].reset_index(drop=True)
    unknown = raw.loc[~raw["DX_GROUP"].isin([1, 2])]
    if len(unknown):
        first = unknown.iloc[0]
        raise BadInput(
            f"{path}: {first['FILE_ID']} has DX_GROUP {first['DX_GROUP']}, expected 1 or 2: delete it and fetch again."
        )
    table = pd.DataFrame(
        {
            "participant_id": raw["FILE_ID"].astype(str),
            "sub_id": raw["SUB_ID"],
            "site": raw["SITE_ID"].astype(str),
            "diagnosis": (raw["DX_GROUP"] == 1).astype(int),
        }
    )
    for source, name in _NUMBERS.items():
        table[name] = pd.to_numeric(raw[source], errors="coerce").replace(-9999, np.nan)
    for source, (name, meaning) in _CODES.items():
        table[name] = pd.to_numeric(raw[source], errors="coerce").map(meaning)
    handedness = raw["HANDEDNESS_CATEGORY"].astype("object")
    table["handedness"] = handedness.where(~handedness.isin(MISSING), np.nan)
    passed = np.logical_and.reduce([raw[column].isin(allowed) for column, allowed in _RATINGS.items()])
    table["quality_checked"] = passed.astype(int)
    front = ["participant_id", "site", "diagnosis", "age", "sex"]
    return table[front + [c for c in table.columns if c not in front]]


TABLES = {"cc200": "cc200.tsv"}
SUBJECTS = ("paper", "all", "quality-checked")
PIPELINES = ("cpac", "ccs", "dparsf", "niak")
DERIVATIVES = ("rois_cc200", "rois_cc400", "rois_aal", "rois_ho", "rois_ez", "rois_tt", "rois_dosenbach160")
PAPER_MIN_VOLUMES = 100


def fetch_abide(
    out: str | Path,
    data_dir: str | Path | None = None,
    *,
    subjects: Literal["paper", "all", "quality-checked"] = "paper",
    kind: str = "pearson",
    duplicates: Literal["group", "drop"] = "group",
    pipeline: str = "cpac",
    derivative: str | Sequence[str] = ("rois_cc200",),
    band_pass: bool = True,
    global_signal_regression: bool = False,
    limit: int | None = None,
    jobs: int = 0,
    dtype: str = "float32",
    overwrite: bool = False,
) -> Cohort:
    """Make a cohort of ABIDE I and open it.

    Parameters
    ----------
    out : path
        The cohort's folder.
    data_dir : path, optional
        nilearn's data folder, by default nilearn's own. Files in ``data_dir/ABIDE_pcp`` are used, and missing ones are
        downloaded there.
    subjects : {"paper", "all", "quality-checked"}
        The paper's 1,009 (100 volumes or more), all 1,035, or the 871 that passed every rater.
    kind : str
        Kind of connectome, see :data:`bnt.connectivity.KINDS`.
    duplicates : {"group", "drop"}
        How to treat a scan that is in the release twice: give both the same family, or keep only the first.
    pipeline, derivative, band_pass, global_signal_regression
        Preprocessing and atlas; the defaults are those of the paper. Several derivatives give one cohort with several
        atlases.
    limit : int, optional
        Read only this many subjects, the first of the release's table.
    jobs : int
        Processes that read the files; 0 is one per core.
    dtype : {"float32", "float16"}
    overwrite : bool
        Replace an existing cohort at ``out``.

    Returns
    -------
    Cohort
        ``participant_id`` is the release's FILE_ID; ``diagnosis`` is 1 for autism and 0 for controls.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.fetch_abide("abide", data_dir="nilearn_data", overwrite=True)  # downloads what is not in the cache
    >>> sorted(set(cohort.labels("diagnosis").tolist()))
    [0, 1]
    """
    derivatives = (derivative,) if isinstance(derivative, str) else tuple(derivative)
    for name, value, allowed in (
        ("subjects", subjects, SUBJECTS),
        ("duplicates", duplicates, ("group", "drop")),
        ("pipeline", pipeline, PIPELINES),
        *(("derivative", one, DERIVATIVES) for one in derivatives),
        ("dtype", dtype, DTYPES),
    ):
        if value not in allowed:
            raise BadInput(f"{name} is {value!r}: choose one of {', '.join(allowed)}.", name)
    if limit is not None and limit < 1:
        raise BadInput(f"limit is {limit}: give 1 or more.", "limit")
    kind = kind_of(kind).name
    refuse_existing(Path(out), overwrite, "cohort.json")  # before an hour of downloads, not after
    releases = [_Release(data_dir, pipeline, one, band_pass, global_signal_regression) for one in derivatives]
    table = read_phenotype(releases[0].phenotype())
    if subjects == "quality-checked":
        table = table[table["quality_checked"] == 1]
    table = table.iloc[:limit].reset_index(drop=True)
    for release in releases:
        release.download(table)
    facts = {
        "name": "ABIDE I (PCP)",
        "fetched_with": "nilearn.datasets.fetch_abide_pcp",
        "pipeline": pipeline,
        "strategy": releases[0].strategy,
        "subjects": subjects,
        "duplicates": duplicates,
        "terms": "free for non-commercial research; cite Di Martino et al. (2014) and Craddock et al. (2013)",
    }
    founds = [
        Found(
            release.scans(_records(table)),
            kind,
            facts | {"derivative": release.derivative},
            release.derivative.removeprefix("rois_"),
            partial(roi_table, release.derivative.removeprefix("rois_")),
            LEVELS,
        )
        for release in releases
    ]
    least = PAPER_MIN_VOLUMES if subjects == "paper" else 0
    rules = Rules(min_volumes=least, drop_short=True, duplicates=duplicates)
    return ingest_atlases(founds, rules, "ABIDE", out=Path(out), jobs=jobs, dtype=dtype, overwrite=overwrite)


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(column): value for column, value in row.items()} for row in table.to_dict("records")]


def roi_table(atlas: str, labels: tuple[str, ...], n_rois: int) -> pd.DataFrame:
    """Return the table of ROIs that the package ships for an atlas, or the ROI numbers alone.

    A table whose numbers or order differ from those in the header of the files, ``labels``, is not used: a wrong name
    for an ROI is worse than none.
    """
    numbered = len(labels) == n_rois and all(name.isdigit() for name in labels)
    numbers = [int(name) for name in labels] if numbered else list(range(1, n_rois + 1))
    if atlas in TABLES:
        table = pd.read_csv(StringIO(files("bnt.sources").joinpath(TABLES[atlas]).read_text("utf-8")), sep="\t")
        if table["roi"].tolist() == numbers:
            table.insert(1, "label", table["harvard_oxford"].str.replace(";", ",", regex=False))
            return table
    return pd.DataFrame({"roi": numbers})


def _read(file: Path, whole: bool) -> Content:
    """Read a series; a file that was cut short while it was downloaded is refused, where other files are ``whole``."""
    again = "delete the file and run the command again to download it"
    try:
        content = read_series(file)
    except BadInput as error:
        raise BadInput(f"{str(error).partition(': make it')[0].rstrip('.')}: {again}.") from error
    if whole and not _ends_a_line(file):
        raise BadInput(f"{file} ends inside its last line: {again}.")
    return content


def _ends_a_line(file: Path) -> bool:
    return file.is_file() and file.read_bytes()[-1:] == b"\n"


class _Release:
    """Where the files of one preprocessing lie in nilearn's folder, and how to get those that are missing."""

    def __init__(
        self, data_dir: str | Path | None, pipeline: str, derivative: str, band_pass: bool, global_signal: bool
    ) -> None:
        self.data_dir = None if data_dir is None else Path(data_dir).expanduser()
        self.pipeline, self.derivative = pipeline, derivative
        self.strategy = f"{'' if band_pass else 'no'}filt_{'' if global_signal else 'no'}global"
        self._options: dict[str, Any] = {
            "data_dir": self.data_dir,
            "pipeline": pipeline,
            "band_pass_filtering": band_pass,
            "global_signal_regression": global_signal,
            "derivatives": [derivative],
            "quality_checked": False,
            "verbose": 0,
        }

    def _fetch(self, what: str, there: str, **options: Any) -> None:
        from nilearn.datasets import fetch_abide_pcp
        from requests.exceptions import ConnectionError, Timeout

        try:
            fetch_abide_pcp(**self._options, **options)
        except (OSError, ValueError) as error:  # what requests raises is an OSError
            reason = " ".join(str(error).split())[:160]
            if isinstance(error, ConnectionError | Timeout):
                reason = "there is no connection to s3.amazonaws.com"
            raise BadInput(
                f"{what} could not be downloaded ({reason}): {there}; run the same command again to resume."
            ) from error

    def phenotype(self) -> Path:
        """Return the path of the phenotype table, downloaded if need be."""
        root = self._root()
        if not (root / PHENOTYPE).is_file():
            self._fetch(f"ABIDE's phenotype table {PHENOTYPE}", f"{root} does not have it yet", n_subjects=0)
            root = self._root()
        return root / PHENOTYPE

    def _root(self) -> Path:
        """Return nilearn's folder for ABIDE: the first place of its search path that has one."""
        from nilearn.datasets import get_data_dirs

        places = [Path(d) / "ABIDE_pcp" for d in get_data_dirs(self.data_dir)]
        return next((p for p in places if p.is_dir()), places[0])

    def file(self, participant: str) -> Path:
        """Return the path of a subject's series."""
        return self._root() / self.pipeline / self.strategy / f"{participant}_{self.derivative}.1D"

    def scans(self, rows: list[dict[str, Any]]) -> list[Scan]:
        """Return the scans of rows of the phenotype table."""
        files = [self.file(row["participant_id"]) for row in rows]
        whole = any(map(_ends_a_line, files))
        return [
            Scan(row["participant_id"], file, partial(_read, file, whole=whole), columns=row)
            for file, row in zip(files, rows)
        ]

    def download(self, table: pd.DataFrame) -> None:
        """Download the series that are not there; nilearn resumes a file that was cut short."""
        folder = self.file("any").parent
        there = {path.name for path in folder.glob(f"*_{self.derivative}.1D")} if folder.is_dir() else set()
        absent = [
            (participant, int(number))
            for participant, number in zip(table["participant_id"], table["sub_id"])
            if f"{participant}_{self.derivative}.1D" not in there
        ]
        if not absent:
            return
        present = len(table) - len(absent)
        say(f"{present} of {len(table)} series are in {folder}; downloading {len(absent)}.")
        for done, (participant, number) in enumerate(track(absent, "Downloading ABIDE")):
            self._fetch(
                f"The series of {participant}",
                f"{present + done} of {len(table)} series are in {folder}",
                SUB_ID=[number],
            )
