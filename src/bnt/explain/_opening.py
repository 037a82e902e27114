"""Finished runs, opened to look inside: who was in which part, and the networks' outputs batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from bnt.cohort import Cohort, load_cohort
from bnt.models import find_entry
from bnt.models.classical._inputs import Inputs
from bnt.nn import Output
from bnt.splits import read_splits
from bnt.splits._split import PARTS
from bnt.training._config import RunConfig
from bnt.training._exported import is_shared
from bnt.training._learner import Learner

BATCH = 16  # attention of a batch is (16, heads, V, V): 40 MB at V = 400
PATTERNS_INSTEAD = "bnt explain --method pattern maps its edges"  # said by bnt predict too, which has no --method


class FittedRun(Protocol):
    """A configuration and its fitted learner; :class:`bnt.training.TrainedRun` is one."""

    config: RunConfig
    learner: Learner


@dataclass
class Fitted:
    """A fitted run that was never written to disk."""

    config: RunConfig
    learner: Learner


def is_network(run: FittedRun) -> bool:
    """Return whether a run's model is a neural network (and not a linear model)."""
    return find_entry(run.config.model).trains_in_epochs


def outputs(
    run: FittedRun, network: nn.Module, cohort: Cohort, rows: np.ndarray, batch_size: int = BATCH
) -> Iterator[tuple[slice, Output]]:
    """Yield the positions within ``rows`` and the network's output of one batch after the other."""
    # Nothing is kept from batch to batch: all matrices of a large cohort would not fit into memory.
    batches = run.learner.batches(cohort, np.asarray(rows), resident_bytes=0)
    start = 0
    for batch in batches.in_order(batch_size):
        with torch.no_grad():
            output = network(batch.x, **batch.of_series, explain=True)
        yield slice(start, start + len(batch.x)), output
        start += len(batch.x)


def keeps_no_subjects(folder: Path) -> bool:
    """Whether this is a saved estimator or an exported model: weights without the subjects they were learned from."""
    return (folder / "estimator.json").is_file() or is_shared(folder)


def part_ids(folder: Path, part: str) -> np.ndarray:
    """Return the participants of one part of a run's split."""
    return np.array(read_splits(folder / "splits.csv")[0].parts[part], dtype=str)


def part_rows(folder: Path, cohort: Cohort, part: str) -> np.ndarray:
    """Return the positions in a cohort of one part of a run's split; those it does not hold are left out."""
    position = {name: i for i, name in enumerate(cohort.ids.tolist())}
    return np.array([position[name] for name in part_ids(folder, part) if name in position], dtype=np.int64)


def training_part(folder: Path, config: RunConfig, cohort: Cohort | None = None) -> tuple[Cohort, np.ndarray] | None:
    """Return where a run's training subjects are: in the cohort given, or in the one it was trained on.

    None where neither holds them all any more, and of a saved or exported model, which does not know their names. A
    refitted run was trained on its validation part too.
    """
    if keeps_no_subjects(folder):
        return None
    parts = PARTS[:2] if config.recipe.refit else PARTS[:1]
    wanted = sum(len(part_ids(folder, part)) for part in parts)
    candidates = [cohort] if cohort is not None else []
    if config.cohort and (Path(config.cohort) / "cohort.json").is_file():
        candidates.append(load_cohort(config.cohort))
    for one in candidates:
        rows = np.concatenate([part_rows(folder, one, part) for part in parts])
        if wanted and len(rows) == wanted and one.n_rois == config.n_rois:
            return one, rows
    return None


def true_labels(config: RunConfig, cohort: Cohort, rows: np.ndarray) -> np.ndarray | None:
    """Return the labels of some subjects as codes (or standardised scores); None where they have none."""
    if config.label not in cohort.participants:
        return None
    some = cohort.select(rows)
    if some.participants[config.label].isna().any():
        return None
    values = some.labels(config.label)
    if config.task.kind == "classification" and not set(values.tolist()) <= set(config.task.classes):
        return None
    return config.task.encode(values)


def margin_of(logits: Tensor, column: int) -> Tensor:
    """Return the logit of a class less the mean of the others', (B,); the output itself where there is one."""
    if logits.shape[1] == 1:
        return logits[:, 0]
    others = (logits.sum(dim=1) - logits[:, column]) / (logits.shape[1] - 1)
    return logits[:, column] - others


def decision_of(decisions: np.ndarray, n_classes: int, column: int) -> np.ndarray:
    """Return a linear model's decision for a class from its columns; two classes share one, of either sign."""
    if n_classes <= 2:
        return decisions[:, 0] * (-1.0 if n_classes == 2 and column == 0 else 1.0)
    return decisions[:, column]


def margins(run: FittedRun, cohort: Cohort, rows: np.ndarray, column: int) -> np.ndarray:
    """Return the margin of a class for some subjects, the members' mean, (n,)."""
    if not is_network(run):
        model: Any = run.learner.models[0]
        found = model.decisions(Inputs.of(run.learner.prepared(cohort, rows), rows))
        return decision_of(found, run.config.task.n_outputs, column)
    total = np.zeros(len(rows))
    for model in run.learner.networks():
        for part, output in outputs(run, model, cohort, rows, batch_size=64):
            total[part] += margin_of(output.logits.double(), column).cpu().numpy()
    return total / run.learner.n_members
