"""Several atlases in one cohort: the first in the cohort's own folder, each other in a folder inside it.

::

    cohort/                 a cohort like any other, of the first atlas; cohort.json lists all ``atlases``
      participants.tsv      the one table of people
      atlas-msdl/           a cohort of the same people: cohort.json, rois.tsv, connectomes.npy, timeseries.npy and
                            scans.tsv, but no table of people

Both ``cohort`` and ``cohort/atlas-msdl`` open as cohorts, so that every command takes either.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bnt.cohort._files import new_folder, write_atomic
from bnt.cohort._scans import as_stored
from bnt.cohort._store import file_sha256, read_manifest, read_table
from bnt.errors import BadInput

TEXT_COLUMNS = ("participant_id", "site", "family")


def root_of(path: Path) -> Path:
    """Return the folder with the table of people: the folder itself, or the one above an atlas' folder."""
    return path.parent if (path / "scans.tsv").is_file() and not (path / "participants.tsv").is_file() else path


def atlas_folder(path: Path, manifest: Mapping[str, Any], atlas: str) -> Path:
    """Return the folder of one atlas of a cohort."""
    root = root_of(path)
    names = manifest.get("atlases") or [manifest["atlas"]]
    if atlas not in names:
        there = ", ".join(name for name in names if name) or "without a name"
        raise BadInput(f"{root} has no atlas {atlas!r}; it has {there}.", "atlas")
    return root if atlas == names[0] else root / f"atlas-{atlas}"


def read_people(path: Path, scans: pd.DataFrame | None) -> pd.DataFrame:
    """Read the participants table of a cohort with its own scans; that of an atlas' folder is the one above."""
    file = root_of(path) / "participants.tsv"
    texts = TEXT_COLUMNS if scans is not None else ("participant_id", "site", "group")  # the latter: bnt 0.1 and 0.2
    return as_stored(read_table(file, texts), scans, file)


def write_together(out: Path, makers: Mapping[str, Callable[[Path], object]], *, overwrite: bool = False) -> None:
    """Make one cohort of several atlases: the folder appears when all of them are there, or not at all.

    Parameters
    ----------
    out : path
    makers : mapping
        For each atlas what makes its cohort in the folder that it is given; the first is the cohort's own.
    overwrite : bool
        Replace a cohort that is at ``out``.
    """
    first, *others = makers
    with new_folder(out, overwrite=overwrite) as work:
        for name, make in makers.items():
            make(work / f"atlas-{name}")
        manifests = {name: read_manifest(work / f"atlas-{name}") for name in makers}
        people = read_table(work / f"atlas-{first}" / "participants.tsv", TEXT_COLUMNS)
        for name in others:
            _share(work / f"atlas-{name}", people, first, name)
        own = work / f"atlas-{first}"
        for file in list(own.iterdir()):
            os.replace(file, work / file.name)
        own.rmdir()
        for name, described in manifests.items():
            folder = work if name == first else work / f"atlas-{name}"
            manifest = described | {"atlases": list(makers)}
            manifest["sha256"] = {
                name: file_sha256(folder / name) for name in described["sha256"] if (folder / name).is_file()
            }
            write_atomic(folder / "cohort.json", json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")


def _share(folder: Path, people: pd.DataFrame, first: str, name: str) -> None:
    """Remove the participants table of an atlas' folder, which has the people of the first atlas."""
    table = read_table(folder / "participants.tsv", TEXT_COLUMNS)
    mine, theirs = table["participant_id"].tolist(), people["participant_id"].tolist()
    if mine != theirs:
        odd = sorted(set(mine) ^ set(theirs)) or [a for a, b in zip(mine, theirs) if a != b]
        has = name if odd[0] in mine else first
        raise BadInput(
            f"{odd[0]} has a scan of atlas {has} and none of {first if has == name else name}: atlases of one cohort "
            "have the same people; leave the scan out, or import the atlases apart."
        )
    (folder / "participants.tsv").unlink()


class CohortInMemory(AbstractContextManager["CohortInMemory"]):
    """Takes what a :class:`~bnt.cohort.CohortWriter` takes; its ``cohort`` is in memory after :meth:`finish`."""

    def __init__(self, n_rois: int) -> None:
        self.n_rois = n_rois
        self._edges: list[np.ndarray] = []
        self._series: list[np.ndarray] = []

    def __exit__(self, *_: object) -> None: ...

    def append(self, edges: np.ndarray, series: Iterable[np.ndarray] | None = None) -> None:
        """Add subjects, as :meth:`bnt.cohort.CohortWriter.append` does."""
        self._edges.append(edges)
        self._series += [] if series is None else list(series)

    def finish(self, participants: pd.DataFrame, rois: pd.DataFrame | None = None, **described: Any) -> None:
        """Make the cohort; the parameters are those of :class:`Cohort`."""
        from bnt.cohort._cohort import Cohort

        edges, series = np.concatenate(self._edges), self._series or None
        self.cohort = Cohort(edges, participants, rois, timeseries=series, **described)
