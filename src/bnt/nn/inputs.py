"""What a model is given, checked: one sentence instead of a shape error from the depths."""

from __future__ import annotations

from torch import Tensor

from bnt.errors import BadInput


def check_connectomes(x: Tensor, n_rois: int) -> None:
    """Refuse anything but connectomes (B, V, V) of the model's V."""
    if x.ndim != 3 or x.shape[1:] != (n_rois, n_rois):
        raise BadInput(
            f"The model was made for connectomes of {n_rois} ROIs, shape (B, {n_rois}, {n_rois}), "
            f"but was given {tuple(x.shape)}."
        )


def check_series(series: Tensor | None, n_subjects: int, n_volumes: int, n_rois: int) -> Tensor:
    """Return the series (B, T, V), or refuse what is missing or of another shape."""
    wanted = (n_subjects, n_volumes, n_rois)
    if series is None:
        raise BadInput(f"The model reads time series and was given none: pass series of shape {wanted} beside x.")
    if series.shape != wanted:
        raise BadInput(f"The model reads series of shape {wanted}, time first, but was given {tuple(series.shape)}.")
    return series
