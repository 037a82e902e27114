"""Uncertainty of a prediction: calibrated intervals, and detection of scans unlike the training data.

For two classes, Venn-Abers predictors (Vovk and Petej 2014): isotonic regression of the calibration subjects' labels on
their probabilities, once with the new subject counted as negative and once as positive. The two values are an interval
that holds a calibrated probability, if new subjects are drawn like the calibration subjects; it is wide where those are
few, and need not hold the model's own probability, which may be badly calibrated. For more classes, split-conformal
sets; for scores, split-conformal intervals. Validation subjects chose the epoch, which makes all of them a little too
narrow; where the model was refitted on validation, the test subjects serve instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from bnt.cohort import Cohort
from bnt.cohort._files import readable
from bnt.explain._decisions import keeps_no_subjects, mean_edges, some_of, training_part
from bnt.training._config import RunConfig
from bnt.training._task import Task
from bnt.training._trained import read_predictions

LEVEL = 0.9


@dataclass(frozen=True)
class CalibrationSubjects:
    """Held-out subjects of a run: their ids, predictions (n, C) and codes or scores; and which set they are."""

    part: str
    ids: np.ndarray
    predictions: np.ndarray
    truth: np.ndarray

    @classmethod
    def of(cls, folder: Path, config: RunConfig) -> CalibrationSubjects | None:
        """Read a run's validation set, or its test set where the model was refitted on validation.

        None of a saved estimator, which keeps no subjects.
        """
        if keeps_no_subjects(folder):
            return None
        part = "test" if config.recipe.refit else "validation"
        table = read_predictions(folder)
        table = table[table["part"] == part]
        task = config.task
        with readable(folder / "predictions.csv", "make the run anew"):
            if task.kind == "regression":
                predictions = table[["predicted"]].to_numpy(dtype=float)
                truth = table["label"].to_numpy(dtype=float)
            else:
                predictions = table[[f"p_{c}" for c in task.classes]].to_numpy(dtype=float)
                position = {_same(c): i for i, c in enumerate(task.classes)}
                truth = np.array([position[_same(v)] for v in table["label"].tolist()], dtype=np.int64)
        return cls(part, table["participant_id"].to_numpy(dtype=str), predictions, truth)

    def without(self, name: str) -> CalibrationSubjects:
        """Return the others: nobody calibrates their own prediction."""
        keep = self.ids != name
        if keep.all():
            return self
        return CalibrationSubjects(self.part, self.ids[keep], self.predictions[keep], self.truth[keep])


def _same(value: object) -> str:
    """Return one spelling of a class: 1, 1.0 and "1" are the same."""
    text = str(value)
    return text.removesuffix(".0")


def venn_abers(probability: float, calibration: np.ndarray, positive: np.ndarray) -> tuple[float, float]:
    """Return the Venn-Abers interval of the probability of the positive class.

    Parameters
    ----------
    probability : float
        The model's probability for the new subject.
    calibration : array, (n,)
        Its probabilities for the calibration subjects.
    positive : array of bool, (n,)
        Whether the calibration subjects are positive.

    Examples
    --------
    >>> import numpy as np
    >>> from bnt.predict import venn_abers
    >>> low, high = venn_abers(0.6, np.linspace(0, 1, 50), np.linspace(0, 1, 50) > 0.5)
    >>> low <= high
    True
    """
    from sklearn.isotonic import IsotonicRegression

    found = []
    for label in (0.0, 1.0):
        x = np.append(calibration, probability)
        y = np.append(np.asarray(positive, dtype=float), label)
        found.append(float(IsotonicRegression(y_min=0, y_max=1).fit(x, y).predict([probability])[0]))
    return found[0], found[1]


def conformal_quantile(scores: np.ndarray, level: float = LEVEL) -> float:
    """Return the value that a new subject's nonconformity exceeds with a probability of at most 1 - level.

    Infinite where there are too few subjects for the level.
    """
    n = len(scores)
    rank = int(np.ceil((n + 1) * level - 1e-9))
    return float("inf") if rank > n else float(np.sort(scores)[rank - 1])


def prediction_intervals(
    task: Task, ids: np.ndarray, predicted: np.ndarray, calibration: CalibrationSubjects | None, level: float = LEVEL
) -> pd.DataFrame:
    """Return columns for a table of predictions, one row per subject.

    Two classes: ``low`` and ``high`` of the last class' probability. Classes: ``classes_90``, the set that holds the
    true one for 90 % of new subjects. A score: ``low`` and ``high`` that hold 90 %. ``interval_from`` says of whom,
    and why there is no interval where nobody was held out.
    """
    if calibration is None:
        return pd.DataFrame({"interval_from": ["not available: no held-out subjects were kept"] * len(ids)})
    rows = []
    for name, values in zip(ids.tolist(), predicted):
        others = calibration.without(name)
        row: dict[str, object] = {}
        if task.kind == "regression":
            width = conformal_quantile(np.abs(others.truth - others.predictions[:, 0]), level)
            row |= {"low": values[0] - width, "high": values[0] + width}
        else:
            if task.n_outputs == 2:
                low, high = venn_abers(values[1], others.predictions[:, 1], others.truth == 1)
                row |= {"low": low, "high": high}
            wrongness = 1 - others.predictions[np.arange(len(others.truth)), others.truth]
            limit = conformal_quantile(wrongness, level)
            inside = [str(c) for c, p in zip(task.classes, values) if 1 - p <= limit]
            row[f"classes_{round(100 * level)}"] = " ".join(inside) or "none"
        kind = "Venn-Abers" if task.n_outputs == 2 else "conformal"
        rows.append(row | {"interval_from": f"{kind}, {len(others.ids)} {others.part} subjects"})
    return pd.DataFrame(rows)


RARE = 0.01  # a value that fewer training subjects than this exceed is unlike them
FAR = 4.0  # SDs beyond which a value is unlike a training set too small to tell 1 %
COVARIATES = {"mean_fd": "motion", "n_missing_rois": "ROIs without signal"}
UNAVAILABLE = "unknown: the training subjects are not at hand"


def connectome_features(edges: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Return three numbers per connectome, (n, 3): mean edge, SD of edges, and correlation with the training mean."""
    edges = edges.astype(np.float64)
    away = edges - edges.mean(axis=1, keepdims=True)
    there = mean - mean.mean()
    size = np.sqrt((away**2).sum(axis=1) * (there**2).sum())
    alike = np.divide(away @ there, size, out=np.zeros(len(edges)), where=size > 0)
    return np.stack([edges.mean(axis=1), edges.std(axis=1), np.arctanh(np.clip(alike, -0.999999, 0.999999))], axis=1)


@dataclass(frozen=True)
class TrainingProfile:
    """Statistics of the training subjects, to compare new subjects with.

    Attributes
    ----------
    sites : frozenset of str
    mean : array, (E,)
        Their mean edges.
    centre, precision : array, (3,) and (3, 3)
        Mean and inverse covariance of their :func:`connectome_features`.
    distances : array, (n,)
        Their own Mahalanobis distances, sorted.
    covariates : dict of array
        Sorted motion and number of missing ROIs, where known.
    shortest : int or None
        Fewest volumes.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.load_cohort("cohort")
    >>> import numpy as np
    >>> from bnt.predict import TrainingProfile
    >>> profile = TrainingProfile.from_cohort(cohort, np.arange(28))
    >>> profile.compare(cohort).shape
    (40, 3)
    """

    sites: frozenset[str]
    mean: np.ndarray
    centre: np.ndarray
    precision: np.ndarray
    distances: np.ndarray
    covariates: dict[str, np.ndarray]
    shortest: int | None

    @classmethod
    def of(cls, folder: Path, config: RunConfig) -> TrainingProfile | None:
        """Compute it from the cohort a run was trained on; None where that is not there any more."""
        found = training_part(folder, config)
        if found is None:
            return None
        cohort, rows = found
        return cls.from_cohort(cohort, rows)

    @classmethod
    def from_cohort(cls, cohort: Cohort, rows: np.ndarray) -> TrainingProfile:
        """Compute it from training subjects; of more than 2,000, from a random sample."""
        rows = some_of(rows)
        mean = mean_edges(cohort, rows)
        parts = [connectome_features(cohort.edges(rows[i : i + 256]), mean) for i in range(0, len(rows), 256)]
        features = np.concatenate(parts)
        centre = features.mean(axis=0)
        precision = np.linalg.pinv(np.cov(features.T) + 1e-12 * np.eye(3))
        table = cohort.select(rows).participants
        covariates = {}
        for name in COVARIATES:
            if name in table:
                values = pd.to_numeric(table[name], errors="coerce").dropna().to_numpy(dtype=float)
                if len(values):
                    covariates[name] = np.sort(values)
        volumes = table["n_volumes"].dropna()
        sites = frozenset(str(s) for s in table["site"] if s != "unknown")
        shortest = int(volumes.min()) if len(volumes) else None
        return cls(
            sites, mean, centre, precision, np.sort(_distance(features, centre, precision)), covariates, shortest
        )

    def compare(self, cohort: Cohort) -> pd.DataFrame:
        """Return for each subject its distance, the share of training subjects as far away, and what is unlike them.

        Columns ``distance``, ``as_far`` and ``unlike_training``, whose text is empty where nothing stands out.
        """
        table = cohort.participants
        rows = []
        for i in range(len(cohort)):
            features = connectome_features(cohort.edges([i]), self.mean)
            distance = float(_distance(features, self.centre, self.precision)[0])
            as_far = _share_at_least(self.distances, distance)
            reasons = self._reasons(table.iloc[i])
            if _is_rare(self.distances, distance, float(np.sqrt(len(self.centre)))):
                reasons.append(f"connectome ({distance:.1f} SD away, farther than {1 - as_far:.1%} of training)")
            rows.append({"distance": distance, "as_far": as_far, "unlike_training": "; ".join(reasons)})
        return pd.DataFrame(rows)

    def _reasons(self, row: pd.Series) -> list[str]:
        reasons = []
        if self.sites and row["site"] == "unknown":
            reasons.append("site not known")
        elif self.sites and str(row["site"]) not in self.sites:
            reasons.append(f"site {row['site']} not in training")
        for name, values in self.covariates.items():
            mine = pd.to_numeric(row[name], errors="coerce") if name in row else float("nan")
            beyond = not pd.isna(mine) and float(mine) > values.max()
            if beyond and _is_rare(values, float(mine), values.mean()):
                reasons.append(f"{COVARIATES[name]} ({mine:g}, training up to {values.max():g})")
        missing = pd.to_numeric(row["n_missing_rois"], errors="coerce") if "n_missing_rois" in row else 0
        if "n_missing_rois" not in self.covariates and missing > 0:
            reasons.append(f"ROIs without signal ({missing:g}; unknown for training)")
        if self.shortest is not None and not pd.isna(row["n_volumes"]) and row["n_volumes"] < self.shortest:
            reasons.append(f"short scan ({row['n_volumes']} volumes, training from {self.shortest})")
        return reasons


def _share_at_least(ordered: np.ndarray, value: float) -> float:
    """Return the share of sorted values that are as large, the new one counted too."""
    return float(1 + len(ordered) - np.searchsorted(ordered, value, side="left")) / (1 + len(ordered))


def _is_rare(ordered: np.ndarray, value: float, usual: float) -> bool:
    """Return whether fewer than 1 % of sorted values are as large; of fewer than 100, whether it is far beyond all."""
    if value <= ordered[-1]:
        return value > ordered[0] and _share_at_least(ordered, value) < RARE
    return len(ordered) >= 100 or value - usual > FAR * float(ordered.std())


def _distance(features: np.ndarray, centre: np.ndarray, precision: np.ndarray) -> np.ndarray:
    away = features - centre
    return np.sqrt(np.maximum(np.einsum("ni,ij,nj->n", away, precision, away), 0))
