"""Broken files, a part of ``reliability.py``: what is changed in them, and the process that reads them.

Mutant ``i`` of a target is a function of the seed, the target's name and ``i``, so that a campaign resumes where it was
stopped and every row can be repeated. All mutants are read in one process with a limit of memory, which is started
again where a file ends it; a file that holds it for ``SECONDS`` counts as one that hangs.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bnt.cli import _main

SECONDS = 60
MEMORY = 4 << 30  # bytes of address space above what the process has when it starts
GOOD = ("refused", "same", "legal")
BAD = ("tracebacks", "hangs", "deaths", "garbage", "executed")


@dataclass
class Count:
    """What came of one kind of fault."""

    what: str
    tried: int = 0
    refused: int = 0
    same: int = 0
    legal: int = 0
    tracebacks: int = 0
    hangs: int = 0
    deaths: int = 0
    garbage: int = 0
    executed: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, outcome: str, where: str = "") -> None:
        """Count one outcome, and keep where the first bad ones came from."""
        self.tried += 1
        setattr(self, outcome, getattr(self, outcome) + 1)
        if outcome in BAD and len(self.first) < 40:
            self.first.append(f"{outcome}: {where}")
            print(self.what, self.first[-1], file=sys.__stderr__, flush=True)

    @property
    def bad(self) -> int:
        """How many did not end as they must."""
        return sum(getattr(self, name) for name in BAD)


# -- what is changed -----------------------------------------------------------------------------------

WORDS = (
    *(b"nan", b"inf", b"-1", b"1e999", b"null", b"true", b"0", b"[" * 5000, b"{", b"}", b'"', b"\0", b"\xff\xfe"),
    *(b"9" * 400, b"member9e9.", b"../../etc/passwd", b"\t", b",", b"\r", b"\xe2\x80\xa8", b"<script>", b"#"),
)


def mutant(data: bytes, draw: random.Random) -> bytes:
    """Return the bytes of a file with one fault, or two."""
    for _ in range(1 + (draw.random() < 0.2)):
        data = _changed(data, draw)
    return data


def _changed(data: bytes, draw: random.Random) -> bytes:
    if not data:
        return draw.randbytes(9)
    kind, size = draw.randrange(10), draw.choice([1, 2, 8, 64, 512])
    at = draw.randrange(min(len(data), 400) if draw.random() < 0.3 else len(data))  # heads of files matter most
    if kind == 0:
        return data[:at] + bytes([data[at] ^ (1 << draw.randrange(8))]) + data[at + 1 :]
    if kind == 1:
        return data[:at]
    if kind == 2:
        return data[:at] + data[at + size :]
    if kind == 3:
        return data[:at] + data[at : at + size] * 2 + data[at + size :]
    if kind == 4:
        return data[:at] + draw.randbytes(size) + data[at + size :]
    if kind == 5:
        return data[:at] + draw.choice(WORDS) + data[at:]
    if kind == 6:  # a number becomes another
        numbers = list(re.finditer(rb"-?\d+(\.\d+)?", data[: 1 << 16]))
        if not numbers:
            return data + b"\0"
        one = draw.choice(numbers)
        return data[: one.start()] + draw.choice(WORDS) + data[one.end() :]
    if kind == 7:  # lines in another order
        lines = data.split(b"\n")
        draw.shuffle(lines)
        return b"\n".join(lines)
    if kind == 8:  # a word of the file somewhere else in it
        words = list(re.finditer(rb"[A-Za-z_]\w+", data[: 1 << 16]))
        if not words:
            return data[at:]
        one, other = draw.choice(words), draw.choice(words)
        return data[: one.start()] + other.group() + data[one.end() :]
    return data + draw.randbytes(size)


# -- how it is read ------------------------------------------------------------------------------------


@dataclass
class Target:
    """Files that are read together: how, and how to tell garbage."""

    name: str
    files: list[str]
    read: Callable[[], Any]
    """Reads them as the program does; returns what was read, for comparison."""
    wrong: Callable[[Any, str, bytes], str] | None = None
    """Given what was read, a file's name and its bytes: what is wrong, or nothing. Without it all must be as before."""
    before: Callable[[str], None] = lambda _: None
    """Done after a file was broken: digests made anew, so that the readers behind them are reached."""
    restore: tuple[str, ...] = ()
    """Folders that reading changes, put back from a copy afterwards."""
    share: float = 1.0


class Hangs(BaseException):
    """Raised by the alarm: no handler of the program takes it for an error of its own."""


_ran: list[str] = []  # what was executed while a file was read


def _watch_execution(event: str, arguments: tuple) -> None:
    if event in ("os.system", "subprocess.Popen", "os.exec", "pickle.find_class"):
        _ran.append(f"{event} {str(arguments)[:80]}")
    elif event == "exec" and getattr(arguments[0], "co_filename", "").endswith("evil.py"):
        _ran.append(f"exec {arguments[0].co_filename}")


def attempt(command: str, read: Callable[[], Any]) -> tuple[str, Any]:
    """Read something as a command would; return how that ended and its text, or nothing and a value."""

    def alarm(*_: object) -> None:
        raise Hangs

    signal.signal(signal.SIGALRM, alarm)
    signal.alarm(SECONDS)
    silent = io.StringIO()
    try:
        with contextlib.redirect_stderr(silent), contextlib.redirect_stdout(silent), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return "", read()
    except Hangs:
        return "hangs", ""
    except BaseException as error:  # noqa: BLE001 - the program's own rule says which of them are sentences
        code, sentence = _main._ending(command, error, None)
        if sentence and code == 2:
            return "refused", sentence
        return "tracebacks", f"{type(error).__name__}: {str(error)[:150]} {_last_line(error)}"
    finally:
        signal.alarm(0)


def _last_line(error: BaseException) -> str:
    from traceback import extract_tb

    frames = [f for f in extract_tb(error.__traceback__) if "/bnt/" in f.filename]
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""


def one(target: Target, i: int, seed: int, sound: dict[str, bytes], original: Any) -> tuple[str, str]:
    """Break one file, read it, put it back; return the outcome and where it came from."""
    draw = random.Random(f"{seed} {target.name} {i}")
    name = draw.choice(target.files)
    data = mutant(sound[name], draw)
    Path(name).write_bytes(data)
    _ran.clear()
    try:
        target.before(name)
        outcome, found = attempt("report", target.read)
        if _ran:
            outcome, found = "executed", _ran[0]
        if not outcome and found == original:
            outcome = "same"
        elif not outcome:
            said = "other values" if target.wrong is None else target.wrong(found, name, data)
            outcome, found = ("garbage", said) if said else ("legal", "")
    finally:
        for folder in target.restore:
            shutil.rmtree(folder)
            shutil.copytree(f"sound/{folder}", folder)
        for other, content in sound.items():
            if not Path(other).is_file() or Path(other).stat().st_size != len(content) or other == name:
                Path(other).write_bytes(content)
    return outcome, f"{name} #{i} ({len(data)} bytes): {str(found)[-220:]}"


def _worker(target: Target, numbers: range, seed: int, answers: int) -> None:
    """Read mutants one after the other and answer with one line each."""
    with open("/proc/self/statm") as statm:
        limit = int(statm.read().split()[0]) * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    sys.addaudithook(_watch_execution)
    sound = {name: Path(name).read_bytes() for name in target.files}
    failed, original = attempt("report", target.read)
    if failed:
        os.write(answers, (json.dumps(["tracebacks", f"the sound files: {failed} {original}"]) + "\n").encode())
        return
    _put_back(target, sound)
    for i in numbers:
        outcome, where = one(target, i, seed, sound, original)
        os.write(answers, (json.dumps([outcome, where]) + "\n").encode())


def _put_back(target: Target, sound: dict[str, bytes]) -> None:
    for folder in target.restore:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(f"sound/{folder}", folder)
    for name, content in sound.items():
        Path(name).write_bytes(content)


def break_files(target: Target, count: Count, n: int, seed: int, after: Callable[[], None] = lambda: None) -> None:
    """Read mutants ``count.tried`` to ``n`` of a target in processes of their own; ``after`` each of them."""
    kept = {name: Path(name).read_bytes() for name in target.files}
    for folder in target.restore:
        if not Path("sound", folder).exists():
            shutil.copytree(folder, Path("sound", folder))
    while count.tried < n:
        ours, theirs = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(ours)
            code = 1
            try:
                _worker(target, range(count.tried, n), seed, theirs)
                code = 0
            finally:
                os._exit(code)
        os.close(theirs)
        reached = count.tried
        with open(ours) as lines:
            for line in lines:
                count.add(*json.loads(line))
                after()
        _, status = os.waitpid(child, 0)
        _put_back(target, kept)
        if status != 0 and count.tried < n:
            count.add("deaths", f"#{count.tried}: the process ended with {status}")
            after()
        elif count.tried == reached:
            break


# -- the table -----------------------------------------------------------------------------------------


class Table:
    """Counts that are written as they change, and read again where a campaign resumes."""

    def __init__(self, file: Path) -> None:
        self.file, self.counts, self._written = file, {}, 0.0
        if file.is_file():
            import csv

            with open(file, newline="") as handle:
                for row in csv.DictReader(handle):
                    numbers = {k: int(v) for k, v in row.items() if k not in ("what", "first")}
                    self.counts[row["what"]] = Count(row["what"], **numbers, first=json.loads(row["first"]))

    def count(self, what: str) -> Count:
        """Return the count of a kind of fault, which goes on where it was."""
        return self.counts.setdefault(what, Count(what))

    def write(self, soon: bool = False) -> None:
        """Write the table; ``soon``: not more than once in two seconds."""
        if soon and time.monotonic() - self._written < 2:
            return
        import csv

        temporary = self.file.with_suffix(".tmp")
        with open(temporary, "w", newline="") as handle:
            rows = [asdict(count) | {"first": json.dumps(count.first)} for count in self.counts.values()]
            writer = csv.DictWriter(handle, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        temporary.replace(self.file)
        self._written = time.monotonic()
