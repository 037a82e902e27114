"""``name=value`` words of the command line."""

from __future__ import annotations

import tomllib
from typing import Any

from bnt.errors import BadInput


def parse_settings(words: tuple[str, ...], option: str) -> dict[str, Any]:
    """Return ``("a=1", "b=mean")`` as ``{"a": 1, "b": "mean"}``.

    A value is read as TOML (numbers, true, false, lists, quoted text); what is not TOML is text.
    """
    settings: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name:
            raise BadInput(f"{option} {word!r} is not name=value, for example {option} n_clusters=10.")
        try:
            settings[name] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            settings[name] = text
    return settings
