"""A study given again: what it was before and what is asked for now, in one description."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bnt.errors import BadInput

FIXED = ("label", "protocol", "kind", "n_subjects", "n_rois", "data_sha256", "task", "positive")


def merged(folder: Path, new: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a study with the variants, splits and seeds that its folder had before.

    Parameters
    ----------
    folder : path
        The study's folder; where it has no ``study.json`` the new description is returned as it is.
    new : dict
        From :meth:`bnt.experiments.study.Study.description`.
    """
    file = folder / "study.json"
    new = json.loads(json.dumps(new))
    if not file.is_file():
        return new
    try:
        old = json.loads(file.read_text())
        return new | _variants(folder, old, new) | _splits(folder, old, new) | _seeds(old, new) | _commands(old, new)
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{file} is damaged ({error!r}): remove it; the runs beside it are kept.") from error


def _variants(folder: Path, old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    for key in FIXED:
        if key in old and old[key] != new[key]:
            raise BadInput(f"{folder} is a study with {key} = {old[key]!r}, not {new[key]!r}: choose another --out.")
    found = {variant["name"]: variant for variant in old["variants"]}
    for variant in new["variants"]:
        before = found.setdefault(variant["name"], variant)
        if before != variant:
            raise BadInput(
                f"{folder} has a variant {variant['name']!r} with other options or another recipe: choose another "
                "--out, or another name."
            )
    return {"variants": list(found.values())}


def _splits(folder: Path, old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    digests = old.get("split_sha256") or [""] * len(old["splits"])
    found = {name: (size, digest) for name, size, digest in zip(old["splits"], old["split_sizes"], digests)}
    for name, size, digest in zip(new["splits"], new["split_sizes"], new["split_sha256"]):
        if found.get(name, ("", ""))[1] not in ("", digest):
            raise BadInput(f"{folder} has a split {name!r} of other subjects: choose another --out.")
        found[name] = (size, digest)
    short: dict[str, str] = {}
    for name in found:
        other = short.setdefault(name.rpartition(":")[2], name)
        if other != name:
            raise BadInput(f"{folder} has a split {other!r}, and {name!r} is another one: choose another --out.")
    return {
        "splits": list(found),
        "split_sizes": [size for size, _ in found.values()],
        "split_sha256": [digest for _, digest in found.values()],
    }


def _seeds(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    return {"seeds": list(dict.fromkeys([*old["seeds"], *new["seeds"]]))}


def _commands(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    return {"commands": list(dict.fromkeys([*old.get("commands", []), *new["commands"]]))}
