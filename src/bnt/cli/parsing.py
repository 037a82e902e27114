"""Words of the command line to a command's options, refusals in one sentence.

tyro parses and writes the help. It answers a mistake with a box of several lines, takes the last of an option given
twice without a word, and reports a misspelt option as whatever is missing without it; these are put into words here.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from contextlib import redirect_stderr
from dataclasses import fields
from difflib import get_close_matches
from textwrap import dedent
from typing import TypeVar

import tyro

from bnt.errors import BadInput

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


def _check_names(options: type, words: list[str]) -> None:
    names = [field.name.replace("_", "-") for field in fields(options)]
    known = ["--help", *(f"--{name}" for name in names), *(f"--no-{name}" for name in names)]
    given = [word.split("=")[0].replace("_", "-") for word in words if word.startswith("--") and word != "--"]
    for name in given:
        if name not in known:
            near = get_close_matches(name[2:], names, n=1, cutoff=0.7)
            raise BadInput(f"there is no option {name}; {f'did you mean --{near[0]}?' if near else 'see --help.'}")
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
