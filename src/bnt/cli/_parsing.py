"""Parsing of command-line options: errors in one sentence, and the command as it was typed."""

from __future__ import annotations

import io
import re
import shlex
import tomllib
from collections import Counter
from contextlib import redirect_stderr
from dataclasses import is_dataclass, replace
from difflib import get_close_matches
from textwrap import dedent
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

import tyro

from bnt.errors import BadInput

_words: list[str] = []


def remember(words: list[str]) -> None:
    """Keep the words of the command that runs now."""
    _words[:] = words


def typed() -> str:
    """Return the command that runs now, safe to paste into a shell; empty outside the ``bnt`` program."""
    return shlex.join(["bnt", *_words]) if _words else ""


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


T = TypeVar("T")
_PLAINER = {
    r"invalid literal for int\(\) with base 10:": "a whole number is needed, not",
    r"could not convert string to float:": "a number is needed, not",
    r"Could not find valid parse for arguments:": "these values are of the wrong kind:",
    r"Error parsing ": "",
    r"Unrecognized options:": "not understood:",
    r"Missing value for argument '([^']*)'\. Expected \d+ values": r"\1 has no value",
    r"invalid choice ('[^']*') for argument '([^']*)'\. Expected one of \((.*?),?\)": r"\2 must be one of \3, not \1",
}


def parse(options: type[T], command: str, description: str | None, words: list[str]) -> T:
    """Return the options of a command from its words.

    Raises
    ------
    BadInput
        If they are not understood.
    SystemExit
        With code 0, after printing the help.
    """
    if {"-h", "--help"} & set(words):
        words = ["--help"]
    _check_names(options, words)
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            return tyro.cli(options, prog=f"bnt {command}", description=description, args=words)
    except SystemExit as end:
        if not end.code:
            raise
        raise BadInput(f"{_sentence(said.getvalue())}; bnt {command} --help shows all options.") from None


def flags(options: type) -> list[str]:
    """Return the names of a command's options without their dashes, those of its groups included; no positionals."""
    found: list[str] = []
    for name, hint in get_type_hints(options, include_extras=True).items():
        kind, marks = getattr(hint, "__origin__", hint), getattr(hint, "__metadata__", ())
        if is_dataclass(kind) and isinstance(kind, type):
            found += flags(kind)
        elif tyro.conf.Positional not in marks:
            found.append(name.replace("_", "-"))
    return found


def _check_names(options: type, words: list[str]) -> None:
    names = flags(options)
    known = ["--help", *(f"--{name}" for name in names), *(f"--no-{name}" for name in names)]
    given = [word.split("=")[0].replace("_", "-") for word in words if word.startswith("--") and word != "--"]
    for name in given:
        if name not in known:
            near = get_close_matches(name[2:], names, n=1, cutoff=0.7)
            raise BadInput(f"unknown option {name}; {f'did you mean --{near[0]}?' if near else 'see --help.'}")
    for name, count in Counter(given).items():
        if count > 1:
            raise BadInput(f"{name} is given {count} times; give it once, with all its values after it.")


def _sentence(box: str) -> str:
    """Return what the box of tyro says, without its frame, headings and help."""
    body = re.sub("[╭╮╰╯│]", " ", box.partition("\n")[2])  # without its title
    parts = [dedent(part).strip() for part in re.split(r"(?m)^ *[─-]{4,} *$", body)]
    said = []
    for part in parts:
        if not part or part.startswith(("Argument helptext", "For full helptext")):
            continue
        heading, *rest = part.splitlines()
        listed = [line.strip() for line in rest if re.match(r" {4}\S", line)]
        if listed:
            what = "missing:" if heading.startswith("Missing") else heading
            said.append(f"{what} {', '.join(listed)}")
        else:
            said.append(" ".join([heading, *rest]).rstrip(". "))
    text = re.sub(r"\s+", " ", "; ".join(said))
    for jargon, plain in _PLAINER.items():
        text = re.sub(jargon, plain, text)
    return text or "the options were not understood"


if TYPE_CHECKING:
    from bnt.studies._job import Variant
    from bnt.training import Adjustments

PREFIX = "recipe."


def split_outside(text: str) -> tuple[str, ...]:
    """Split at commas that are in no brackets and no quotes.

    Examples
    --------
    >>> split_outside("a=[1,2],b=mean")
    ('a=[1,2]', 'b=mean')
    """
    words, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in "[{":
            depth += 1
        elif character in "]}":
            depth -= 1
        if character == "," and not depth and not quote:
            words.append("")
        else:
            words[-1] += character
    return tuple(words)


def parse_variant(
    word: str, recipe: str, changes: dict[str, object], adjustments: Adjustments | None = None
) -> Variant:
    """Return the variant that a word of ``--models`` means, under the name as it was given.

    Parameters
    ----------
    word : str
        A model's name, and after a colon its options, ``recipe.`` before those of the recipe:
        ``bnt:n_clusters=4,recipe.lr=1e-3``, ``my_models.py:GCN:hidden=8``; ``svm@msdl`` is of one of several atlases.
    recipe : str
        The recipe to start from.
    changes : dict
        Fields of the recipe that were changed for all models.
    adjustments : Adjustments, optional
        What is done around all models; a word may set its fields, ``ridge:harmonise=combat``.
    """
    from bnt.models import find_entry, model_options
    from bnt.models._registry import short_name, split_word
    from bnt.studies._job import Variant
    from bnt.training import Adjustments, find_recipe
    from bnt.training._config import assign_confounds
    from bnt.training._recipe import FIELDS

    at = re.match(r"([^=]*?)@([A-Za-z0-9_.-]+)((?::.*)?)$", word)
    model, colon, text = split_word(f"{at[1]}{at[3]}" if at else word)
    if colon and not text:
        raise BadInput(f"--models {word!r} has a colon without options after it, for example bnt:n_clusters=4.")
    if "," in model:
        raise BadInput(f"--models {word!r} has a comma: separate models by spaces, {' '.join(model.split(','))}.")
    odd = next((setting for setting in split_outside(text) if colon and "=" not in setting), "")
    if odd:
        raise BadInput(
            f"--models {word!r}: {odd!r} is not option=value, for example bnt:n_clusters=4; a model of your own is "
            "my_models.py:MyModel."
        )
    settings = parse_settings(split_outside(text), "--models") if colon else {}
    own = {name.removeprefix(PREFIX): value for name, value in settings.items() if name.startswith(PREFIX)}
    known = model_options(model)
    around = {name: value for name, value in settings.items() if name in FIELDS and name not in known}
    options = {name: value for name, value in settings.items() if not name.startswith(PREFIX) and name not in around}
    made = find_recipe(recipe, model, **{**changes, **own})
    set_here: dict[str, Any] = {k: None if v == "none" else v for k, v in around.items()}
    done = replace(adjustments or Adjustments(), **set_here)
    done, options = assign_confounds(model, done, options)
    return Variant(short_name(word), find_entry(model).name, options, recipe, made, at[2] if at else "", done)
