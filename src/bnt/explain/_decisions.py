"""Decisions of a fitted model: margins of classes; for linear models patterns, coefficients and contributions.

A weight of a linear model may be large to cancel noise of another edge. Haufe et al. (2014) turn weights w into
patterns, cov(x) w / var(s) with s the decision: how each edge varies with what the model found. Ours is per SD of the
decision instead of per unit, so that models compare. cov(x) w is cov(x, s), so no (E, E) matrix is ever made, and the
same can be asked of any model: networks have patterns too. Several classes have one decision, and one pattern, each.

A pattern of any decision is large where the data vary most, and a strong effect adds variance of its own: patterns of
models with shuffled labels may find some planted edges, with signs that are not stable over resamples.
Read a pattern beside its sanity check (:func:`bnt.explain._stability.sanity_check`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from bnt.cohort import Cohort, load_cohort
from bnt.errors import BadInput
from bnt.models import find_entry
from bnt.models.classical._features import Adjusted, EdgeFeatures
from bnt.models.classical._inputs import Inputs
from bnt.models.classical._solvers import site_groups
from bnt.nn import Output
from bnt.splits import read_splits
from bnt.splits._split import PARTS
from bnt.training._config import RunConfig
from bnt.training._learner import Learner
from bnt.training._trained import is_shared

BATCH = 16  # attention of a batch is (16, heads, V, V): 40 MB at V = 400
MOST_SUBJECTS = 2000  # more change a covariance little and cost memory
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
        found = model.decisions(Inputs.of(run.learner.prepared(cohort, rows), rows, bounded=True))
        return decision_of(found, run.config.task.n_outputs, column)
    total = np.zeros(len(rows))
    for model in run.learner.networks():
        for part, output in outputs(run, model, cohort, rows, batch_size=64):
            total[part] += margin_of(output.logits.double(), column).cpu().numpy()
    return total / run.learner.n_members


def some_of(rows: np.ndarray, most: int = MOST_SUBJECTS, seed: int = 0) -> np.ndarray:
    """Return the rows, or a random sample of them in order where they are too many."""
    rows = np.asarray(rows)
    return rows if len(rows) <= most else np.sort(np.random.default_rng(seed).choice(rows, most, replace=False))


def mean_edges(cohort: Cohort, rows: np.ndarray) -> np.ndarray:
    """Return the mean edges of some subjects, in float64, read in batches."""
    total = np.zeros(cohort.shape[1])
    for start in range(0, len(rows), 256):
        total += cohort.edges(rows[start : start + 256]).sum(axis=0, dtype=np.float64)
    return total / max(len(rows), 1)


def baseline_edges(run: FittedRun, training: tuple[Cohort, np.ndarray] | None) -> tuple[np.ndarray, str]:
    """Return the edges that attributions are relative to, and their description.

    These are the mean edges of the training set: from the weights of a centred network, or from the training subjects.
    If neither is available, they are zero.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.load_cohort("cohort")
    >>> from bnt.training import TrainedRun
    >>> trained = TrainedRun("run")  # a folder made by bnt train
    >>> from bnt.explain import baseline_edges
    >>> edges, what = baseline_edges(trained, training=(cohort, range(28)))
    >>> edges.shape
    (190,)
    """
    from bnt.cohort._triangle import flat, n_edges

    c = run.config
    if is_network(run) and c.recipe.inputs == "centred":
        kept = np.mean([flat(m.get_buffer("mean").double().cpu().numpy()) for m in run.learner.networks()], axis=0)
        return kept, "training mean (kept with the weights)"
    if training is not None:
        rows = np.asarray(training[1])
        mean = mean_edges(run.learner.prepared(training[0], rows), rows)
        return mean, f"training mean ({len(training[1])} subjects)"
    return np.zeros(n_edges(c.n_rois)), "zero (the training subjects are not at hand)"


def features_of(model: Any, inputs: Inputs) -> np.ndarray:
    """Return the features a linear model reads, one per edge, (n, E); Fisher z of the edges where it reads several."""
    source = model.members["edge_ridge"] if hasattr(model, "members") else model
    if not hasattr(source, "features"):
        return EdgeFeatures(model.n_rois).fit(inputs, np.ones(len(inputs))).transform(inputs).astype(np.float64)
    features = source.features.transform(inputs)[:, : inputs.edges.shape[1]].astype(np.float64)
    if source.center_sites and inputs.sites is not None:
        for site in np.unique(inputs.sites):
            features[inputs.sites == site] -= features[inputs.sites == site].mean(axis=0)
    return features


def haufe_pattern(run: FittedRun, cohort: Cohort, rows: np.ndarray, column: int) -> tuple[np.ndarray, int]:
    """Return the pattern of the decision about one class over edges, (E,), and the number of subjects.

    The unit is the edge's (Fisher z for linear models, the connectome's own for networks) per SD of the decision.
    """
    rows = some_of(rows)
    if len(rows) < 3:
        raise BadInput(f"A pattern is a covariance over subjects and {len(rows)} were given: give at least three.")
    cohort = run.learner.prepared(cohort, rows)
    if is_network(run):
        x, s = cohort.edges(rows).astype(np.float64), margins(run, cohort, rows, column)
    else:
        inputs = Inputs.of(cohort, rows)
        model = run.learner.models[0]
        x, s = features_of(model, inputs), decision_of(model.decisions(inputs), run.config.task.n_outputs, column)
    sd = s.std()
    if not sd > 0:
        raise BadInput("The model predicts the same for all subjects: there is no pattern.")
    return (s - s.mean()) @ (x - x.mean(axis=0)) / (len(s) * sd), len(rows)


def _coefficients(run: FittedRun, column: int) -> tuple[Any, np.ndarray]:
    """Return a linear model and its weights for one class, (E,)."""
    if is_network(run):
        raise BadInput(
            f"Model {run.config.model!r} has no coefficients: use integrated-gradients, gradient or pattern."
        )
    model = run.learner.models[0]
    coef = model.coef()
    if coef is None:
        raise BadInput(
            f"{run.config.model!r} combines several views of connectivity, so edges have no single weight; "
            f"{PATTERNS_INSTEAD}."
        )
    if coef.ndim == 2:
        return model, coef[column]
    return model, coef * (-1.0 if run.config.task.n_outputs == 2 and column == 0 else 1.0)


def standardised_coefficients(run: FittedRun, cohort: Cohort, rows: np.ndarray, column: int) -> tuple[np.ndarray, int]:
    """Return each edge's weight times its SD, so that edges of different spread compare."""
    model, coef = _coefficients(run, column)
    rows = some_of(rows)
    inputs = Inputs.of(run.learner.prepared(cohort, rows), rows)
    return coef * features_of(model, inputs).std(axis=0), len(rows)


def centres_sites(run: FittedRun) -> bool:
    """Return whether a linear model subtracts the training mean of each site from its features."""
    return not is_network(run) and bool(getattr(run.learner.models[0], "sites", ()))


def linear_attributions(
    run: FittedRun,
    cohort: Cohort,
    rows: np.ndarray,
    baseline: np.ndarray,
    column: int,
    training: tuple[Cohort, np.ndarray] | None = None,
) -> np.ndarray:
    """Return what each edge of each subject adds to the decision, (n, E): weight times deviation from the baseline.

    What is left of the decision is the same for all subjects. So confounds are at their training mean in the baseline,
    and a model that centres sites is relative to the training mean of each subject's own site instead.
    """
    model, coef = _coefficients(run, column)
    inputs = Inputs.of(run.learner.prepared(cohort, rows), rows)
    if model.space != "edges":
        raise BadInput(f"{run.config.model!r} reads the tangent space, in which edges are mixed; {PATTERNS_INSTEAD}.")
    features = model.features.transform(inputs).astype(np.float64)
    if not model.sites:
        return coef * (features - _baseline_features(model, inputs, baseline, training))
    if training is None:
        raise BadInput(
            f"{run.config.model!r} compares with the mean of each site, and the training subjects are not at hand "
            "to tell it."
        )
    groups = site_groups(model.sites, inputs.sites, len(inputs))
    means = _site_means(model, run.learner.prepared(*training), training[1])
    return coef * (features - means[groups])


def _baseline_features(
    model: Any, inputs: Inputs, baseline: np.ndarray, training: tuple[Cohort, np.ndarray] | None
) -> np.ndarray:
    """Return the features of the baseline, (1, E), with confounds as training subjects have them on average.

    Where these are not at hand: the mean of numbers and the first level of words.
    """
    one = Inputs(edges=np.asarray(baseline, dtype=np.float32)[None], kind=inputs.kind, diagonal=inputs.diagonal)
    if not isinstance(model.features, Adjusted):
        return model.features.transform(one).astype(np.float64)
    features = model.features.inner.transform(one).astype(np.float64)
    if training is None:
        return features
    design = model.features.confounds.design(training[0].select(training[1]).participants)
    return features - design.mean(axis=0) @ model.features.slopes


def _site_means(model: Any, cohort: Cohort, rows: np.ndarray) -> np.ndarray:
    """Return the mean features of all training subjects, then of each site that the model knows, (1 + sites, E)."""
    n_groups = 1 + len(model.sites)
    total, count = np.zeros((n_groups, cohort.shape[1])), np.zeros(n_groups)
    for start in range(0, len(rows), 256):
        inputs = Inputs.of(cohort, rows[start : start + 256])
        features = model.features.transform(inputs).astype(np.float64)
        groups = site_groups(model.sites, inputs.sites, len(inputs))
        for group in range(n_groups):
            mine = features if group == 0 else features[groups == group]
            total[group] += mine.sum(axis=0)
            count[group] += len(mine)
    return total / np.maximum(count, 1)[:, None]
