"""Other atlases and other preprocessing from one cohort with series: does a model hold where it was not developed?

python benchmarks/derived_cohorts.py cohort derived

makes derived/merged (half as many ROIs: pairs that correlate most over all scans are averaged), derived/global (the
mean signal of all ROIs regressed out), derived/short (the first half of each scan) and derived/matrices (connectomes
only, no series). No label is read.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from bnt.cohort import Cohort, load_cohort
from bnt.cohort._triangle import square
from bnt.connectivity import connectomes

Change = Callable[[np.ndarray], np.ndarray]


def pairs(cohort: Cohort) -> list[tuple[int, int]]:
    """Return each ROI once, with the partner it correlates most with on average among those left, strongest first."""
    mean = np.mean([cohort.edges([i])[0] for i in range(len(cohort))], axis=0)
    matrix = square(mean[None])[0]
    low, high = np.triu_indices(cohort.n_rois, 1)
    free, found = set(range(cohort.n_rois)), []
    for edge in np.argsort(-matrix[low, high], kind="stable"):
        a, b = int(low[edge]), int(high[edge])
        if a in free and b in free:
            found.append((a, b))
            free -= {a, b}
    return sorted(found)


def merge(partners: list[tuple[int, int]]) -> Change:
    """Return a change that averages the standardised series of each pair."""
    a, b = np.array(partners).T

    def change(series: np.ndarray) -> np.ndarray:
        sd = series.std(axis=0)
        z = (series - series.mean(axis=0)) / np.where(sd > 0, sd, 1.0)
        return 0.5 * (z[:, a] + z[:, b])

    return change


def without_global(series: np.ndarray) -> np.ndarray:
    """Regress the mean over ROIs out of every ROI."""
    centred = series - series.mean(axis=0)
    common = centred.mean(axis=1)
    return centred - np.outer(common, common @ centred / max(float(common @ common), 1e-12))


def first_half(series: np.ndarray) -> np.ndarray:
    """Keep the first half of the volumes."""
    return series[: len(series) // 2]


def derive(cohort: Cohort, change: Change, out: Path) -> None:
    """Write a cohort of changed series; a ROI without a signal stays without one."""
    assert cohort.timeseries is not None

    def changed() -> Iterator[np.ndarray]:
        for series in cohort.timeseries or ():
            found = change(np.asarray(series, dtype=np.float64))
            if found.shape[1] == series.shape[1]:
                found[:, series.std(axis=0) == 0] = 0.0
            yield found.astype(np.float32)

    series = list(changed())
    people = cohort.participants.drop(columns="n_volumes")
    Cohort(connectomes(series), people, timeseries=series, levels=cohort.levels).save(out)
    print(f"{out}: {len(series)} subjects, {series[0].shape[1]} ROIs")


def main() -> None:
    """Make the four cohorts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cohort", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    cohort = load_cohort(options.cohort)
    if cohort.timeseries is None:
        parser.error(f"{options.cohort} has no series")
    options.out.mkdir(parents=True, exist_ok=True)
    derive(cohort, merge(pairs(cohort)), options.out / "merged")
    derive(cohort, without_global, options.out / "global")
    derive(cohort, first_half, options.out / "short")
    Cohort(cohort.connectomes, cohort.participants, kind=cohort.kind, levels=cohort.levels).save(
        options.out / "matrices"
    )
    print(f"{options.out / 'matrices'}: {len(cohort)} subjects without series")


if __name__ == "__main__":
    main()
