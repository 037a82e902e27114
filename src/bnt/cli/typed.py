"""The command as it was typed, to be kept beside what it made."""

from __future__ import annotations

import shlex

_words: list[str] = []


def remember(words: list[str]) -> None:
    """Keep the words of the command that runs now."""
    _words[:] = words


def typed() -> str:
    """Return the command that runs now, safe to paste into a shell; empty outside the ``bnt`` program."""
    return shlex.join(["bnt", *_words]) if _words else ""
