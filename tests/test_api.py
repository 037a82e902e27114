"""The public names: stubs, the reference page and the examples in docstrings agree."""

from __future__ import annotations

import ast
import doctest
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bnt

PAGE = Path(__file__).resolve().parents[1] / "docs" / "api.md"
HEAVY = {"torch", "pandas", "nilearn", "sklearn", "scipy", "matplotlib"}
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL


def stub_names(package: str) -> list[str]:
    """Return ``__all__`` of a package's stub."""
    tree = ast.parse((Path(bnt.__file__).parent / package / "__init__.pyi").read_text())
    return next(ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign))


PACKAGES = [name for name in stub_names("") if (Path(bnt.__file__).parent / name / "__init__.pyi").is_file()]


def public_names() -> dict[str, object]:
    """Return every public object under its shortest name, the one that the reference lists."""
    names = {f"bnt.{name}": getattr(bnt, name) for name in stub_names("") if name not in [*PACKAGES, "__version__"]}
    short = {name.rpartition(".")[2] for name in names}
    for package in PACKAGES:
        for name in set(stub_names(package)) - short:
            names[f"bnt.{package}.{name}"] = getattr(getattr(bnt, package), name)
    return names


NAMES = public_names()


@pytest.mark.parametrize("package", ["", *PACKAGES])
def test_a_package_has_the_names_of_its_stub(package):
    module = import_module(f"bnt.{package}".rstrip("."))
    assert sorted(module.__all__) == sorted(stub_names(package))
    assert not [name for name in module.__all__ if getattr(module, name) is None]
    with pytest.raises(AttributeError):
        module.no_such_name  # noqa: B018


def test_names_at_the_top_are_those_of_their_package():
    for package in PACKAGES:
        for name in set(stub_names(package)) & set(stub_names("")):
            assert getattr(bnt, name) is getattr(getattr(bnt, package), name)


def test_import_is_light():
    code = f"import bnt, sys; print(sorted({HEAVY!r} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_the_reference_lists_exactly_the_public_names():
    listed = re.findall(r"\.\. auto(?:class|function|data|exception):: (\S+)", PAGE.read_text())
    assert sorted(listed) == sorted(NAMES)


@pytest.fixture(scope="session")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the examples open: ``cohort``, ``run``, ``study`` and a small ABIDE release."""
    from bnt.cli._main import main

    folder = tmp_path_factory.mktemp("examples")
    cohort, run, study = (str(folder / name) for name in ("cohort", "run", "study"))
    simulate = ["simulate", cohort, "--subjects", "40", "--rois", "20", "--sites", "2", "--seed", "0"]
    assert main(simulate) == 0
    small = ["--option", "n_clusters=4", "ffn=8", "n_heads=2", "--change", "epochs=1"]
    assert main(["train", cohort, "--model", "bnt", *small, "--out", run]) == 0
    compare = ["compare", cohort, "--models", "logistic", "ridge", "--splits", "2", "--jobs", "1"]
    assert main([*compare, "--out", study]) == 0
    write_release(folder / "nilearn_data" / "ABIDE_pcp")
    return folder


def write_release(root: Path) -> None:
    """Write four subjects as nilearn caches ABIDE."""
    rng = np.random.default_rng(0)
    names = [f"PITT_{50000 + i:07d}" for i in range(4)]
    folder = root / "cpac" / "filt_noglobal"
    folder.mkdir(parents=True)
    for name in names:
        header = "\t".join(f"#{i + 1}" for i in range(6))
        np.savetxt(
            folder / f"{name}_rois_cc200.1D", rng.normal(size=(120, 6)), delimiter="\t", header=header, comments=""
        )
    table = {"SUB_ID": range(50000, 50004), "SITE_ID": "PITT", "FILE_ID": names, "DX_GROUP": [1, 2, 1, 2]}
    unknown = ["HANDEDNESS_CATEGORY", "FIQ", "VIQ", "PIQ", "ADOS_TOTAL", "BMI", "EYE_STATUS_AT_SCAN", "func_mean_fd"]
    raters = ["qc_rater_1", "qc_anat_rater_2", "qc_func_rater_2", "qc_anat_rater_3", "qc_func_rater_3"]
    table |= {"AGE_AT_SCAN": 12.0, "SEX": [1, 2, 2, 1], **dict.fromkeys(unknown), **dict.fromkeys(raters, "OK")}
    pd.DataFrame(table).to_csv(root / "Phenotypic_V1_0b_preprocessed1.csv")


def run_examples(tests: list[doctest.DocTest]) -> None:
    """Run examples; a failure shows what was expected and found."""
    for one in tests:
        runner = doctest.DocTestRunner(optionflags=OPTIONS, verbose=False)
        told: list[str] = []
        runner.run(one, out=told.append)
        assert not runner.failures, "".join(told)


@pytest.mark.parametrize("name", sorted(name for name, value in NAMES.items() if callable(value)))
@pytest.mark.usefixtures("undrawn")
def test_the_example_of_a_public_name_runs(name, workplace, monkeypatch):
    monkeypatch.chdir(workplace)
    value = NAMES[name]
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = [one for one in finder.find(value, name, module=False, globs={}) if one.examples]
    assert any(one.name == name for one in found), f"{name} has no example in its docstring"
    run_examples(found)


def test_the_examples_of_private_functions_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = Path(bnt.__file__).parent
    public = {name.rpartition(".")[2] for name in NAMES}
    finder, private = doctest.DocTestFinder(exclude_empty=True), []
    for file in sorted(source.rglob("*.py")):
        if file.stem != "pyg" and "    >>> " in file.read_text():  # PyTorch Geometric is optional, and slow to import
            module = import_module(".".join(["bnt", *file.relative_to(source).with_suffix("").parts]))
            found = [one for one in finder.find(module, "") if one.examples]
            private += [one for one in found if one.name.split(".")[1] not in public]
    assert len(private) > 20
    run_examples(private)


def test_the_examples_of_the_reference_run(workplace, monkeypatch):
    """The page has the examples of constants, which have no docstring."""
    monkeypatch.chdir(workplace)
    text = PAGE.read_text().replace("```", "")
    one = doctest.DocTestParser().get_doctest(text, {}, PAGE.name, str(PAGE), 0)
    sources = " ".join(example.source for example in one.examples)
    constants = [name.rpartition(".")[2] for name, value in NAMES.items() if not callable(value)]
    assert [name for name in constants if name not in sources] == []
    run_examples([one])


def test_the_functions_of_the_architecture_page_exist():
    named = set(re.findall(r"`(bnt\.[\w.]+)`", (PAGE.parent / "architecture.md").read_text()))
    assert len(named) > 20
    for name in named:
        module, _, last = name.rpartition(".")
        assert hasattr(import_module(module), last), name
