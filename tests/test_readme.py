"""The README's Python runs as it is printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[1] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)


def test_there_is_python_to_run():
    assert BLOCKS


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_python_of_the_readme_runs(number, capsys):
    exec(compile(BLOCKS[number], f"{README.name}, block {number}", "exec"), {})
    assert capsys.readouterr().out


def test_every_command_of_the_readme_exists():
    from bnt.cli._main import COMMANDS

    named = re.findall(r"(?:^|`)bnt ([a-z]+)", README.read_text(), flags=re.MULTILINE)
    assert named
    assert set(named) <= set(COMMANDS)
