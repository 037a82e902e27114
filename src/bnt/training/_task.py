"""What is predicted: classes or a number; its loss, its predictions and its validation score."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from bnt.errors import BadInput
from bnt.splits._strata import is_score
from bnt.training._metrics import auroc_or_nan, binary_metrics, multiclass_metrics, regression_metrics


@dataclass(frozen=True)
class Task:
    """Classification into ``classes``, or regression of a target with this mean and SD (of the training part).

    The positive class of a binary task is the last of ``classes``.
    """

    kind: Literal["classification", "regression"]
    classes: tuple[Any, ...] = ()
    mean: float = 0.0
    sd: float = 1.0

    @property
    def n_outputs(self) -> int:
        """Number of columns of the logits."""
        return len(self.classes) if self.kind == "classification" else 1

    def encode(self, y: np.ndarray) -> np.ndarray:
        """Return class codes (int64) or standardised targets (float64)."""
        if self.kind == "regression":
            return (np.asarray(y, dtype=np.float64) - self.mean) / self.sd
        position = {c: i for i, c in enumerate(self.classes)}
        unknown = [v for v in y.tolist() if v not in position]
        if unknown:
            raise BadInput(f"Label {unknown[0]!r} was not among the training labels {list(self.classes)}.")
        return np.array([position[v] for v in y.tolist()], dtype=np.int64)

    def targets(self, y: np.ndarray) -> Tensor:
        """Return what the loss compares with: one-hot (n, C) or standardised (n, 1)."""
        codes = torch.from_numpy(self.encode(y))
        if self.kind == "regression":
            return codes.float().unsqueeze(1)
        return F.one_hot(codes, self.n_outputs).float()

    def loss(self, logits: Tensor, target: Tensor, weight: Tensor | None, reduction: str) -> Tensor:
        """Return soft-label cross-entropy or squared error, averaged or summed over subjects."""
        if self.kind == "regression":
            each = (logits - target).square().squeeze(1)
        else:
            each = -(target * logits.log_softmax(dim=1)).sum(dim=1)
        if weight is not None:
            each = each * weight
        return each.sum() if reduction == "sum" else each.mean()

    def predictions(self, logits: Tensor) -> np.ndarray:
        """Return class probabilities (n, C), or targets (n, 1) in the label's own units."""
        if self.kind == "regression":
            return (logits.double() * self.sd + self.mean).cpu().numpy()
        return logits.double().softmax(dim=1).cpu().numpy()

    def score(self, y: np.ndarray, predictions: np.ndarray) -> float:
        """Return the validation score, higher is better: AUROC (macro one-vs-rest), or minus the squared error."""
        if self.kind == "regression":
            return -float(np.mean((np.asarray(y, dtype=float) - predictions[:, 0]) ** 2))
        codes = self.encode(y)
        if self.n_outputs == 2:
            return auroc_or_nan(codes == 1, predictions[:, 1])
        return float(np.mean([auroc_or_nan(codes == c, predictions[:, c]) for c in range(self.n_outputs)]))

    def metrics(self, y: np.ndarray, predictions: np.ndarray) -> dict[str, Any]:
        """Return what is reported of predictions: see :mod:`bnt.training._metrics`."""
        if self.kind == "regression":
            return regression_metrics(y, predictions[:, 0])
        codes = self.encode(y)
        if self.n_outputs == 2:
            return binary_metrics(codes == 1, predictions[:, 1])
        return multiclass_metrics(codes, predictions)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for ``config.toml`` and ``report.json``."""
        if self.kind == "regression":
            return {"kind": self.kind, "mean": self.mean, "sd": self.sd}
        return {"kind": self.kind, "classes": [c.item() if isinstance(c, np.generic) else c for c in self.classes]}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Task:
        """Undo :meth:`to_dict`."""
        return Task(data["kind"], tuple(data.get("classes", ())), data.get("mean", 0.0), data.get("sd", 1.0))


def task_for(y: np.ndarray, kind: str = "auto", train: np.ndarray | None = None, positive: str | None = None) -> Task:
    """Return the task that labels ask for.

    Parameters
    ----------
    y : array, (n,)
        Labels of everyone in the split: classes are read from all, statistics from ``train`` only.
    kind : {"auto", "classification", "regression"}
        ``auto`` asks :func:`~bnt.splits._strata.is_score`, as the splits do.
    train : array of int, optional
        The training rows.
    positive : str, optional
        The positive class, as text; the last in sorted order without it.
    """
    y = np.asarray(y)
    distinct = np.unique(y)
    if kind == "auto":
        kind = "regression" if is_score(y) else "classification"
    part = y if train is None else y[train]
    if kind == "regression":
        values = part.astype(np.float64)
        if not np.isfinite(values).all():
            raise BadInput("The target holds NaN or infinite values: select subjects who have it.")
        sd = float(values.std())
        if sd == 0:
            raise BadInput(f"Every training subject has the same target, {values[0]:g}: there is nothing to learn.")
        return Task("regression", mean=float(values.mean()), sd=sd)
    if y.dtype.kind == "f":
        broken = distinct[~np.isfinite(distinct) | (distinct != np.round(distinct))]
        if broken.size:
            raise BadInput(
                f"The label has the value {broken[0]:g}, which is no whole number and so no class: predict it as "
                "a score (task regression), or give classes as whole numbers or words.",
                parameter="task",
            )
        y, distinct, part = y.astype(np.int64), distinct.astype(np.int64), part.astype(np.int64)
    if len(distinct) < 2:
        raise BadInput(f"All subjects have the label {distinct[0]!r}: classification needs two classes.")
    absent = set(distinct.tolist()) - set(np.unique(part).tolist())
    if absent:
        score = ", or predict it as a score (task regression)" if y.dtype.kind in "iu" else ""
        raise BadInput(
            f"No training subject has the label {sorted(absent)[0]!r}: use another split{score}.",
            parameter="task" if score else "",
        )
    classes = distinct.tolist()
    if positive is not None:
        named = [c for c in classes if str(c) == positive]
        if not named:
            raise BadInput(f"There is no class {positive!r} to be the positive one; there are {classes}.")
        classes = [c for c in classes if str(c) != positive] + named
    return Task("classification", classes=tuple(classes))
