"""Plain files: one scan a file in a folder, or a stack of scans in one file."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from bnt.data.arrays import Arrays, read_npy, read_npz
from bnt.data.matlab import read_mat
from bnt.data.names import Name, one_atlas, one_variant
from bnt.data.scan import Content, Scan, as_numbers, content_of, looks_like_matrix
from bnt.data.tables import check_names, read_table
from bnt.errors import BadInput

TEXT = ("1d", "tsv", "csv", "txt", "1d.gz", "tsv.gz", "csv.gz")
ARRAYS = ("npy", "npz", "mat")
TABLES_OF_PEOPLE = ("participants", "rois", "phenotype", "phenotypic", "sessions", "scans")


def is_plain(name: Name) -> bool:
    """Tell whether a file may hold a scan: by its extension, tables about people and ROIs left out."""
    return name.extension.lower() in (*TEXT, *ARRAYS) and name.suffix.lower() not in TABLES_OF_PEOPLE


def read_arrays(file: Path, variable: str | None = None) -> Arrays:
    """Read any of the plain formats; which one is told by the extension."""
    extension = Name(file).extension.lower()
    if extension == "npy":
        return read_npy(file)
    if extension == "npz":
        return read_npz(file, variable)
    if extension == "mat":
        return read_mat(file, variable)
    if extension in TEXT:
        table = read_table(file)
        if set(table.rows) == set(table.columns):
            check_names(table, file)
        return Arrays(table.values, labels=table.columns)
    raise BadInput(
        f"{file} has an unknown extension: give one of {', '.join((*TEXT, *ARRAYS))}, ptseries.nii or pconn.nii."
    )


def read_plain(file: Path, content: str = "auto", variable: str | None = None) -> Content:
    """Read one scan from one file."""
    arrays = read_arrays(file, variable)
    if arrays.values.ndim == 3:
        raise BadInput(f"{file} holds a stack of shape {arrays.values.shape}: import that file alone.")
    return content_of(np.asarray(arrays.values), file, content, arrays.labels)


def find_plain(
    names: Sequence[Name], source: Path, *, atlas: str | None = None, content: str = "auto", variable: str | None = None
) -> tuple[list[Scan], str]:
    """Return the scans of a folder of plain files, or of one file, and the atlas their names give."""
    names = [n for n in names if is_plain(n)]
    if source.is_file():
        return find_stack(source, content, variable), Name(source).atlas
    if not names:
        raise BadInput(
            f"{source} holds no file of a known kind (.1D .tsv .csv .npy .npz .mat .ptseries.nii .pconn.nii)."
        )
    names, found = one_atlas(names, atlas, source)
    read = partial(read_plain, content=content, variable=variable)
    return [Scan(n.participant, n.file, partial(read, n.file), n.run) for n in one_variant(names, source)], found


def find_stack(file: Path, content: str = "auto", variable: str | None = None) -> list[Scan]:
    """Return the scans of one file.

    Two dimensions are one scan. Three are a stack, (n, V, V) or (n, T, V); which of them is told by
    the first slice as in :func:`~bnt.data.scan.content_of`. Scans of a stack are named by the
    file's ids, or else left nameless for the rows of a participants table to name.
    """
    arrays = read_arrays(file, variable)
    values = as_numbers(arrays.values, file)
    if values.ndim != 3:
        name = Name(file)
        whole = partial(content_of, np.asarray(values), file, content, arrays.labels)
        return [Scan(arrays.ids[0] if len(arrays.ids) == 1 else name.participant, file, whole, name.run)]
    if not len(values):
        raise BadInput(f"{file} holds a stack of no scans, of shape {values.shape}.")
    if arrays.ids and len(arrays.ids) != len(values):
        raise BadInput(f"{file} names {len(arrays.ids)} participants and holds {len(values)} scans.")
    if content == "auto":
        content = "matrix" if looks_like_matrix(np.asarray(values[0])) else "series"

    def load(i: int) -> Content:
        return content_of(np.asarray(values[i]), file, content, arrays.labels)

    return [Scan(arrays.ids[i] if arrays.ids else "", file, partial(load, i)) for i in range(len(values))]
