"""Locks: one process at a time works on a run, one driver at a time on a study.

The kernel frees a lock when its holder ends, however it ends, so there are no stale ones to clean up.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bnt.errors import BadInput

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
