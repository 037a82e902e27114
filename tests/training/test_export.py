"""A run as a model to share: it predicts the same, holds nobody, runs nothing, and a damaged one is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import bnt
from bnt.cli._main import main
from bnt.cohort._files import sha256_of
from bnt.errors import BadInput
from bnt.models._catalog import CATALOG
from bnt.training import TrainedRun, export_run

CLASSICAL = [entry.name for entry in CATALOG if entry.family == "classical" and not entry.every_atlas]
SMALL = ["--option", "n_clusters=4", "ffn=8", "n_heads=2", "--change", "epochs=1", "n_members=2"]


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A cohort, a run of a network and one of a linear model that is told its threshold, both exported."""
    folder = tmp_path_factory.mktemp("export")
    cohort = folder / "secret place" / "cohort"
    bnt.simulate_cohort(n_subjects=60, n_rois=16, n_sites=2, effect=1.0, seed=0, series=False).save(cohort)
    assert main(["train", str(cohort), "--model", "bnt", *SMALL, "--out", str(folder / "network")]) == 0
    ridge = ["train", str(cohort), "--model", "ridge", "--threshold", "validation", "--out", str(folder / "linear")]
    assert main(ridge) == 0
    for name in ("network", "linear"):
        export_run(folder / name, folder / f"{name}-shared", licence="mit")
    return folder


@pytest.fixture
def copy(place, tmp_path) -> Path:
    return Path(shutil.copytree(place / "network-shared", tmp_path / "model"))


@pytest.mark.parametrize("name", ["network", "linear"])
def test_an_exported_model_predicts_what_its_run_predicts(place, name):
    cohort = bnt.load_cohort(place / "secret place" / "cohort")
    run, model = TrainedRun(place / name), TrainedRun(place / f"{name}-shared")
    np.testing.assert_array_equal(model.predict(cohort), run.predict(cohort))
    assert model.threshold == run.threshold
    assert model.table(cohort).equals(run.table(cohort))


def test_an_exported_model_holds_no_subject_no_folder_and_no_other_kind_of_file(place):
    cohort = bnt.load_cohort(place / "secret place" / "cohort")
    wanted = [*cohort.ids.tolist(), *cohort.digests.tolist(), "secret place", str(place)]
    for name in ("network", "linear"):
        files = sorted((place / f"{name}-shared").iterdir())
        assert [file.name for file in files] == ["README.md", "config.json", "model.safetensors"]
        for file in files:
            assert [word for word in wanted if str(word).encode() in file.read_bytes()] == [], file


@pytest.mark.parametrize("model", CLASSICAL)
def test_no_array_of_a_classical_model_has_a_row_per_training_subject(model):
    cohort = bnt.simulate_cohort(n_subjects=61, n_rois=16, n_sites=2, n_volumes=40, seed=0)
    (split,) = bnt.splits.named_splits(cohort, "diagnosis", "site-stratified", n_splits=1)
    train, val, _ = split.rows(cohort)
    config = bnt.training.describe(
        cohort, "diagnosis", split, model=model, recipe=bnt.training.find_recipe("default", model)
    )
    learner = bnt.training.make_learner(config)
    learner.fit(cohort, cohort.labels("diagnosis"), train, val)
    assert len(train) not in {2, 16, 120, 136, 256}  # sizes that other axes have
    assert [name for name, value in learner.state().items() if len(train) in value.shape] == []


def test_weights_with_the_mean_of_a_site_of_few_people_are_not_exported(tmp_path):
    cohort = bnt.simulate_cohort(n_subjects=60, n_rois=16, n_sites=2, seed=0, series=False)
    sites = cohort.sites.astype(object)
    sites[:3] = "tiny"
    table = cohort.participants.assign(site=sites)
    bnt.Cohort(cohort.connectomes, table, cohort.rois).save(tmp_path / "cohort")
    train = ["train", str(tmp_path / "cohort"), "--model", "ridge", "--harmonise", "combat"]
    assert main([*train, "--protocol", "random", "--out", str(tmp_path / "run")]) == 0
    with pytest.raises(BadInput, match="'tiny'"):
        export_run(tmp_path / "run", tmp_path / "shared")
    assert not (tmp_path / "shared").exists()


def test_damaged_weights_are_named(copy):
    data = bytearray((copy / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (copy / "model.safetensors").write_bytes(data)
    with pytest.raises(BadInput, match=r"model\.safetensors: its sha256"):
        TrainedRun(copy)


@pytest.mark.parametrize("change", [{"label": "sex"}, {"n_rois": 17}])
def test_changed_settings_are_refused(copy, change):
    data = json.loads((copy / "config.json").read_text())
    data["config"] |= change
    (copy / "config.json").write_text(json.dumps(data))
    with pytest.raises(BadInput, match="config.json"):
        TrainedRun(copy)


def test_a_folder_of_something_else_is_no_model_of_ours(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(BadInput, match="bnt export"):
        TrainedRun(tmp_path)


def test_code_that_an_exported_model_names_is_not_run(copy):
    from bnt.training._config import config_of

    (copy / "net.py").write_text("open(__file__ + '.ran', 'w')")
    data = json.loads((copy / "config.json").read_text())
    data["config"] |= {"model": f"{copy}/net.py:Net", "source_sha256": sha256_of(copy / "net.py")}
    data["config_sha256"] = config_of(data["config"]).digest()
    (copy / "config.json").write_text(json.dumps(data))
    with pytest.raises(BadInput, match="model_file"):
        TrainedRun(copy)
    assert not (copy / "net.py.ran").exists()


@pytest.mark.usefixtures("undrawn")
def test_commands_take_an_exported_model(place, tmp_path, capsys):
    cohort, model = str(place / "secret place" / "cohort"), str(place / "linear-shared")
    assert main(["predict", model, cohort, "--out", str(tmp_path / "table.csv")]) == 0
    assert "no held-out subjects" in (tmp_path / "table.csv").read_text()
    assert main(["validate", model, cohort, "--out", str(tmp_path / "validation")]) == 0
    assert (tmp_path / "validation" / "validation.html").is_file()


def test_the_card_is_valid_metadata_of_a_hub(place):
    hub = pytest.importorskip("huggingface_hub")
    card = hub.ModelCard((place / "network-shared" / "README.md").read_text())
    assert card.data.license == "mit"
    assert card.data.library_name == "bnt"
    result = next(r for r in card.data.eval_results if r.metric_type == "roc_auc")
    report = json.loads((place / "network" / "report.json").read_text())
    assert result.metric_value == round(report["test"]["auroc"], 4)
    assert card.data.model_name == "bnt-diagnosis"


# -- ONNX --------------------------------------------------------------------------------------------


def test_the_onnx_file_of_a_network_agrees_with_its_run_for_any_number_of_people(place, tmp_path):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    out = export_run(place / "network", tmp_path / "shared", onnx=True)
    cohort = bnt.load_cohort(place / "secret place" / "cohort")
    session = runtime.InferenceSession(out / "model.onnx", providers=["CPUExecutionProvider"])
    for n in (1, 30):
        rows = np.arange(n)
        (found,) = session.run(None, {"connectomes": np.asarray(cohort.batch(rows), dtype=np.float32)})
        wanted = TrainedRun(place / "network").learner.predict(cohort, rows)
        np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_a_model_that_is_no_network_is_not_written_as_onnx(place, tmp_path, capsys):
    assert main(["export", str(place / "linear"), str(tmp_path / "shared"), "--onnx"]) == 2
    assert "ridge is not a neural network" in capsys.readouterr().err
    assert not (tmp_path / "shared").exists()
