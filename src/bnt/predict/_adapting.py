"""A new site centred on the training data, from its unlabelled scans: off unless asked for, and always said.

A scanner shifts every edge of its site by about the same amount. ``--adapt`` moves the mean edges of each site that
training has not seen onto the mean of the training subjects, on the scale of Fisher z, where the site has 20 scans or
more. A prediction then depends on who else is in the source, and a true difference between the sites' people (more
patients, older people) is removed with the scanner's.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from bnt.cohort import Cohort
from bnt.cohort._cohort import EdgeChange
from bnt.errors import BadInput
from bnt.explain._opening import training_part
from bnt.models import find_entry
from bnt.training._adjustments import AT_ONCE, ENOUGH, UNKNOWN, FisherScale
from bnt.training._trained import TrainedRun


def adapted(trained: TrainedRun, cohort: Cohort) -> tuple[Cohort, dict[str, str]]:
    """Return a view of a cohort whose new sites are centred on the training mean, and a sentence about each new site.

    Parameters
    ----------
    trained : TrainedRun
        Its training subjects have to be at hand.
    cohort : Cohort
    """
    if trained.config.adjustments.harmonise:
        raise BadInput(f"{trained.folder} harmonises sites itself, new ones too: leave adapting out.", "adapt")
    training = training_part(trained.folder, trained.config)
    if training is None:
        raise BadInput(
            f"A new site is centred on the training subjects of {trained.folder}, and their cohort is not at hand: "
            "leave adapting out.",
            "adapt",
        )
    theirs, rows = training
    known = set(theirs.sites[rows].astype(str).tolist())
    moved, said = {}, {}
    sites = cohort.sites.astype(str)
    for site in np.unique(sites).tolist():
        mine = np.flatnonzero(sites == site)
        if site in known:
            continue
        if site == UNKNOWN or len(mine) < ENOUGH:
            why = "its people have no site" if site == UNKNOWN else f"{len(mine)} scans, {ENOUGH} are needed"
            said[site] = f"Not adapted: site {site} ({why})."
            continue
        moved[site] = mine
        said[site] = f"Adapted: site {site} was centred on the training mean, from its {len(mine)} unlabelled scans."
    if not moved:
        return cohort, said
    names = cohort.atlases if find_entry(trained.config.model).every_atlas else (cohort.atlas,)
    changes = {}
    for name in names:
        there, here = (theirs.with_atlas(name), cohort.with_atlas(name)) if len(names) > 1 else (theirs, cohort)
        changes[name] = _change(there, rows, here, moved)
    view = cohort.with_edges_of(changes)
    if cohort.timeseries is not None:
        try:
            trained.check(view)
            trained.learner.predict(view, np.array([0]))
        except BadInput as error:
            raise BadInput(
                f"Model {trained.config.model!r} reads time series, which are not centred: leave adapting out.", "adapt"
            ) from error
    return view, said


def _change(theirs: Cohort, rows: np.ndarray, cohort: Cohort, moved: dict[str, np.ndarray]) -> EdgeChange:
    """Return what moves the mean edges of each site onto those of the training subjects."""
    scale = FisherScale.of(theirs, rows)
    centre = _mean(theirs, rows, scale)
    moves = {site: centre - _mean(cohort, mine, scale) for site, mine in moved.items()}

    def change(edges: np.ndarray, people: pd.DataFrame) -> np.ndarray:
        there = people["site"].to_numpy(str)
        z = scale.there(edges)
        for site, move in moves.items():
            z[there == site] += move
        mine = np.isin(there, list(moves))[:, None] & (edges != 0)  # 0 is an edge of a region without a signal
        return np.where(mine, scale.back(z), edges)

    return change


def _mean(cohort: Cohort, rows: np.ndarray, scale: FisherScale) -> np.ndarray:
    total = np.zeros(cohort.shape[1])
    for start in range(0, len(rows), AT_ONCE):
        total += scale.there(cohort.edges(rows[start : start + AT_ONCE])).sum(axis=0)
    return total / len(rows)
