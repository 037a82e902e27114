"""Conditions on participants' columns, as in ``bnt select --where``; parsed without evaluating code.

``mean_fd < 0.2 and (site != 'NYU' or not sex = F)``. A comparison is a column, one of ``= == != < <= > >=`` or ``in``,
and a number or word (in quotes where it has spaces); ``in`` takes a list, ``site in (NYU, 'UM 1')``. Columns with
spaces stand in backquotes. A missing value makes a comparison neither true nor false, as in SQL: whoever has none is
chosen neither by ``age < 30`` nor by ``not age < 30``.
"""

from __future__ import annotations

import operator
import re
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bnt.cohort._inspect import as_code
from bnt.errors import BadInput

_TOKEN = re.compile(
    r"""\s*(?:(?P<op><=|>=|!=|==|=|<|>|\(|\)|,)|'(?P<single>[^']*)'|"(?P<double>[^"]*)"|`(?P<column>[^`]*)`"""
    r"""|(?P<word>[^\s<>=!(),'"`]+))"""
)
_ORDER = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


class Known(NamedTuple):
    """For whom a condition is true, and for whom it is false; for the others it is unknown."""

    true: np.ndarray
    false: np.ndarray


def meets(table: pd.DataFrame, text: str) -> np.ndarray:
    """Return who meets a condition, as a mask over the rows.

    Parameters
    ----------
    table : DataFrame
    text : str
        A condition, or ``COLUMN=VALUE,VALUE``.

    Examples
    --------
    >>> people = pd.DataFrame({"age": [20, 30, None], "sex": ["F", "M", "F"]})
    >>> meets(people, "age >= 25 or sex = F").tolist()
    [True, True, True]
    >>> meets(people, "not age < 25").tolist()
    [False, True, False]
    """
    name, equals, values = text.partition("=")
    if equals and name in table and not re.search(r"^=|['\"()<>]|\s(and|or)\s", values):
        return np.asarray(table[name].map(as_code).isin(values.split(",")))
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
            match = _TOKEN.match(text, place)
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
        number = _number(word)
        if number is None or not pd.api.types.is_numeric_dtype(column):
            what = repr(word) if number is None else f"column {column.name!r}"
            raise self.wrong(f"orders {column.name!r} by {sign}, and {what} is no number")
        return np.asarray(_ORDER[sign](column.astype(float).to_numpy(), number))


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None


def _equal(column: pd.Series, words: list[str]) -> np.ndarray:
    """Return where a column has one of the values: numbers by value, words as they are written."""
    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
        wanted: list[Any] = [n for word in words if (n := _number(word)) is not None]
        return np.asarray(column.astype(float).isin(wanted))
    return np.asarray(column.map(as_code).isin(words))
