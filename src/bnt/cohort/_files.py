"""Files and folders that appear whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import socket
import tempfile
import time
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


def _without_links(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


def write_atomic(path: str | Path, content: bytes | str) -> None:
    """Replace ``path`` by ``content``: temporary name, fsync, rename.

    The name of the temporary file is the target's with ``.tmp`` added, so that a file left
    by a kill is overwritten by the next write instead of piling up. A link of that name, which a folder
    from elsewhere may hold, is removed and never written through.
    """
    path = Path(path)
    temporary = path.with_name(path.name + ".tmp")
    data = content.encode() if isinstance(content, str) else content
    if temporary.is_symlink():
        temporary.unlink()
    with open(temporary, "wb", opener=_without_links) as handle:
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())
    os.replace(temporary, path)
    sync_folder(path.parent)


# A path from the root, up to its last part; words like 1/2 and addresses (https://) are left alone.
_FOLDERS = re.compile(r"""(?<![\w./:~<>-])~?/(?:[^\s/"'=:,;()<>\\]+/)+""")


def without_folders(text: str, *folders: str | Path) -> str:
    """Return a text in which paths from the root have their last part only: it can be shared.

    Parameters
    ----------
    text : str
    *folders : path
        Folders that may be in it; those with blanks are not recognised by themselves.

    Examples
    --------
    >>> without_folders("bnt train /data/study 7/cohort --model /home/me/mine.py:Net", "/data/study 7/cohort")
    'bnt train cohort --model mine.py:Net'
    """
    for folder in folders:
        for path in {str(folder), str(Path(folder).absolute())}:
            if path.startswith("/") and len(path) > 1:
                text = text.replace(path, Path(path).name).replace(str(Path(path).parent) + "/", "")
    return _FOLDERS.sub("", text)


def refuse_existing(path: Path, overwrite: bool, marker: str) -> None:
    """Refuse a target that exists, unless it is ours (holds ``marker``) and may be replaced."""
    if not path.exists() and not path.is_symlink():
        return
    if not path.is_dir():
        raise BadInput(f"{path} exists and is not a folder: choose another place.")
    if not any(path.iterdir()):
        return
    if not overwrite:
        raise BadInput(f"{path} exists already: choose another place, or replace it with overwrite.", "overwrite")
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


WAIT_SECONDS = 120.0  # a network file system frees the lock of a lost machine after its lease, about 90 s
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


def _take(handle: int) -> bool:
    """Try to take the lock; file systems that have none are taken as free."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        if error.errno not in NO_LOCKS:
            raise
    return True


@contextmanager
def held(file: Path, wait: float = WAIT_SECONDS) -> Iterator[None]:
    """Hold the lock of a file while the block runs; the file names the holder meanwhile.

    Parameters
    ----------
    file : path
        Made where it is missing, and left empty afterwards.
    wait : float
        Seconds to wait for another holder before giving up.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise BadInput(f"{file} cannot be written: {error.strerror}.") from error
    try:
        until = time.monotonic() + wait
        while not _take(handle):
            if time.monotonic() >= until:
                raise BadInput(f"{file.parent} is in use by {holder(file) or 'another process'}: wait until it ends.")
            time.sleep(0.2)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
        yield
        os.ftruncate(handle, 0)
    finally:
        os.close(handle)


def holder(file: Path) -> str:
    """Return who holds a lock, as the holder wrote it; an empty text where no one does."""
    try:
        return file.read_text()
    except OSError:
        return ""


def forget(files: Iterator[Path]) -> None:
    """Empty lock files left by killed holders, so that they do not look busy."""
    for file in files:
        handle = os.open(file, os.O_RDWR)
        try:
            if _take(handle):
                os.ftruncate(handle, 0)
        finally:
            os.close(handle)
