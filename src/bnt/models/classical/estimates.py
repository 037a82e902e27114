"""Matrices of one subject's series: what two regions have in common, seen in four ways.

Each takes centred series (B, T, V), in which a region without a signal is 0 throughout, and returns (B, V, V).
"""

from __future__ import annotations

import torch
from torch import Tensor

from bnt.connectivity.estimate import ledoit_wolf_covariance, unit_columns

ORDER = 3  # volumes that the autoregression looks back


def _standardise(centred: Tensor) -> Tensor:
    return unit_columns(centred) * centred.shape[1] ** 0.5


def standardised(centred: Tensor) -> Tensor:
    """Return the Ledoit-Wolf covariance of series of variance 1.

    A region without a signal keeps only the shrinkage's share on its diagonal.
    """
    return ledoit_wolf_covariance(_standardise(centred))


def amplitude(centred: Tensor) -> Tensor:
    """Return the Ledoit-Wolf covariance of the series as they are, but for one scale a subject.

    Unlike a correlation it tells how strongly each region fluctuates beside the others.
    """
    power = centred.square().mean(dim=(1, 2), keepdim=True)
    return ledoit_wolf_covariance(centred * power.rsqrt())


def prewhitened(centred: Tensor) -> Tensor:
    """Return the Ledoit-Wolf covariance of what an autoregression of order 3 does not foresee.

    One set of coefficients a subject, fitted to all regions at once. Slow drifts make neighbouring volumes alike,
    so that a plain correlation rests on fewer independent volumes than it seems to.
    """
    z = _standardise(centred)
    order = min(ORDER, z.shape[1] - 3)
    if order < 1:
        return ledoit_wolf_covariance(z)
    n = z.shape[1]
    past = torch.stack([z[:, order - 1 - k : n - 1 - k] for k in range(order)], dim=-1).flatten(1, 2)  # (B, N, order)
    now = z[:, order:].flatten(1).unsqueeze(2)  # (B, N, 1)
    normal = (past.mT @ past).double()
    normal += 1e-6 * normal.diagonal(dim1=1, dim2=2).mean(1).view(-1, 1, 1) * torch.eye(order)
    coefficients = torch.linalg.solve(normal, (past.mT @ now).double()).to(z.dtype)
    rest = (now - past @ coefficients).view(len(z), n - order, -1)
    return ledoit_wolf_covariance(_standardise(rest - rest.mean(1, keepdim=True)))


def lagged(centred: Tensor) -> Tensor:
    """Return the correlation of each region with each other one volume later, averaged over both directions."""
    z = _standardise(centred)
    product = z[:, 1:].mT @ z[:, :-1] / (z.shape[1] - 1)
    return (product + product.mT) / 2


ESTIMATES = {
    "standardised": standardised,
    "amplitude": amplitude,
    "prewhitened": prewhitened,
    "lagged": lagged,
}
