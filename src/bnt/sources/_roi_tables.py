"""Tables of ROIs that come with atlases: numbers, names, networks and coordinates, whatever the columns are called."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from bnt.errors import BadInput
from bnt.sources._people import read_frame
from bnt.sources._text_tables import read_text

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
    lines = [one for line in read_text(file).splitlines() if (one := line.strip()) and not one.startswith("#")]
    if not lines:
        raise BadInput(f"{file} is empty: give one row per ROI, or remove it.", "atlas")
    first = re.split(r"[\t,;]|\s+", lines[0])
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
