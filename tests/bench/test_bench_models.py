"""The benchmark of models: whom it measures, in what order, and what it says of a model that cannot be made."""

from __future__ import annotations

import json
import os
import sys

import pytest

from bnt.bench import BenchSettings
from bnt.bench import _models as bench_models
from bnt.errors import BadInput
from bnt.models import count_parameters, list_models


def test_every_network_is_measured_and_bnt_first():
    names = bench_models.chosen_models()
    assert names[0] == "bnt"
    assert set(names) >= {name for name in list_models(family="network") if not name.endswith("-released")}
    assert bench_models.chosen_models(["dgm"]) == ["bnt", "dgm"]


def test_what_is_not_a_network_is_refused():
    with pytest.raises(BadInput, match="svm"):
        bench_models.chosen_models(["svm"])


def test_a_package_that_is_not_installed_is_named_with_how_to_install_it(monkeypatch):
    monkeypatch.setattr(bench_models, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match="ml4fmri is not installed.*pip install --no-deps ml4fmri"):
        bench_models.models(BenchSettings(against="ml4fmri"))


def test_only_models_that_both_have_are_compared(monkeypatch):
    monkeypatch.setattr(bench_models, "find_spec", lambda name: name)
    assert set(bench_models.shared_models("ml4fmri")) <= set(list_models(family="network"))
    with pytest.raises(BadInput, match="no 'san'"):
        bench_models.shared_models("ml4fmri", ["san"])


def test_a_packages_model_is_timed_and_weighed_in_turns_with_ours_in_processes_of_their_own(monkeypatch, tmp_path):
    # A package of the same shape as the real one: models made by sizes, which return logits and what a loss needs.
    (tmp_path / "ml4fmri").mkdir()
    (tmp_path / "ml4fmri" / "__init__.py").write_text("")
    (tmp_path / "ml4fmri" / "models.py").write_text(
        "import torch\n"
        "class meanMLP(torch.nn.Module):\n"
        "    def __init__(self, input_size, output_size):\n"
        "        super().__init__()\n"
        "        self.layer = torch.nn.Linear(input_size, output_size)\n"
        "    def forward(self, series):\n"
        "        logits = self.layer(series).mean(1)\n"
        "        return logits, {'logits': logits}\n"
        "    def compute_loss(self, load, labels):\n"
        "        return torch.nn.functional.cross_entropy(load['logits'], labels), {}\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setattr(bench_models, "SECONDS", 0.0)
    row = bench_models.duel("meanmlp", "ml4fmri", 16, 4, 1, 2)
    assert row["steps"] == 2
    assert row["times as fast"] > 0
    assert min(row["peak MB"], row["ml4fmri peak MB"]) >= 0
    assert (row["parameters"], row["ml4fmri parameters"]) == (count_parameters("meanmlp", 16), 16 * 2 + 2)


class Recorded:
    """A worker that notes its turn instead of making a step."""

    def __init__(self, name: str, turns: list[str]) -> None:
        self.name, self.turns = name, turns

    def step(self) -> float:
        self.turns.append(self.name)
        return 1.0


def test_steps_are_made_in_turns_and_as_often_as_asked(monkeypatch):
    monkeypatch.setattr(bench_models, "SECONDS", 0.0)
    turns: list[str] = []
    first, second = bench_models.in_turns(Recorded("dgm", turns), Recorded("bnt", turns), 2)  # type: ignore[arg-type]
    assert turns == ["dgm", "bnt", "dgm", "bnt"]
    assert len(first) == len(second) == 2


def test_a_model_that_cannot_be_made_answers_with_its_reason(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["bench", "bnt", "18", "4", "1"])
    bench_models.main()
    assert "n_heads is 4" in json.loads(capsys.readouterr().out)["refused"]


def test_a_size_that_bnt_cannot_take_is_bad_input(monkeypatch):
    class Refused(Recorded):
        def __init__(self, name: str, *_: int) -> None:
            super().__init__(name, [])

        def __enter__(self) -> Recorded:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def step(self) -> float:
            raise bench_models.WorkerEnded("n_heads is 4")

    monkeypatch.setattr(bench_models, "Worker", Refused)
    with pytest.raises(BadInput, match="bnt .* 18 ROIs.*n_heads is 4"):
        bench_models.compare(["bnt"], 18, 4, 1, 1)
