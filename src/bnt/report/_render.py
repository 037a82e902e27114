"""What pages are made of: templates rendered to one self-contained HTML page, and the commands that repeat a study.

A page has no script of its own and loads nothing: it opens from disk, prints, and works without a network. Every value
is escaped by Jinja2; what is already HTML (figures) is marked as such here and nowhere else.
"""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Sequence
from dataclasses import asdict, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from bnt.cohort._files import without_folders
from bnt.models._registry import in_catalog
from bnt.plotting._style import inline_svg, page_width
from bnt.splits import Split, read_splits
from bnt.splits._protocols import is_table
from bnt.splits._split import SplitName, splits_text
from bnt.training._config import RunConfig
from bnt.training._recipe import RECIPES, find_recipe

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PNG_DPI = 200  # of the pictures that bnt explain writes
FEWEST_LETTERS = 4  # of an id that is looked for in a text


class Chart(NamedTuple):
    """A figure, and the table it was drawn from."""

    figure: Figure
    data: pd.DataFrame


class Contents:
    """What a page counts while it is rendered: sections for its contents, numbers of figures and tables."""

    def __init__(self) -> None:
        self.sections: list[tuple[str, str]] = []
        self._counts: dict[str, int] = {}

    def section(self, heading: str) -> str:
        """List a section; return its anchor."""
        anchor = re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-")
        self.sections.append((anchor, heading))
        return anchor

    def number(self, kind: str) -> int:
        """Return the next number of a figure or table."""
        self._counts[kind] = self._counts.get(kind, 0) + 1
        return self._counts[kind]


def shareable(value: Any, folders: Sequence[str | Path], ids: Sequence[str]) -> Any:
    """Return what a page shows without paths from the root, and its texts without subjects' ids.

    Parameters
    ----------
    value : Any
        Texts, tables and charts, nested in any way; figures stay as they are.
    folders : sequence of path
        Those that may be named.
    ids : sequence of str
        Short ones, which could be any number, are left alone: no text of ours has them.
    """
    if isinstance(value, Markup | bytes):
        return value
    if isinstance(value, str | Path):
        text = without_folders(str(value), *folders)
        named = {name for name in ids if len(name) >= FEWEST_LETTERS and name in text}
        for name in sorted(named, key=len, reverse=True):
            text = re.sub(rf"(?<![\w.]){re.escape(name)}(?!\w|\.\d)", "(id left out)", text)
        return text
    if isinstance(value, pd.DataFrame):
        found = value.copy()
        for column in found.columns:
            if not pd.api.types.is_numeric_dtype(found[column]):
                found[column] = [shareable(one, folders, ids) for one in found[column]]
        return found
    if isinstance(value, Chart):
        return Chart(value.figure, shareable(value.data, folders, ids))
    if isinstance(value, dict):
        return {key: one if key == "view" else shareable(one, folders, ids) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(shareable(one, folders, ids) for one in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: shareable(getattr(value, f.name), folders, ids) for f in fields(value)})
    return value


def cell(value: Any) -> str:
    """Return one value as a table shows it: thousands with commas, three decimals, nothing where there is nothing."""
    if value is None or value is pd.NA or value is pd.NaT:
        return ""
    if isinstance(value, float | np.floating):
        value = float(value)
        if np.isnan(value):
            return ""
        if np.isinf(value):
            return "∞" if value > 0 else "−∞"
        if abs(value) < 1e-12:  # what is left of a difference of equal numbers
            value = 0.0
        if value == int(value) and abs(value) >= 100:
            return f"{int(value):,}"
        if 0 < abs(value) < 0.0005:
            return f"{value:.0e}"
        return f"{value:.3f}" if abs(value) < 100 else f"{value:,.0f}"
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return f"{value:,}"
    text = re.sub(r"\[[^]]*\]|\S+ ± \S+", lambda found: found[0].replace(" ", "\u00a0"), str(value))  # one line each
    return Markup(re.sub(r"(?<=[,:/])(?=\S)|(?<=\+)(?=[a-z])", "<wbr>", str(escape(text))))  # a name may be broken


def alignment(table: pd.DataFrame) -> list[str]:
    """Return the class of each column: words stand left, numbers (as text too) right."""
    return ["" if _is_number(table.iloc[:, i]) else "word" for i in range(table.shape[1])]


def _is_number(column: pd.Series) -> bool:
    if pd.api.types.is_numeric_dtype(column.dtype):
        return True
    texts = [str(v) for v in column if isinstance(v, str) and v]
    return bool(texts) and all(re.match(r"[<+−-]?\s?[\d.]", t) for t in texts)


def csv(table: pd.DataFrame | str) -> str:
    """Return a table as CSV text; text is taken as it is."""
    return table if isinstance(table, str) else table.to_csv(index=False, lineterminator="\n")


def in_base64(content: str | bytes) -> str:
    """Return a file's contents for a data URL."""
    return base64.b64encode(content.encode() if isinstance(content, str) else content).decode()


def picture_size(png: bytes) -> str:
    """Return the width of a PNG of 200 dots per inch on a page: its letters as large as those of charts."""
    return page_width(int.from_bytes(png[16:20], "big") * 72 / PNG_DPI)


def svg(figure: Figure, name: str, caption: str) -> Markup:
    """Return a figure as SVG for the page; the caption is its description."""
    return Markup(inline_svg(figure, name, str(escape(caption))))


@cache
def environment() -> Environment:
    """Return the templates with the filters they use."""
    made = Environment(
        loader=PackageLoader("bnt.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "cell": cell,
        "alignment": alignment,
        "csv": csv,
        "base64": in_base64,
        "svg": svg,
        "picture_size": picture_size,
    }
    return made


def render(template: str, **values: Any) -> str:
    """Return a page.

    Parameters
    ----------
    template : {"run.html", "study.html"}
    **values
        What it shows; a value that the template uses and that is not given is an error.
    """
    return environment().get_template(template).render(contents=Contents(), **values)


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
    """Return the set of each subject as the text of a table of splits; empty where no run has one.

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
