"""Files and folders that appear whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bnt.errors import BadInput


def sync_folder(folder: Path) -> None:
    """Make renames inside ``folder`` durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_file(path: Path) -> None:
    """Flush ``path`` to the disk."""
    with open(path, "rb+") as handle:
        os.fsync(handle.fileno())


def write_atomic(path: str | Path, content: bytes | str) -> None:
    """Replace ``path`` by ``content``: temporary name, fsync, rename.

    The name of the temporary file is the target's with ``.tmp`` added, so that a file left
    by a kill is overwritten by the next write instead of piling up.
    """
    path = Path(path)
    temporary = path.with_name(path.name + ".tmp")
    data = content.encode() if isinstance(content, str) else content
    with open(temporary, "wb") as handle:
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())
    os.replace(temporary, path)
    sync_folder(path.parent)


def refuse_existing(path: Path, overwrite: bool, marker: str) -> None:
    """Refuse a target that exists, unless it is ours (holds ``marker``) and may be replaced."""
    if not path.exists() and not path.is_symlink():
        return
    if not path.is_dir():
        raise BadInput(f"{path} exists and is not a folder: choose another place.")
    if not any(path.iterdir()):
        return
    if not overwrite:
        raise BadInput(f"{path} exists already: choose another place, or pass --overwrite to replace it.")
    if not (path / marker).is_file():
        raise BadInput(f"{path} holds no {marker}, so it is not ours to overwrite: choose another place.")


@contextmanager
def new_folder(path: str | Path, *, overwrite: bool = False, marker: str = "cohort.json") -> Iterator[Path]:
    """Fill a temporary folder beside ``path`` and rename it to ``path`` when the block succeeds.

    On any exception the temporary folder is removed and ``path`` is as it was.
    """
    path = Path(path)
    refuse_existing(path, overwrite, marker)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent))
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror} ({path.parent}).") from error
    try:
        yield work
        for file in work.iterdir():
            if file.is_file():
                sync_file(file)
        os.chmod(work, 0o755)
        if path.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".old", dir=path.parent))
            os.replace(path, old)
            os.replace(work, path)
            shutil.rmtree(old)
        else:
            os.replace(work, path)
        sync_folder(path.parent)
    finally:
        shutil.rmtree(work, ignore_errors=True)
