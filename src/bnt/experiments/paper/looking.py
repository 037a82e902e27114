"""Finished runs opened again on their own test subjects, to see what the network attends to and how it clusters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from bnt.cohort import Cohort
from bnt.errors import BadInput
from bnt.nn.output import Output
from bnt.training.network import NetworkRun, window_of
from bnt.training.trained import TrainedRun

BATCH = 16  # attention of a batch is (16, heads, V, V): 40 MB at V = 400


def tested_rows(folder: Path, cohort: Cohort) -> np.ndarray:
    """Return the positions of a run's test subjects."""
    table = pd.read_csv(folder / "splits.csv", dtype=str)
    wanted = table.loc[table["part"] == "test", "participant_id"]
    position = {name: i for i, name in enumerate(cohort.ids.tolist())}
    missing = [name for name in wanted if name not in position]
    if missing:
        raise BadInput(f"{folder} was tested on {missing[0]!r}, who is not in {cohort.path}.")
    return np.array([position[name] for name in wanted], dtype=np.int64)


def mean_over(
    folder: Path, cohort: Cohort, rows: np.ndarray, take: Callable[[Output], np.ndarray], classes: Sequence[np.ndarray]
) -> np.ndarray:
    """Return the mean of something over subjects, for each class, averaged over the run's networks.

    Networks are in evaluation mode, so that no attention is dropped, and subjects go through in batches.

    Parameters
    ----------
    folder : path
        A finished run.
    cohort : Cohort
    rows : array of int
        Subjects, as positions.
    take : callable
        From an Output with attention and assignments to an array (B, ...).
    classes : sequence of bool arrays
        For each class, which of ``rows`` belong to it.

    Returns
    -------
    array, (len(classes), ...)
    """
    import torch

    trained = TrainedRun(folder)
    trained.check(cohort)
    run = NetworkRun(trained.config, cohort, np.zeros(len(cohort)))
    model = run.build()
    batches = run.batches_to_predict(rows, window_of(model))
    total: list[np.ndarray | float] = [0.0] * len(classes)
    for weights in trained.members:
        model.load_state_dict(weights)
        model.eval()
        start = 0
        with torch.no_grad():
            for batch in batches.in_order(BATCH):
                values = take(model(batch.x, series=batch.series, explain=True))
                for i, inside in enumerate(classes):
                    total[i] = total[i] + values[inside[start : start + len(values)]].sum(axis=0, dtype=np.float64)
                start += len(values)
    counts = [int(inside.sum()) * len(trained.members) for inside in classes]
    if min(counts) == 0:
        raise BadInput(f"The test part of {folder} lacks a class: use another split.")
    return np.stack([np.asarray(t) / n for t, n in zip(total, counts)])


def first_attention(output: Output) -> np.ndarray:
    """Return the first layer's attention, averaged over heads, (B, V, V)."""
    return output.attention[0].mean(1).cpu().numpy()


def assignments(output: Output) -> np.ndarray:
    """Return the soft assignments, (B, V, K)."""
    if output.assignments is None:
        raise BadInput("This model assigns nodes to no clusters: choose a model with OCRead.")
    return output.assignments.cpu().numpy()
