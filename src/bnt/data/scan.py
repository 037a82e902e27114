"""A scan: one file, or one slice of a stack, of one participant, read when it is asked for."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bnt.errors import BadInput

CONTENTS = ("auto", "series", "matrix")
SYMMETRY_TOLERANCE = 1e-4
"""Rounding of printed numbers makes a matrix this much asymmetric; it is averaged away."""


@dataclass(frozen=True)
class Content:
    """What a scan holds.

    Parameters
    ----------
    series : array, (T, V), optional
    matrix : array, (V, V), optional
        When both are there, the connectome is the matrix and the series are kept beside it.
    labels : tuple of str
        Names of the ROIs, where the file gives them.
    """

    series: np.ndarray | None = None
    matrix: np.ndarray | None = None
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scan:
    """One run of one participant.

    Parameters
    ----------
    participant : str
        Such as ``sub-01``.
    file : path
        Where it comes from: every complaint names it.
    load : callable
        Reads the content. Nothing is read before :meth:`read`, so memory holds one scan at a time.
    run : str
        What tells the runs of one participant apart, such as ``ses-1_run-2``.
    columns : mapping
        What the file itself says about the participant, such as the site.
    """

    participant: str
    file: Path
    load: Callable[[], Content]
    run: str = ""
    columns: Mapping[str, Any] = field(default_factory=dict)

    def read(self) -> Content:
        """Return the content."""
        return self.load()

    def __str__(self) -> str:
        return f"{self.participant}{'_' + self.run if self.run else ''} ({self.file})"


def one_line(error: BaseException) -> str:
    """Return the text of an exception as part of a sentence."""
    text = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    return text if len(text) <= 160 else text[:157] + "..."


@contextmanager
def parsing(file: Path, what: str) -> Iterator[None]:
    """Turn whatever a parser raises on the bytes of ``file`` into one sentence.

    A damaged file can raise nearly anything inside numpy, scipy, nibabel, zlib or expat, so
    everything is caught here. Only calls into those libraries belong in the block.
    """
    try:
        if not file.is_file():
            state = "does not exist"
            if file.is_symlink():
                state = "is a link to a file that is not there (datalad get or git annex get may fetch it)"
            elif file.exists():
                state = "is a folder, not a file" if file.is_dir() else "is not a file"
            raise BadInput(f"{file} {state}: give {what}.")
        if file.stat().st_size == 0:
            raise BadInput(f"{file} is empty: make it again, or leave it out.")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except BadInput:
        raise
    except Exception as error:  # noqa: BLE001 - see the docstring
        raise BadInput(
            f"{file} cannot be read as {what} ({one_line(error)}): it is truncated, damaged or of another "
            "format; make it again, or leave it out."
        ) from error


def as_numbers(values: np.ndarray, file: Path) -> np.ndarray:
    """Return real numbers as they are, and refuse everything else."""
    if values.dtype.kind not in "biuf":
        raise BadInput(f"{file} holds values of type {values.dtype}: give real numbers.")
    return values


def is_symmetric(matrix: np.ndarray) -> bool:
    """Tell whether a square array equals its transpose off the diagonal, missing entries included."""
    both = np.array(matrix, dtype=np.float64)
    np.fill_diagonal(both, 0.0)
    return bool(np.allclose(both, both.T, rtol=0, atol=SYMMETRY_TOLERANCE, equal_nan=True))


def looks_like_matrix(values: np.ndarray) -> bool:
    """Tell whether a 2-D array is a connectome.

    It is when it is square and symmetric, or square with a diagonal of ones, of zeros or of
    missing values (then it is a matrix that is not symmetric, which a check reports later).
    """
    if values.shape[0] != values.shape[1]:
        return False
    if is_symmetric(values):
        return True
    diagonal = np.diagonal(values).astype(np.float64)
    return any(np.allclose(diagonal, c, rtol=0, atol=1e-6, equal_nan=True) for c in (0.0, 1.0, np.nan, np.inf))


def content_of(values: np.ndarray, file: Path, content: str = "auto", labels: tuple[str, ...] = ()) -> Content:
    """Return a 2-D array as series or matrix.

    Parameters
    ----------
    values : array, (T, V) or (V, V)
    file : path
        Named in complaints.
    content : {"auto", "series", "matrix"}
        ``auto`` follows :func:`looks_like_matrix`: what is not a connectome is a time series,
        volumes in rows and ROIs in columns.
    labels : tuple of str
        Names of the columns.
    """
    values = as_numbers(values, file)
    if values.ndim != 2 or min(values.shape) < 2:
        raise BadInput(
            f"{file} holds an array of shape {values.shape}: give (volumes, ROIs) or (ROIs, ROIs), two or more of each."
        )
    if content == "matrix" and values.shape[0] != values.shape[1]:
        raise BadInput(f"{file} holds an array of shape {values.shape}, which is not a square matrix of ROIs.")
    if content == "matrix" or (content == "auto" and looks_like_matrix(values)):
        return Content(matrix=values, labels=labels)
    return Content(series=values, labels=labels)
