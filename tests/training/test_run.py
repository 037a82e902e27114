"""Runs: folders that describe themselves, survive kill -9 at any point, and predict new subjects."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bnt.cohort import Cohort
from bnt.errors import BadInput
from bnt.splits import Split
from bnt.training import _checkpoint as checkpoint_module
from bnt.training._config import describe, read_config, write_toml
from bnt.training._recipe import Recipe
from bnt.training._run import train_run
from bnt.training._trained import TrainedRun, load_result, seal

TINY = {"n_layers": 1, "n_heads": 2, "ffn": 8, "n_clusters": 3}
RECIPE = Recipe(
    epochs=3, batch_size=8, lr=1e-3, mixup=1.0, ema=0.9, select="smoothed", smooth=2, n_members=2, refit=True
)


def config_of(cohort, split, recipe=RECIPE, **more):
    settings = {"model": "bnt", "options": TINY, "recipe": recipe, "seed": 3, **more}
    return describe(cohort, settings.pop("label", "diagnosis"), Split.of(cohort, split), **settings)


@pytest.fixture(scope="module")
def finished(small_cohort, split, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    train_run(small_cohort, Split.of(small_cohort, split), config_of(small_cohort, split), folder)
    return folder


def digest(folder: Path) -> str:
    return json.loads((folder / "report.json").read_text())["weights_sha256"]


def test_a_run_holds_exactly_the_files_of_the_design(finished):
    names = {f.name for f in finished.iterdir()}
    assert names == {
        "config.toml",
        "splits.csv",
        "metrics.jsonl",
        "predictions.csv",
        "weights.safetensors",
        "report.json",
        "model_card.md",
        "DONE",
    }


def test_configuration_is_read_back_as_it_was(finished, small_cohort, split):
    assert read_config(finished) == config_of(small_cohort, split)


def test_report_counts_and_card_names_no_subject(finished, small_cohort):
    report = load_result(finished).report
    assert report["n"] == {"train": 36, "validation": 10, "test": 14}
    assert report["positive_class"] == 1
    assert len((finished / "metrics.jsonl").read_text().splitlines()) >= 2 * 3
    card = (finished / "model_card.md").read_text()
    assert "Not a diagnostic device" in card
    assert not any(name in card for name in small_cohort.ids)


def test_report_equals_metrics_recomputed_from_the_predictions(finished):
    from sklearn.metrics import roc_auc_score

    result = load_result(finished)
    test = result.predictions[result.predictions["part"] == "test"]
    assert result.report["test"]["auroc"] == pytest.approx(roc_auc_score(test["label"], test["p_1"]))
    assert np.allclose(test["p_0"] + test["p_1"], 1)


def test_same_seed_same_hash_and_another_seed_another(finished, small_cohort, split, tmp_path):
    again = train_run(small_cohort, Split.of(small_cohort, split), config_of(small_cohort, split), tmp_path / "again")
    assert again.report["weights_sha256"] == digest(finished)
    other = train_run(
        small_cohort, Split.of(small_cohort, split), config_of(small_cohort, split, seed=4), tmp_path / "other"
    )
    assert other.report["weights_sha256"] != digest(finished)


def test_test_subjects_cannot_influence_the_weights(finished, small_cohort, split, tmp_path):
    from bnt.cohort import Cohort

    matrices = small_cohort.square(np.arange(len(small_cohort)))
    matrices[split[2]] = 0.123
    table = small_cohort.participants.copy()
    table.loc[split[2], "family"] = "same"  # the spoiled scans are all alike
    spoiled = Cohort(matrices, table)
    result = train_run(spoiled, Split.of(spoiled, split), config_of(spoiled, split), tmp_path / "spoiled")
    assert result.report["weights_sha256"] == digest(finished)


def test_prediction_of_a_saved_run_equals_the_run(finished, small_cohort, split):
    result = load_result(finished)
    test = result.predictions[result.predictions["part"] == "test"]
    table = TrainedRun(finished).table(small_cohort.select(split[2]))
    assert np.allclose(table["p_1"], test["p_1"], atol=1e-6)
    assert table["participant_id"].tolist() == test["participant_id"].tolist()


def test_prediction_refuses_another_atlas_or_kind(finished, small_cohort):
    from bnt.cohort import Cohort

    with pytest.raises(BadInput, match="trained on 8: use the same atlas"):
        TrainedRun(finished).predict(Cohort(np.zeros((1, 5, 5), np.float32), small_cohort.participants[:1]))
    other = small_cohort.select([0])
    other.kind = "shrunk-z"
    with pytest.raises(BadInput, match="pearson"):
        TrainedRun(finished).predict(other)


def test_finished_run_is_not_run_again(finished, small_cohort, split):
    before = (finished / "report.json").stat().st_mtime_ns
    train_run(small_cohort, Split.of(small_cohort, split), config_of(small_cohort, split), finished, resume=True)
    assert (finished / "report.json").stat().st_mtime_ns == before
    with pytest.raises(BadInput, match="holds a finished run"):
        train_run(small_cohort, Split.of(small_cohort, split), config_of(small_cohort, split), finished)
    with pytest.raises(BadInput, match="another configuration"):
        train_run(
            small_cohort, Split.of(small_cohort, split), config_of(small_cohort, split, seed=9), finished, resume=True
        )


def _train_and_die(cohort, split, folder, function: str, at: int) -> None:
    """In a child: kill -9 itself at the ``at``-th call of a function of ``os`` (or of the tensor writer)."""
    import safetensors.torch

    torch.set_num_threads(1)
    holder = safetensors.torch if function == "save_file" else os
    original, calls = getattr(holder, function), [0]

    def deadly(*args, **kwargs):
        calls[0] += 1
        if calls[0] == at:
            if function == "save_file":
                Path(args[1]).write_bytes(b"half a file")
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **kwargs)

    setattr(holder, function, deadly)
    train_run(cohort, Split.of(cohort, split), config_of(cohort, split), folder, resume=True)


@pytest.mark.parametrize(
    ("function", "at"),
    [("save_file", 1), ("save_file", 3), ("fsync", 4), ("replace", 6), ("replace", 21)],
)
def test_kill_9_and_resume_gives_the_same_hash(finished, small_cohort, split, tmp_path, function, at):
    folder = tmp_path / "run"
    child = multiprocessing.get_context("fork").Process(
        target=_train_and_die, args=(small_cohort, split, folder, function, at)
    )
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    assert not (folder / "DONE").exists()
    result = train_run(small_cohort, Split.of(small_cohort, split), config_of(small_cohort, split), folder, resume=True)
    assert result.report["weights_sha256"] == digest(finished)
    assert {f.name for f in folder.iterdir()} == {f.name for f in finished.iterdir()}


def test_the_time_of_an_interrupted_run_counts_the_epochs_before(small_cohort, split, tmp_path):
    config = config_of(small_cohort, split, replace(RECIPE, epochs=3, n_members=1, refit=False, patience=0))

    def stop(_stage, line):
        if line["epoch"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_run(small_cohort, Split.of(small_cohort, split), config, tmp_path / "run", watch=stop)
    file = tmp_path / "run" / "metrics.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2]
    assert all(line["cpu_seconds"] >= 0 for line in lines)
    lines[0] |= {"seconds": 1000.0, "cpu_seconds": 500.0}
    file.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"epoch": 3, "sec')
    report = train_run(small_cohort, Split.of(small_cohort, split), config, tmp_path / "run", resume=True).report
    assert 1000 <= report["seconds"] < 1100
    assert 500 <= report["cpu_seconds"] < 600


def test_a_full_disk_is_said_so_and_the_old_checkpoint_stays(small_cohort, split, tmp_path, monkeypatch):
    import safetensors.torch

    original, calls = safetensors.torch.save_file, [0]

    def full(tensors, path, **kwargs):
        calls[0] += 1
        if calls[0] == 2:
            Path(path).write_bytes(b"x")
            raise OSError(errno.ENOSPC, "No space left on device")
        return original(tensors, path, **kwargs)

    monkeypatch.setattr(safetensors.torch, "save_file", full)
    folder = tmp_path / "run"
    with pytest.raises(BadInput, match="No space left on device.*intact"):
        train_run(small_cohort, Split.of(small_cohort, split), config_of(small_cohort, split), folder)
    _, facts = checkpoint_module.load_tensors(folder / "checkpoint.safetensors")
    assert facts["epoch"] == 1
    assert not list(folder.glob("*.tmp"))


def test_a_folder_that_cannot_be_written_is_said_so(small_cohort, split, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with pytest.raises(BadInput, match="file"):
        train_run(small_cohort, Split.of(small_cohort, split), config_of(small_cohort, split), blocked)
    with pytest.raises(BadInput, match="cannot be written"):
        train_run(small_cohort, Split.of(small_cohort, split), config_of(small_cohort, split), blocked / "inside")


def test_damaged_weights_are_refused_with_a_sentence(finished, tmp_path):
    import shutil

    broken = tmp_path / "broken"
    shutil.copytree(finished, broken)
    (broken / "weights.safetensors").write_bytes(b"\x80\x04pickle?")
    seal(broken)
    with pytest.raises(BadInput, match="not a safetensors file"):
        TrainedRun(broken)


def test_a_split_with_a_subject_on_two_sides_is_refused(small_cohort, split):
    train, val, test = split
    with pytest.raises(BadInput):
        config_of(small_cohort, (train, val, np.r_[test, train[0]]))


@pytest.mark.parametrize("select", ["best", "last"])
def test_without_refit_the_selected_weights_are_tested(small_cohort, split, tmp_path, select):
    recipe = replace(RECIPE, refit=False, n_members=1, select=select)
    result = train_run(
        small_cohort, Split.of(small_cohort, split), config_of(small_cohort, split, recipe), tmp_path / "run"
    )
    chosen = result.report["epochs"][0]
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    scores = [line["val_score"] for line in lines]
    assert chosen == (3 if select == "last" else 1 + int(np.argmax(scores)))
    if select == "best":
        assert result.report["validation"]["auroc"] == pytest.approx(max(scores))


def test_refused_options_leave_no_folder(small_cohort, split, tmp_path):
    with pytest.raises(BadInput, match="did you mean 'n_clusters'"):
        config_of(small_cohort, split, options={"n_cluster": 3})
    with pytest.raises(BadInput, match="it must be a whole number"):
        config_of(small_cohort, split, options={"n_layers": "two"})
    with pytest.raises(BadInput, match="device 'gpu'"):
        config_of(small_cohort, split, device="gpu")
    assert list(tmp_path.iterdir()) == []


def test_the_positive_class_can_be_named(small_cohort, split):
    assert config_of(small_cohort, split, positive="0").task.classes == (1, 0)
    with pytest.raises(BadInput, match="no class '7'"):
        config_of(small_cohort, split, positive="7")


def test_what_differs_is_named_when_another_run_is_there(finished, small_cohort, split):
    with pytest.raises(BadInput, match="its seed is 3, not 9"):
        train_run(
            small_cohort, Split.of(small_cohort, split), config_of(small_cohort, split, seed=9), finished, resume=True
        )


def test_a_run_of_another_edition_of_its_model_is_not_predicted_with(finished, tmp_path):
    copy = Path(shutil.copytree(finished, tmp_path / "run"))
    config = read_config(copy)
    (copy / "config.toml").write_text(write_toml(replace(config, revision=config.revision + 1).to_dict()))
    seal(copy)
    with pytest.raises(BadInput, match="revision"):
        TrainedRun(copy)


def test_what_is_learned_from_is_in_the_digest(small_cohort, split):
    def digest_of(**changes):
        people = small_cohort.participants.assign(**{k: v for k, v in changes.items() if k != "series"})
        series = changes.get("series", list(small_cohort.timeseries))
        return config_of(Cohort(small_cohort.connectomes, people, timeseries=series), split).digest()

    flipped = small_cohort.participants["diagnosis"].to_numpy().copy()
    flipped[[0, 1]] = flipped[[1, 0]]
    same = digest_of()
    assert digest_of() == same
    assert digest_of(score=0.0) == same  # a column that nobody reads
    assert digest_of(diagnosis=flipped) != same
    assert digest_of(site="A") != same
    assert digest_of(series=[2 * one for one in small_cohort.timeseries]) != same


def test_a_device_or_seed_that_is_not_there_is_refused(small_cohort, split):
    for bad, words in (
        ({"device": "cuda:7"}, "finds"),
        ({"device": "tpu"}, "device 'tpu'"),
        ({"seed": -1}, "seed is -1"),
    ):
        with pytest.raises(BadInput, match=words):
            config_of(small_cohort, split, **bad)


def test_a_folder_with_only_a_half_written_file_can_be_used(small_cohort, split, tmp_path):
    (tmp_path / "config.toml.tmp").write_text("model =")
    recipe = replace(RECIPE, epochs=1, n_members=1, refit=False)
    train_run(
        small_cohort, Split.of(small_cohort, split), config_of(small_cohort, split, recipe), tmp_path, resume=True
    )
    assert (tmp_path / "DONE").is_file()


def test_training_without_validation_makes_as_many_steps_as_asked_and_ends_at_the_last_rate(
    small_cohort, split, tmp_path
):
    recipe = replace(RECIPE, epochs=1, min_steps=20, n_members=1, select="last", refit=True, lr_end=1e-5)
    result = train_run(
        small_cohort, Split.of(small_cohort, split), config_of(small_cohort, split, recipe), tmp_path / "run"
    )
    lines = [json.loads(line) for line in (result.folder / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) * (46 // 8) >= 20
    assert lines[-1]["lr"] == pytest.approx(1e-5)


def test_a_refit_never_goes_past_the_end_of_its_schedule(small_cohort, split, tmp_path):
    # 36 subjects make 4 steps an epoch, 46 make 5: the same min_steps are fewer epochs in the refit
    recipe = replace(RECIPE, epochs=1, min_steps=40, n_members=1, select="best", refit=True, patience=0, lr_end=1e-5)
    result = train_run(
        small_cohort, Split.of(small_cohort, split), config_of(small_cohort, split, recipe), tmp_path / "run"
    )
    lines = [json.loads(line) for line in (result.folder / "metrics.jsonl").read_text().splitlines()]
    rates = [line["lr"] for line in lines if line["stage"].endswith("refit")]
    assert rates == sorted(rates, reverse=True)


@pytest.mark.parametrize("part", [0, 1, 2])
def test_a_connectome_that_is_not_finite_is_refused_by_name(small_cohort, split, tmp_path, part):
    edges = small_cohort.connectomes.copy()
    who = split[part][0]
    edges[who, 3] = np.nan
    broken = Cohort(edges, small_cohort.participants)
    with pytest.raises(BadInput, match=f"connectome of {small_cohort.ids[who]} contains NaN"):
        train_run(broken, Split.of(broken, split), config_of(broken, split), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_linear_algebra_has_the_threads_of_the_run(small_cohort, split, tmp_path):
    from threadpoolctl import threadpool_info, threadpool_limits

    seen = []
    config = config_of(small_cohort, split, replace(RECIPE, epochs=1, n_members=1, refit=False))
    with threadpool_limits(2):
        train_run(
            small_cohort,
            Split.of(small_cohort, split),
            config,
            tmp_path / "run",
            watch=lambda *_: seen.extend(pool["num_threads"] for pool in threadpool_info()),
        )
    assert set(seen) == {config.threads}


def test_what_a_killed_save_left_is_gone_after_the_next(tmp_path):
    (tmp_path / ".tmpppLHRl").write_bytes(b"half a file")  # safetensors' own temporary name
    checkpoint_module.save_tensors(tmp_path / "weights.safetensors", {"w": torch.ones(2)})
    assert [file.name for file in tmp_path.iterdir()] == ["weights.safetensors"]
