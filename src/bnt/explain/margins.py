"""A model's decision about one class as one number a subject: what attributions explain and patterns follow."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from bnt.cohort import Cohort
from bnt.explain.opening import Weights, classical_model, is_network, member_networks, outputs
from bnt.models.inputs import Inputs


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


def margins(weights: Weights, cohort: Cohort, rows: np.ndarray, column: int) -> np.ndarray:
    """Return the margin of a class for some subjects, the members' mean, (n,)."""
    if not is_network(weights):
        model: Any = classical_model(weights)
        found = model.decisions(Inputs.of(cohort, rows))
        return decision_of(found, weights.config.task.n_outputs, column)
    total = np.zeros(len(rows))
    for model in member_networks(weights):
        for part, output in outputs(weights, model, cohort, rows, batch_size=64):
            total[part] += margin_of(output.logits.double(), column).cpu().numpy()
    return total / len(weights.members)
