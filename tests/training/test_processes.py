"""One training over several processes: the numbers of one process, whoever is killed."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from group_member import configured, take_part

from bnt.cohort import Cohort
from bnt.errors import BadInput
from bnt.nn._kernels import keep_mask, rows_of_batch
from bnt.studies import _server
from bnt.training import _processes
from bnt.training._batches import Batch
from bnt.training._processes import Group, check_network, launch
from bnt.training._run import build, train_run


@pytest.fixture(scope="module")
def cohort_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    series = rng.normal(size=(60, 40, 8))
    series[:, :, 1] += (0.4 + 1.6 * y[:, None]) * series[:, :, 0]
    matrices = np.stack([np.corrcoef(s.T) for s in series]).astype(np.float32)
    ids = [f"sub-{i:03d}" for i in range(60)]
    table = pd.DataFrame({"participant_id": ids, "site": np.where(np.arange(60) % 4 < 2, "A", "B"), "diagnosis": y})
    folder = tmp_path_factory.mktemp("cohort") / "cohort"
    Cohort(matrices, table).save(folder)
    return str(folder)


def start(size: int, *arguments: str) -> list[Any]:
    context = _server.start_server(1, ["bnt"])
    started = [context.Process(target=take_part, args=(rank, size, *arguments)) for rank in range(size)]
    for one in started:
        one.start()
    return started


def lines_of(folder: Path) -> list[dict[str, Any]]:
    file = folder / "metrics.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []


def test_two_processes_give_the_curve_of_one_and_resume_after_one_is_killed(cohort_folder, tmp_path):
    cohort, split, config = configured(cohort_folder)
    one, two, killed = (tmp_path / name for name in ("one", "two", "killed"))
    train_run(cohort, split, config, one)
    for process in start(2, str(tmp_path / "meet"), cohort_folder, str(two)):
        process.join()
        assert process.exitcode == 0
    for name in ("loss", "val_score"):
        curves = [[line[name] for line in lines_of(folder)] for folder in (one, two)]
        assert np.abs(np.subtract(*curves)).max() < 1e-4
    reports = [json.loads((folder / "report.json").read_text()) for folder in (one, two)]
    assert reports[0]["epochs"] == reports[1]["epochs"]
    assert reports[1]["processes"] == 2
    predictions = [pd.read_csv(folder / "predictions.csv") for folder in (one, two)]
    pd.testing.assert_frame_equal(*predictions, atol=1e-4)

    left, lost = start(2, str(tmp_path / "meet2"), cohort_folder, str(killed))
    until = time.monotonic() + 100
    while len(lines_of(killed)) < 2 and time.monotonic() < until:
        time.sleep(0.002)
    lost.kill()
    left.join()
    assert left.exitcode == 75, "the first process went on alone"
    said = Path(f"{killed}.0").read_text()
    assert said.startswith("Another process of this training has ended before it was done: ")
    assert "\n" not in said
    assert not (killed / "DONE").exists()
    for process in start(2, str(tmp_path / "meet3"), cohort_folder, str(killed)):
        process.join()
    digests = [json.loads((folder / "report.json").read_text())["weights_sha256"] for folder in (two, killed)]
    assert digests[0] == digests[1]


def test_parts_of_a_batch_are_its_rows_and_their_shares_sum_to_one():
    batch = Batch(torch.arange(7.0)[:, None, None], torch.arange(7)[:, None], weight=torch.arange(7.0))
    for size in (1, 2, 3, 7):
        parts = [Group(rank, size).part(batch) for rank in range(size)]
        assert torch.cat([part.x for part, _ in parts]).equal(batch.x)
        assert torch.cat([part.weight for part, _ in parts]).equal(batch.weight)
        assert sum(share for _, share in parts) == pytest.approx(1)
    parts = [Group(rank, 9).part(batch) for rank in range(9)]
    assert sum(share > 0 for _, share in parts) == 7
    assert all(len(part.x) == 1 for part, _ in parts), "a process without rows has one that does not count"


def test_masks_of_parts_are_those_of_the_whole_batch():
    torch.manual_seed(0)
    whole = keep_mask((5 * 3, 4), 0.3)
    after = torch.rand(1)
    for start_, stop in ((0, 2), (2, 5)):
        torch.manual_seed(0)
        with rows_of_batch(start_, stop, 5):
            assert keep_mask(((stop - start_) * 3, 4), 0.3).equal(whole[start_ * 3 : stop * 3])
        assert torch.rand(1).equal(after)


def test_batch_statistics_and_more_processes_than_rows_are_refused(cohort_folder):
    _, _, config = configured(cohort_folder)
    with pytest.raises(BadInput, match="batch normalisation.*one process"):
        check_network(torch.nn.Sequential(torch.nn.BatchNorm1d(3)), "mine", 16, 2)
    with pytest.raises(BadInput, match="batch of 9 cannot be shared by 10"):
        check_network(build(config), "bnt", 9, 10)
    check_network(build(config), "bnt", 9, 2)


PLAYED = """#!{python}
import os, signal, sys, time
rank, what = os.environ["RANK"], {what!r}
if what == "killed" and rank == "1":
    os.kill(os.getpid(), signal.SIGKILL)
if what == "failed" and rank == "1":
    print("bnt train: the disk is full.", file=sys.stderr)
    sys.exit(2)
if what == "both" :
    sys.exit(2)
if what == "well":
    sys.exit(0)
time.sleep(0.3)
sys.exit({left_alone})
"""


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("killed", "Process 2 of 2 .* killed by signal 9.*--resume"),
        ("failed", r"Process 2 of 2 .* failed \(bnt train: the disk is full\).*--resume"),
        ("both", 2),
        ("well", 0),
    ],
)
def test_the_launcher_ends_all_and_says_one_sentence(what, said, tmp_path, monkeypatch):
    python = tmp_path / "python"
    python.write_text(PLAYED.format(python=sys.executable, what=what, left_alone=_processes.LEFT_ALONE))
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    if isinstance(said, int):
        assert launch(["train"], 2) == said
        return
    with pytest.raises(BadInput, match=said):
        launch(["train"], 2)
