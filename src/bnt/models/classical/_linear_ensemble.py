"""The average of three linear models: what a careful user would try before any network.

A support vector machine in tangent space, ridge regression in site-centred tangent space, and ridge regression on
site-centred Fisher z edges. Their decision values are averaged as they are: the ridges predict -1 and +1, the
machine's margins lie at -1 and +1, and the normalised kernels keep the three on one scale.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bnt.errors import BadInput
from bnt.models._inputs import Inputs
from bnt.models.classical._decisions import Calibration, Decides
from bnt.models.classical._linear import SVM, LinearModel, Ridge
from bnt.models.classical._solvers import check_target, gram


class LinearEnsemble(Decides):
    """Tangent SVM, site-centred tangent ridge and site-centred Fisher z ridge, averaged.

    A subject of a site that training has not seen has the mean of all training subjects subtracted, as has everyone
    where sites are not known. For regression the three predictions of the target are averaged.

    Parameters
    ----------
    n_rois : int
    n_classes : int
        1 makes a regression model.
    C : float
        Cost of the support vector machine.
    tangent_penalty, edge_penalty : float
        Penalties of the two ridges.
    shrinkage : float
        Share of the identity in the correlation matrices of inputs without series.
    confounds : str
        Columns of ``participants.tsv`` to regress out of the features on the training subjects, joined by ``+``.
    """

    def __init__(
        self,
        n_rois: int,
        n_classes: int = 2,
        *,
        C: float = 1.0,
        tangent_penalty: float = 0.3,
        edge_penalty: float = 1.0,
        shrinkage: float = 0.3,
        confounds: str = "",
    ) -> None:
        self.n_rois, self.n_classes = n_rois, n_classes
        shared: dict[str, Any] = {"space": "tangent", "shrinkage": shrinkage, "confounds": confounds}
        self.members: dict[str, LinearModel] = {
            "tangent_svm": SVM(n_rois, n_classes, C=C, **shared),
            "tangent_ridge": Ridge(n_rois, n_classes, penalty=tangent_penalty, center_sites=True, **shared),
            "edge_ridge": Ridge(n_rois, n_classes, penalty=edge_penalty, center_sites=True, confounds=confounds),
        }
        # The two tangent members share one feature map, so that each subject is projected once.
        self.members["tangent_ridge"].features = self.members["tangent_svm"].features

    def fit(self, inputs: Inputs, y: np.ndarray, sample_weight: np.ndarray | None = None) -> LinearEnsemble:
        """Fit the three on training subjects; see :meth:`LinearModel.fit`."""
        target, weight = check_target(y, sample_weight, len(inputs), self.n_classes)
        for name in ("tangent_svm", "edge_ridge"):
            self.members[name].features.fit(inputs, weight)
        vectors = self._features(inputs)
        products = {space: gram(part) for space, part in vectors.items()}
        held_out = [
            member.fit_features(vectors[member.space], products[member.space], inputs.sites, target, weight, True)
            for member in self.members.values()
        ]
        if self.n_classes > 1:
            average = np.mean([one for one in held_out if one is not None], axis=0)
            self.calibration = Calibration.fit(average, target, self.n_classes, weight)
        return self

    def _features(self, inputs: Inputs) -> dict[str, np.ndarray]:
        return {
            self.members[m].space: self.members[m].features.transform(inputs) for m in ("tangent_svm", "edge_ridge")
        }

    def member_decisions(self, inputs: Inputs) -> dict[str, np.ndarray]:
        """Return the decision values of each member, (n, k)."""
        if self.members["edge_ridge"].weights is None:
            raise BadInput("This LinearEnsemble model is not fitted yet: call fit, or load a state.")
        vectors = self._features(inputs)
        return {name: m.decisions_of(vectors[m.space], inputs.sites) for name, m in self.members.items()}

    def decisions(self, inputs: Inputs) -> np.ndarray:
        """Return the averaged decision values, (n, 1) for two classes and regression, (n, C) otherwise."""
        return np.mean(list(self.member_decisions(inputs).values()), axis=0)

    def coef(self) -> None:
        """Return None: the members live in two spaces; ask ``members[...]`` for theirs."""
        return

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return what was learned as plain arrays, each named after its member."""
        state = {f"{name}.{key}": a for name, m in self.members.items() for key, a in m.state_dict().items()}
        if self.n_classes > 1:
            state.update({"slopes": self.calibration.slopes, "shifts": self.calibration.intercepts})
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take what :meth:`state_dict` gave."""
        for name, member in self.members.items():
            head = name + "."
            member.load_state_dict({k.removeprefix(head): v for k, v in state.items() if k.startswith(head)})
        if "slopes" in state:
            self.calibration = Calibration(np.asarray(state["slopes"]), np.asarray(state["shifts"]))
