"""Small Transformers on matrices in tangent space, trained for a fixed number of steps.

The network is the Brain Network Transformer cut down to what was found to carry its score: one encoder layer with a
narrow feed-forward network, the released code's MLP over the whole matrix, and a plain readout. Its input is what the
linear models of this package read, because there it starts near their score: deviations from the mean of the training
subjects in tangent space, scaled to variance 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss, one_hot

from bnt.nn.graph_transformer import GraphTransformer

BATCH = 16
WARMUP = 30  # steps
LR, LR_MOST, LR_END, WEIGHT_DECAY = 1e-4, 1e-3, 0.1, 1e-4  # LR is for 200 ROIs; it ends at a tenth of itself
AVERAGE = 0.99  # of the weights, over steps
AT_ONCE = 64


@dataclass(frozen=True)
class Schedule:
    """How long a member is trained: passes over the subjects, raised for small cohorts until they make ``steps``."""

    epochs: int
    steps: int

    def total(self, n: int) -> int:
        """Return the number of steps for ``n`` subjects."""
        return max(self.epochs * max(n // BATCH, 1), self.steps)


def make_network(n_rois: int, n_classes: int) -> nn.Module:
    """Return an untrained member; attention has as many heads, up to 4, as divide the number of ROIs."""
    heads = next(h for h in (4, 3, 2, 1) if n_rois % h == 0)
    return GraphTransformer(
        n_rois,
        n_classes,
        n_layers=1,
        n_heads=heads,
        ffn=128,
        dropout=0.1,
        node_features="profile",
        extra_width=None,
        readout="concat",
        readout_options={"hidden_mlp": True},
    )


def train_member(
    matrices: Tensor, target: np.ndarray, weight: np.ndarray, n_classes: int, schedule: Schedule, seed: int
) -> nn.Module:
    """Train one member and return it with averaged weights, ready to predict.

    Adam, mixup, one cosine after a short warm-up, and an exponential average of the weights. Nothing is selected, so
    that no validation part is needed.

    Parameters
    ----------
    matrices : Tensor, (n, V, V)
    target : array, (n,)
        Class codes, or targets of mean 0 and variance 1.
    weight : array, (n,)
        How often each subject counts.
    n_classes : int
        1 for regression.
    schedule : Schedule
    seed : int
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = make_network(matrices.shape[1], n_classes)
        parameters = list(network.parameters())
        average = [p.detach().clone() for p in parameters]
        optimizer = torch.optim.Adam(parameters, lr=LR, weight_decay=WEIGHT_DECAY)
        goal = _goal(target, n_classes)
        counts = torch.as_tensor(weight / weight.mean(), dtype=torch.float32)
        total = schedule.total(len(matrices))
        for step, rows in enumerate(_batches(len(matrices), total, seed)):
            for group in optimizer.param_groups:
                group["lr"] = _rate(step, total, matrices.shape[1])
            share = float(torch.distributions.Beta(1.0, 1.0).sample())
            other = rows[torch.randperm(len(rows))]
            mixed = share * matrices[rows] + (1 - share) * matrices[other]
            logits = network(mixed).logits
            loss = share * _loss(logits, goal[rows], counts[rows]) + (1 - share) * _loss(
                logits, goal[other], counts[other]
            )
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            _update(average, parameters, min(AVERAGE, (2 + step) / (11 + step)))
        with torch.no_grad():
            for parameter, averaged in zip(parameters, average):
                parameter.copy_(averaged)
    return network.eval()


def member_decisions(network: nn.Module, matrices: Tensor, n_classes: int) -> np.ndarray:
    """Return what a member expects of each target, in the units of ridge regression, (n, k) float64.

    For classes that is 2p - 1: the mean of a target of +1 and -1; one column for two classes.
    """
    with torch.no_grad():
        logits = torch.cat([network(matrices[i : i + AT_ONCE]).logits for i in range(0, len(matrices), AT_ONCE)])
    if n_classes == 1:
        return logits.double().numpy()
    p = logits.double().softmax(1).numpy()
    return 2.0 * (p[:, 1:] if n_classes == 2 else p) - 1.0


def _batches(n: int, total: int, seed: int) -> Iterator[Tensor]:
    """Yield ``total`` batches of subjects; each pass has them in a new order and drops an incomplete last batch."""
    order = np.random.default_rng(seed)
    size = min(BATCH, n)
    left = total
    while left:
        shuffled = torch.from_numpy(order.permutation(n))
        for start in range(0, n - size + 1, size):
            yield shuffled[start : start + size]
            left -= 1
            if not left:
                return


def _rate(step: int, total: int, n_rois: int) -> float:
    """Return the learning rate: narrower networks need larger steps for the same change of their output."""
    peak = min(LR * 200 / n_rois, LR_MOST)
    warm = min(1.0, (step + 1) / WARMUP)
    return peak * warm * (LR_END + (1.0 - LR_END) * 0.5 * (1.0 + math.cos(math.pi * step / total)))


def _goal(target: np.ndarray, n_classes: int) -> Tensor:
    if n_classes == 1:
        return torch.as_tensor(target, dtype=torch.float32)[:, None]
    return one_hot(torch.as_tensor(target, dtype=torch.int64), n_classes).float()


def _loss(output: Tensor, goal: Tensor, counts: Tensor) -> Tensor:
    if goal.shape[1] == 1:
        return (mse_loss(output, goal, reduction="none")[:, 0] * counts).mean()
    return (cross_entropy(output, goal, reduction="none") * counts).mean()


def _update(average: list[Tensor], parameters: list[nn.Parameter], keep: float) -> None:
    with torch.no_grad():
        torch._foreach_lerp_(average, [p.detach() for p in parameters], 1.0 - keep)
