"""Dropout."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Zero each entry with probability ``p`` and scale the rest by ``1 / (1 - p)``."""
    return F.dropout(x, p, training)
