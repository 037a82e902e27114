"""The learning rate of each step."""

from __future__ import annotations

from math import cos, pi


def learning_rate(step: int, n_steps: int, lr: float, lr_end: float, warmup: float = 0.0) -> float:
    """Return the rate of ``step`` = 1 ... ``n_steps``: linear warm-up, then half a cosine down to ``lr_end``.

    Step ``n_steps`` has exactly ``lr_end``.
    """
    rising = int(warmup * n_steps)
    if step <= rising:
        return lr * step / rising
    share = (step - rising) / max(n_steps - rising, 1)
    return lr_end + (lr - lr_end) * (1 + cos(pi * share)) / 2


def halved_rate(epoch: int, lr: float, every: int) -> float:
    """Return the rate of ``epoch`` = 1, 2, ...: ``lr``, halved in each epoch that ``every`` divides."""
    return lr * 0.5 ** (epoch // every)
