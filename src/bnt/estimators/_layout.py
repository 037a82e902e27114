"""Converts the input of estimators (matrices, vectors, cohorts) to a cohort, and checks the order of edges."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from math import isqrt, sqrt
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_array, validate_data

from bnt.cohort import Cohort
from bnt.cohort._store import canonical_kind
from bnt.cohort._triangle import flat, flat_symmetric, n_edges, n_rois_of, square
from bnt.connectivity import KINDS
from bnt.errors import BadInput
from bnt.models import find_entry
from bnt.splits._strata import allocate, classes_of, strata_of, units_of
from bnt.training._task import Task

LOOKED_AT = 5  # subjects
POSSIBLE = -0.01  # smallest eigenvalue that rounding explains
IMPOSSIBLE = -0.1
FEWEST_ROIS = 5  # below, the orders hardly differ


def from_rows_of_upper(n_rois: int) -> np.ndarray:
    """Return where each edge of our order stands in a vector made with ``np.triu_indices(V, 1)``."""
    position = np.zeros((n_rois, n_rois), dtype=np.int64)
    position[np.triu_indices(n_rois, 1)] = np.arange(n_rois * (n_rois - 1) // 2)
    return flat(position + position.T)


def plausibility(edges: np.ndarray) -> np.ndarray:
    """Return for each subject how far from possible its matrix is, as a smallest eigenvalue.

    The best of three readings: correlations, I + A; Fisher z, I + tanh(A); partial correlations, whose
    I - A is a precision matrix. Each has no negative eigenvalue.
    """
    a = square(edges.astype(np.float64), 0.0)  # (n, V, V)
    eye = np.eye(a.shape[-1])
    lowest = [np.linalg.eigvalsh(m)[:, 0] for m in (eye + a, eye + np.tanh(a), eye - a)]
    return np.max(lowest, axis=0)


def warn_of_wrong_order(edges: np.ndarray) -> None:
    """Warn if the edges cannot be correlations as they are read, but could be if read row by row."""
    n_rois = n_rois_of(edges.shape[1])
    if n_rois < FEWEST_ROIS:
        return
    some = edges[:LOOKED_AT]
    if not (plausibility(some) < IMPOSSIBLE).all():
        return
    if (plausibility(some[:, from_rows_of_upper(n_rois)]) > POSSIBLE).all():
        warnings.warn(
            "The vectors of X cannot be correlations in nilearn's order (lower triangle, row by row), but they can in "
            f"the order of np.triu_indices: pass matrices, M = np.zeros((len(X), {n_rois}, {n_rois})); "
            f"i, j = np.triu_indices({n_rois}, 1); M[:, i, j] = M[:, j, i] = X.",
            UserWarning,
            stacklevel=2,
        )


NILEARN_DIAGONAL = 1 / sqrt(2)  # sym_matrix_to_vec divides the diagonal, when it is kept, by sqrt(2)
SAME = 1e-5
OTHER_KINDS = ("unknown", "tangent")  # what arrays may hold beside the kinds of cohorts


@dataclass(frozen=True)
class Layout:
    """What one row of X holds.

    Attributes
    ----------
    n_features : int
        Entries of a vector, as they are given.
    n_rois : int
        V.
    diagonal : float
        What stands on the diagonal of the matrices that the model sees.
    kind : str
        What the entries are, ``unknown`` where nobody said.
    holds_diagonal : bool
        Whether vectors hold the diagonal too, as nilearn's do without ``discard_diagonal``.
    """

    n_features: int
    n_rois: int
    diagonal: float = 1.0
    kind: str = "unknown"
    holds_diagonal: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", canonical_kind(self.kind))

    def edges(self, X: np.ndarray) -> np.ndarray:
        """Return the V(V-1)/2 edges of vectors laid out like this, (n, n_features) -> (n, V(V-1)/2)."""
        if self.holds_diagonal:
            keep = np.ones(self.n_features, dtype=bool)
            keep[_diagonal_by_rows_of_lower(self.n_rois)] = False
            X = X[:, keep]
        missing = n_edges(self.n_rois) - X.shape[1]
        if missing:
            X = np.pad(X, ((0, 0), (0, missing)))
        return np.ascontiguousarray(X, dtype=np.float32)


def checked_kind(name: str) -> str:
    """Return the kind's name, aliases resolved, or say which kinds there are."""
    kind = canonical_kind(name)
    if kind not in KINDS and kind not in OTHER_KINDS:
        raise BadInput(f"kind is {name!r}: choose one of {', '.join([*KINDS, *OTHER_KINDS])}.")
    return kind


def _diagonal_by_rows_of_lower(n_rois: int) -> np.ndarray:
    """Return where nilearn's order has the diagonal: 0, 2, 5, 9, ..."""
    i = np.arange(n_rois)
    return i * (i + 3) // 2


def _diagonal_by_rows_of_upper(n_rois: int) -> np.ndarray:
    """Return where ``np.triu_indices(V)`` has the diagonal: 0, V, 2V - 1, ..."""
    i = np.arange(n_rois)
    return i * n_rois - i * (i - 1) // 2


def _constant(columns: np.ndarray) -> float | None:
    """Return 1 or 1/sqrt(2) if all entries are that, else None."""
    for value in (1.0, NILEARN_DIAGONAL):
        if np.abs(columns - value).max() < SAME:
            return value
    return None


def holds_variances(X: np.ndarray, n_rois: int) -> bool:
    """Return whether vectors are covariances or precisions with their diagonal.

    It is then positive, and |a_ij| <= sqrt(a_ii a_jj). Edges of another atlas do not satisfy that
    for every pair of every subject.
    """
    place = _diagonal_by_rows_of_lower(n_rois)
    diagonal = X[:, place] / NILEARN_DIAGONAL
    if not (diagonal > 0).all():
        return False
    keep = np.ones(X.shape[1], dtype=bool)
    keep[place] = False
    i, j = np.tril_indices(n_rois, -1)
    return bool((np.abs(X[:, keep]) <= np.sqrt(diagonal[:, i] * diagonal[:, j]) * (1 + SAME)).all())


def is_centred(X: np.ndarray) -> bool:
    """Return whether the mean of every entry over subjects is 0, but for chance, as in tangent space."""
    spread = X.std(axis=0)
    able = spread > 0
    if len(X) < FEWEST_TO_TELL or not able.any():
        return False
    t = X.mean(axis=0)[able] / spread[able] * sqrt(len(X))
    return bool(np.sqrt(np.mean(t**2)) < CHANCE)


FEWEST_TO_TELL = 10  # subjects
CHANCE = 2.0  # root mean square of t values: 1 where all means are 0, far more in correlations


def layout_of_vectors(
    X: np.ndarray, *, strict: bool, diagonal: float | None, kind: str, n_rois: int | None = None
) -> Layout:
    """Return the layout of vectors (n, n_features), or say why they cannot be connectomes.

    Vectors that hold their diagonal have V(V+1)/2 entries, which is also the number of edges of V + 1 ROIs. They are
    recognised where it is constant (1 for correlations) or holds variances (covariances, precisions). Vectors in
    tangent space do not tell, and need ``n_rois``.
    """
    if n_rois is not None:
        return _layout_of(X, n_rois, diagonal, kind)
    n_features = X.shape[1]
    v = (1 + isqrt(1 + 8 * n_features)) // 2
    if diagonal is None:
        diagonal = KINDS[kind].diagonal if kind in KINDS else 1.0
    default = float(diagonal)
    if n_edges(v) != n_features:
        if strict:
            raise BadInput(
                f"X has vectors of {n_features} entries, which is V(V-1)/2 for no number of ROIs ({n_edges(v)} for "
                f"V = {v}, {n_edges(v + 1)} for V = {v + 1}): pass matrices, or vectors of nilearn's "
                "ConnectivityMeasure(vectorize=True, discard_diagonal=True); strict=False takes any features."
            )
        return Layout(n_features, v + 1, default, kind)
    smaller = v - 1  # the number of ROIs if the diagonal is held
    if len(X) > 1 and smaller > 2 and np.ptp(X[0]) > SAME:
        found = _constant(X[:, _diagonal_by_rows_of_lower(smaller)])
        if found is not None:
            return Layout(n_features, smaller, default, kind, holds_diagonal=True)
        if _constant(X[:, _diagonal_by_rows_of_upper(smaller)]) is not None:
            raise BadInput(
                f"X holds upper triangles with their diagonal, row by row: pass matrices instead, "
                f"M = np.zeros((len(X), {smaller}, {smaller})); i, j = np.triu_indices({smaller}); "
                "M[:, i, j] = M[:, j, i] = X."
            )
        if strict and smaller >= FEWEST_ROIS and holds_variances(X, smaller):
            return Layout(n_features, smaller, default, kind, holds_diagonal=True)
        if strict and (kind == "tangent" or (kind == "unknown" and is_centred(X))):
            raise BadInput(
                f"X holds vectors of {n_features} entries around 0, as in tangent space: they may be {v} ROIs without "
                f"their diagonal (discard_diagonal=True) or {smaller} with it, set n_rois.",
                "n_rois",
            )
    return Layout(n_features, v, default, kind)


def _layout_of(X: np.ndarray, n_rois: int, diagonal: float | None, kind: str) -> Layout:
    """Return the layout of vectors of a number of ROIs, with or without their diagonal."""
    n_features = X.shape[1]
    default = float(diagonal) if diagonal is not None else KINDS[kind].diagonal if kind in KINDS else 1.0
    without = n_edges(n_rois)
    if n_features not in (without, without + n_rois):
        raise BadInput(
            f"n_rois is {n_rois} and X has vectors of {n_features} entries: {n_rois} ROIs have {without}, or "
            f"{without + n_rois} with their diagonal.",
            "n_rois",
        )
    return Layout(n_features, n_rois, default, kind, holds_diagonal=n_features != without)


def edges_of_matrices(X: np.ndarray, diagonal: float | None) -> tuple[np.ndarray, float]:
    """Return the edges (n, V(V-1)/2) and the common diagonal of symmetric matrices (n, V, V)."""
    if X.shape[1] != X.shape[2] or X.shape[1] < 2:
        raise BadInput(
            f"X has shape {X.shape}: connectomes are square, give (subjects, ROIs, ROIs) with two ROIs or more."
        )
    edges = flat_symmetric(X, "X")
    if diagonal is not None:
        return edges, float(diagonal)
    values = np.diagonal(X, axis1=1, axis2=2)
    low, high = (float(values.min()), float(values.max())) if values.size else (1.0, 1.0)
    if not high - low <= 1e-3:  # also where one of them is not finite
        raise BadInput(
            f"The diagonals of X vary (from {low:.4g} to {high:.4g}), and models see one value there: "
            "set diagonal, 1 for correlations or 0 after Fisher's z, and what X holds there is ignored."
        )
    return edges, round((low + high) / 2, 3)


FLOATS = [np.float64, np.float32]
WITHOUT_BOUNDS = ("tangent",)  # kinds whose matrices may have any eigenvalues


def is_stack_of_matrices(X: Any) -> bool:
    """Return whether X has three dimensions, without converting tables and arrays."""
    if isinstance(X, list | tuple):
        return len(X) > 0 and np.ndim(X[0]) == 2
    return getattr(X, "ndim", 2) == 3


def labels_of(X: Any, y: Any) -> Any:
    """Return labels: a column of the cohort where ``y`` is a name, otherwise ``y``."""
    if not isinstance(y, str):
        return y
    if not isinstance(X, Cohort):
        raise BadInput(f"y is the name {y!r}, which needs a bnt.Cohort as X: pass one label per subject.")
    return X.labels(y)


def read_to_fit(
    estimator: Any, X: Any, y: Any, *, y_numeric: bool, sites: Any = None, groups: Any = None, participants: Any = None
) -> tuple[Cohort, np.ndarray, Layout]:
    """Check X and y, set what scikit-learn expects on the estimator, and return them as cohort and labels."""
    if isinstance(X, Cohort):
        if sites is not None or groups is not None or participants is not None:
            raise BadInput("A cohort has sites, groups and participants of its own: pass them with arrays only.")
        y = _checked_labels(estimator, X, y, y_numeric)
        X.check_finite()
        layout = Layout(n_edges(X.n_rois), X.n_rois, X.diagonal, X.kind)
        estimator.n_features_in_ = layout.n_features
        if hasattr(estimator, "feature_names_in_"):
            del estimator.feature_names_in_
        return X, y, layout
    kind = checked_kind(estimator.kind)
    checks: dict[str, Any] = {"dtype": FLOATS, "ensure_min_samples": 2, "y_numeric": y_numeric}
    if is_stack_of_matrices(X):
        stack = check_array(X, allow_nd=True, dtype=FLOATS, ensure_all_finite=False, input_name="X")
        edges, diagonal = edges_of_matrices(stack, estimator.diagonal)
        edges, y = validate_data(estimator, edges, y, **checks)
        layout = Layout(edges.shape[1], stack.shape[1], diagonal, kind)
    else:
        X, y = validate_data(estimator, X, y, **checks)
        layout = layout_of_vectors(
            X, strict=estimator.strict, diagonal=estimator.diagonal, kind=kind, n_rois=estimator.n_rois
        )
        edges = layout.edges(X)
        if estimator.strict and kind not in WITHOUT_BOUNDS:
            warn_of_wrong_order(edges)
    return _cohort(edges, layout, participants, site=sites, group=groups), y, layout


def read_to_predict(estimator: Any, X: Any, layout: Layout, sites: Any = None, participants: Any = None) -> Cohort:
    """Check X against what the estimator was fitted on and return it as a cohort."""
    if isinstance(X, Cohort):
        if sites is not None or participants is not None:
            raise BadInput("A cohort has sites and participants of its own: pass them with arrays only.")
        _refuse_other_rois(estimator, X.n_rois, layout)
        known = "unknown" not in (X.kind, layout.kind)
        if known and X.kind != layout.kind:
            raise BadInput(
                f"The cohort holds {X.kind!r} connectomes, this {type(estimator).__name__} was fitted on "
                f"{layout.kind!r} ones: use the same kind."
            )
        X.check_finite()
        return X.with_diagonal(layout.diagonal)
    if is_stack_of_matrices(X):
        stack = check_array(X, allow_nd=True, dtype=FLOATS, ensure_all_finite=False, input_name="X")
        _refuse_other_rois(estimator, stack.shape[1], layout)
        edges, _ = edges_of_matrices(stack, layout.diagonal)
        edges = check_array(edges, dtype=FLOATS, input_name="X")
    else:
        edges = layout.edges(validate_data(estimator, X, reset=False, dtype=FLOATS))
    return _cohort(edges, layout, participants, site=sites)


def _cohort(edges: np.ndarray, layout: Layout, participants: Any = None, **columns: Any) -> Cohort:
    table = pd.DataFrame({"participant_id": [f"subject {i}" for i in range(len(edges))]})
    if participants is not None:
        given = pd.DataFrame(participants).reset_index(drop=True).drop(columns="participant_id", errors="ignore")
        if len(given) != len(table):
            raise BadInput(f"participants has {len(given)} rows, X {len(table)} subjects: give one row per subject.")
        table = pd.concat([table, given], axis=1)
    for name, values in columns.items():
        if values is None:
            continue
        values = np.asarray(values)
        if values.shape != (len(edges),):
            raise BadInput(f"{name}s has shape {values.shape}, X {len(edges)} subjects: give one value per subject.")
        known = pd.notna(values)  # a missing site is unknown, a missing group is of its own
        table["family" if name == "group" else name] = pd.Series(values.astype(str)).where(known)
    edges = np.ascontiguousarray(edges, dtype=np.float32)
    return Cohort(edges, table, kind=layout.kind, diagonal=layout.diagonal)


def _checked_labels(estimator: Any, cohort: Cohort, y: Any, y_numeric: bool) -> np.ndarray:
    if y is None:
        raise ValueError(
            f"This {type(estimator).__name__} estimator requires y to be passed, but the target y is None: "
            "pass labels, or the name of a column of the participants table."
        )
    rows = np.arange(len(cohort), dtype=np.float64).reshape(-1, 1)  # stands for X: only y is checked
    _, y = validate_data(estimator, rows, y, ensure_min_samples=2, y_numeric=y_numeric)
    return y


def _refuse_other_rois(estimator: Any, n_rois: int, layout: Layout) -> None:
    if n_rois != layout.n_rois:
        raise BadInput(
            f"X has {n_rois} ROIs, but this {type(estimator).__name__} was fitted on {layout.n_rois}: "
            "use the same atlas."
        )


def hold_out(cohort: Cohort, y: np.ndarray, task: Task, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return positions to train on and to select on; the second is empty where nothing can be held out.

    Sites and classes (quintiles of a score) are shared out evenly, and subjects of one group, or with one
    scan, stay together. Nothing is held out where the set would have fewer than two subjects, or would
    lack a class: no score could be computed there.
    """
    if not 0 <= fraction < 1:
        raise BadInput(f"validation_fraction is {fraction}: give a share from 0 (none) to below 1.")
    n = len(cohort)
    nobody = np.arange(n), np.array([], dtype=np.int64)
    n_val = int(n * fraction + 1e-9)
    if n_val < 2 or len(np.unique(y)) < 2:
        return nobody
    classes = task.encode(y) if task.kind == "classification" else classes_of(cohort, y)
    strata = strata_of(cohort.sites, classes)
    sizes = np.array([n - n_val, n_val])
    part = allocate(units_of(cohort), strata, classes, sizes, np.random.default_rng([seed, n]))
    train, val = np.flatnonzero(part == 0), np.flatnonzero(part == 1)
    if len(train) < 2 or len(val) < 2:
        return nobody
    if task.kind == "classification":
        everyone = len(np.unique(classes))
        if len(np.unique(classes[train])) < everyone or len(np.unique(classes[val])) < everyone:
            return nobody
    return train, val


def check_series(model: str, cohort: Cohort) -> None:
    """Refuse a model that reads time series where there are none."""
    if find_entry(model).needs_series and cohort.timeseries is None:
        raise BadInput(f"Model {model!r} reads time series, and X has none: pass a bnt.Cohort that has them.")
