"""From decision values to classes and probabilities: what all models with ``decisions`` share."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from bnt.errors import BadInput
from bnt.models.classical.calibration import Calibration
from bnt.models.classical.checks import refuse_regression
from bnt.models.inputs import Inputs


class Decides(ABC):
    """A model that gives decision values; a child says how, and fits ``calibration`` for its probabilities."""

    n_classes: int
    calibration: Calibration

    @abstractmethod
    def decisions(self, inputs: Inputs) -> np.ndarray:
        """Return decision values, (n, 1) for two classes and regression, (n, C) otherwise."""

    def decision(self, inputs: Inputs) -> np.ndarray:
        """Return the decision value of two classes, (n,); positive values speak for class 1."""
        if self.n_classes != 2:
            raise BadInput(f"A model of {self.n_classes} classes has no single decision value: use predict_proba.")
        return self.decisions(inputs)[:, 0]

    def predict_proba(self, inputs: Inputs) -> np.ndarray:
        """Return class probabilities, (n, C)."""
        refuse_regression(self.n_classes)
        return self.calibration.probabilities(self.decisions(inputs))

    def predict(self, inputs: Inputs) -> np.ndarray:
        """Return the most probable class, or the predicted target, (n,)."""
        if self.n_classes == 1:
            return self.decisions(inputs)[:, 0]
        return self.predict_proba(inputs).argmax(axis=1)
