"""How sure a prediction is: calibrated intervals from subjects the model was not trained on.

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

from bnt.cohort._files import readable
from bnt.explain._opening import keeps_no_subjects
from bnt.training._config import RunConfig
from bnt.training._task import Task
from bnt.training._trained import read_predictions

LEVEL = 0.9


@dataclass(frozen=True)
class CalibrationSubjects:
    """Held-out subjects of a run: their ids, predictions (n, C) and codes or scores; and which part they are."""

    part: str
    ids: np.ndarray
    predictions: np.ndarray
    truth: np.ndarray

    @classmethod
    def of(cls, folder: Path, config: RunConfig) -> CalibrationSubjects | None:
        """Read a run's validation part, or its test part where the model was refitted on validation.

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
    """Return the interval of a positive class' probability.

    Parameters
    ----------
    probability : float
        What the model says of the new subject.
    calibration : array, (n,)
        What it says of the calibration subjects.
    positive : array of bool, (n,)
        What they are.

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
