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
from bnt.nn._kernels import wide_products
from bnt.splits import read_splits
from bnt.splits._split import PARTS
from bnt.training._config import RunConfig
from bnt.training._learner import Learner
from bnt.training._trained import is_shared

BATCH = 16  # attention of a batch is (16, heads, V, V): 40 MB at V = 400
MOST_SUBJECTS = 2000  # more change a covariance little and cost time
NUMBERS_AT_ONCE = 1 << 24  # edges of a block of subjects
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
        with torch.no_grad(), wide_products():
            output = network(batch.x, **batch.of_series, explain=True)
        yield slice(start, start + len(batch.x)), output
        start += len(batch.x)


def keeps_no_subjects(folder: Path) -> bool:
    """Whether this is a saved estimator or an exported model: weights without the subjects they were learned from."""
    return (folder / "estimator.json").is_file() or is_shared(folder)


def part_ids(folder: Path, part: str) -> np.ndarray:
    """Return the participants of one set of a run's split."""
    return np.array(read_splits(folder / "splits.csv")[0].parts[part], dtype=str)


def part_rows(folder: Path, cohort: Cohort, part: str) -> np.ndarray:
    """Return the positions in a cohort of one set of a run's split; those it does not hold are left out."""
    position = {name: i for i, name in enumerate(cohort.ids.tolist())}
    return np.array([position[name] for name in part_ids(folder, part) if name in position], dtype=np.int64)


def training_part(folder: Path, config: RunConfig, cohort: Cohort | None = None) -> tuple[Cohort, np.ndarray] | None:
    """Return where a run's training subjects are: in the cohort given, or in the one it was trained on.

    None where neither holds them all any more, and of a saved or exported model, which does not know their names. A
    refitted run was trained on its validation set too.
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


class EdgeColumns:
    """The features that a linear model reads, one per edge, a few subjects at a time: no (n, E) array is ever made.

    Fisher z of the edges where the model reads several views.
    """

    def __init__(self, model: Any, cohort: Cohort, rows: np.ndarray) -> None:
        self.cohort, self.rows, self.n_edges = cohort, np.asarray(rows), cohort.shape[1]
        source = model.members["edge_ridge"] if hasattr(model, "members") else model
        own = hasattr(source, "features")
        self.features = source.features if own else EdgeFeatures(model.n_rois)
        self.sites = cohort.sites[self.rows].astype(str) if own and source.center_sites else None
        if not own:  # of an unknown kind, whether it holds correlations shows in all subjects only
            small = all((np.abs(cohort.edges(self.rows[part])) <= 1.0).all() for part in self.parts())
            self.features.holds_correlations = EdgeFeatures._are_correlations(self.inputs(slice(0, 1)), small)

    def parts(self) -> Iterator[slice]:
        """Yield the positions of each block."""
        return _parts(len(self.rows), self.n_edges)

    def inputs(self, part: slice) -> Inputs:
        """Return what the model reads of a block."""
        return Inputs.of(self.cohort, self.rows[part])

    def blocks(self) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield positions and features, (B, E) float64."""
        for part in self.parts():
            yield part, self.features.transform(self.inputs(part))[:, : self.n_edges].astype(np.float64)

    def centred(self, values: np.ndarray) -> np.ndarray:
        """Return numbers of the subjects, less the mean of each site where the model centres sites, else of all."""
        groups = self._groups()
        return values - (np.bincount(groups, values) / np.bincount(groups))[groups]

    def _groups(self) -> np.ndarray:
        if self.sites is None:
            return np.zeros(len(self.rows), dtype=np.int64)
        return np.unique(self.sites, return_inverse=True)[1]

    def sd(self) -> np.ndarray:
        """Return the standard deviation of each feature, (E,), within sites where the model centres them."""
        groups = self._groups()
        sums, squares = np.zeros((groups.max() + 1, self.n_edges)), np.zeros(self.n_edges)
        for part, x in self.blocks():
            for group in np.unique(groups[part]):
                sums[group] += x[groups[part] == group].sum(axis=0)
            squares += np.einsum("ne,ne->e", x, x)
        within = squares - (sums**2 / np.bincount(groups)[:, None]).sum(axis=0)
        return np.sqrt(np.maximum(within, 0.0) / len(self.rows))


def haufe_pattern(run: FittedRun, cohort: Cohort, rows: np.ndarray, column: int) -> tuple[np.ndarray, int]:
    """Return the pattern of the decision about one class over edges, (E,), and the number of subjects.

    The unit is the edge's (Fisher z for linear models, the connectome's own for networks) per SD of the decision.
    """
    rows = some_of(rows)
    if len(rows) < 3:
        raise BadInput(f"A pattern is a covariance over subjects and {len(rows)} were given: give at least three.")
    cohort = run.learner.prepared(cohort, rows)
    if is_network(run):
        s = margins(run, cohort, rows, column)
        away, blocks = s - s.mean(), _edge_blocks(cohort, rows)
    else:
        model = run.learner.models[0]
        columns = EdgeColumns(model, cohort, rows)
        found = np.concatenate([model.decisions(columns.inputs(part)) for part in columns.parts()])
        s = decision_of(found, run.config.task.n_outputs, column)
        # Features without their site's mean times decisions: features times decisions without their site's mean.
        away, blocks = columns.centred(s), columns.blocks()
    sd = s.std()
    if not sd > 0:
        raise BadInput("The model predicts the same for all subjects: there is no pattern.")
    total = np.zeros(cohort.shape[1])
    for part, x in blocks:
        total += away[part] @ x
    return total / (len(s) * sd), len(rows)


def _edge_blocks(cohort: Cohort, rows: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield positions and edges, (B, E) float64."""
    for part in _parts(len(rows), cohort.shape[1]):
        yield part, cohort.edges(rows[part]).astype(np.float64)


def _parts(n: int, n_edges: int) -> Iterator[slice]:
    """Yield the positions of each block of n subjects."""
    step = max(1, NUMBERS_AT_ONCE // n_edges)
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


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
    return coef * EdgeColumns(model, run.learner.prepared(cohort, rows), rows).sd(), len(rows)


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
) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield what each edge of each subject adds to the decision, (B, E): weight times deviation from the baseline.

    What is left of the decision is the same for all subjects. So confounds are at their training mean in the baseline,
    and a model that centres sites is relative to the training mean of each subject's own site instead.
    """
    model, coef = _coefficients(run, column)
    if model.space != "edges":
        raise BadInput(f"{run.config.model!r} reads the tangent space, in which edges are mixed; {PATTERNS_INSTEAD}.")
    if model.sites and training is None:
        raise BadInput(
            f"{run.config.model!r} compares with the mean of each site, and the training subjects are not at hand "
            "to tell it."
        )
    columns = EdgeColumns(model, run.learner.prepared(cohort, rows), rows)
    if training is None or not model.sites:
        means = _baseline_features(model, columns.inputs(slice(0, 1)), baseline, training)
    else:
        means = _site_means(model, run.learner.prepared(*training), training[1])
    groups = site_groups(model.sites, columns.cohort.sites[columns.rows].astype(str), len(columns.rows))
    for part, features in columns.blocks():
        yield part, coef * (features - means[groups[part]])


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
