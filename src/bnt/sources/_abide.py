"""The files of the ABIDE Preprocessed Connectomes Project: its phenotype table and its .1D series."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from bnt._progress import say, track
from bnt.cohort import Cohort, CohortWriter, load_cohort
from bnt.cohort._files import refuse_existing
from bnt.cohort._store import DTYPES
from bnt.connectivity import connectomes, kind_of
from bnt.errors import BadInput
from bnt.sources._atlases import roi_table

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
_CODES = {
    "SEX": ("sex", {1: "M", 2: "F"}),
    "EYE_STATUS_AT_SCAN": ("eye_status", {1: "open", 2: "closed"}),
}
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


def read_1d(path: Path) -> tuple[np.ndarray, tuple[str, ...]]:
    """Read a .1D file of the release: (volumes, V) float32 and the ROI names of its header.

    An ROI without coverage may be written as NaN throughout; it is returned as a constant, which the
    rule for constant ROIs then handles. Any other NaN is refused.
    """
    again = "delete it and give the command again to download it anew"
    try:
        with warnings.catch_warnings():
            # pandas would cut rows that are longer than the header with a warning only.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame = pd.read_csv(path, sep="\t", dtype=np.float32, index_col=False)
    except (OSError, ValueError, UnicodeDecodeError, pd.errors.ParserWarning) as error:
        reason = " ".join(str(error).split())
        raise BadInput(f"{path} cannot be read as a table of numbers ({reason}): {again}.") from error
    tail = [c for c in frame.columns if str(c).startswith("Unnamed:") and frame[c].isna().all()]
    frame = frame.drop(columns=tail)  # a tab at the end of each line is no ROI
    series = frame.to_numpy()
    if series.shape[0] < 2 or series.shape[1] < 2:
        raise BadInput(f"{path} holds {series.shape[0]} volumes of {series.shape[1]} ROIs: {again}.")
    wrong = ~np.isfinite(series)
    if wrong.any():
        empty = wrong.all(axis=0)
        if wrong[:, ~empty].any():
            row, column = np.argwhere(wrong & ~empty)[0]
            raise BadInput(
                f"{path} has no number at volume {row + 1}, ROI {frame.columns[column]}, so it is cut short or "
                f"damaged: {again}."
            )
        series = np.where(empty, np.float32(0), series)
    return series, tuple(str(c).strip() for c in frame.columns)


def ends_with_newline(path: Path) -> bool:
    """Tell whether the last line of a file is complete."""
    with open(path, "rb") as handle:
        handle.seek(-1, 2)
        return handle.read(1) == b"\n"


def roi_numbers(header: tuple[str, ...]) -> np.ndarray:
    """Return the ROI numbers of a header such as ``#1 #2 ...``; 1 to V where it has none."""
    digits = [name.lstrip("# ") for name in header]
    if all(d.isdigit() for d in digits):
        return np.array([int(d) for d in digits])
    return np.arange(1, len(header) + 1)


SUBJECTS = ("paper", "all", "quality-checked")
PIPELINES = ("cpac", "ccs", "dparsf", "niak")
DERIVATIVES = ("rois_cc200", "rois_cc400", "rois_aal", "rois_ho", "rois_ez", "rois_tt", "rois_dosenbach160")
PAPER_MIN_VOLUMES = 100
_SUBJECTS_AT_ONCE = 64


def fetch_abide(
    out: str | Path,
    data_dir: str | Path | None = None,
    *,
    subjects: Literal["paper", "all", "quality-checked"] = "paper",
    kind: str = "pearson",
    duplicates: Literal["group", "drop"] = "group",
    pipeline: str = "cpac",
    derivative: str = "rois_cc200",
    band_pass: bool = True,
    global_signal_regression: bool = False,
    limit: int | None = None,
    dtype: str = "float32",
    overwrite: bool = False,
) -> Cohort:
    """Make a cohort of ABIDE I and open it.

    Parameters
    ----------
    out : path
        The cohort's folder.
    data_dir : path, optional
        Where nilearn keeps its data sets; files of ``data_dir/ABIDE_pcp`` are used, the rest is
        downloaded there. nilearn's own default when not given.
    subjects : {"paper", "all", "quality-checked"}
        The paper's 1,009 (100 volumes or more), all 1,035, or the 871 that passed every rater.
    kind : str
        Connectivity, see :data:`bnt.connectivity.KINDS`.
    duplicates : {"group", "drop"}
        What to do with a scan that is in the release twice: give both the same group, or keep the first.
    pipeline, derivative, band_pass, global_signal_regression
        Which preprocessing and atlas; the defaults are the paper's.
    limit : int, optional
        Only the first so many subjects of the release's table.
    dtype : {"float32", "float16"}
    overwrite : bool
        Replace a cohort that is at ``out``.

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
    for name, value, allowed in (
        ("subjects", subjects, SUBJECTS),
        ("duplicates", duplicates, ("group", "drop")),
        ("pipeline", pipeline, PIPELINES),
        ("derivative", derivative, DERIVATIVES),
        ("dtype", dtype, DTYPES),
    ):
        if value not in allowed:
            raise BadInput(f"{name} {value!r} is not one of {', '.join(allowed)}.")
    if limit is not None and limit < 1:
        raise BadInput(f"limit {limit} leaves no subjects: give 1 or more.")
    chosen = kind_of(kind)
    refuse_existing(Path(out), overwrite, "cohort.json")  # before an hour of downloads, not after
    release = _Release(data_dir, pipeline, derivative, band_pass, global_signal_regression)
    table = read_phenotype(release.phenotype())
    if subjects == "quality-checked":
        table = table[table["quality_checked"] == 1]
    table = table.iloc[:limit].reset_index(drop=True)
    release.download(table)

    least = PAPER_MIN_VOLUMES if subjects == "paper" else 0
    reading = _Reading(release, table, least, duplicates)
    batches = reading.batches()
    first = next(batches, None)
    if first is None:
        raise BadInput(f"None of the {len(table)} subjects has {least} volumes or more: choose --subjects all.")
    numbers = roi_numbers(reading.header)
    rois = roi_table(derivative.removeprefix("rois_"), numbers)
    with CohortWriter(out, len(numbers), dtype=dtype, overwrite=overwrite) as writer:
        batch: list[np.ndarray] | None = first
        while batch is not None:
            writer.append(connectomes(batch, chosen.name), batch)
            batch = next(batches, None)
        writer.finish(
            reading.participants(),
            pd.DataFrame({"roi": numbers}) if rois is None else rois,
            kind=chosen.name,
            diagonal=chosen.diagonal,
            atlas=derivative.removeprefix("rois_"),
            source={
                "name": "ABIDE I (PCP)",
                "fetched_with": "nilearn.datasets.fetch_abide_pcp",
                "pipeline": pipeline,
                "strategy": release.strategy,
                "derivative": derivative,
                "subjects": subjects,
                "duplicates": duplicates,
                "terms": "free for non-commercial research; cite Di Martino et al. (2014) and Craddock et al. (2013)",
            },
            levels=LEVELS,
            findings=reading.findings,
        )
    return load_cohort(out)


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
                f"{what} could not be downloaded ({reason}): {there}, and the same command given again goes on "
                "from there."
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


@dataclass
class _Reading:
    """One pass over the series of a release: what was kept, and what was noticed on the way."""

    release: _Release
    table: pd.DataFrame
    min_volumes: int
    duplicates: str
    header: tuple[str, ...] = ()
    findings: list[dict[str, Any]] = field(default_factory=list)
    _whole: bool = False  # a file that ends with a newline was seen: then one that does not was cut short
    _kept: list[dict[str, Any]] = field(default_factory=list)
    _seen: dict[str, str] = field(default_factory=dict)  # digest of a series -> participant

    def batches(self) -> Iterator[list[np.ndarray]]:
        """Yield the series to keep, some subjects at a time, in the order of the release's table."""
        batch: list[np.ndarray] = []
        for row in track(self.table.to_dict("records"), "Reading ABIDE"):
            series = self._read({str(column): value for column, value in row.items()})
            if series is None:
                continue
            batch.append(series)
            if len(batch) == _SUBJECTS_AT_ONCE:
                yield batch
                batch = []
        if batch:
            yield batch

    def _read(self, row: dict[str, Any]) -> np.ndarray | None:
        participant = row["participant_id"]
        path = self.release.file(participant)
        series, header = read_1d(path)
        self.header = self.header or header
        if header != self.header:
            raise BadInput(
                f"{path} has {len(header)} ROIs named {header[0]} to {header[-1]}, the first subject has "
                f"{len(self.header)} named {self.header[0]} to {self.header[-1]}: delete it and fetch it again."
            )
        whole = ends_with_newline(path)
        self._whole = self._whole or whole
        if self._whole and not whole:
            raise BadInput(
                f"{path} stops inside volume {len(series)}: delete it and give the command again to download it anew."
            )
        if len(series) < self.min_volumes:
            self.findings.append({"check": "too short", "participant_id": participant, "value": len(series)})
            return None
        digest = sha256(series.tobytes()).hexdigest()
        twin = self._seen.setdefault(digest, participant)
        if twin != participant:
            self.findings.append({"check": "same scan", "participant_id": participant, "value": twin})
            if self.duplicates == "drop":
                return None
        missing = int((np.ptp(series, axis=0) == 0).sum())
        self._kept.append({**row, "group": twin, "n_volumes": len(series), "n_missing_rois": missing})
        return series

    def participants(self) -> pd.DataFrame:
        """Return the table of the subjects kept."""
        return pd.DataFrame(self._kept)
