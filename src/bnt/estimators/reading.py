"""From what users pass as X to a cohort: matrices, vectors, tables, or a cohort itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_array, validate_data

from bnt.cohort import Cohort
from bnt.cohort.triangle import n_edges
from bnt.errors import BadInput
from bnt.estimators.layout import Layout, checked_kind, edges_of_matrices, layout_of_vectors
from bnt.estimators.vector_order import warn_of_wrong_order

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
        raise BadInput(f"y is the name {y!r}, which needs a bnt.Cohort as X: pass one label a subject.")
    return X.labels(y)


def read_to_fit(
    estimator: Any, X: Any, y: Any, *, y_numeric: bool, sites: Any = None, groups: Any = None
) -> tuple[Cohort, np.ndarray, Layout]:
    """Check X and y, set what scikit-learn expects on the estimator, and return them as cohort and labels."""
    if isinstance(X, Cohort):
        if sites is not None or groups is not None:
            raise BadInput("A cohort has sites and groups of its own: pass them with arrays only.")
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
        layout = layout_of_vectors(X, strict=estimator.strict, diagonal=estimator.diagonal, kind=kind)
        edges = layout.edges(X)
        if estimator.strict and kind not in WITHOUT_BOUNDS:
            warn_of_wrong_order(edges)
    return _cohort(edges, layout, site=sites, group=groups), y, layout


def read_to_predict(estimator: Any, X: Any, layout: Layout, sites: Any = None) -> Cohort:
    """Check X against what the estimator was fitted on and return it as a cohort."""
    if isinstance(X, Cohort):
        if sites is not None:
            raise BadInput("A cohort has sites of its own: pass them with arrays only.")
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
    return _cohort(edges, layout, site=sites)


def _cohort(edges: np.ndarray, layout: Layout, **columns: Any) -> Cohort:
    table = pd.DataFrame({"participant_id": [f"subject {i}" for i in range(len(edges))]})
    for name, values in columns.items():
        if values is None:
            continue
        values = np.asarray(values)
        if values.shape != (len(edges),):
            raise BadInput(f"{name}s has shape {values.shape}, X has {len(edges)} subjects: give one value a subject.")
        known = pd.notna(values)  # a missing site is unknown, a missing group is of its own
        table[name] = pd.Series(values.astype(str)).where(known)
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
