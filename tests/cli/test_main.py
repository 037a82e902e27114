"""The command itself: quick to answer, sentences and exit codes on bad input."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from typing import Annotated

import pytest
import tyro

from bnt.cli._main import COMMANDS, main, with_flag
from bnt.errors import BadInput
from bnt.models._catalog import CATALOG


def test_overview_names_every_command(capsys):
    assert main(["--help"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in COMMANDS)


def test_importing_bnt_and_every_help_import_nothing_heavy():
    code = """
import sys
import bnt
from bnt.cli._main import COMMANDS, main

heavy = {"torch", "nilearn", "pandas", "scipy", "sklearn", "matplotlib"}
for words in (["--help"], *([command, "--help"] for command in COMMANDS)):
    assert main(words) == 0, words
    assert not heavy & set(sys.modules), (words, heavy & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("usage: bnt") == 1 + len(COMMANDS)


@dataclass
class Group:
    trials_per_split: int = 1


@dataclass
class Options:
    cohort: tyro.conf.Positional[str]
    splits: int = 1
    group: Annotated[Group, tyro.conf.arg(name="")] = field(default_factory=Group)


@pytest.mark.parametrize(
    ("parameter", "shown"),
    [
        ("splits", "It is 0 (--splits)."),
        ("n_splits", "It is 0 (--splits)."),  # counts have no n_ on the command line
        ("trials_per_split", "It is 0 (--trials-per-split)."),
        ("cohort", "It is 0."),  # positional: it has no flag
        ("elsewhere", "It is 0."),
        ("", "It is 0."),
    ],
)
def test_the_flag_of_the_parameter_is_added_to_the_librarys_sentence(parameter, shown):
    assert with_flag(BadInput("It is 0.", parameter=parameter), Options) == shown
    assert with_flag(BadInput("Choose another --splits.", parameter="splits"), Options) == "Choose another --splits."


def test_unknown_command_suggests_the_nearest(capsys):
    assert main(["trian"]) == 2
    assert "did you mean 'train'?" in capsys.readouterr().err


def test_bad_input_is_one_sentence_and_exit_code_2(capsys, tmp_path):
    assert main(["info", str(tmp_path / "nowhere")]) == 2
    error = capsys.readouterr().err
    assert "nowhere" in error
    assert len(error.strip().splitlines()) == 1
    assert main(["train", str(tmp_path), "--out", str(tmp_path / "run")]) == 2
    assert not (tmp_path / "run").exists()


def test_unknown_option_has_exit_code_2(capsys):
    assert main(["train", "--no-such-option"]) == 2


def test_interruption_has_exit_code_130(monkeypatch, capsys):
    from bnt.cli._model_commands import Models

    def interrupted(options):
        raise KeyboardInterrupt

    monkeypatch.setattr(Models, "run", interrupted)
    assert main(["models"]) == 130


def test_version(capsys):
    import bnt

    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == bnt.__version__


def test_every_public_name_can_be_imported():
    import bnt

    for name in bnt.__all__:
        assert getattr(bnt, name) is not None


def test_models_are_listed_with_their_sizes(capsys):
    assert main(["models", "--rois", "16", "--no-parameters"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [entry.name for entry in CATALOG]


@pytest.mark.parametrize("model", [entry.name for entry in CATALOG])
def test_a_model_is_described_without_marks_of_documentation_pages(model, capsys):
    assert main(["models", model]) == 0
    printed = capsys.readouterr().out
    assert "Options and defaults" in printed
    assert f'"{model}:NAME=VALUE' in printed  # how bnt compare and bnt tune take them
    assert "``" not in printed
    assert ":class:" not in printed
    assert "()\n" not in printed.splitlines()[0] + "\n"
