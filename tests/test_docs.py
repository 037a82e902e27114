"""The documentation: tables in the raw pages are those of the code, every model and command has its page."""

from __future__ import annotations

import re
import shlex
import sys
import tomllib
from pathlib import Path

import pytest

from bnt.cli._main import COMMANDS, find_command
from bnt.cli._parsing import parse
from bnt.models._catalog import CATALOG

DOCS = Path(__file__).resolve().parents[1] / "docs"
sys.path.insert(0, str(DOCS))

import command_pages  # noqa: E402
import tables  # noqa: E402


@pytest.mark.parametrize("page", tables.pages(), ids=lambda page: page.stem)
def test_the_tables_of_a_page_are_current(page):
    text = page.read_text(encoding="utf-8")
    assert tables.filled(text) == text, "run: python docs/tables.py"


def test_every_model_has_a_family():
    marks = [tables.MARK.findall(page.read_text(encoding="utf-8")) for page in (DOCS / "families").glob("*.md")]
    named = [name for found in marks for _, _, names, _ in found for name in names.split()]
    assert sorted(named) == sorted(entry.name for entry in CATALOG)


def test_the_table_of_onnx_has_every_network():
    text = (DOCS / "sharing.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| `([\w-]+)` \| (?:yes|no) \|", text, re.MULTILINE)
    assert named == [entry.name for entry in CATALOG if entry.trains_in_epochs]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_example_of_a_command_is_understood(name):
    program, command, *words = shlex.split(COMMANDS[name].example)
    assert (program, command) == ("bnt", name)
    parse(find_command(name), name, None, words)


def test_every_command_has_a_page_of_the_guide_beside_its_own():
    assert list(command_pages.GUIDE) == list(COMMANDS)
    assert [name for name, page in command_pages.GUIDE.items() if not (DOCS / f"{page}.md").is_file()] == []


def test_every_file_of_the_package_that_is_not_python_goes_into_a_wheel():
    settings = tomllib.loads((DOCS.parent / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["bnt"]
    package = DOCS.parent / "src" / "bnt"
    packed = {file for pattern in settings for file in package.glob(pattern)}
    others = {file for file in package.rglob("*") if file.is_file() and file.suffix not in (".py", ".pyc")}
    assert others
    assert sorted(map(str, others - packed)) == []


def test_no_page_links_to_a_page_that_is_not_there():
    lost = []
    for page in [*DOCS.glob("*.md"), *(DOCS / "families").glob("*.md"), *DOCS.parent.glob("*.md")]:
        for link in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            made = (page.parent / link).resolve().is_relative_to(DOCS / "gallery")  # when the pages are built
            if not made and not (page.parent / link).exists():
                lost.append(f"{page.name}: {link}")
    assert lost == []
