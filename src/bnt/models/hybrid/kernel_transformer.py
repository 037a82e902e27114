"""The multi-kernel ridge with a small Transformer beside it on each of its views."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bnt.errors import BadInput
from bnt.models.classical.calibration import Calibration
from bnt.models.classical.checks import check_target
from bnt.models.classical.covariances import unpack
from bnt.models.classical.decisions import Decides
from bnt.models.classical.multi_kernel import MultiKernel
from bnt.models.classical.solvers import signs
from bnt.models.hybrid.members import Schedule, make_network, member_decisions, train_member
from bnt.models.inputs import Inputs


class KernelTransformer(Decides):
    """A linear path that is solved and networks that are trained, averaged in one unit.

    The linear path is :class:`bnt.models.classical.MultiKernel`. On each of its views, ``n_members`` small Transformers
    (:mod:`bnt.models.hybrid.members`) are trained; each expects a target of +1 or -1, as ridge regression does, so that
    a plain weighted mean of both is meaningful. The networks' mean over the training subjects is set to that of the
    target, as an intercept does. Probabilities are those of the linear path's calibration.

    Parameters
    ----------
    n_rois : int
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
