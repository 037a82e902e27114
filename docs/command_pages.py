"""A page per command, made when the documentation is built: its help, and its example with what it printed.

The examples of :data:`bnt.cli._main.COMMANDS` are run one after the other in one folder, so that each finds what those
before it made; one that fails, fails the build.
"""

from __future__ import annotations

import io
import logging
import os
import re
import shlex
import tempfile
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

from bnt.cli._main import COMMANDS, main

# The page of the user guide that tells more.
GUIDE = {
    "simulate": "cohorts",
    "fetch": "cohorts",
    "import": "cohorts",
    "info": "cohorts",
    "select": "cohorts",
    "split": "splits",
    "audit": "splits",
    "train": "training",
    "compare": "statistics",
    "learning-curve": "statistics",
    "tune": "tuning",
    "reproduce": "reproduction",
    "predict": "predicting",
    "validate": "validating",
    "explain": "explaining",
    "report": "report",
    "export": "sharing",
    "bids-app": "installing",
    "models": "models",
    "theory": "theory",
    "bench": "benchmark",
}
# Not run when the pages are built: what they need is not there, or it takes long.
NOT_RUN = {
    "fetch": "It downloads ABIDE.",
    "import": "It is run, with its output, in [the example from XCP-D](../gallery/plot_2_xcpd.rst).",
    "bids-app": "It needs a BIDS data set.",
    "theory": "[The paper's theorems](../theory.md) shows what it prints.",
    "bench": "It measures your machine.",
}
BEFORE = {"predict": ["bnt simulate elsewhere --subjects 80 --rois 30 --sites 2 --seed 1"]}
LINES = 40  # of output that a page shows


def run(line: str) -> str:
    """Run a command as it is typed and return what it printed, without progress."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(shlex.split(line)[1:])
    if code:
        raise RuntimeError(f"{line} ended with code {code}: {err.getvalue()}")
    lines = [text.rstrip() for text in out.getvalue().splitlines()]
    more = [f"... ({len(lines) - LINES} more lines)"] if len(lines) > LINES else []
    return "\n".join(lines[:LINES] + more)


def help_of(name: str) -> str:
    """Return the help of a command, without colours and its description."""
    out = io.StringIO()
    with redirect_stdout(out):
        main([name, "--help"])
    text = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
    usage, _, rest = text.partition("\n\n")
    options = rest.partition(COMMANDS[name].example)[2]  # the last line of the description
    return "\n".join(line.rstrip() for line in [*usage.splitlines(), "", *options.strip("\n").splitlines()])


def page(name: str, output: str) -> str:
    """Return the page of a command."""
    from inspect import getdoc

    from bnt.cli._main import find_command

    command = COMMANDS[name]
    shown = (
        f"```text\n$ {command.example}\n{output}\n```"
        if output
        else f"```sh\n{command.example}\n```\n\n{NOT_RUN[name]}"
    )
    before = "".join(f"After `{line}`:\n\n" for line in BEFORE.get(name, ()))
    about = re.sub(r"(--[a-z][a-z-]*)", r"`\1`", getdoc(find_command(name)) or "")
    more = f"Guide: [{GUIDE[name].replace('-', ' ').capitalize()}](../{GUIDE[name]}.md)."
    example = f"## Example\n\n{before}{shown}"
    return f"# bnt {name}\n\n{about}\n\n{more}\n\n{example}\n\n## Options\n\n```text\n{help_of(name)}\n```\n"


def write(folder: Path) -> None:
    """Run the examples and write all pages."""
    folder.mkdir(exist_ok=True)
    logging.getLogger("fontTools").setLevel(logging.WARNING)  # PDF figures; Sphinx lets every logger speak
    os.environ |= {"COLUMNS": "88", "NO_COLOR": "1"}
    outputs = dict.fromkeys(COMMANDS, "")
    with tempfile.TemporaryDirectory() as place, chdir(place):
        for name, command in COMMANDS.items():
            for line in BEFORE.get(name, ()):
                run(line)
            if name not in NOT_RUN:
                outputs[name] = run(command.example) or "(nothing is printed)"
    for name, output in outputs.items():
        (folder / f"{name}.md").write_text(page(name, output), encoding="utf-8")
