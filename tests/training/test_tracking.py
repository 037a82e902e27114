"""Trackers get the same metrics as metrics.jsonl, on this machine only."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bnt.cli._main import main
from bnt.cohort import Cohort

WORDS = ["--model", "bnt", "--option", "n_clusters=2", "n_heads=2", "ffn=8", "n_layers=1", "--threads", "1"]


@pytest.fixture(scope="module")
def cohort_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    x = np.tanh(rng.normal(size=(40, 6, 6)))
    x = np.triu(x, 1) + np.triu(x, 1).transpose(0, 2, 1) + np.eye(6)
    table = pd.DataFrame(
        {"participant_id": [f"s{i:02d}" for i in range(40)], "site": "A", "diagnosis": np.arange(40) % 2}
    )
    folder = tmp_path_factory.mktemp("tracking") / "cohort"
    Cohort(x.astype(np.float32), table).save(folder)
    return folder


def train(cohort: Path, run: Path, *tracker: str) -> list[dict[str, float]]:
    words = ["train", str(cohort), *WORDS, "--change", "epochs=3", "patience=0", "--out", str(run), "--track", *tracker]
    assert main(words) == 0
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_tensorboard_has_every_epoch_and_the_test(cohort_folder: Path, tmp_path: Path):
    pytest.importorskip("tensorboard", reason="tensorboard is in the extra [track]")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    lines = train(cohort_folder, tmp_path / "run", "tensorboard")
    events = EventAccumulator(str(tmp_path / "tensorboard-log" / "run"))
    events.Reload()
    found = [e.value for e in events.Scalars("member0-selected/loss")]
    assert np.allclose(found, [line["loss"] for line in lines], rtol=1e-6)
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert np.isclose(events.Scalars("test/auroc")[0].value, report["test"]["auroc"])


def test_mlflow_has_every_epoch_the_settings_and_the_test(cohort_folder: Path, tmp_path: Path):
    pytest.importorskip("mlflow", reason="mlflow-skinny is in the extra [track]")
    lines = train(cohort_folder, tmp_path / "run", "mlflow")
    (run,) = (tmp_path / "mlflow-log").glob("*/*/meta.yaml")
    folder = run.parent
    values = [float(line.split()[1]) for line in (folder / "metrics" / "member0-selected" / "loss").open()]
    assert np.allclose(values, [line["loss"] for line in lines])
    assert (folder / "params" / "recipe.epochs").read_text() == "3"
    assert (folder / "metrics" / "test" / "auroc").is_file()


def test_an_absent_tracker_is_named_with_its_extra_and_nothing_is_written(
    cohort_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setitem(sys.modules, "wandb", None)
    words = ["train", str(cohort_folder), *WORDS, "--out", str(tmp_path / "run"), "--track", "wandb"]
    assert main(words) == 2
    assert "wandb" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_wandb_is_offline_unless_the_user_says_otherwise(
    cohort_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The package is not installed here: what it is asked for is checked on a stand-in."""
    import types

    asked: dict[str, object] = {}
    logged: list[dict[str, float]] = []

    class Run:
        summary: dict[str, float] = {}

        def log(self, values: dict[str, float], step: int) -> None:
            logged.append(values)

        def finish(self, exit_code: int) -> None:
            asked["exit_code"] = exit_code

    module = types.SimpleNamespace(init=lambda **given: asked.update(given) or Run())
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    lines = train(cohort_folder, tmp_path / "run", "wandb")
    assert asked["mode"] == "offline"
    assert asked["exit_code"] == 0
    assert Path(str(asked["dir"])) == tmp_path / "wandb-log"
    assert [v["member0-selected/loss"] for v in logged] == [line["loss"] for line in lines]
    assert "test/auroc" in Run.summary
