"""What each of several processes does in the tests of one training over several."""

from __future__ import annotations

import os
from pathlib import Path

from bnt.cohort import load_cohort
from bnt.splits import named_splits
from bnt.training import Recipe, describe
from bnt.training._config import RunConfig
from bnt.training._processes import STARTED, LeftAlone, joined_group
from bnt.training._run import follow_run, train_run

OPTIONS = {"n_layers": 1, "n_heads": 2, "ffn": 8, "n_clusters": 2}
# Batches of 9 are shared as 4 and 5, the last one is shorter; mixup, averaged weights, dropout, clipping, selection.
RECIPE = Recipe(
    epochs=8,
    batch_size=9,
    drop_last=False,
    reduction="sum",
    lr=1e-3,
    mixup=1.0,
    ema=0.9,
    clip=1.0,
    label_smoothing=0.1,
    select="best",
)


def configured(cohort_folder: str) -> tuple:
    """Return a cohort, a split and the configuration of the tests."""
    cohort = load_cohort(cohort_folder)
    (split,) = named_splits(cohort, "diagnosis", "site-stratified", n_splits=1)
    config: RunConfig = describe(cohort, "diagnosis", split, model="bnt", options=OPTIONS, recipe=RECIPE)
    return cohort, split, config


def take_part(rank: int, size: int, meeting: str, cohort_folder: str, folder: str) -> None:
    """Train as one of several processes; write why it ended early beside the run."""
    os.environ |= {STARTED: meeting, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}
    os.environ |= {"GLOO_SOCKET_IFNAME": "lo"}
    ours, theirs = os.pipe()
    os.dup2(ours, 0)  # the launcher's end of it stays open
    cohort, split, config = configured(cohort_folder)
    try:
        with joined_group("cpu") as group:
            if group.first:
                train_run(cohort, split, config, folder, resume=True)
            else:
                follow_run(cohort, split, config, folder)
    except LeftAlone as error:
        Path(f"{folder}.{rank}").write_text(str(error))
        os._exit(75)
