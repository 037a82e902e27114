"""What pages and figures are made of: tables computed from runs and studies, and the warnings they deserve."""

from __future__ import annotations

import json
import warnings as python_warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bnt.training.metrics import auroc, auroc_interval

SMALL_TEST = 100
FEW_SPLITS = 10


def binary_columns(predictions: pd.DataFrame) -> tuple[np.ndarray, np.ndarray] | None:
    """Return who is positive and their probabilities, or None where the task is not binary."""
    columns = [c for c in predictions.columns if c.startswith("p_")]
    if len(columns) != 2:
        return None
    positive = predictions["label"].astype(str).to_numpy() == columns[1].removeprefix("p_")
    return positive, predictions[columns[1]].to_numpy(dtype=float)


def per_site_table(predictions: pd.DataFrame) -> pd.DataFrame:
    """Return each site's AUROC with its interval, largest sites first; sites with one class only are left out."""
    rows = []
    for site, group in predictions.groupby("site", sort=True):
        found = binary_columns(group)
        if found is None or not 0 < found[0].sum() < len(group):
            continue
        with python_warnings.catch_warnings():
            python_warnings.simplefilter("ignore", UserWarning)
            low, high = auroc_interval(*found)
        rows.append({"site": site, "n": len(group), "auroc": auroc(*found), "low": low, "high": high})
    table = pd.DataFrame(rows, columns=["site", "n", "auroc", "low", "high"])
    return table.sort_values(["n", "site"], ascending=[False, True]).reset_index(drop=True)


def parts_by_class(folder: Path, participants: pd.DataFrame | None, label: str) -> pd.DataFrame | None:
    """Return subjects per part and class of one run, where the cohort is still at hand."""
    if participants is None or label not in participants:
        return None
    table = pd.read_csv(folder / "splits.csv", dtype={"participant_id": str})
    joined = table.merge(participants[["participant_id", "site", label]], on="participant_id")
    counts = joined.pivot_table(index="part", columns=label, values="participant_id", aggfunc="count", fill_value=0)
    return counts.reindex(["train", "validation", "test"]).reset_index()


def sites_by_class(participants: pd.DataFrame | None, label: str) -> pd.DataFrame | None:
    """Return subjects per site and class."""
    if participants is None or label not in participants or participants[label].nunique() > 10:
        return None
    table = participants.pivot_table(
        index="site", columns=label, values="participant_id", aggfunc="count", fill_value=0
    )
    table.columns = [f"{label} = {c}" for c in table.columns]
    return table.assign(total=table.sum(axis=1)).reset_index()


def cohort_table(path: str) -> pd.DataFrame | None:
    """Return the participants table of a cohort that is still where it was."""
    file = Path(path) / "participants.tsv"
    if not file.is_file():
        return None
    return pd.read_csv(file, sep="\t", dtype={"participant_id": str, "site": str}, na_values=["n/a"])


def read_lines(folder: Path) -> list[dict[str, Any]]:
    """Return the epochs of a run."""
    file = folder / "metrics.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []


def run_warnings(n_test: int, protocol: str) -> list[str]:
    """Return what a reader must know about one run."""
    found = [
        "One split: another split of the same people moves an AUROC by 3 to 5 points; use bnt compare for a claim."
    ]
    if n_test < SMALL_TEST:
        found.append(f"The test part has {n_test} people: the interval is wide, look at it before the number.")
    found += protocol_warnings(protocol)
    return found


def protocol_warnings(protocol: str) -> list[str]:
    """Return what is wrong with a protocol that we offer only to repeat published numbers."""
    if protocol.startswith("released"):
        return [
            "Protocol `released` repeats the authors' splitter: the training part never changes, and the part called "
            "validation is larger than the test part. Its numbers are for comparison with the paper only."
        ]
    return []


def study_warnings(study: dict[str, Any], runs: pd.DataFrame) -> list[str]:
    """Return what a reader must know about a study."""
    found = protocol_warnings(study["protocol"])
    planned = len(study["variants"]) * len(study["splits"]) * len(study["seeds"])
    if len(runs) < planned:
        found.append(f"{len(runs)} of {planned} runs are finished: the tables are of those.")
    if len(study["splits"]) < FEW_SPLITS:
        found.append(f"{len(study['splits'])} splits: differences of a few points cannot be told from chance; use 20.")
    if runs["n_test"].min() < SMALL_TEST:
        found.append(f"The test parts have {runs['n_test'].min()} people: single scores are uncertain by many points.")
    return found
