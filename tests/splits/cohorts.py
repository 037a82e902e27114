"""Small cohorts for the tests of splits."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bnt.cohort import Cohort

# docs/facts.md, Data: subjects per SITE_ID (ASD / control) of the 1,009.
ABIDE_COUNTS = {
    "CALTECH": (19, 18),
    "CMU": (14, 13),
    "KKI": (20, 28),
    "LEUVEN_1": (14, 15),
    "LEUVEN_2": (15, 19),
    "MAX_MUN": (24, 28),
    "NYU": (75, 100),
    "OLIN": (19, 15),
    "PITT": (29, 27),
    "SBL": (15, 15),
    "SDSU": (14, 22),
    "STANFORD": (19, 20),
    "TRINITY": (22, 25),
    "UCLA_1": (41, 31),
    "UCLA_2": (13, 13),
    "UM_1": (53, 53),
    "UM_2": (13, 21),
    "USM": (46, 25),
    "YALE": (28, 28),
}


def cohort_of(sites, labels, groups=None, **columns) -> Cohort:
    """A cohort of three ROIs whose connectomes are all different."""
    n = len(sites)
    table = {"participant_id": [f"sub-{i:04d}" for i in range(n)], "site": list(sites), "diagnosis": list(labels)}
    if groups is not None:
        table["family"] = [f"family-{g}" for g in groups]
    edges = np.random.default_rng(0).uniform(-1, 1, size=(n, 3)).astype(np.float32)
    return Cohort(edges, pd.DataFrame({**table, **columns}))


def abide_like() -> Cohort:
    """The 1,009 of ABIDE: their sites and diagnoses, as docs/facts.md (Data) counts them."""
    sites, labels = [], []
    for site, (asd, control) in ABIDE_COUNTS.items():
        sites += [site] * (asd + control)
        labels += [1] * asd + [0] * control
    return cohort_of(sites, labels)
