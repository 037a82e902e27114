"""Parsing of command-line options: errors in one sentence, the command as it was typed, models and conditions."""

from __future__ import annotations

import io
import operator
import re
import shlex
import tomllib
from collections import Counter
from contextlib import redirect_stderr
from dataclasses import is_dataclass, replace
from difflib import get_close_matches
from textwrap import dedent
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, get_type_hints

import tyro

from bnt.errors import BadInput

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from bnt.studies._job import Variant
    from bnt.training import Adjustments

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


_CONDITION = re.compile(
    r"""\s*(?:(?P<op><=|>=|!=|==|=|<|>|\(|\)|,)|'(?P<single>[^']*)'|"(?P<double>[^"]*)"|`(?P<column>[^`]*)`"""
    r"""|(?P<word>[^\s<>=!(),'"`]+))"""
)
_ORDER = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


# -- conditions of bnt select --------------------------------------------------------------------------


class Known(NamedTuple):
    """For whom a condition is true, and for whom it is false; for the others it is unknown."""

    true: np.ndarray
    false: np.ndarray


def meets(table: pd.DataFrame, text: str) -> np.ndarray:
    """Return who meets a condition of ``bnt select --where``, as a mask over the rows; no code is evaluated.

    ``mean_fd < 0.2 and (site != 'NYU' or not sex = F)``. A comparison is a column, one of ``= == != < <= > >=`` or
    ``in``, and a number or word (in quotes where it has spaces); ``in`` takes a list, ``site in (NYU, 'UM 1')``.
    Columns with spaces stand in backquotes. A missing value makes a comparison neither true nor false, as in SQL:
    whoever has none is chosen neither by ``age < 30`` nor by ``not age < 30``.

    Parameters
    ----------
    text : str
        A condition, or ``COLUMN=VALUE,VALUE``.

    Examples
    --------
    >>> import pandas as pd
    >>> people = pd.DataFrame({"age": [20, 30, None], "sex": ["F", "M", "F"]})
    >>> meets(people, "age >= 25 or sex = F").tolist()
    [True, True, True]
    >>> meets(people, "not age < 25").tolist()
    [False, True, False]
    """
    from bnt.cohort._inspect import as_code

    name, equals, values = text.partition("=")
    if equals and name in table and not re.search(r"^=|['\"()<>]|\s(and|or)\s", values):
        return table[name].map(as_code).isin([value.strip() for value in values.split(",")]).to_numpy()
    parser = _Parser(table, text)
    found = parser.either()
    if parser.peek() is not None:
        raise parser.wrong("is not understood")
    return found.true


class _Parser:
    """Reads a condition from left to right: ``or`` binds less than ``and``, ``and`` less than ``not``."""

    def __init__(self, table: pd.DataFrame, text: str) -> None:
        self.table, self.text, self.at = table, text, 0
        self.tokens: list[tuple[str, str]] = []
        place, text = 0, text.rstrip()
        while place < len(text):
            match = _CONDITION.match(text, place)
            if match is None:
                raise self.wrong(f"is not understood from {text[place:]!r} on")
            self.tokens.append((str(match.lastgroup), match[str(match.lastgroup)]))
            place = match.end()

    def wrong(self, why: str) -> BadInput:
        here = f" at {self.tokens[self.at][1]!r}" if self.at < len(self.tokens) and "understood" in why else ""
        return BadInput(
            f"The condition {self.text!r} {why}{here}: write for example \"mean_fd < 0.2 and site != 'NYU'\"; the "
            f"columns are {', '.join(map(str, self.table.columns))}.",
            "where",
        )

    def peek(self, *words: str) -> str | None:
        """Return the next token, where it is one of ``words`` if any are given; words in quotes are none of them."""
        if self.at >= len(self.tokens):
            return None
        group, token = self.tokens[self.at]
        if not words:
            return token
        return token.lower() if group in ("op", "word") and token.lower() in words else None

    def take(self, *words: str) -> bool:
        if self.peek(*words) is None:
            return False
        self.at += 1
        return True

    def either(self) -> Known:
        found = self.both()
        while self.take("or"):
            other = self.both()
            found = Known(found.true | other.true, found.false & other.false)
        return found

    def both(self) -> Known:
        found = self.negated()
        while self.take("and"):
            other = self.negated()
            found = Known(found.true & other.true, found.false | other.false)
        return found

    def negated(self) -> Known:
        if self.take("not"):
            found = self.negated()
            return Known(found.false, found.true)
        if self.take("("):
            found = self.either()
            if not self.take(")"):
                raise self.wrong("lacks a closing parenthesis")
            return found
        return self.comparison()

    def value(self) -> str:
        if self.at >= len(self.tokens) or self.tokens[self.at][0] not in ("word", "single", "double"):
            raise self.wrong("lacks a value")
        self.at += 1
        return self.tokens[self.at - 1][1]

    def comparison(self) -> Known:
        if self.at >= len(self.tokens) or self.tokens[self.at][0] not in ("word", "column", "double"):
            raise self.wrong("lacks a comparison")
        name = self.tokens[self.at][1]
        if name not in self.table:
            raise self.wrong(f"names {name!r}, which is no column")
        self.at += 1
        column = self.table[name]
        there = column.notna().to_numpy()
        sign = next((s for s in ("=", "==", "!=", *_ORDER, "in") if self.take(s)), None)
        if sign is None:
            raise self.wrong(f"does not compare {name!r} with anything")
        if sign in _ORDER:
            mask = self.ordered(column, sign, self.value())
        else:
            mask = _equal(column, self.listed() if sign == "in" else [self.value()])
            mask = ~mask if sign == "!=" else mask
        return Known(mask & there, ~mask & there)

    def listed(self) -> list[str]:
        if not self.take("("):
            raise self.wrong("lacks a list in parentheses after 'in'")
        values = [self.value()]
        while self.take(","):
            values.append(self.value())
        if not self.take(")"):
            raise self.wrong("lacks a closing parenthesis")
        return values

    def ordered(self, column: pd.Series, sign: str, word: str) -> np.ndarray:
        from pandas.api.types import is_numeric_dtype

        number = _number(word)
        if number is None or not is_numeric_dtype(column):
            what = repr(word) if number is None else f"column {column.name!r}"
            raise self.wrong(f"orders {column.name!r} by {sign}, and {what} is no number")
        return _ORDER[sign](column.astype(float).to_numpy(), number)


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None


def _equal(column: pd.Series, words: list[str]) -> np.ndarray:
    """Return where a column has one of the values: numbers by value, words as they are written."""
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    from bnt.cohort._inspect import as_code

    if is_numeric_dtype(column) and not is_bool_dtype(column):
        wanted: list[Any] = [n for word in words if (n := _number(word)) is not None]
        return column.astype(float).isin(wanted).to_numpy()
    return column.map(as_code).isin(words).to_numpy()
