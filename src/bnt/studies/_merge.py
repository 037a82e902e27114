"""Resuming a study: what it was before and what is asked for now, in one description."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bnt.cohort._files import read_json, readable
from bnt.cohort._store import canonical_kind
from bnt.errors import BadInput
from bnt.splits._protocols import canonical
from bnt.splits._split import SplitName
from bnt.studies._job import Variant
from bnt.training._config import CHANGED

FIXED = ("label", "task", "positive", "protocol")  # what a study is about
SHAPE = ("kind", "n_subjects", "n_rois")


def check_same(folder: Path, old: dict[str, Any], new: dict[str, Any]) -> None:
    """Refuse to resume a study of another cohort, label, task or protocol: the cohort first, as it decides most."""
    label = "label" in old and old["label"] != new["label"]
    if "data_sha256" in old and old["data_sha256"] not in (new["data_sha256"], new.get("data_sha256_of_0_2")):
        if Path(old["cohort"]).resolve() != Path(new["cohort"]).resolve():
            also = f" (and with label {old['label']!r}, not {new['label']!r})" if label else ""
            raise BadInput(
                f"{folder} is a study made from cohort {old['cohort']}, not {new['cohort']}{also}: choose another "
                "folder.",
                "out",
            )
        if not label:
            raise BadInput(f"{folder} is a study of cohort {old['cohort']}, {CHANGED}: choose another folder.", "out")
    for key in FIXED:
        if key in old and _canonical(key, old[key]) != _canonical(key, new[key]):
            raise BadInput(
                f"{folder} is a study with {key} = {old[key]!r}, not {new[key]!r}: give the same to resume it, or "
                "choose another folder.",
                key,
            )
    for key in SHAPE:
        if key in old and old[key] != new[key]:
            raise BadInput(
                f"{folder} is a study with {key} = {old[key]!r}, not {new[key]!r}: choose another folder.", "out"
            )


def _canonical(key: str, value: Any) -> Any:
    return canonical(value) if key == "protocol" else value


def read_old(folder: Path) -> dict[str, Any] | None:
    """Return the description that a study's folder has; None where it has none yet."""
    file = folder / "study.json"
    if not file.is_file():
        return None
    advice = "remove it; the runs beside it are kept"
    found = read_json(file, advice)
    with readable(file, advice):
        return found | ({"kind": canonical_kind(found["kind"])} if "kind" in found else {})


def merged(folder: Path, new: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a study with the variants, splits and seeds that its folder had before.

    Parameters
    ----------
    folder : path
        The study's folder; where it has no ``study.json`` the new description is returned as it is.
    new : dict
        From :meth:`bnt.studies._study.Study.description`.
    """
    new, old = json.loads(json.dumps(new)), read_old(folder)
    with readable(folder / "study.json", "remove it; the runs beside it are kept"):
        if old is not None:
            check_same(folder, old, new)
        new.pop("data_sha256_of_0_2", None)  # serves the comparison only
        if old is None:
            return new
        return new | _variants(folder, old, new) | _splits(folder, old, new) | _seeds(old, new) | _commands(old, new)


def _variants(folder: Path, old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    found = {variant["name"]: variant for variant in old["variants"]}
    for variant in new["variants"]:
        before = found.setdefault(variant["name"], variant)
        if Variant.from_dict(before) != Variant.from_dict(variant):
            raise BadInput(
                f"{folder} has a variant {variant['name']!r} with other options or another recipe: choose another "
                "folder, or another name.",
                "out",
            )
    return {"variants": list(found.values())}


def _splits(folder: Path, old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    digests = old.get("split_sha256") or [""] * len(old["splits"])
    found = {name: (size, digest) for name, size, digest in zip(old["splits"], old["split_sizes"], digests)}
    for name, size, digest in zip(new["splits"], new["split_sizes"], new["split_sha256"]):
        if found.get(name, ("", ""))[1] not in ("", digest):
            raise BadInput(f"{folder} has a split {name!r} of other subjects: choose another folder.", "out")
        found[name] = (size, digest)
    short: dict[str, str] = {}
    for name in found:
        other = short.setdefault(SplitName.parse(name).short, name)
        if other != name:
            raise BadInput(
                f"{folder} has a split {other!r}, which {name!r} would be confused with: choose another folder.", "out"
            )
    return {
        "splits": list(found),
        "split_sizes": [size for size, _ in found.values()],
        "split_sha256": [digest for _, digest in found.values()],
    }


def _seeds(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    return {"seeds": list(dict.fromkeys([*old["seeds"], *new["seeds"]]))}


def _commands(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    return {"commands": list(dict.fromkeys([*old.get("commands", []), *new["commands"]]))}
