"""Code in a folder that one was given is not run, unless the user names the file."""

from __future__ import annotations

import json
import re
import shutil
from hashlib import sha256
from pathlib import Path

import pytest

import bnt
from bnt.cli._main import main
from bnt.errors import BadInput
from bnt.models._own import remember
from bnt.paper._grid import variants_of
from bnt.training import TrainedRun
from bnt.training._trained import seal

NET = """
from pathlib import Path
from subprocess import run
from torch import nn

with open(Path(__file__).with_name("ran.txt"), "a") as file:
    file.write("x")

class Net(nn.Module):
    training = {"lr": 0.005}
    def __init__(self, n_rois, n_classes):
        super().__init__()
        self.head = nn.Linear(n_rois, n_classes)
    def forward(self, x):
        return self.head(x.mean(1))
"""


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trust") / "cohort"
    bnt.simulate_cohort(n_subjects=60, n_rois=14, n_sites=2, seed=0, series=False).save(folder)
    return folder


@pytest.fixture(scope="module")
def made(cohort, tmp_path_factory):
    """What someone else made: a study with one run of a model of their own, and the file."""
    folder = tmp_path_factory.mktemp("theirs")
    (folder / "net.py").write_text(NET)
    words = ["--models", f"{folder}/net.py:Net", "svm", "--splits", "2", "--epochs", "1", "--jobs", "1"]
    assert main(["compare", str(cohort), *words, "--out", str(folder / "study")]) == 0
    return folder


@pytest.fixture
def given(made, tmp_path, monkeypatch):
    """The same study as it comes to someone who has never trained: the file is in the run's folder, which names it."""
    monkeypatch.setenv("BNT_STATE", str(tmp_path / "state"))
    study = tmp_path / "study"
    shutil.copytree(made / "study", study)
    run = next(study.glob("runs/net*split0*"))
    (run / "net.py").write_text(NET)
    for file in (study / "study.json", *study.glob("runs/net*/config.toml")):
        file.write_text(file.read_text().replace(str(made / "net.py"), str(run / "net.py")))
    for folder in study.glob("runs/net*"):
        seal(folder)
    return run


def ran(folder: Path) -> bool:
    """Whether the file of the model was run since this was asked last."""
    try:
        (folder / "ran.txt").unlink()
    except FileNotFoundError:
        return False
    return True


def commands(run: Path, cohort: Path) -> dict[str, list[str]]:
    return {
        "predict": ["predict", str(run), str(cohort)],
        "explain": [
            "explain",
            str(run),
            str(cohort),
            "--permutations",
            "9",
            "--out",
            str(run.parents[2] / "explained"),
        ],
        "export": ["export", str(run), str(run.parents[2] / "exported")],
    }


@pytest.mark.parametrize("command", ["predict", "explain", "export"])
@pytest.mark.usefixtures("undrawn")
def test_a_file_of_the_folder_is_run_only_if_it_is_named(command, given, cohort, capsys):
    words = commands(given, cohort)[command]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert str(given / "net.py") in said
    assert "--model-file" in said
    assert not ran(given)
    assert main([*words, "--model-file", str(given / "net.py")]) == 0
    assert ran(given)


def test_an_option_names_no_file_either(given, cohort, tmp_path, capsys):
    """The base of an ensemble is a model too: only one of the catalogue."""
    run = tmp_path / "linear"
    assert main(["train", str(cohort), "--model", "atlas-ensemble", "--option", "base=ridge", "--out", str(run)]) == 0
    config = run / "config.toml"
    config.write_text(config.read_text().replace('base = "ridge"', f'base = "{given}/net.py:Net"'))
    seal(run)
    capsys.readouterr()
    assert main(["predict", str(run), str(cohort)]) == 2
    assert "choose a classical model" in capsys.readouterr().err
    assert not ran(given)


def test_other_ways_into_a_run_are_closed_too(given, cohort):
    with pytest.raises(BadInput, match="model_file"):
        TrainedRun(given)
    with pytest.raises(BadInput, match="model_file"):
        bnt.BrainNetworkClassifier.load(given)
    assert not ran(given)
    named = bnt.BrainNetworkClassifier.load(given, model_file=given / "net.py")
    assert named.predict_proba(bnt.load_cohort(cohort)).shape == (60, 2)


@pytest.mark.usefixtures("undrawn")
def test_pages_are_drawn_without_running_it(given, made):
    ran(made)
    for folder in (given, given.parents[1]):
        assert main(["report", str(folder)]) == 0
        text = (folder / "report.html").read_text()
        assert "net.py:Net" in text
        assert "lr=0.005" in text  # what the class says of its training is in the command as a change
    assert [variant.model for variant in variants_of(given.parents[1])] == ["svm"]
    assert not ran(given)
    assert not ran(made)


def test_who_trained_with_a_file_need_not_name_it(made, given, cohort, monkeypatch, tmp_path, capsys):
    """It is remembered outside of the run, by path and content; in a run's folder it must still be named."""
    for file in given.glob("config.toml"):
        file.write_text(file.read_text().replace(str(given / "net.py"), str(tmp_path / "net.py")))
    seal(given)
    (tmp_path / "net.py").write_text(NET)
    with pytest.raises(BadInput, match="model_file"):
        TrainedRun(given)
    words = ["train", str(cohort), "--model", f"{tmp_path}/net.py:Net", "--epochs", "1", "--out", str(tmp_path / "run")]
    assert main(words) == 0
    known = json.loads((tmp_path / "state" / "own_models.json").read_text())
    assert known == {str(tmp_path / "net.py"): [sha256(NET.encode()).hexdigest()]}
    assert main(["predict", str(given), str(cohort)]) == 0
    assert main(["predict", str(tmp_path / "run"), str(cohort)]) == 0

    (tmp_path / "run" / "net.py").write_text(NET)
    config = tmp_path / "run" / "config.toml"
    config.write_text(config.read_text().replace(str(tmp_path / "net.py"), str(tmp_path / "run" / "net.py")))
    seal(tmp_path / "run")
    remember(f"{tmp_path}/run/net.py:Net", sha256(NET.encode()).hexdigest())
    with pytest.raises(BadInput, match="model_file"):
        TrainedRun(tmp_path / "run")


def test_workers_and_estimators_remember_it_too(given, cohort, tmp_path):
    (tmp_path / "net.py").write_text(NET)
    words = ["compare", str(cohort), "--models", f"{tmp_path}/net.py:Net", "--splits", "2", "--epochs", "1"]
    assert main([*words, "--jobs", "2", "--out", str(tmp_path / "mine")]) == 0
    assert str(tmp_path / "net.py") in json.loads((tmp_path / "state" / "own_models.json").read_text())
    (tmp_path / "other.py").write_text(NET)
    source = bnt.load_cohort(cohort)
    fitted = bnt.BrainNetworkClassifier(model=f"{tmp_path}/other.py:Net", epochs=1).fit(source, "diagnosis")
    fitted.save(tmp_path / "saved")
    assert bnt.BrainNetworkClassifier.load(tmp_path / "saved").predict_proba(source).shape == (60, 2)


def test_a_saved_estimator_names_no_other_file(given, cohort, tmp_path):
    source = bnt.load_cohort(cohort)
    bnt.BrainNetworkClassifier(model="svm").fit(source, "diagnosis").save(tmp_path / "saved")
    note = tmp_path / "saved" / "estimator.json"
    note.write_text(re.sub(r'"model": "svm"', json.dumps({"model": f"{given}/net.py:Net"})[1:-1], note.read_text()))
    assert "net.py:Net" in note.read_text()
    seal(tmp_path / "saved")
    bnt.BrainNetworkClassifier.load(tmp_path / "saved").fit(source, "diagnosis")
    assert not ran(given)


def test_another_file_than_the_one_trained_with_is_not_run(given, tmp_path):
    (tmp_path / "other.py").write_text(NET + "# edited\n")
    with pytest.raises(BadInput, match="other.py is not the file that"):
        TrainedRun(given, model_file=tmp_path / "other.py")
    assert not ran(tmp_path)
    with pytest.raises(BadInput, match="svm"):
        TrainedRun(next(given.parent.glob("svm*split0*")), model_file=given / "net.py")


def test_a_folder_cannot_call_whatever_the_file_imports(given, tmp_path):
    """The file is trusted, the folder is not: it asks for subprocess.run, with options of its own."""
    config = given / "config.toml"
    text = config.read_text().replace("net.py:Net", "net.py:run")
    asked = f'[options]\nargs = "touch {tmp_path}/called"\nshell = true\n'
    config.write_text(text.replace("[options]\n", asked))
    assert "shell = true" in config.read_text()
    seal(given)
    with pytest.raises(BadInput, match="keeps no weights"):
        TrainedRun(given, model_file=given / "net.py")
    assert not (tmp_path / "called").exists()


def test_what_is_run_is_the_source_that_was_read(tmp_path):
    """A compiled file that someone put beside the source is not run in its place."""
    import py_compile

    file = tmp_path / "net.py"
    file.write_text("class Net: bad = True\n")
    py_compile.compile(str(file), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    file.write_text(NET)
    assert bnt.create_model(f"{file}:Net", n_rois=4).n_rois == 4


def test_a_memory_that_cannot_be_kept_or_read_stops_no_training(tmp_path, monkeypatch):
    (tmp_path / "net.py").write_text(NET)
    monkeypatch.setenv("BNT_STATE", str(tmp_path / "net.py"))
    with pytest.warns(UserWarning, match="not remembered"):
        remember(f"{tmp_path}/net.py:Net", "0" * 64)
    monkeypatch.setenv("BNT_STATE", str(tmp_path))
    (tmp_path / "own_models.json").write_text("[" * 10)
    remember(f"{tmp_path}/net.py:Net", "0" * 64)
    assert json.loads((tmp_path / "own_models.json").read_text()) == {str(tmp_path / "net.py"): ["0" * 64]}
