"""ABIDE I, preprocessed by the Preprocessed Connectomes Project, as a cohort.

The files come through nilearn's ``fetch_abide_pcp``: those already in its folder are used, the rest
is downloaded there, one subject at a time, so that an interrupted download goes on where it stopped.

The paper's 1,009 subjects are those of the 1,035 with a file who have 100 volumes or more; the 26 of
OHSU have fewer. One scan appears twice in the release under two names (found by its bytes, not by
its name): both get the same ``group``, so that no split can separate them, or the second is dropped.

References
----------
Craddock et al. (2013), The Neuro Bureau Preprocessing Initiative: open sharing of preprocessed
neuroimaging data and derivatives. Di Martino et al. (2014), The autism brain imaging data exchange.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from bnt.cohort import Cohort, CohortWriter, load_cohort
from bnt.cohort.atomic import refuse_existing
from bnt.cohort.store import DTYPES
from bnt.connectivity import connectomes, kind_of
from bnt.data.abide_files import LEVELS, PHENOTYPE, ends_with_newline, read_1d, read_phenotype, roi_numbers
from bnt.data.atlases import roi_table
from bnt.errors import BadInput
from bnt.progress import say, track

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
    kind: str = "paper",
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
