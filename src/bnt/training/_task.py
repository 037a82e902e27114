"""The prediction task, classes or a number: its loss, predictions and metrics.

Sensitivity is the recall of the positive class (named in every report), specificity that of the other. Accuracy,
sensitivity and specificity use probability > 0.5, or the threshold that was chosen, so that accuracy is exactly the
class-share-weighted mean of the two.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any, Literal

import numpy as np
import torch
from scipy.stats import binomtest, rankdata, spearmanr
from sklearn.metrics import mean_absolute_error, mean_squared_error, median_absolute_error, r2_score
from torch import Tensor
from torch.nn import functional as F

from bnt.cohort._inspect import is_score
from bnt.errors import BadInput


@dataclass(frozen=True)
class Task:
    """Classification into ``classes``, or regression of a target with this mean and SD (of the training set).

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

    def called(self, predictions: np.ndarray, threshold: float = 0.5) -> list[Any]:
        """Return the class predicted for each subject: the likeliest; of two, the positive one above the threshold."""
        codes = (predictions[:, 1] > threshold).astype(int) if self.n_outputs == 2 else predictions.argmax(axis=1)
        return [self.classes[code] for code in codes]

    def metrics(
        self, y: np.ndarray, predictions: np.ndarray, sites: np.ndarray | None = None, threshold: float = 0.5
    ) -> dict[str, Any]:
        """Return what is reported of predictions, with 95 % intervals; of two classes also within ``sites``."""
        if self.kind == "regression":
            return regression_metrics(y, predictions[:, 0])
        codes = self.encode(y)
        if self.n_outputs == 2:
            found = binary_metrics(codes == 1, predictions[:, 1], threshold)
            if sites is not None:
                found["auroc_within_site"] = auroc_within(codes == 1, predictions[:, 1], sites)
            return found
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


def averaged(y: np.ndarray, predicted: np.ndarray, people: np.ndarray, by_class: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return labels and predictions with one row per person: those of several scans are averaged.

    A person whose class changes between scans has one row per class (``by_class``); of a score the mean is taken.
    """
    names = [f"{who}\t{label}" if by_class else str(who) for who, label in zip(people, y)]
    _, first, codes, n = np.unique(names, return_index=True, return_inverse=True, return_counts=True)
    if len(n) == len(names):
        return y, predicted  # one scan each: the same bits as ever
    means = np.stack([np.bincount(codes, column) / n for column in predicted.T], axis=1)
    return (y[first] if by_class else np.bincount(codes, y.astype(float)) / n), means


def task_for(y: np.ndarray, kind: str = "auto", train: np.ndarray | None = None, positive: str | None = None) -> Task:
    """Return the task that labels ask for.

    Parameters
    ----------
    y : array, (n,)
        Labels of everyone in the split: classes are read from all, statistics from ``train`` only.
    kind : {"auto", "classification", "regression"}
        ``auto`` asks :func:`~bnt.cohort._inspect.is_score`.
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
        if y.dtype.kind not in "biuf":
            raise BadInput(
                f"The label holds text such as {str(distinct[0])!r}, which is not a score: predict it as classes (task "
                "classification), or give numbers.",
                "task",
            )
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
                f"The label has the value {broken[0]:g}, which is not a whole number and so not a class: predict "
                "it as a score (task regression), or give classes as whole numbers or words.",
                "task",
            )
        y, distinct, part = y.astype(np.int64), distinct.astype(np.int64), part.astype(np.int64)
    if len(distinct) < 2:
        raise BadInput(f"All subjects have the label {distinct.tolist()[0]!r}: classification needs two classes.")
    absent = set(distinct.tolist()) - set(np.unique(part).tolist())
    if absent:
        score = ", or predict it as a score (task regression)" if y.dtype.kind in "iu" else ""
        raise BadInput(
            f"No training subject has the label {sorted(absent)[0]!r}: use another split{score}.",
            "task" if score else "",
        )
    classes = distinct.tolist()
    if positive is not None:
        named = [c for c in classes if str(c) == positive]
        if not named:
            raise BadInput(f"There is no class {positive!r} to be the positive one; there are {classes}.")
        classes = [c for c in classes if str(c) != positive] + named
    return Task("classification", classes=tuple(classes))


# -- metrics -------------------------------------------------------------------------------------------

Z95 = 1.959963984540054


def auroc(positive: np.ndarray, score: np.ndarray) -> float:
    """Return the area under the ROC curve (ties count half); NaN with a warning where a class is absent.

    From ranks, as permutation and DeLong tests need them: scikit-learn's trapezoids differ in the last bit.
    """
    area = auroc_or_nan(positive, score)
    if np.isnan(area):
        warnings.warn("AUROC is undefined: only one class is present.", stacklevel=2)
    return area


def auroc_or_nan(positive: np.ndarray, score: np.ndarray) -> float:
    """Return :func:`auroc` without the warning: who made the split knows its name, and says it once."""
    positive = np.asarray(positive, dtype=bool)
    n1 = int(positive.sum())
    n0 = positive.size - n1
    if n1 == 0 or n0 == 0:
        return float("nan")
    ranks = rankdata(score)
    return float((ranks[positive].sum() - n1 * (n1 + 1) / 2) / (n1 * n0))


def auroc_within(positive: np.ndarray, score: np.ndarray, sites: np.ndarray) -> float:
    """Return the AUROC over pairs of people of one site: what is left where site tells the classes apart.

    The share of such pairs, one person of each class, in which the positive one has the higher score; ties count half.
    NaN where no site has both classes.
    """
    positive, score, sites = np.asarray(positive, dtype=bool), np.asarray(score), np.asarray(sites).astype(str)
    won = pairs = 0.0
    for site in np.unique(sites):
        here = sites == site
        n = float(positive[here].sum() * (~positive[here]).sum())
        if n:
            won, pairs = won + n * auroc_or_nan(positive[here], score[here]), pairs + n
    return won / pairs if pairs else float("nan")


def auroc_error(positive: np.ndarray, score: np.ndarray) -> float:
    """Return DeLong's standard error of one AUROC; NaN with fewer than two subjects of a class."""
    positive = np.asarray(positive, dtype=bool)
    n1, n0 = int(positive.sum()), int((~positive).sum())
    if min(n1, n0) < 2:
        return float("nan")
    ranks = rankdata(score)
    among1, among0 = rankdata(np.asarray(score)[positive]), rankdata(np.asarray(score)[~positive])
    placed1 = (ranks[positive] - among1) / n0  # share of negatives below each positive
    placed0 = 1 - (ranks[~positive] - among0) / n1
    return sqrt(placed1.var(ddof=1) / n1 + placed0.var(ddof=1) / n0)


def auroc_interval(positive: np.ndarray, score: np.ndarray) -> tuple[float, float]:
    """Return the 95 % interval of one AUROC by DeLong's variance, on the logit scale so that it stays in [0, 1]."""
    positive = np.asarray(positive, dtype=bool)
    area, error = auroc_or_nan(positive, score), auroc_error(positive, score)
    if not np.isfinite([area, error]).all():
        return float("nan"), float("nan")
    if area in (0.0, 1.0) or error == 0:  # DeLong's variance is zero there: as sure as the smaller class allows
        few = min(int(positive.sum()), int((~positive).sum()))
        return proportion_interval(round(area * few), few)
    centre, half = np.log(area / (1 - area)), Z95 * error / (area * (1 - area))
    return float(1 / (1 + np.exp(half - centre))), float(1 / (1 + np.exp(-half - centre)))


def proportion_interval(successes: int, n: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a proportion."""
    if n == 0:
        return float("nan"), float("nan")
    found = binomtest(successes, n).proportion_ci(method="wilson")
    return float(found.low), float(found.high)


def _rate(hits: np.ndarray) -> tuple[float, tuple[float, float]]:
    value = float(hits.mean()) if hits.size else float("nan")
    return value, proportion_interval(int(hits.sum()), hits.size)


def best_threshold(positive: np.ndarray, probability: np.ndarray) -> float:
    """Return the threshold of the highest balanced accuracy; of several, the nearest to 0.5.

    Thresholds lie halfway between neighbouring probabilities; positive is what is above. 0.5 where a class is absent.
    """
    positive = np.asarray(positive, dtype=bool)
    if positive.all() or not positive.any():
        return 0.5
    values = np.unique(probability)
    cuts = np.append((values[1:] + values[:-1]) / 2, 0.5)
    called = probability[None] > cuts[:, None]
    balanced = called[:, positive].mean(axis=1) + (~called[:, ~positive]).mean(axis=1)
    best = np.flatnonzero(balanced > balanced.max() - 1e-12)
    return float(cuts[best[np.argmin(np.abs(cuts[best] - 0.5))]])


def calibration_error(positive: np.ndarray, probability: np.ndarray, n_bins: int = 10) -> float:
    """Return the expected calibration error over ``n_bins`` bins of equal width."""
    bins = np.minimum((np.asarray(probability) * n_bins).astype(int), n_bins - 1)
    total = 0.0
    for b in np.unique(bins):
        inside = bins == b
        total += inside.mean() * abs(positive[inside].mean() - probability[inside].mean())
    return float(total)


def binary_metrics(positive: np.ndarray, probability: np.ndarray, threshold: float = 0.5) -> dict[str, Any]:
    """Return metrics of a binary prediction and, under ``<name>_ci``, their intervals."""
    positive = np.asarray(positive, dtype=bool)
    called = probability > threshold
    accuracy, accuracy_ci = _rate(called == positive)
    sensitivity, sensitivity_ci = _rate(called[positive])
    specificity, specificity_ci = _rate(~called[~positive])
    share = positive.mean()
    if 0 < share < 1:
        implied = share * sensitivity + (1 - share) * specificity
        if abs(accuracy - implied) > 1e-9:
            raise AssertionError(f"accuracy {accuracy} is not the weighted mean {implied} of the two recalls")
    return {
        "auroc": auroc_or_nan(positive, probability),
        "auroc_ci": auroc_interval(positive, probability),
        "accuracy": accuracy,
        "accuracy_ci": accuracy_ci,
        "sensitivity": sensitivity,
        "sensitivity_ci": sensitivity_ci,
        "specificity": specificity,
        "specificity_ci": specificity_ci,
        "balanced_accuracy": (sensitivity + specificity) / 2,
        "brier": float(np.mean((probability - positive) ** 2)),
        "calibration_error": calibration_error(positive, probability),
        "n": int(positive.size),
        "n_positive": int(positive.sum()),
    }


def multiclass_metrics(codes: np.ndarray, probabilities: np.ndarray) -> dict[str, Any]:
    """Return metrics of a prediction among three classes or more (AUROC: macro one-vs-rest)."""
    n_classes = probabilities.shape[1]
    called = probabilities.argmax(axis=1)
    accuracy, accuracy_ci = _rate(called == codes)
    recalls = [float((called[codes == c] == c).mean()) for c in range(n_classes) if (codes == c).any()]
    one_hot = np.eye(n_classes)[codes]
    return {
        "auroc": float(np.mean([auroc_or_nan(codes == c, probabilities[:, c]) for c in range(n_classes)])),
        "accuracy": accuracy,
        "accuracy_ci": accuracy_ci,
        "balanced_accuracy": float(np.mean(recalls)),
        "brier": float(np.mean(((probabilities - one_hot) ** 2).sum(axis=1))),
        "n": int(codes.size),
    }


def regression_metrics(y: np.ndarray, predicted: np.ndarray) -> dict[str, Any]:
    """Return errors and correlations of a predicted score; the interval of r is Fisher's, others resample people."""
    y, predicted = np.asarray(y, dtype=float), np.asarray(predicted, dtype=float)
    same = np.ptp(y) == 0
    flat = predicted.std() == 0 or same
    r = float("nan") if flat else float(np.corrcoef(y, predicted)[0, 1])
    half = Z95 / sqrt(max(y.size - 3, 1))
    r_ci = (float("nan"),) * 2 if flat else tuple(np.tanh(np.arctanh(np.clip(r, -0.999999, 0.999999)) + [-half, half]))
    return {
        "mse": float(mean_squared_error(y, predicted)),
        "mae": float(mean_absolute_error(y, predicted)),
        "medae": float(median_absolute_error(y, predicted)),
        "r": r,
        "r_ci": (float(r_ci[0]), float(r_ci[1])),
        "spearman": float("nan") if flat else float(spearmanr(y, predicted).statistic),
        "r2": float("nan") if same else float(r2_score(y, predicted)),
        **resampled_intervals(y, predicted),
        "n": int(y.size),
    }


def resampled_intervals(y: np.ndarray, predicted: np.ndarray, draws: int = 1000) -> dict[str, tuple[float, float]]:
    """Return 95 % intervals of R2, MAE and the median absolute error from people drawn with replacement, seeded."""
    if y.size < 3 or np.ptp(y) == 0:
        return {}

    def each(y: np.ndarray, predicted: np.ndarray, axis: int) -> np.ndarray:
        wrong = np.abs(y - predicted)
        total = y.var(axis=axis)
        with np.errstate(divide="ignore", invalid="ignore"):  # a draw of one person again and again has no variance
            explained = np.where(total > 0, 1 - (wrong**2).mean(axis=axis) / total, np.nan)
        return np.stack([explained, wrong.mean(axis=axis), np.median(wrong, axis=axis)])

    blocks, rng = [], np.random.default_rng(0)
    for start in range(0, draws, 100):  # blocks keep the memory small
        rows = rng.integers(y.size, size=(min(100, draws - start), y.size))
        blocks.append(each(y[rows], predicted[rows], axis=1))
    low, high = np.nanquantile(np.concatenate(blocks, axis=1), [0.025, 0.975], axis=1)
    return {f"{n}_ci": (float(a), float(b)) for n, a, b in zip(("r2", "mae", "medae"), low, high)}
