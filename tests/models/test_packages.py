"""Models of other installed packages, found by entry points; and the template of a model of one's own."""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
import pytest

import bnt
from bnt.cli._main import main
from bnt.errors import BadInput
from bnt.models import find_entry, model_options
from bnt.models._registry import _entry_points
from bnt.training import TrainedRun

CODE = """
from torch import nn

class Net(nn.Module):
    "Profiles, averaged."
    def __init__(self, n_rois, n_classes, hidden=4):
        super().__init__()
        self.first, self.head = nn.Linear(n_rois, hidden), nn.Linear(hidden, n_classes)
    def forward(self, x):
        return self.head(self.first(x).mean(1))

NUMBER = 3
"""


def install(folder: Path, package: str, version: str, points: str, code: str = CODE) -> None:
    """Lay a package out as pip does."""
    (folder / f"{package}.py").write_text(code)
    for old in folder.glob(f"{package}-*.dist-info/*"):
        old.unlink()
    info = folder / f"{package}-{version}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(f"[bnt.models]\n{points}\n")
    _entry_points.cache_clear()


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder of installed packages, seen by this process and those that it starts."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", ":".join([str(folder), str(Path(bnt.__file__).parents[1])]))
    yield folder
    for name in ("nicenet", "othernet"):
        sys.modules.pop(name, None)


@pytest.fixture
def cohort(tmp_path):
    bnt.simulate_cohort(n_subjects=60, n_rois=14, n_sites=2, seed=0, series=False).save(tmp_path / "cohort")
    return tmp_path / "cohort"


def test_a_model_of_an_installed_package_is_compared_by_its_name(site, cohort, tmp_path):
    install(site, "nicenet", "1.2", "nice = nicenet:Net")
    words = ["--models", "nice:hidden=3", "--splits", "1", "--change", "epochs=1", "--jobs", "1"]
    assert main(["compare", str(cohort), *words, "--out", str(tmp_path / "study")]) == 0
    runs = pd.read_csv(tmp_path / "study" / "runs.csv")
    assert runs["model"].tolist() == ["nice"]
    assert model_options("nice") == {"hidden": 4}


def test_it_is_listed_without_being_imported(site, capsys):
    install(site, "nicenet", "1.2", "nice = nicenet:Net\nsvm = nicenet:Net", "raise RuntimeError('imported')")
    assert main(["models", "--filter", "bnt", "--no-parameters"]) == 0
    printed = capsys.readouterr().out
    assert "nice: of the installed package nicenet 1.2" in printed
    assert "bnt's own model" in printed
    assert not find_entry("svm").is_own
    assert "nicenet" not in sys.modules


def test_a_run_is_bound_to_the_version_of_the_package(site, cohort, tmp_path):
    install(site, "nicenet", "1.2", "nice = nicenet:Net")
    words = ["--model", "nice", "--change", "epochs=1", "--out", str(tmp_path / "run")]
    assert main(["train", str(cohort), *words]) == 0
    assert TrainedRun(tmp_path / "run").learner.predict(bnt.load_cohort(cohort)).shape == (60, 2)
    install(site, "nicenet", "2.0", "nice = nicenet:Net")
    with pytest.raises(BadInput, match="version"):
        TrainedRun(tmp_path / "run")


def test_what_cannot_be_imported_names_the_package(site):
    install(site, "nicenet", "1.2", "nice = nicenet:Missing\nnumber = nicenet:NUMBER")
    with pytest.raises(BadInput, match=r"'nice' of nicenet 1\.2 cannot be imported.*Missing"):
        find_entry("nice")
    with pytest.raises(BadInput, match="neither a class nor a function"):
        find_entry("number")


def test_a_name_of_two_packages_is_refused(site):
    install(site, "nicenet", "1.2", "nice = nicenet:Net")
    install(site, "othernet", "0.1", "nice = othernet:Net")
    with pytest.raises(BadInput, match=r"nicenet 1\.2") as refused:
        find_entry("nice")
    assert "othernet 0.1" in str(refused.value)


def test_the_template_runs_as_it_is_written(cohort, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["models", "--new", "my_net.py"]) == 0
    assert "my_net.py:MyModel" in capsys.readouterr().out
    assert "my_net.py:MyModel svm" in Path("my_net.py").read_text()
    words = ["--models", "my_net.py:MyModel", "svm", "--splits", "1", "--change", "epochs=1", "--jobs", "1"]
    assert main(["compare", str(cohort), *words, "--out", "study"]) == 0
    assert len(pd.read_csv("study/runs.csv")) == 2


def test_the_template_overwrites_nothing(tmp_path, capsys):
    (tmp_path / "mine.py").write_text("x = 1\n")
    assert main(["models", "--new", str(tmp_path / "mine.py")]) == 2
    assert "mine.py" in capsys.readouterr().err
    assert (tmp_path / "mine.py").read_text() == "x = 1\n"
    assert main(["models", "--new", str(tmp_path / "no folder" / "mine.py")]) == 2
    assert main(["models", "--new", str(tmp_path / "mine.txt")]) == 2
