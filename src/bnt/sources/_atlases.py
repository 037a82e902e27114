"""ROI tables that the package ships.

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

from importlib.resources import files
from io import StringIO

import numpy as np
import pandas as pd

TABLES = {"cc200": "cc200.tsv"}


def roi_table(atlas: str, rois: np.ndarray | None = None) -> pd.DataFrame | None:
    """Return the ROI table of an atlas, or None when there is none that fits.

    Parameters
    ----------
    atlas : str
        For example ``"cc200"``.
    rois : array of int, optional
        The ROI numbers the data came with. A table whose numbers or order differ is not used: a
        wrong name for an ROI is worse than none.
    """
    if atlas not in TABLES:
        return None
    text = files("bnt.sources").joinpath(TABLES[atlas]).read_text(encoding="utf-8")
    table = pd.read_csv(StringIO(text), sep="\t")
    if rois is not None and not np.array_equal(table["roi"].to_numpy(), rois):
        return None
    table.insert(1, "label", table["harvard_oxford"].str.replace(";", ",", regex=False))
    return table
