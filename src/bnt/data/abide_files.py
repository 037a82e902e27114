"""The files of the ABIDE Preprocessed Connectomes Project: its phenotype table and its .1D series."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pandas as pd

from bnt.errors import BadInput

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
