"""The public names: stubs, the reference page and the examples in docstrings agree with one another."""

from __future__ import annotations

import ast
import doctest
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import bnt

PAGE = Path(__file__).resolve().parents[1] / "docs" / "api.md"
PACKAGES = [name for name in bnt.__all__ if hasattr(getattr(bnt, name), "__path__")]
HEAVY = {"torch", "pandas", "nilearn", "sklearn", "scipy", "matplotlib"}


def stub_names(package: str) -> list[str]:
    """Return ``__all__`` of a package's stub."""
    folder = Path(bnt.__file__).parent / package
    tree = ast.parse((folder / "__init__.pyi").read_text())
    found = [node.value for node in tree.body if isinstance(node, ast.Assign) and node.targets[0].id == "__all__"]
    return ast.literal_eval(found[0])


def public_names() -> dict[str, object]:
    """Return every public object by the name under which the page lists it: the shortest."""
    names = {f"bnt.{name}": getattr(bnt, name) for name in stub_names("") if name not in PACKAGES}
    known = {id(value) for value in names.values()}
    for package in PACKAGES:
        for name in stub_names(package):
            value = getattr(getattr(bnt, package), name)
            if id(value) not in known or isinstance(value, str | int | float):
                names[f"bnt.{package}.{name}"] = value
    del names["bnt.__version__"]
    return names


NAMES = public_names()


def described() -> list[str]:
    """Return the names that the reference page describes."""
    return re.findall(r"\.\. auto(?:class|function|data|exception):: (\S+)", PAGE.read_text())


@pytest.mark.parametrize("package", ["", *PACKAGES])
def test_a_package_has_the_names_of_its_stub(package):
    module = import_module(f"bnt.{package}".rstrip("."))
    assert sorted(module.__all__) == sorted(stub_names(package))
    for name in module.__all__:
        assert getattr(module, name) is not None
    with pytest.raises(AttributeError):
        module.no_such_name  # noqa: B018


def test_import_is_light():
    code = f"import bnt, sys; print(sorted({HEAVY!r} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_the_reference_lists_exactly_the_public_names():
    assert sorted(described()) == sorted(NAMES)


def examples(name: str) -> list[doctest.DocTest]:
    """Return the examples in the docstring of a function or class, and of its methods."""
    value = NAMES[name]
    scope = {"__name__": "example"}
    found = doctest.DocTestFinder(exclude_empty=True).find(value, name, module=False, globs=scope)
    return [one for one in found if one.examples]


OBJECTS = [name for name, value in NAMES.items() if callable(value)]


@pytest.mark.parametrize("name", OBJECTS)
def test_the_example_of_a_public_name_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = examples(name)
    assert found, f"{name} has no example in its docstring"
    for one in found:
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE, verbose=False)
        told: list[str] = []
        runner.run(one, out=told.append)
        assert not runner.failures, "".join(told)


def test_the_examples_of_the_reference_run(tmp_path, monkeypatch):
    """The page has the examples of constants, which have no docstring."""
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text()
    for name, value in NAMES.items():
        if not callable(value):
            assert re.search(rf"^>>> .*\b{name.rpartition('.')[2]}\b", text, flags=re.MULTILINE), name
    one = doctest.DocTestParser().get_doctest(text, {}, PAGE.name, str(PAGE), 0)
    runner = doctest.DocTestRunner(verbose=False)
    told: list[str] = []
    runner.run(one, out=told.append)
    assert not runner.failures, "".join(told)
