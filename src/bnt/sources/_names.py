"""The files of a source: which participant, run and atlas a name means, which of several to take, and files that
cannot be read.
"""

from __future__ import annotations

import gzip
import os
import re
import warnings
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

from bnt.errors import BadInput

RUN_KEYS = ("ses", "acq", "ce", "rec", "dir", "run", "echo")
"""Entities that tell the runs of one participant apart."""
VARIANT_KEYS = ("task", "space", "cohort", "res", "den", "reg", "desc")
"""Entities that tell results apart of which a cohort takes one."""

_EXTENSION = re.compile(
    r"\.(ptseries\.nii|pconn\.nii|nii|nii\.gz|tsv|tsv\.gz|csv|csv\.gz|txt|1D|1D\.gz|npy|npz|mat)$", re.IGNORECASE
)
_ROIS = re.compile(r"_rois_([A-Za-z0-9]+)$")
_TAIL = re.compile(r"[_-](timeseries|time_series|series|ts|bold|connectome|conn|fc|matrix|corr|correlations?)$", re.I)


@dataclass(frozen=True)
class Name:
    """A file name taken apart: ``sub-01_ses-1_task-rest_atlas-Gordon_stat-mean_timeseries.tsv``.

    ``participant`` is ``sub-01``; for names without ``sub-`` it is taken from a folder
    ``sub-01`` above the file, or else the name is the participant, without a closing
    ``_rois_<atlas>`` (ABIDE's ``Pitt_0050003_rois_cc200.1D``) or ``_timeseries``, ``_connectome`` and the like.
    """

    file: Path
    source: Path | None = None

    @cached_property
    def extension(self) -> str:
        """``tsv``, ``1D``, ``ptseries.nii``, or nothing where it is not one we read."""
        found = _EXTENSION.search(self.file.name)
        return found.group(1) if found else ""

    @cached_property
    def stem(self) -> str:
        """The name without its extension; C-PAC's old ``_session_1`` is read as ``_ses-1``."""
        return re.sub(r"_session_([A-Za-z0-9]+)", r"_ses-\1", _EXTENSION.sub("", self.file.name))

    @cached_property
    def suffix(self) -> str:
        """The last part: ``timeseries``, ``relmat``, ``correlations``."""
        return self.stem.rpartition("_")[2]

    @cached_property
    def entities(self) -> dict[str, str]:
        """The ``key-value`` parts."""
        return dict(part.split("-", 1) for part in self.stem.split("_") if re.match(r"[A-Za-z]+-.", part))

    @cached_property
    def atlas(self) -> str:
        """The atlas: ``atlas-``, XCP-D's newer ``seg-``, or ABIDE's ``_rois_cc200``."""
        found = _ROIS.search(self.stem)
        return self.entities.get("atlas") or self.entities.get("seg") or (found.group(1) if found else "")

    @cached_property
    def participant(self) -> str:
        """The participant, see the class."""
        if "sub" in self.entities:
            return f"sub-{self.entities['sub']}"
        above = self.file.relative_to(self.source.parent).parts[:-1] if self.source else ()
        for folder in reversed(above):
            if re.fullmatch(r"sub-[A-Za-z0-9]+", folder):
                return folder
        return _TAIL.sub("", _ROIS.sub("", self.stem)) or self.stem

    @cached_property
    def run(self) -> str:
        """``ses-1_run-2``: what is in the name of that."""
        return "_".join(f"{key}-{self.entities[key]}" for key in RUN_KEYS if key in self.entities)


def natural(text: str) -> tuple[tuple[int, str], ...]:
    """Return a sort key under which ``run-2`` comes before ``run-10``."""
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", text))


def list_files(source: Path, pattern: str | None = None) -> list[Name]:
    """Return the names of all files under a folder (or the one file), hidden ones left out, in natural order."""
    try:
        if not source.exists():
            raise BadInput(f"{source} does not exist: give a file or a folder of scans.")
        if not source.is_dir():
            return [Name(source)]
    except OSError as error:
        raise BadInput(f"{source} cannot be opened ({error.strerror}): give a file or a folder of scans.") from error
    files, seen = [], set()
    for folder, folders, names in os.walk(source, followlinks=True):
        seen.add(os.path.realpath(folder))  # a link to a folder above would lead round in circles
        folders[:] = [f for f in sorted(folders) if os.path.realpath(Path(folder, f)) not in seen and f[0] != "."]
        files += [Path(folder) / n for n in names if not n.startswith(".")]
    if pattern:
        kept = [f for f in files if fnmatchcase(f.name, pattern) or fnmatchcase(str(f.relative_to(source)), pattern)]
        if not kept:
            raise BadInput(f"None of the {len(files)} files in {source} matches pattern={pattern!r}.", "pattern")
        files = kept
    return [Name(f, source) for f in sorted(files, key=lambda f: natural(str(f)))]


def _list(values: Iterable[str]) -> str:
    return ", ".join(sorted((v or "(none)" for v in values), key=natural))


def one_atlas(names: Sequence[Name], atlas: str | None, source: Path) -> tuple[list[Name], str]:
    """Return the files of one atlas and its name; several and no choice is refused with the list."""
    found = {name.atlas for name in names}
    if atlas is None:
        if len(found) > 1:
            raise BadInput(f"{source} holds {len(found)} atlases, {_list(found)}: choose one with atlas.", "atlas")
        return list(names), next(iter(found), "")
    chosen = [name for name in names if name.atlas.lower() == atlas.lower()]
    if not chosen:
        raise BadInput(f"{source} has no files of atlas {atlas!r}; it has {_list(found)}.", "atlas")
    return chosen, chosen[0].atlas


def one_variant(names: Sequence[Name], source: Path) -> list[Name]:
    """Return the files to read, or refuse to choose between tasks, spaces, denoisings.

    A file without ``run-`` beside the runs of the same session, or without ``run-`` and ``dir-`` beside its directions,
    is their concatenation (XCP-D's ``--combine-runs``): it repeats the same volumes and is left out.
    """
    for key in VARIANT_KEYS:
        values = {name.entities.get(key, "") for name in names}
        if len(values) > 1:
            raise BadInput(
                f"{source} holds files that differ in {key} ({_list(values)}): choose one with pattern, "
                f"such as '*_{key}-{sorted(values)[-1]}_*'.",
                "pattern",
            )

    def without_run(name: Name) -> tuple[str, ...]:
        return (name.participant, *(name.entities.get(k, "") for k in RUN_KEYS if k not in ("run", "dir", "echo")))

    with_runs = {without_run(name) for name in names if "run" in name.entities}
    with_directions = {without_run(name) for name in names if "dir" in name.entities}
    kept = [
        name
        for name in names
        if "run" in name.entities
        or (without_run(name) not in with_runs and ("dir" in name.entities or without_run(name) not in with_directions))
    ]
    seen: dict[tuple[str, str], Path] = {}
    for name in kept:
        scan = (name.participant, name.run)
        if scan in seen:
            raise BadInput(
                f"{name.participant} has two files for the same scan, {seen[scan]} and {name.file}: "
                "choose with pattern.",
                "pattern",
            )
        seen[scan] = name.file
    return kept


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
            f"{file} cannot be read as {what} ({one_line(error)}): it is truncated, damaged or in another "
            "format; make it again, or leave it out."
        ) from error


# -- what a compressed file may expand to --------------------------------------------------------------

MAX_EXPANDED = 8.0  # GB
_largest: ContextVar[float] = ContextVar("largest", default=MAX_EXPANDED)


@contextmanager
def expanding(gigabytes: float) -> Iterator[None]:
    """Set what one compressed file may expand to while the block runs; 8 GB elsewhere."""
    if not gigabytes > 0:
        raise BadInput(f"max_expanded is {gigabytes:g}: give a number of GB above 0.", "max_expanded")
    token = _largest.set(gigabytes)
    try:
        yield
    finally:
        _largest.reset(token)


def largest() -> float:
    """Return what one compressed file may expand to here, in GB: other processes have to be told."""
    return _largest.get()


def check_expanded(file: Path, size: float) -> None:
    """Refuse a file that expands to more than it may: a few kilobytes can become all of the memory."""
    if size > _largest.get() * 1e9:
        raise BadInput(
            f"{file} expands to more than {_largest.get():g} GB: check the file, then allow more.", "max_expanded"
        )


def check_whole(file: Path) -> None:
    """Refuse a gzip file that is damaged: readers of images stop before the checksum at its end."""
    if not file.name.lower().endswith(".gz"):
        return
    with parsing(file, "a gzip file"), gzip.open(file) as stream:
        while stream.read(1 << 22):
            pass


def expanded(file: Path, data: bytes, window: int) -> bytes:
    """Return what gzip (``window`` 31) or zlib (15) packed, member after member, without growing beyond the limit."""
    out = bytearray()
    while data:
        member = zlib.decompressobj(window)
        while not member.eof:
            part = member.decompress(data, 1 << 26)
            data = member.unconsumed_tail
            out += part
            check_expanded(file, len(out))
            if not part and not data and not member.eof:
                raise ValueError("it ends before its end")
        data = member.unused_data.lstrip(b"\0")  # gzip files may be padded
    return bytes(out)
