"""A study given again: what it was before and what is asked for now, in one description."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from bnt.cohort._cohort import canonical_kind
from bnt.errors import BadInput
from bnt.splits._split import SplitName
from bnt.training._config import RunConfig
from bnt.training._recipe import Recipe

# What a study is about; with the option that a command gives it by, where there is one.
FIXED = {"label": "--label", "task": "--task", "positive": "--positive", "protocol": "--protocol"}
SHAPE = ("kind", "n_subjects", "n_rois")
CHANGED = "whose scans, sites or labels were others then"


def check_same(folder: Path, old: dict[str, Any], new: dict[str, Any]) -> None:
    """Refuse to go on with a study of another cohort, label, task or protocol: the cohort first, as it decides most."""
    label = "label" in old and old["label"] != new["label"]
    if "data_sha256" in old and old["data_sha256"] != new["data_sha256"]:
        if Path(old["cohort"]).resolve() != Path(new["cohort"]).resolve():
            also = f" (and with label {old['label']!r}, not {new['label']!r})" if label else ""
            raise BadInput(
                f"{folder} is a study made from cohort {old['cohort']}, not {new['cohort']}{also}: choose another "
                "--out."
            )
        if not label:
            raise BadInput(f"{folder} is a study of cohort {old['cohort']}, {CHANGED}: choose another --out.")
    for key, option in FIXED.items():
        if key in old and old[key] != new[key]:
            way = f"give {option} {old[key]}" if old[key] is not None else f"leave {option} out"
            raise BadInput(
                f"{folder} is a study with {key} = {old[key]!r}, not {new[key]!r}: choose another --out, or {way} to "
                "go on with it."
            )
    for key in SHAPE:
        if key in old and old[key] != new[key]:
            raise BadInput(f"{folder} is a study with {key} = {old[key]!r}, not {new[key]!r}: choose another --out.")


def read_old(folder: Path) -> dict[str, Any] | None:
    """Return the description that a study's folder has; None where it has none yet."""
    file = folder / "study.json"
    if not file.is_file():
        return None
    try:
        found = json.loads(file.read_text())
        if isinstance(found, dict):
            return found | ({"kind": canonical_kind(found["kind"])} if "kind" in found else {})
        error: object = "it is no table of settings"
    except ValueError as wrong:
        error = repr(wrong)
    raise BadInput(f"{file} is damaged ({error}): remove it; the runs beside it are kept.")


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
    if old is None:
        return new
    try:
        check_same(folder, old, new)
        return new | _variants(folder, old, new) | _splits(folder, old, new) | _seeds(old, new) | _commands(old, new)
    except (ValueError, KeyError, TypeError) as error:
        file = folder / "study.json"
        raise BadInput(f"{file} is damaged ({error!r}): remove it; the runs beside it are kept.") from error


def _variants(folder: Path, old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
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
        other = short.setdefault(SplitName.parse(name).short, name)
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


def run_mismatch(found: RunConfig, wanted: RunConfig) -> tuple[str, str]:
    """Return in what a run on disk differs from the one asked for, and how to go on with it.

    What decides most comes first: cohort, label, task, subjects, model, recipe, machine. The second text is empty where
    no option makes them the same.
    """
    from bnt.training._run import difference

    same_confounds = found.options.get("confounds") == wanted.options.get("confounds")
    if found.data_sha256 != wanted.data_sha256:
        if found.cohort != wanted.cohort:
            return f"it was made from cohort {found.cohort}, not {wanted.cohort}", ""
        if found.label == wanted.label and same_confounds:
            return f"it was made from cohort {found.cohort}, {CHANGED}", ""
    if found.label != wanted.label:
        return f"its label is {found.label!r}, not {wanted.label!r}", f"give --label {found.label}"
    if found.task.kind != wanted.task.kind:
        return f"its task is {found.task.kind}, not {wanted.task.kind}", f"give --task {found.task.kind}"
    if found.task.classes != wanted.task.classes and set(found.task.classes) == set(wanted.task.classes):
        positive = found.task.classes[-1]
        return f"its positive class is {positive}, not {wanted.task.classes[-1]}", f"give --positive {positive}"
    if found.split_sha256 != wanted.split_sha256:
        return f"its split {found.split} has other subjects", ""
    if found.model == wanted.model and found.revision != wanted.revision:
        return f"it was made by edition {found.revision} of {found.model}, this bnt has edition {wanted.revision}", ""
    if (found.model, found.options) == (wanted.model, wanted.options):
        if found.recipe_name != wanted.recipe_name:
            return f"its recipe is {found.recipe_name}, not {wanted.recipe_name}", f"give --recipe {found.recipe_name}"
        if found.recipe != wanted.recipe:
            return _recipe_mismatch(found, wanted)
        for name in ("threads", "device"):
            mine, theirs = getattr(wanted, name), getattr(found, name)
            if mine != theirs:
                return f"its {name} is {theirs}, not {mine}", f"give --{name} {theirs}"
    return difference(found, wanted), ""


def _recipe_mismatch(found: RunConfig, wanted: RunConfig) -> tuple[str, str]:
    """Return the first field of the recipe that differs, and the options that the run was made with."""
    from bnt.training._recipe import find_recipe

    plain = find_recipe(found.recipe_name, found.model)
    names = [f.name for f in fields(Recipe) if getattr(found.recipe, f.name) != getattr(wanted.recipe, f.name)]
    what = f"its recipe has {names[0]} = {getattr(found.recipe, names[0])}, not {getattr(wanted.recipe, names[0])}"
    add, leave = [], []
    if "epochs" in names or "min_steps" in names:  # --epochs sets both
        if (found.recipe.epochs, found.recipe.min_steps) == (plain.epochs, plain.min_steps):
            leave.append("--epochs")
        elif found.recipe.min_steps == 0:
            add.append(f"--epochs {found.recipe.epochs}")
        else:
            add.append(f"--change epochs={found.recipe.epochs} min_steps={found.recipe.min_steps}")
    others = [name for name in names if name not in ("epochs", "min_steps")]
    changed = [f"{n}={getattr(found.recipe, n)}" for n in others if getattr(found.recipe, n) != getattr(plain, n)]
    if changed:
        add.append(f"--change {' '.join(changed)}")
    if len(changed) < len(others):
        leave.append("--change " + " ".join(n for n in others if getattr(found.recipe, n) == getattr(plain, n)))
    ways = [f"add {' '.join(add)}"] * bool(add) + [f"leave out {' and '.join(leave)}"] * bool(leave)
    return what, " and ".join(ways)
