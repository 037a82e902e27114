"""Atomic writing of files and folders, their digests, and messages about damaged files."""

from __future__ import annotations

import errno
import fcntl
import glob
import json
import os
import re
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import file_digest
from math import isfinite
from pathlib import Path
from typing import Any

from bnt.errors import BadInput, in_one_line


def state_folder() -> Path:
    """Return the user's own folder for what is remembered between commands: ``BNT_STATE``, or where the system says."""
    if os.environ.get("BNT_STATE"):
        return Path(os.environ["BNT_STATE"]).expanduser()
    return Path(os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")) / "bnt"


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


def read_json(path: Path, advice: str) -> dict[str, Any]:
    """Read a JSON file of ours, which holds an object; ``advice`` says what to do where it is damaged."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"{path} is damaged ({' '.join(str(error).split())}): {advice}.") from error
    if not isinstance(found, dict):
        raise BadInput(f"{path} is damaged (it holds {type(found).__name__}, not an object): {advice}.")
    return found


def jsonable(value: Any) -> Any:
    """Return nested data as JSON can hold it: named tuples as objects, numbers that are not finite as null."""
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {str(k): jsonable(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(v) for v in value]
    value = value.item() if hasattr(value, "item") else value  # numpy's
    return None if isinstance(value, float) and not isfinite(value) else value


@contextmanager
def readable(path: Path, advice: str) -> Iterator[None]:
    """Say that ``path``, a file or folder of ours, is damaged where what is read of it cannot be what was written."""
    try:
        yield
    except BadInput:
        raise
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise BadInput(f"{path} is damaged ({in_one_line(error)}): {advice}.") from error


# -- digests of files --------------------------------------------------------------------------------

_SUM = re.compile(r"([0-9a-f]{64})  (\S+)")


@contextmanager
def writable(path: Path, parameter: str = "") -> Iterator[None]:
    """Say that ``path`` cannot be written, and why, where that is so."""
    try:
        yield
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}.", parameter) from error


def sha256_of(file: Path) -> str:
    """Return the sha256 of a file."""
    with open(file, "rb") as handle:
        return file_digest(handle, "sha256").hexdigest()


def write_sums(file: Path, names: Sequence[str]) -> None:
    """Write the sha256 of those files beside ``file`` that are there, as ``sha256sum --check`` reads them."""
    there = [name for name in names if (file.parent / name).is_file()]
    write_atomic(file, "".join(f"{sha256_of(file.parent / name)}  {name}\n" for name in there))


def has_sums(file: Path) -> bool:
    """Whether a file holds digests; ``DONE`` of bnt 0.1 and 0.2 does not."""
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    return any(_SUM.fullmatch(line) for line in lines)


def wrong_sum(file: Path, names: Sequence[str]) -> tuple[str, str] | None:
    """Return which of the files is not as :func:`write_sums` found it, and how; None where all are."""
    try:
        found = [_SUM.fullmatch(line) for line in file.read_text(encoding="utf-8", errors="replace").splitlines()]
        wanted = {match[2]: match[1] for match in found if match is not None}
        if not all(found) or not set(wanted) <= set(names):
            return file.name, "it is not as it was written"
        for name in names:
            there = (file.parent / name).is_file()
            if there != (name in wanted):
                return name, "it was added" if there else "it is missing"
            if there and sha256_of(file.parent / name) != wanted[name]:
                return name, f"its sha256 is not the one in {file.name}"
    except OSError as error:
        return Path(error.filename or file).name, error.strerror or "it cannot be read"
    return None


# -- files and folders that appear whole -------------------------------------------------------------


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
    try:
        with open(temporary, "wb", opener=_without_links) as handle:
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


# A path from the root, up to its last part; words like 1/2 and addresses (https://) are left alone.
_FOLDERS = re.compile(r"""(?<![\w./:~<>-])~?/(?:[^\s/"'=:,;()<>\\]+/)+""")


def without_folders(text: str, *folders: str | Path) -> str:
    """Return a text in which paths from the root have their last part only: it can be shared.

    Parameters
    ----------
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
    if path.is_symlink():
        raise BadInput(f"{path} is a link to {path.resolve()}: give that folder itself, or choose another place.")
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
    tidy(path)
    refuse_existing(path, overwrite, marker)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        work, lock = _own_folder(path, ".tmp")
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror} ({path.parent}).") from error
    old = None
    try:
        yield work
        for file in work.iterdir():
            if file.is_file():
                sync_file(file)
        os.chmod(work, 0o755)
        if path.exists():
            old, _ = _own_folder(path, ".old", lock=False)
            os.replace(path, old)
        os.replace(work, path)
        sync_folder(path.parent)
    finally:
        if old is not None and not path.exists():
            os.replace(old, path)
        for folder in (work, old):
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _own_folder(path: Path, suffix: str, *, lock: bool = True) -> tuple[Path, int]:
    """Make a temporary folder beside ``path`` and hold its lock, which ends with this process."""
    while True:
        made = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=suffix, dir=path.parent))
        if not lock:
            return made, -1
        handle = os.open(made, os.O_RDONLY)
        _take(handle)
        if made.exists():  # no other process took it for a dead one's before the lock was held
            return made, handle
        os.close(handle)


def tidy(path: Path) -> None:
    """Remove temporary folders that killed processes left beside ``path``; put back what one had moved aside."""
    if not path.parent.is_dir():
        return
    for folder in path.parent.glob(f".{glob.escape(path.name)}.????????.*"):
        if folder.is_symlink() or not folder.is_dir():
            continue
        if folder.suffix == ".old" and not path.exists() and any(folder.iterdir()):
            os.replace(folder, path)
        elif folder.suffix in (".tmp", ".old"):
            handle = os.open(folder, os.O_RDONLY)
            try:
                if _take(handle, certain=True):
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(handle)


WAIT_SECONDS = 120.0  # a network file system frees the lock of a lost machine after its lease, about 90 s
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


def _take(handle: int, *, certain: bool = False) -> bool:
    """Try to take the lock; file systems that have none are taken as free, unless this must be certain."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        if error.errno not in NO_LOCKS:
            raise
        return not certain
    return True


def _is_at(handle: int, file: Path) -> bool:
    """Whether an open file is the one of this name, and not one that another process has just removed."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(file))
    except FileNotFoundError:
        return False


class InUse(BadInput):
    """Another process holds the lock of what was to be used."""


@contextmanager
def held(file: Path, wait: float = WAIT_SECONDS, of: Path | None = None) -> Iterator[None]:
    """Hold the lock of a file while the block runs; the file names the holder meanwhile.

    Parameters
    ----------
    file : path
        Made where it is missing, and left empty afterwards; removed where it is the lock ``of`` something.
    wait : float
        Seconds to wait for another holder before giving up.
    of : path, optional
        What is locked; by default the folder of the file.
    """
    until = time.monotonic() + wait
    while True:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        except FileNotFoundError:
            continue  # the folder was empty, and another process has just removed it
        except OSError as error:
            raise BadInput(f"{file} cannot be written: {error.strerror}.") from error
        try:
            taken = _take(handle)
            if taken and _is_at(handle, file):
                break  # and not a lock that its holder has just removed
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
        if not taken and time.monotonic() >= until:
            who = holder(file) or "another process"
            raise InUse(f"{of or file.parent} is in use by {who}: wait until it ends.")
        if not taken:
            time.sleep(0.2)
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
        yield
        os.ftruncate(handle, 0)
    finally:
        if of is not None:
            file.unlink(missing_ok=True)
        os.close(handle)


def holder(file: Path) -> str:
    """Return who holds a lock, as the holder wrote it; an empty text where no one does."""
    try:
        return file.read_text()
    except OSError:
        return ""


def in_use(file: Path) -> bool:
    """Whether a process that lives holds a lock; a file that a killed holder left is removed, as it looks busy."""
    return bool(holder(file)) and not _removed(file)


def forget(folder: Path) -> None:
    """Remove a folder of locks, unless a process that lives holds one of them."""
    for file in folder.glob("*.lock"):
        _removed(file)
    with suppress(OSError):
        folder.rmdir()


def _removed(file: Path) -> bool:
    """Remove a lock that nobody holds; whether it is gone."""
    try:
        handle = os.open(file, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return True  # its holder has just removed it
    try:
        if not _take(handle, certain=True) and _may_live(holder(file)):
            return False
        if _is_at(handle, file):
            file.unlink()
        return True
    finally:
        os.close(handle)


def _may_live(who: str) -> bool:
    """Whether a holder may live, for file systems without locks: known of this machine's processes only."""
    found = re.fullmatch(r"process (\d+) on (.+)", who)
    if found is None or found.group(2) != socket.gethostname():
        return True
    try:
        os.kill(int(found.group(1)), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # another user's, alive
    return True
