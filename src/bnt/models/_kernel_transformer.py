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
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss, one_hot

from bnt.errors import BadInput
from bnt.models._bnt import VanillaTF
from bnt.models.classical._inputs import Inputs
from bnt.models.classical._multi_kernel import MultiKernel
from bnt.models.classical._solvers import Calibration, Decides, check_target, signs
from bnt.models.classical._subject_matrices import unpack
from bnt.nn._kernels import wide_products
from bnt.nn._network import Adam, AveragedWeights, draw_mixup, take_steps

BATCH = 16
WARMUP = 30  # steps
LR, LR_MOST, LR_END, WEIGHT_DECAY = 1e-4, 1e-3, 0.1, 1e-4  # LR is for 200 ROIs; it ends at a tenth of itself
AVERAGE = 0.99  # of the weights, over steps
MIXUP = 1.0
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
    return VanillaTF(
        n_rois, n_classes, n_layers=1, n_heads=heads, ffn=128, dropout=0.1, readout_options={"hidden_mlp": True}
    )


def train_member(
    matrices: Tensor, target: np.ndarray, weight: np.ndarray, n_classes: int, schedule: Schedule, seed: int
) -> nn.Module:
    """Train one member and return it with averaged weights, ready to predict.

    Adam, mixup, one cosine after a short warm-up, and an exponential average of the weights. Nothing is selected, so
    that no validation set is needed.

    Parameters
    ----------
    matrices : Tensor, (n, V, V)
    target : array, (n,)
        Class codes, or targets of mean 0 and variance 1.
    weight : array, (n,)
        How often each subject counts.
    n_classes : int
        1 for regression.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = make_network(matrices.shape[1], n_classes)
        optimiser = Adam(network.parameters(), lr=LR, weight_decay=WEIGHT_DECAY)
        averaged = AveragedWeights(network, AVERAGE)
        goal = _goal(target, n_classes)
        counts = torch.as_tensor(weight / weight.mean(), dtype=torch.float32)
        total = schedule.total(len(matrices))

        def loss_of(rows: Tensor) -> Tensor:
            share, permutation = draw_mixup(len(rows), MIXUP)
            other = rows[permutation]
            logits = network(share * matrices[rows] + (1 - share) * matrices[other]).logits
            mine, theirs = (_loss(logits, goal[part], counts[part]) for part in (rows, other))
            return share * mine + (1 - share) * theirs

        def rate_of(step: int) -> float:
            return _rate(step - 1, total, matrices.shape[1])

        for _ in take_steps(
            network, optimiser, _batches(len(matrices), total, seed), loss_of, rate_of, averaged=averaged
        ):
            pass
        network.load_state_dict(averaged.state)
    return network.eval()


def member_decisions(network: nn.Module, matrices: Tensor, n_classes: int) -> np.ndarray:
    """Return what a member expects of each target, in the units of ridge regression, (n, k) float64.

    For classes that is 2p - 1: the mean of a target of +1 and -1; one column for two classes.
    """
    with torch.no_grad(), wide_products():
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


class KernelTransformer(Decides):
    """Weighted average of a linear model and small Transformers.

    The linear path is :class:`bnt.models.classical.MultiKernel`. On each of its views, ``n_members`` small Transformers
    are trained; each expects a target of +1 or -1, as ridge regression does, so that
    a plain weighted mean of both is meaningful. The networks' mean over the training subjects is set to that of the
    target, as an intercept does. Probabilities are those of the linear path's calibration.

    Parameters
    ----------
    n_classes : int
        1 makes a regression model.
    n_members : int
        Networks on each view; 0 leaves the linear path alone.
    share : float
        Of the networks in the mean, from 0 to 1.
    epochs, min_steps : int
        Passes over the training subjects, raised for small cohorts until they make ``min_steps`` steps.
    penalty, shrinkage, confounds
        See :class:`bnt.models.classical.MultiKernel`.
    seed : int
        Of the networks' first weights, batches, mixup and dropout. A run sets its own.
    """

    small: ClassVar = {"epochs": 1, "min_steps": 15}  # trains in seconds, for tests

    def __init__(
        self,
        n_rois: int,
        n_classes: int = 2,
        *,
        n_members: int = 1,
        share: float = 0.6,
        epochs: int = 3,
        min_steps: int = 150,
        penalty: float = 0.2,
        shrinkage: float = 0.5,
        confounds: str = "",
        seed: int = 0,
    ) -> None:
        if n_members < 0 or epochs < 1:
            raise BadInput(f"n_members is {n_members} and epochs is {epochs}: give at least 0 and at least 1.")
        if not 0.0 <= share <= 1.0:
            raise BadInput(f"share is {share}: give a number from 0 to 1.")
        self.n_rois, self.n_classes = n_rois, n_classes
        self.n_members, self.share, self.seed = n_members, share, seed
        self.schedule = Schedule(epochs, min_steps)
        self.linear = MultiKernel(n_rois, n_classes, penalty=penalty, shrinkage=shrinkage, confounds=confounds)
        self.networks: dict[str, nn.Module] = {}
        self.scales: dict[str, np.ndarray] = {}

    # -- fitting -----------------------------------------------------------------------------------

    def fit(self, inputs: Inputs, y: np.ndarray, sample_weight: np.ndarray | None = None) -> KernelTransformer:
        """Fit both parts on training subjects; see :meth:`bnt.models.classical.MultiKernel.fit`."""
        target, weight = check_target(y, sample_weight, len(inputs), self.n_classes)
        features = self.linear.fit_views(inputs, weight)
        self.linear.fit_features(features, inputs.sites, target, weight)
        self._center, self._spread = 0.0, 1.0
        if self.n_classes == 1:
            self._center = float(np.average(target, weights=weight))
            self._spread = float(np.sqrt(np.average((target - self._center) ** 2, weights=weight))) or 1.0
            target = (target - self._center) / self._spread
        self.networks, self.scales = {}, {}
        total = np.zeros((len(target), 1 if self.n_classes <= 2 else self.n_classes))
        for k, (name, part) in enumerate(features.items()):
            deviations = part - self.linear.means[name][0]
            sd = np.sqrt(np.average(np.mean(deviations**2, axis=1), weights=weight))
            self.scales[name] = np.array([max(float(sd), 1e-12)])
            matrices = self._matrices(name, part)
            for member in range(self.n_members):
                seed = self.seed * 1000 + k * 100 + member
                network = train_member(matrices, target, weight, self.n_classes, self.schedule, seed)
                self.networks[f"{name}.{member}"] = network
                total += member_decisions(network, matrices, self.n_classes)
        wanted = target[:, None] if self.n_classes == 1 else signs(target, self.n_classes)
        missing = wanted - total / max(len(self.networks), 1)
        self._shift = np.average(missing, axis=0, weights=weight)
        return self

    def _matrices(self, name: str, features: np.ndarray) -> Tensor:
        """Return a view's features as scaled square matrices, (n, V, V) float32."""
        scaled = (features - self.linear.means[name][0]) / self.scales[name].astype(np.float32)
        edges = self.n_rois * (self.n_rois - 1) // 2
        if scaled.shape[1] == edges:  # Fisher z of the edges has no diagonal
            scaled = np.concatenate([scaled, np.zeros((len(scaled), self.n_rois), dtype=scaled.dtype)], axis=1)
        scaled[:, edges:] *= 2.0**0.5
        return torch.from_numpy(unpack(scaled, self.n_rois).astype(np.float32, copy=False))

    # -- predicting --------------------------------------------------------------------------------

    def decisions(self, inputs: Inputs) -> np.ndarray:
        """Return decision values, (n, 1) for two classes and regression, (n, C) otherwise."""
        features = self.linear.features_of(inputs)
        solved = self.linear.decisions_of(features)
        if not self.networks:
            return solved
        total = np.zeros_like(solved)
        for name, part in features.items():
            matrices = self._matrices(name, part)
            for member in range(self.n_members):
                total += member_decisions(self.networks[f"{name}.{member}"], matrices, self.n_classes)
        trained = (total / len(self.networks) + self._shift) * self._spread + self._center
        return (1.0 - self.share) * solved + self.share * trained

    @property
    def calibration(self) -> Calibration:  # type: ignore[override]
        """The linear path's: both parts are in its unit."""
        return self.linear.calibration

    def coef(self) -> None:
        """Return None: there is no weight of an edge."""
        return

    # -- keeping -----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return what was learned as plain arrays."""
        state = {f"linear.{key}": value for key, value in self.linear.state_dict().items()}
        state |= {"target": np.array([self._center, self._spread]), "shift": self._shift}
        state |= {f"scale.{name}": value for name, value in self.scales.items()}
        for name, network in self.networks.items():
            state |= {f"network.{name}.{key}": value.numpy() for key, value in network.state_dict().items()}
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take what :meth:`state_dict` gave."""
        arrays = {name: np.asarray(value) for name, value in state.items()}

        def under(head: str) -> dict[str, np.ndarray]:
            return {key.removeprefix(head): value for key, value in arrays.items() if key.startswith(head)}

        self.linear.load_state_dict(under("linear."))
        self._center, self._spread = (float(value) for value in arrays["target"])
        self._shift = arrays["shift"]
        self.scales = under("scale.")
        self.networks = {}
        for view in self.linear.views:
            for member in range(self.n_members):
                network = make_network(self.n_rois, self.n_classes)
                weights = under(f"network.{view}.{member}.")
                network.load_state_dict({key: torch.from_numpy(np.array(value)) for key, value in weights.items()})
                self.networks[f"{view}.{member}"] = network.eval()
