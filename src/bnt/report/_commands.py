"""The commands that repeat a run or a study, and the table of splits that they need."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pandas as pd

from bnt.models._registry import in_catalog
from bnt.splits import Split, read_splits
from bnt.splits._protocols import is_table
from bnt.splits._split import SplitName, splits_text
from bnt.training._config import RunConfig
from bnt.training._recipe import RECIPES, find_recipe


def word(value: Any) -> str:
    """Return a value as ``name=value`` options take it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return "[" + ",".join(f'"{v}"' if isinstance(v, str) else word(v) for v in value) + "]"
    return str(value)


def settings(values: dict[str, Any]) -> list[str]:
    """Return ``name=value`` words."""
    return [f"{name}={word(value)}" for name, value in values.items()]


def changed(recipe: dict[str, Any], name: str, model: str) -> dict[str, Any]:
    """Return the fields to change in a named recipe to get this one; fields it does not have are left out.

    What a model of the user's own changes is among them: its file, which would say so, is not run for a page.
    """
    base = asdict(find_recipe(name, model if in_catalog(model) else None)) if name in RECIPES else {}
    found = {field: value for field, value in recipe.items() if base.get(field) != value}
    if "epochs" in found and "min_steps" in recipe:  # --change epochs=N alone would set min_steps to 0
        found["min_steps"] = recipe["min_steps"]
    return found


def joined(words: list[str]) -> str:
    """Return a command, every word safe for a shell, broken before its options."""
    lines = [""]
    for text in words:
        quoted = shlex.quote(text)
        if text.startswith("--") and len(lines[-1]) + len(quoted) > 60:
            lines.append("   ")
        lines[-1] = f"{lines[-1]} {quoted}".lstrip() if lines[-1] == "" else f"{lines[-1]} {quoted}"
    return " \\\n".join(lines)


def train_command(config: RunConfig, table: str = "splits.csv") -> str:
    """Return the command that repeats a run.

    Parameters
    ----------
    table : str
        The path of the table of splits, where the run's split came from one.
    """
    split = SplitName.parse(config.split)
    words = ["bnt", "train", config.cohort or "COHORT", "--model", config.model]
    if config.options:
        words += ["--option", *settings(config.options)]
    words += ["--label", config.label, "--task", config.task.kind, "--recipe", config.recipe_name]
    classes = list(config.task.classes)
    if len(classes) == 2 and classes != sorted(classes):
        words += ["--positive", str(classes[-1])]
    changes = changed(asdict(config.recipe), config.recipe_name, config.model)
    if changes:
        words += ["--change", *settings(changes)]
    words += around_words([asdict(config.adjustments)])
    if split.seed is not None:
        which = split.short.removeprefix("split") if split.short.removeprefix("split").isdigit() else split.short
        words += ["--protocol", split.source, "--split", which, "--split-seed", str(split.seed)]
    else:
        words += ["--protocol", table, "--split", split.short or "split"]
    words += ["--seed", str(config.seed), "--threads", str(config.threads), "--device", config.device]
    return joined([*words, *(["--bf16"] if config.bf16 else []), "--out", "RUN"])


def around_words(variants: list[dict[str, Any]]) -> list[str]:
    """Return the options for what is done around all of these models alike."""
    found = []
    for field, value in variants[0].items():
        if value and all(other.get(field) == value for other in variants):
            name = "harmonise_keep" if field == "keep" else field
            found += [f"--{name.replace('_', '-')}", str(value)]
    return found


def with_confounds(variant: dict[str, Any]) -> dict[str, Any]:
    """Return a variant's adjustments with confounds that are an option of its model and not in its name."""
    found = dict(variant.get("adjustments") or {})
    if "confounds" in variant["options"] and "confounds=" not in variant["name"]:
        found["confounds"] = variant["options"]["confounds"]
    return found


def model_words(variants: list[dict[str, Any]]) -> tuple[list[str], dict[str, Any]]:
    """Return the words of ``--models``, and the changes of the recipe that all variants share."""
    each = [changed(v["recipe"], variants[0]["recipe_name"], v["model"]) for v in variants]
    own = [{part.split("=")[0] for part in v["name"].partition(":")[2].split(",")} for v in variants]
    shared = {}
    for field, value in [item for changes in each for item in changes.items()]:
        rest = [v["recipe"].get(field) for v, words in zip(variants, own) if f"recipe.{field}" not in words]
        if rest and all(other == value for other in rest):
            shared[field] = value
    words = []
    for variant, changes in zip(variants, each):
        atlas = f"@{variant['atlas']}" if variant.get("atlas") else ""
        if variant["name"].partition(":")[0] == f"{variant['model']}{atlas}":
            words.append(variant["name"])
            continue
        more = {f"recipe.{f}": v for f, v in changes.items() if shared.get(f) != v}
        said = ",".join(settings({**variant["options"], **more}))
        words.append(f"{variant['model']}{atlas}:{said}" if said else f"{variant['model']}{atlas}")
    return words, shared


def permutation_words(summary: pd.DataFrame, typed: list[str]) -> list[str]:
    """Return the options of the permutation tests that tables have; the number of draws may be in what was typed only.

    Parameters
    ----------
    typed : list of str
        The study's commands, in which tables of bnt 0.3 have their draws.
    """
    if "p_chance" not in summary:
        return []
    words = [word for command in typed for word in shlex.split(command.replace("--permutations=", "--permutations "))]
    draws = [after for before, after in zip(words, words[1:]) if before == "--permutations"]
    if "chance_draws" in summary:
        draws.append(str(int(summary["chance_draws"].iloc[0])))
    again = summary.loc[summary["chance_test"] == "refit", "variant"].tolist() if "chance_test" in summary else []
    refitted = ["--refit-permuted", *again] if again else []
    return ["--permutations", draws[-1], *refitted] if draws else []


def compare_command(
    study: dict[str, Any],
    config: RunConfig | None = None,
    reference: str | None = None,
    permutations: Sequence[str] = (),
) -> str:
    """Return the command that repeats a study.

    Parameters
    ----------
    study : dict
        Its ``study.json``.
    config : RunConfig, optional
        Of any of its runs: says the task, the threads and the device.
    reference : str, optional
        The variant that the others were compared with.
    permutations : sequence of str
        The options of the permutation tests; empty where there were none.
    """
    models, shared = model_words(study["variants"])
    words = ["bnt", "compare", study["cohort"], "--models", *models, "--label", study["label"]]
    protocol = study["protocol"]
    words += ["--protocol", protocol]
    names = [SplitName.parse(name) for name in study["splits"]]
    if is_table(protocol):
        words += ["--split-names", *(name.short for name in names)]
    else:
        words += ["--splits", str(len(names)), "--split-seed", str(names[0].seed)]
    words += ["--seeds", *(str(seed) for seed in study["seeds"]), "--recipe", study["variants"][0]["recipe_name"]]
    if shared:
        words += ["--change", *settings(shared)]
    words += around_words([with_confounds(variant) for variant in study["variants"]])
    if config is not None:
        words += ["--task", config.task.kind, "--threads", str(config.threads), "--device", config.device]
    if study.get("positive") is not None:
        words += ["--positive", str(study["positive"])]
    found = [v["name"] for v in study["variants"]]
    if reference in found and found.index(str(reference)):
        words += ["--reference", models[found.index(str(reference))]]
    return joined([*words, *permutations, "--out", "STUDY"])


def split_table(folders: dict[str, Path]) -> str:
    """Return the part of each subject as the text of a table of splits; empty where no run has one.

    Parameters
    ----------
    folders : dict of str to path
        The name of each split, and one run's folder.
    """
    splits: list[Split] = []
    for name, folder in folders.items():
        if (folder / "splits.csv").is_file():
            splits.append(replace(read_splits(folder / "splits.csv")[0], name=name))
    return splits_text(splits) if splits else ""
