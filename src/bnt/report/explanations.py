"""What ``bnt explain`` left in a run's folder: pictures with captions, warnings, and edges for the brain views.

Read from files only: ``explain.json`` says what there is, the pictures and tables lie beside it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

TOTAL_BYTES = 8_000_000  # of pictures a page takes in; base64 adds a third


@dataclass
class Picture:
    """A PNG with its caption, and the CSV text it was drawn from where there is one."""

    name: str
    png: bytes
    caption: str
    data: str | None = None


@dataclass
class Explanation:
    """Everything found in an explain folder."""

    pictures: list[Picture] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    edges: pd.DataFrame | None = None
    left_out: int = 0


def read_explanation(folder: Path) -> Explanation | None:
    """Return what lies in an explain folder, or None where there is none.

    ``explain.json`` may hold ``figures`` (a list of ``{"file", "caption", "data"}`` or a mapping of file to caption),
    ``summary`` (sentences), ``warnings`` and ``edges`` (the name of the table of edge attributions: two ROI columns
    and a value). Pictures without a caption are named by their file.
    """
    if not folder.is_dir():
        return None
    try:
        notes = json.loads((folder / "explain.json").read_text())
    except (OSError, ValueError):
        notes = {}
    found = Explanation(sentences=_texts(notes.get("summary")), warnings=_texts(notes.get("warnings")))
    taken = 0
    for name, caption, data in _figures(notes, folder):
        png = (folder / name).read_bytes()
        if taken + len(png) > TOTAL_BYTES:
            found.left_out += 1
            continue
        taken += len(png)
        source = folder / data if data else (folder / name).with_suffix(".csv")
        text = source.read_text() if source.is_file() else None
        found.pictures.append(Picture(Path(name).stem, png, caption, text))
    found.edges = _edges(notes, folder)
    return found if found.pictures or found.edges is not None or found.sentences else None


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [str(v) for v in value] if isinstance(value, list) else []


def _figures(notes: dict[str, Any], folder: Path) -> list[tuple[str, str, str | None]]:
    given = notes.get("figures", [])
    rows = (
        [
            (name, caption if isinstance(caption, str) else caption.get("caption", ""), None)
            for name, caption in given.items()
        ]
        if isinstance(given, dict)
        else [(f["file"], f.get("caption", ""), f.get("data")) for f in given if isinstance(f, dict) and "file" in f]
    )
    known = {name for name, _, _ in rows}
    rows += [(f.name, "", None) for f in sorted(folder.glob("*.png")) if f.name not in known]
    inside = [(name, caption, data) for name, caption, data in rows if (folder / name).is_file() and ".." not in name]
    return [(name, caption or Path(name).stem.replace("_", " ") + ".", data) for name, caption, data in inside]


def _edges(notes: dict[str, Any], folder: Path) -> pd.DataFrame | None:
    """Return the table of edge attributions as roi_a, roi_b, value, or None."""
    name = notes.get("edges", "edges.csv")
    file = folder / name if isinstance(name, str) else folder / "edges.csv"
    if not file.is_file():
        return None
    table = pd.read_csv(file)
    pairs = [("roi_a", "roi_b"), ("roi_1", "roi_2"), ("roi1", "roi2"), ("i", "j")]
    pair = next((p for p in pairs if set(p) <= set(table.columns)), None)
    values = [c for c in ("attribution", "mean", "value", "weight", "pattern", "score") if c in table]
    if pair is None or not values:
        return None
    return pd.DataFrame({"roi_a": table[pair[0]], "roi_b": table[pair[1]], "value": table[values[0]]})


def edge_matrix(edges: pd.DataFrame, rois: pd.DataFrame) -> np.ndarray | None:
    """Return attributions as a symmetric matrix in the order of the ROI table, or None where names do not match.

    ROIs may be named by their number (column ``roi``), by their label, or by their place from 0.
    """
    for names in (rois["roi"].astype(str), rois["label"].astype(str), pd.Series(range(len(rois))).astype(str)):
        place = {name: i for i, name in enumerate(names)}
        a, b = (edges[c].astype(str).map(place) for c in ("roi_a", "roi_b"))
        if a.notna().all() and b.notna().all():
            matrix = np.zeros((len(rois), len(rois)))
            rows, columns = a.to_numpy(dtype=int), b.to_numpy(dtype=int)
            matrix[rows, columns] = matrix[columns, rows] = edges["value"].to_numpy(dtype=float)
            return matrix
    return None
