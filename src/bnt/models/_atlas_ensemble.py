"""Ensemble of one model per atlas, combined by a mean or by weights learned inside the training set."""

from __future__ import annotations

from typing import Any

import numpy as np

from bnt.cohort._triangle import n_rois_of
from bnt.errors import BadInput
from bnt.models.classical._inputs import Inputs, array_to_words, words_to_array
from bnt.models.classical._solvers import FOLDS, Calibration, Decides, check_target, folds

COMBINE = ("stack", "mean")


class AtlasEnsemble(Decides):
    """A base model on each atlas of a cohort, stacked.

    Every base model is fitted on the whole training set. The stacking model is fitted on their standardised decisions
    for held-out folds of the training set: logistic regression for classes, ridge regression for a score (penalty 1 in
    both). ``mean`` averages the standardised decisions instead. The test set is never used. Families and duplicated
    scans stay in one fold. In a cohort with one atlas, this is the base model, recalibrated.

    Parameters
    ----------
    n_rois : int
        Of the cohort's first atlas; the others' numbers are read from the data.
    n_classes : int
        1 makes a regression model.
    base : str
        A classical model of the catalogue.
    combine : {"stack", "mean"}
    confounds : str
        Columns of ``participants.tsv`` that every base model regresses out, joined by ``+``.
    """

    def __init__(
        self,
        n_rois: int,
        n_classes: int = 2,
        *,
        base: str = "tangent-logistic",
        combine: str = "stack",
        confounds: str = "",
    ) -> None:
        from bnt.models._registry import find_entry, in_catalog

        # Of the catalogue: a run that someone else made may name any file here, and to look at it is to run it.
        if not in_catalog(base) or find_entry(base).family != "classical" or base == "atlas-ensemble":
            raise BadInput(
                f"base is {base!r}: choose a classical model, such as svm, ridge or tangent-logistic.", "base"
            )
        if combine not in COMBINE:
            raise BadInput(f"combine is {combine!r}: choose one of {', '.join(COMBINE)}.", "combine")
        if n_classes == 1 and base in ("logistic", "tangent-logistic"):
            base = "ridge"
        self.n_rois, self.n_classes = n_rois, n_classes
        self.base, self.combine, self.confounds = base, combine, confounds
        self.members: dict[str, Any] = {}

    def _member(self, n_rois: int) -> Any:
        from bnt.models._registry import create_model

        more = {"confounds": self.confounds} if self.confounds else {}
        return create_model(self.base, n_rois, self.n_classes, **more)

    # -- fitting -----------------------------------------------------------------------------------

    def fit(self, inputs: Inputs, y: np.ndarray, sample_weight: np.ndarray | None = None) -> AtlasEnsemble:
        """Fit the base models, then the stack on their decisions for held-out folds of the same subjects."""
        target, weight = check_target(y, sample_weight, len(inputs), self.n_classes)
        parts = inputs.by_atlas()
        self.members = {name: self._fitted(part, target, weight) for name, part in parts.items()}
        held_out = []
        for part in parts.values():
            decisions = None
            for fitted, rest in self._folds(inputs, target):
                one = self._fitted(part.take(fitted), target[fitted], weight[fitted]).decisions(part.take(rest))
                decisions = np.zeros((len(inputs), one.shape[1])) if decisions is None else decisions
                decisions[rest] = one
            if decisions is None:
                raise BadInput("A class has fewer than two training subjects: an ensemble over atlases needs folds.")
            held_out.append(decisions)
        stacked = np.stack(held_out)  # (atlases, n, k)
        self.centre, self.scale = stacked.mean(axis=1), stacked.std(axis=1)  # (atlases, k)
        self.scale = np.where(self.scale > 0, self.scale, 1.0)
        self._fit_weights(self._standardised(stacked), target, weight)
        if self.n_classes > 1:
            self.calibration = Calibration.fit(self._combined(stacked), target, self.n_classes, weight)
        return self

    def _fitted(self, inputs: Inputs, target: np.ndarray, weight: np.ndarray) -> Any:
        return self._member(n_rois_of(inputs.edges.shape[1])).fit(inputs, target, weight)

    def _folds(self, inputs: Inputs, target: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return (fitted on, held out) rows; people of one family are on one side."""
        groups = inputs.families
        if groups is None or len(set(groups.tolist())) == len(groups):
            return list(folds(target, self.n_classes))
        from sklearn.model_selection import GroupKFold, StratifiedGroupKFold

        n_folds = min(FOLDS, len(set(groups.tolist())))
        maker = StratifiedGroupKFold if self.n_classes > 1 else GroupKFold
        found = list(maker(n_folds).split(target[:, None], target, groups))
        return [(a, b) for a, b in found if self.n_classes == 1 or len(np.unique(target[a])) == self.n_classes]

    def _standardised(self, decisions: np.ndarray) -> np.ndarray:
        return (decisions - self.centre[:, None]) / self.scale[:, None]

    def _fit_weights(self, scaled: np.ndarray, target: np.ndarray, weight: np.ndarray) -> None:
        """Learn how much each atlas counts, (k, atlases * k'), and the intercept, (k,)."""
        from sklearn.linear_model import LogisticRegression, Ridge

        atlases, _, k = scaled.shape
        if self.combine == "mean":
            self.weights, self.intercept = np.tile(np.eye(k), (1, atlases)) / atlases, np.zeros(k)
            if self.n_classes == 1:
                self.weights, self.intercept = self.weights * self.scale.mean(), self.centre.mean(axis=0)
            return
        columns = np.concatenate(list(scaled), axis=1)  # (n, atlases * k)
        model = Ridge(alpha=1.0) if self.n_classes == 1 else LogisticRegression(C=1.0, max_iter=1000)
        model.fit(columns, target, sample_weight=weight)
        self.weights, self.intercept = np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)

    # -- predicting --------------------------------------------------------------------------------

    def _combined(self, decisions: np.ndarray) -> np.ndarray:
        columns = np.concatenate(list(self._standardised(decisions)), axis=1)
        return columns @ self.weights.T + self.intercept

    def decisions(self, inputs: Inputs) -> np.ndarray:
        """Return the stack's decision values, (n, 1) for two classes and regression, (n, C) otherwise."""
        if not self.members:
            raise BadInput("This AtlasEnsemble model is not fitted yet: call fit, or load a state.")
        parts = inputs.by_atlas()
        lacking = [name for name in self.members if name not in parts]
        if lacking:
            raise BadInput(
                f"The model was trained on the atlases {', '.join(self.members)} and {lacking[0]} is not among those "
                f"given ({', '.join(parts)}): give a cohort with the same atlases."
            )
        return self._combined(np.stack([member.decisions(parts[name]) for name, member in self.members.items()]))

    def atlas_weights(self) -> dict[str, float]:
        """Return the share of each atlas in the stack: the size of its weights, divided by their sum."""
        sizes = np.abs(self.weights).sum(axis=0).reshape(len(self.members), -1).sum(axis=1)
        return dict(zip(self.members, (sizes / (sizes.sum() or 1.0)).tolist()))

    def coef(self) -> None:
        """Return None: the members live on different ROIs; ask ``members[...]`` for theirs."""
        return

    # -- keeping -----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return what was learned as plain arrays; each atlas' under its number."""
        names = words_to_array(list(self.members))
        state = {f"{i}.{key}": a for i, m in enumerate(self.members.values()) for key, a in m.state_dict().items()}
        state |= {"atlases": names, "n_rois": np.array([m.n_rois for m in self.members.values()])}
        state |= {"centre": self.centre, "scale": self.scale, "weights": self.weights, "intercept": self.intercept}
        return state | self.calibration_state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take what :meth:`state_dict` gave."""
        arrays = {name: np.asarray(value) for name, value in state.items()}
        names, sizes = array_to_words(arrays["atlases"]), arrays["n_rois"].tolist()
        self.members = {name: self._member(int(size)) for name, size in zip(names, sizes)}
        for i, member in enumerate(self.members.values()):
            head = f"{i}."
            member.load_state_dict({k.removeprefix(head): v for k, v in arrays.items() if k.startswith(head)})
        self.centre, self.scale = arrays["centre"], arrays["scale"]
        self.weights, self.intercept = arrays["weights"], arrays["intercept"]
        self.load_calibration(arrays)
