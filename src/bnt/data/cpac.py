"""C-PAC outputs: ``*_timeseries.1D`` and ``*_correlations.tsv`` (or ``.csv``), and the .1D files of ABIDE's release.

Names such as ``sub-01_ses-1_task-rest_atlas-CC200_desc-Mean-1_timeseries.1D``,
``sub-01_task-rest_atlas-AAL_desc-PearsonNilearn_correlations.tsv``, ``Pitt_0050003_rois_cc200.1D``.
The series may have header lines that begin with ``#``; the matrices have no header.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from bnt.data.names import Name, one_atlas, one_variant
from bnt.data.scan import Content, Scan, content_of
from bnt.data.tables import read_square, read_table
from bnt.errors import BadInput


def is_cpac_series(name: Name) -> bool:
    """Tell whether a name is that of C-PAC's series."""
    return name.extension in ("1D", "1D.gz") and (
        name.suffix == "timeseries" or bool(re.search(r"_rois_[A-Za-z0-9]+$", name.stem))
    )


def is_cpac_matrix(name: Name) -> bool:
    """Tell whether a name is that of one of C-PAC's matrices."""
    return name.extension in ("tsv", "csv") and name.suffix == "correlations"


def _of_kind(matrices: list[Name], kind: str) -> list[Name]:
    """Keep partial correlations for that kind, Pearson's for the others, where names tell them apart."""
    described = {n: n.entities.get("desc", "").lower() for n in matrices}
    wanted = "partial" if kind == "partial" else "pearson"
    return [n for n in matrices if described[n].startswith(wanted)] or [
        n for n in matrices if not described[n].startswith(("partial", "pearson"))
    ]


def find_cpac(
    names: Sequence[Name], source: Path, *, atlas: str | None = None, content: str = "auto", kind: str = "paper"
) -> tuple[list[Scan], str]:
    """Return the scans among the files of a C-PAC folder, and the atlas they are of.

    Series are preferred to matrices. Of the matrices, ``PartialNilearn`` and the like are taken for
    kind ``partial`` and ``PearsonNilearn`` and the like for the others.
    """
    series, matrices = [n for n in names if is_cpac_series(n)], [n for n in names if is_cpac_matrix(n)]
    square = content == "matrix" or (content == "auto" and bool(matrices) and not series)
    chosen = _of_kind(matrices, kind) if square else series
    if not chosen:
        wanted = f"*_correlations.tsv for kind {kind!r}" if square else "*_timeseries.1D"
        raise BadInput(f"{source} holds no {wanted} of C-PAC.")
    chosen, found = one_atlas(chosen, atlas, source)
    read = read_cpac_matrix if square else read_cpac_series
    return [Scan(n.participant, n.file, partial(read, n.file), n.run) for n in one_variant(chosen, source)], found


def read_cpac_series(file: Path) -> Content:
    """Read one ``.1D`` file: ROIs in columns, volumes in rows."""
    table = read_table(file)
    return content_of(table.values, file, "series", table.columns)


def read_cpac_matrix(file: Path) -> Content:
    """Read one matrix."""
    table = read_square(file)
    return content_of(table.values, file, "matrix", table.columns)
