"""Progress: a bar on a terminal, plain lines elsewhere, both on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

Item = TypeVar("Item")

SECONDS_BETWEEN_LINES = 5.0


def say(text: str) -> None:
    """Print one line for the person watching, on standard error."""
    print(text, file=sys.stderr, flush=True)


def track(items: Iterable[Item], label: str, total: int | None = None) -> Iterator[Item]:
    """Yield ``items`` and show how far it is and how long it will take."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import track as bar

        yield from bar(items, label, total=total, console=Console(stderr=True), transient=True)
        return
    started = last = time.monotonic()
    for done, item in enumerate(items):
        now = time.monotonic()
        if done and now - last >= SECONDS_BETWEEN_LINES:
            last = now
            left = f", about {(now - started) / done * (total - done):.0f} s left" if total else ""
            say(f"{label}: {done} of {total or 'unknown'}{left}")
        yield item
