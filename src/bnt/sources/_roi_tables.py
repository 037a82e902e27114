"""Tables of ROIs that come with atlases, as text or in CIFTI label files: numbers, names, networks, coordinates.

A ``dlabel.nii`` file knows the voxels of its subcortical ROIs, but of cortical ones only the numbers of vertices. Where
vertices lie is in surfaces (``*_hemi-L_midthickness.surf.gii``, ``*.L.midthickness.*.surf.gii``): those beside the file
are read, where they have as many vertices. An ROI lies at the mean of its vertices and voxels.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bnt._words import say
from bnt.errors import BadInput
from bnt.sources._names import parsing
from bnt.sources._number_files import read_text
from bnt.sources._people import read_frame

TABLES = (".tsv", ".csv", ".txt", ".lut", ".ctab")
NUMBER_COLUMNS = ("index", "roi", "id", "roi_id", "value", "number", "label", "component")
NAME_COLUMNS = ("name", "label", "region", "roi_name", "labelname", "structure", "parcel", "difumo_names")
# The names that Schaefer's parcels carry, as figures write them.
YEO = {
    "Vis": "Visual",
    "SomMot": "Somatomotor",
    "DorsAttn": "Dorsal Attention",
    "SalVentAttn": "Ventral Attention",
    "Limbic": "Limbic",
    "Cont": "Frontoparietal",
    "Default": "Default",
}


def bare_stem(file: Path) -> str:
    """Return the name of an image without its extensions."""
    return re.sub(r"(\.(dlabel|dscalar))?\.nii(\.gz)?$", "", file.name, flags=re.IGNORECASE)


def table_beside(file: Path) -> pd.DataFrame | None:
    """Read the table with the image's name; a BIDS image may share one with its other resolutions."""
    stems = [bare_stem(file), re.sub(r"_(res|space)-[A-Za-z0-9]+", "", bare_stem(file))]
    found = [file.with_name(stem + end) for stem in dict.fromkeys(stems) for end in TABLES]
    table = next((one for one in found if one.is_file()), None)
    return None if table is None else read_lut(table)


def read_lut(file: Path) -> pd.DataFrame:
    """Read a table of ROIs: with a header, or lines of number and name (and colours), or of names alone.

    Returns ``roi`` (where it has numbers), ``label``, ``network`` and coordinates where it has them.
    """
    there = [line for line in read_text(file).splitlines() if line.strip() and not line.strip().startswith("#")]
    if not there:
        raise BadInput(f"{file} is empty: give one row per ROI, or remove it.", "atlas")
    lines = [line.strip() for line in there]
    first = re.split(r"[\t,;]|\s+", there[0].strip(" \r"))
    if re.fullmatch(r"\d+", first[0]) or (len(first) == 1 and first[0].lower() not in (*NUMBER_COLUMNS, *NAME_COLUMNS)):
        rows = [re.split(r"[\t,;]\s*|\s+", line) for line in lines]
        if all(len(row) > 1 and row[0].isdigit() for row in rows):
            table = pd.DataFrame({"roi": [int(row[0]) for row in rows], "label": [row[1] for row in rows]})
        else:
            odd = next((line for line in lines if re.search(r"[\t,;]", line)), None)
            if odd is not None:
                raise BadInput(
                    f"{file} has {odd[:60]!r} among its ROIs: give a number and a name per line, or a header."
                )
            table = pd.DataFrame({"label": lines})
    else:
        table = read_frame(file, ["name", "label", "network"])
    return tidy(table, file)


def tidy(table: pd.DataFrame, file: Path | str) -> pd.DataFrame:
    """Return a table of ROIs with the columns of ours, whatever its own are called."""
    columns = {str(c).strip().lower(): c for c in table.columns}

    def numeric(name: str) -> bool:
        return bool(pd.to_numeric(table[columns[name]], errors="coerce").notna().all())

    number = next((c for c in NUMBER_COLUMNS if c in columns and numeric(c)), None)
    name = next((c for c in NAME_COLUMNS if c in columns and c != number and not numeric(c)), None)
    out = pd.DataFrame(index=table.index)
    if number is not None:
        out["roi"] = pd.to_numeric(table[columns[number]]).astype(np.int64)
    if name is None:
        raise BadInput(
            f"{file} names no ROIs (its columns are {', '.join(columns)}): give a column index and a column name.",
            "atlas",
        )
    if table[columns[name]].isna().any():
        row = int(table[columns[name]].isna().to_numpy().argmax()) + 1
        raise BadInput(f"{file} has no name of the ROI in row {row}: fill it in.", "atlas")
    out["label"] = table[columns[name]].astype(str).str.strip()
    network = network_column(list(columns))
    if network:
        found = table[columns[network]].fillna("").astype(str).str.strip()
        out["network"] = found.map(lambda one: YEO.get(one, one))
    else:
        out["network"] = [network_of(one) for one in out["label"]]
    for axis in "xyz":
        if axis in columns:
            out[axis] = pd.to_numeric(table[columns[axis]], errors="coerce")
    return out


def network_column(columns: Sequence[str]) -> str | None:
    """Return the column that names networks: ``network``, ``network_label``, ``community_yeo``, ``yeo_networks7``."""
    ranked = [c for c in columns if re.match(r"network(_|$)", c)]
    ranked += [c for c in columns if re.match(r"(community|yeo|network)", c) and c not in ranked]
    named = [c for c in ranked if not c.endswith(("_id", "_index"))]
    return named[0] if named else None


def network_of(label: str) -> str:
    """Return the network in the name of one of Schaefer's parcels, ``7Networks_LH_Vis_1`` or ``LH_Vis_1``."""
    found = re.match(r"(?:(?:7|17)Networks_)?[LR]H_([A-Za-z]+)(?:_|$)", label)
    return YEO.get(found[1], found[1]) if found else ""


def described(rois: pd.DataFrame, table: pd.DataFrame | None, file: Path) -> pd.DataFrame:
    """Return the ROIs of an image with what its table says about each of them."""
    if table is None:
        return rois.assign(label="", network="")
    if "roi" not in table:
        extra = len(table) - len(rois)
        if extra == 1 and table["label"].iloc[0].lower() in ("background", "unknown", "???"):
            table = table.iloc[1:]
        if len(table) != len(rois):
            raise BadInput(
                f"{file} has {len(rois)} ROIs and its table {len(table)} rows without numbers: add a column index.",
                "atlas",
            )
        return rois.assign(**{str(c): table[c].to_numpy() for c in table})
    if table["roi"].min() == 0 and rois["roi"].max() == len(table) and len(table) == len(rois):
        table = table.assign(roi=table["roi"] + 1)  # maps counted from 0
    table = table.drop_duplicates("roi").set_index("roi")
    lacking = [number for number in rois["roi"] if number not in table.index]
    if lacking:
        raise BadInput(
            f"{file} has the label {lacking[0]} (and {len(lacking) - 1} more) that its table does not list: add the "
            "row, or remove the table.",
            "atlas",
        )
    return rois.join(table, on="roi")


ATLAS_TABLES = (
    "sourcedata/atlases/tpl-*/tpl-*_atlas-{0}_*dseg.tsv",  # XCP-D 26
    "sourcedata/atlases/tpl-*/tpl-*_atlas-{0}_dseg.tsv",
    "atlases/tpl-*/tpl-*_atlas-{0}_*dseg.tsv",
    "atlases/atlas-{0}/*_dseg.tsv",  # XCP-D 0.6 to 0.14
)
LABEL_COLUMNS = ("label", "cifti_label", "name")


def xcpd_networks(source: Path, atlas: str) -> dict[str, str]:
    """Return the network of each parcel from the table of the atlas beside the data, where it is there.

    4S atlases leave the network of parcels outside the cortex empty: theirs is the atlas they come from.
    """
    patterns = [pattern.format(atlas) for pattern in ATLAS_TABLES] if source.is_dir() and atlas else []
    found = [file for pattern in patterns for file in sorted(source.glob(pattern))]
    if not found:
        return {}
    try:
        table = pd.read_csv(found[0], sep="\t", dtype=str, na_values=["n/a"])
    except (OSError, ValueError):  # the names in the scans' own headers are enough
        return {}
    column = network_column(list(table.columns))
    if column is None:
        return {}
    networks = table[column].fillna(table["atlas_name"]) if "atlas_name" in table else table[column]
    known: dict[str, str] = {}
    for name in reversed(LABEL_COLUMNS):
        if name in table and table[name].is_unique:
            known |= {label: network for label, network in zip(table[name], networks) if pd.notna(network)}
    return known


# Anatomical surfaces, the best first: spheres and inflated ones are not where the cortex is.
SURFACES = ("midthickness", "graymid", "pial", "white")
HEMISPHERES = {"CIFTI_STRUCTURE_CORTEX_LEFT": "L", "CIFTI_STRUCTURE_CORTEX_RIGHT": "R"}


def cifti_rois(file: Path, table: pd.DataFrame | None = None, surfaces: Iterable[Path] = ()) -> pd.DataFrame:
    """Return the ROIs of a ``dlabel.nii`` file: the labels that grayordinates have, by their keys.

    Parameters
    ----------
    table : DataFrame, optional
        Of its ROIs; by default the one beside it.
    surfaces : iterable of path
        To look for vertices in, before those beside the file.
    """
    import nibabel as nib

    with parsing(file, "a CIFTI label file"):
        image: Any = nib.load(file)
        axis = image.header.get_axis(0)
        is_label = isinstance(axis, nib.cifti2.LabelAxis)
        values = np.asarray(image.dataobj)[0].astype(np.int64) if is_label else np.array([], dtype=np.int64)
    if not is_label:
        raise BadInput(f"{file} is a CIFTI file without a label table: give a .dlabel.nii file.", "atlas")
    names = {key: str(name) for key, (name, _) in axis.label[0].items()}
    numbers = [key for key in np.unique(values).tolist() if key > 0 and names.get(key, "") != "???"]
    rois = pd.DataFrame({"roi": numbers, "label": [names.get(n, "") for n in numbers]})
    beside = table_beside(file) if table is None else table
    if beside is not None:
        rois = described(rois[["roi"]], beside, file)
    else:
        rois["network"] = [network_of(one) for one in rois["label"]]
    if {"x", "y", "z"} <= set(rois.columns) and rois[["x", "y", "z"]].notna().any(axis=None):
        return rois
    places = grayordinates(image.header.get_axis(1), [*surfaces, *sorted(file.parent.glob("*.surf.gii"))])
    means = pd.DataFrame(places, columns=list("xyz")).groupby(values).mean().reindex(rois["roi"])
    unknown = int(means["x"].isna().sum())
    if unknown:
        say(
            f"{file.name}: {unknown} of {len(rois)} ROIs have no coordinates, because no surface with their vertices "
            "(*_hemi-L_midthickness.surf.gii, and R) lies beside it; brain pictures leave them out."
        )
    return rois.assign(**{name: np.round(means[name].to_numpy(), 2) for name in "xyz"})


def grayordinates(axis: Any, surfaces: Iterable[Path]) -> np.ndarray:
    """Return where each grayordinate lies, (n, 3): voxels by the affine, vertices by surfaces; NaN where not known."""
    import nibabel as nib

    places = np.full((len(axis), 3), np.nan)
    surfaces = list(surfaces)
    for name, part, model in axis.iter_structures():
        if name not in axis.nvertices:
            places[part] = nib.affines.apply_affine(axis.affine, model.voxel)
            continue
        found = _vertices(surfaces, HEMISPHERES.get(name, ""), axis.nvertices[name])
        if found is not None:
            places[part] = found[model.vertex]
    return places


def _vertices(surfaces: list[Path], hemisphere: str, n: int) -> np.ndarray | None:
    """Return the vertices of the first surface of a hemisphere that has as many of them."""
    import nibabel as nib

    mine = [f for f in surfaces if re.search(rf"(?:hemi-|[._]){hemisphere}[._]", f.name)] if hemisphere else []
    for kind in SURFACES:
        for file in mine:
            if not re.search(rf"[._]{kind}[._]", file.name) and f"_{kind}_" not in file.name:
                continue
            with parsing(file, "a surface"):
                image: Any = nib.load(file)
                arrays = image.agg_data("pointset")
            if not isinstance(arrays, tuple) and len(arrays) == n:
                return np.asarray(arrays, dtype=np.float64)
    return None
