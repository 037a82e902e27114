"""A study from XCP-D derivatives, from the command line only: import, info, select, compare, report.

    python docs/examples/xcpd_study.py FOLDER

writes a small data set as XCP-D 26 leaves it (three sites, two sessions, families, motion, a participants table as
people have it, a planted effect) and runs the commands of docs/xcpd.md on it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd

import bnt

PEOPLE, ROIS, VOLUMES = 96, 30, 240
SESSIONS = ("baseline", "followup")
SPACE = "space-MNI152NLin6Asym"
COMMANDS = (
    "bnt import bids/derivatives/xcp_d cohort --runs sessions",
    "bnt info cohort --label group",
    "bnt info cohort --label hamd",
    'bnt select cohort quiet --where "mean_fd < 0.25 and n_retained >= 80"',
    "bnt compare quiet --label group --positive MDD --models logistic ridge svm --splits 5 --jobs 1 --out study",
    "bnt report study",
)


def write(file: Path, **columns: object) -> None:
    """Write a table with tabs."""
    file.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(columns).to_csv(file, sep="\t", index=False, na_rep="n/a")


def write_people(bids: Path, cohort: bnt.Cohort, rng: np.random.Generator) -> list[str]:
    """Write the participants table with its small faults, and a sessions table per person; return the ids."""
    names = [f"sub-{i:03d}" for i in range(1, len(cohort) + 1)]
    ill = cohort.labels("diagnosis") == 1
    group = np.where(ill, "MDD", "control").astype(object)
    group[np.flatnonzero(ill)[:3]] = ["mdd", "MDD ", "mdd"]
    family = [f"F{i:03d}" for i in range(len(cohort))]
    for site in np.unique(cohort.sites):  # the first six of each site are three pairs of siblings
        mine = np.flatnonzero(cohort.sites == site)[:6]
        for first, second in mine.reshape(-1, 2):
            family[second] = family[first]
    write(
        bids / "participants.tsv",
        participant_id=names,
        group=group,
        age=[f"{value:.1f}".replace(".", ",") for value in cohort.labels("age")],
        sex=cohort.labels("sex"),
        site_id=cohort.sites,
        family_id=family,
    )
    for name, patient in zip(names, ill):
        start = rng.integers(14, 30) if patient else rng.integers(0, 6)
        hamd = [start, max(0, start - rng.integers(2, 12)) if patient else rng.integers(0, 6)]
        write(bids / name / f"{name}_sessions.tsv", session_id=[f"ses-{s}" for s in SESSIONS], hamd=hamd)
    return names


def write_scan(folder: Path, stem: str, series: np.ndarray, labels: list[str], fd: np.ndarray) -> None:
    """Write one scan as XCP-D does: censored series, motion of all volumes, outliers, coverage."""
    outlier = fd > 0.5
    write(folder / f"{stem}_motion.tsv", framewise_displacement=fd)
    write(folder / f"{stem}_outliers.tsv", framewise_displacement=outlier.astype(int))
    kept = pd.DataFrame(series[~outlier], columns=labels)
    kept.to_csv(folder / f"{stem}_{SPACE}_atlas-Simulated_stat-mean_timeseries.tsv", sep="\t", index=False)
    write(
        folder / f"{stem}_{SPACE}_atlas-Simulated_stat-coverage_bold.tsv",
        Node=labels,
        coverage=np.linspace(0.9, 1.0, len(labels)),
    )


def make(folder: Path, seed: int = 0) -> Path:
    """Write the BIDS root with its derivatives, and return it."""
    rng = np.random.default_rng(seed)
    cohort = bnt.simulate_cohort(
        n_subjects=PEOPLE, n_rois=ROIS, n_sites=3, effect=1.2, n_volumes=VOLUMES, male_share=0.5, seed=seed
    )
    bids, derived = folder / "bids", folder / "bids" / "derivatives" / "xcp_d"
    names = write_people(bids, cohort, rng)
    labels = cohort.rois["label"].tolist()
    write(
        derived / "sourcedata" / "atlases" / "tpl-MNI152NLin6Asym" / "tpl-MNI152NLin6Asym_atlas-Simulated_dseg.tsv",
        index=range(1, ROIS + 1),
        label=labels,
        network_label=cohort.rois["network"].tolist(),
    )
    for name, series, motion in zip(names, cohort.timeseries, cohort.labels("mean_fd")):
        for session, part in zip(SESSIONS, np.split(np.asarray(series), 2)):
            fd = np.concatenate([[np.nan], rng.gamma(2.0, motion / 2, size=len(part) - 1)])
            stem = f"{name}_ses-{session}_task-rest"
            write_scan(derived / name / f"ses-{session}" / "func", stem, part, labels, fd)
    return bids


def main(folder: Path) -> None:
    """Make the data set and run the commands."""
    folder.mkdir(parents=True, exist_ok=True)
    make(folder)
    for command in COMMANDS:
        print(f"\n$ {command}", flush=True)
        words = command.replace("bnt", f"{sys.executable} -m bnt", 1)
        subprocess.run(words, shell=True, cwd=folder, check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "xcpd_study"))
