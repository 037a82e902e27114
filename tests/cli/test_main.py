"""The command itself: quick to answer, sentences and exit codes on bad input."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bnt.cli._main import COMMANDS, main
from bnt.models import CATALOG


def test_overview_names_every_command(capsys):
    assert main(["--help"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in COMMANDS)


def test_importing_bnt_and_asking_for_help_import_nothing_heavy():
    heavy = "torch nilearn pandas scipy sklearn matplotlib numpy"
    code = (
        "import sys; from bnt.cli._main import main; main(['--help']); import bnt; "
        f"print(sorted(set('{heavy}'.split()) & set(sys.modules)))"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_each_command_imports_nothing_heavy(command):
    heavy = "torch nilearn pandas scipy sklearn matplotlib"
    code = (
        f"import sys; from bnt.cli._main import main; code = main(['{command}', '--help']); "
        f"print(code, sorted(set('{heavy}'.split()) & set(sys.modules)))"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines()[-1] == "0 []"


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
    from bnt.cli import _models_command as models_command

    def interrupted(options):
        raise KeyboardInterrupt

    monkeypatch.setattr(models_command, "run", interrupted)
    assert main(["models"]) == 130


def test_version(capsys):
    import bnt

    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == bnt.__version__


def test_every_public_name_can_be_imported():
    import bnt

    for name in bnt.__all__:
        assert getattr(bnt, name) is not None


@pytest.mark.parametrize("model", [entry.name for entry in CATALOG])
def test_a_model_is_described_without_marks_of_documentation_pages(model, capsys):
    assert main(["models", model]) == 0
    printed = capsys.readouterr().out
    assert "Options and defaults" in printed
    assert f'"{model}:NAME=VALUE' in printed  # how bnt compare and bnt tune take them
    assert "``" not in printed
    assert ":class:" not in printed
    assert "()\n" not in printed.splitlines()[0] + "\n"
