"""``best``, the default model: an average of linear models on several views of connectivity.

Which view, shrinkage or penalty is best differs between cohorts, and choosing by inner cross-validation is noisy. An
average of many reasonable ones does not have to choose. Its weights are stacked on held-out folds of the training
subjects, but drawn towards a prior, the more the fewer subjects there are. A score says more of each subject than a
class does, and often differs between sites, so that its weights are held less.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import nnls

from bnt.errors import BadInput
from bnt.models.classical._features import EdgeFeatures, FeatureMap, TangentFeatures, adjusted
from bnt.models.classical._inputs import Inputs
from bnt.models.classical._linear import SVM, LinearModel, Ridge
from bnt.models.classical._multi_kernel import MultiKernel, views_of
from bnt.models.classical._solvers import Calibration, Decides, check_target, folds, signs

NEW_SITE_SUBJECTS = 10  # people at the training mean, counted with those of a new site
NEW_SITES = ("global", "centred")
SHARES, SHARES_OF_LARGE = (0.3, 0.5, 0.7), (0.5,)  # of the identity in the correlation matrices
LARGE_FROM = 500  # ROIs from which a tangent space is expensive: one share, which counts as three, does as well
KERNELS_SHARE, KERNELS_SHARE_OF_SCORES = 0.5, 0.3  # prior weight of ``multi-kernel``
PRIOR_SUBJECTS, PRIOR_SUBJECTS_OF_SCORES = 400, 5  # the prior weights count as much as this many subjects
PRIOR_SLOPE_SD = 0.4  # a score's slope is taken to be 1, give or take this
LEAST_SLOPE = 1e-2  # a score without any signal keeps the order of subjects
SERIES, KERNELS = "series", "kernels"  # ``multi-kernel`` on views of series, or of connectomes
UNKNOWN = "unknown"  # of people without a site, who are no site


class SeriesKernels(MultiKernel):
    """``multi-kernel`` on the views that connectomes alone do not have."""

    def _views_for(self, has_series: bool) -> dict[str, FeatureMap]:
        every = views_of(self.n_rois, True, self.shrinkage, self.confounds)
        return {name: every[name] for name in ("amplitude_tangent", "prewhitened_tangent", "lagged")}


class Best(Decides):
    """An average of linear models, robust to atlas, preprocessing, sample size and missing series.

    The members, each on a kernel whose mean diagonal is 1 (C = 1; the ridges' penalty is in brackets):

    - tangent spaces of the correlations with a share of 0.3, 0.5 and 0.7 of the identity (from 500 ROIs on 0.5 alone,
      whose prior weight is that of the three): support vector machine on the features as they are, and ridge (1) on
      the features less the mean of the subject's site;
    - Fisher z edges: ridge (1), site-centred;
    - with series, ``multi-kernel`` on the tangent spaces of two covariances (with amplitudes; prewhitened) and the
      correlations one volume apart;
    - for a score also ridge (1) on Fisher z edges as they are and, without series, ``multi-kernel``: scores differ
      between sites, and members that are site-centred cannot see that.

    The average's weights w minimise, over held-out decisions D of the training subjects and their targets t (all
    centred, D scaled so that D p fits t best),

        |t - D w|^2 / n + (400 / n) |w - p|^2,    w >= 0,

    and are then divided by their sum: with few subjects they are the prior p, with thousands they are stacked. The
    prior gives ``multi-kernel`` one half and the others equal weights. The folds are stratified by site and class and
    keep people of a family together. Probabilities come from the same held-out decisions. For a score
    ``multi-kernel`` has 0.3 of the prior, which counts as 5 people in place of 400, and the average is stretched by its
    slope on the held-out subjects (drawn towards 1), because penalties make predictions too narrow.

    A subject of a site that training has not seen has the mean of all training subjects subtracted
    (``new_sites="global"``), so that no prediction depends on who else is predicted. ``new_sites="centred"`` moves the
    mean decision of the scans of that site among those predicted together onto that of the training subjects, as if
    ten more scans of the site had it; no label is used, and the order within the site stays. Predict the scans of a
    new site in one call then. It takes the site to have patients and controls in the proportion of the training
    subjects.

    Parameters
    ----------
    n_classes : int
        1 makes a regression model.
    new_sites : {"global", "centred"}
    confounds : str
        Columns of ``participants.tsv`` to regress out of the features on the training subjects, joined by ``+``.
    """

    def __init__(self, n_rois: int, n_classes: int = 2, *, new_sites: str = "global", confounds: str = "") -> None:
        if new_sites not in NEW_SITES:
            raise BadInput(f"new_sites is {new_sites!r}: choose one of {', '.join(NEW_SITES)}.")
        self.n_rois, self.n_classes = n_rois, n_classes
        self.new_sites, self.confounds = new_sites, confounds
        self.views: dict[str, FeatureMap] = {}
        self.members: dict[str, dict[str, LinearModel]] = {}  # of each view
        self.kernels: MultiKernel | None = None
        self.kernels_name = SERIES
        self.slope, self.shift = 1.0, 0.0  # of a score
        self.shares: dict[str, float] = {}  # of each "view.member"
        self.centred_sites: tuple[str, ...] = ()  # new ones to centre though new_sites says "global"

    def make(self, has_series: bool) -> None:
        """Make the views and their members."""
        n_rois = self.n_rois
        shares = SHARES if n_rois < LARGE_FROM else SHARES_OF_LARGE
        views: dict[str, FeatureMap] = {
            f"shrunk{share}": TangentFeatures(n_rois, share, "correlations") for share in shares
        }
        views["edges"] = EdgeFeatures(n_rois)
        self.views = {name: adjusted(view, self.confounds) for name, view in views.items()}
        self.members = {}
        for name, view in self.views.items():
            pair: dict[str, LinearModel] = {"centred": Ridge(n_rois, self.n_classes, center_sites=True)}
            if name != "edges":
                pair["raw"] = SVM(n_rois, self.n_classes)
            elif self.n_classes == 1:
                pair["raw"] = Ridge(n_rois, 1)
            for member in pair.values():
                member.features = view
            self.members[name] = pair
        self.slope, self.shift = 1.0, 0.0
        self.kernels, self.kernels_name = None, SERIES if has_series else KERNELS
        if has_series or self.n_classes == 1:
            kind = SeriesKernels if has_series else MultiKernel
            self.kernels = kind(n_rois, self.n_classes, confounds=self.confounds)

    def parts(self) -> dict[str, Any]:
        """Return the members by name, in the order of their weights."""
        found: dict[str, Any] = {f"{view}.{kind}": m for view, pair in self.members.items() for kind, m in pair.items()}
        return found if self.kernels is None else {**found, self.kernels_name: self.kernels}

    def names(self) -> list[str]:
        """Return the names of the members, in the order of their weights."""
        return list(self.parts())

    def prior(self) -> np.ndarray:
        """Return the weights that few subjects leave as they are."""
        share = 0.0 if self.kernels is None else KERNELS_SHARE if self.n_classes > 1 else KERNELS_SHARE_OF_SCORES
        repeats = len(SHARES) // (len(self.views) - 1)  # of one tangent space that stands for three
        counts = np.array([1.0 if view == "edges" else repeats for view, pair in self.members.items() for _ in pair])
        linear = (1.0 - share) * (counts / counts.sum())
        return linear if self.kernels is None else np.append(linear, share)

    # -- fitting -----------------------------------------------------------------------------------

    def fit(self, inputs: Inputs, y: np.ndarray, sample_weight: np.ndarray | None = None) -> Best:
        """Fit on training subjects; see :class:`bnt.models.classical._solvers.Decides`."""
        target, weight = check_target(y, sample_weight, len(inputs), self.n_classes)
        parts = list(folds(target, self.n_classes, sites=inputs.sites, groups=inputs.families))
        self.make(inputs.series is not None)
        held_out: dict[str, np.ndarray] = {}
        for name, view in self.views.items():  # one view at a time: its features and products are large
            features = view.fit(inputs, weight).transform(inputs)
            products = view.products(inputs, features)
            for kind, member in self.members[name].items():
                found = member.fit_features(features, products, inputs.sites, target, weight, parts)
                assert found is not None
                held_out[f"{name}.{kind}"] = found
        if self.kernels is not None:
            of_views = self.kernels.fit_views(inputs, weight)
            found = self.kernels.fit_features(of_views, inputs.sites, target, weight, parts)
            held_out[self.kernels_name] = found
        decisions = np.stack([held_out[name] for name in self.names()], axis=2)  # (n, k, members)
        shares = self.prior()
        if parts:
            shares = stacked_weights(decisions, target, weight, self.n_classes, shares)
        self.shares = dict(zip(self.names(), shares.tolist()))
        average = decisions @ shares
        if self.n_classes > 1:
            self.calibration = Calibration.fit(average, target, self.n_classes, weight)
        elif parts:
            self.slope, self.shift = line(average[:, 0], target, weight)
        return self

    # -- predicting --------------------------------------------------------------------------------

    def decisions(self, inputs: Inputs) -> np.ndarray:
        """Return decision values, (n, 1) for two classes and regression, (n, C) otherwise."""
        if not self.shares:
            raise BadInput("This model is not fitted yet: call fit, or load a state.")
        total: Any = 0.0
        for name, view in self.views.items():
            used = {kind: self.shares[f"{name}.{kind}"] for kind in self.members[name]}
            if not any(used.values()):
                continue
            features = view.transform(inputs)
            for kind, share in used.items():
                total = total + share * self.members[name][kind].decisions_of(features, inputs.sites)
        if self.kernels is not None:
            total = total + self.shares[self.kernels_name] * self.kernels.decisions(inputs)
        return self.shift + self.slope * self._centred(total, inputs.sites)

    def _centred(self, decisions: np.ndarray, sites: np.ndarray | None) -> np.ndarray:
        """Move the mean decision of new sites onto the training subjects', where that is asked for."""
        if sites is None or (self.new_sites == "global" and not self.centred_sites):
            return decisions
        # The members' kernels are centred, so that the mean decision of the training subjects is the intercept.
        centre = sum(self.shares[name] * part.intercept for name, part in self.parts().items())
        known = self.members["edges"]["centred"].sites
        new = np.setdiff1d(sites, [*known, UNKNOWN]) if self.new_sites == "centred" else self.centred_sites
        moved = decisions.copy()
        for name in new:
            rows = sites == name
            if rows.any():
                drawn = rows.sum() / (rows.sum() + NEW_SITE_SUBJECTS)
                moved[rows] -= drawn * (decisions[rows].mean(axis=0) - centre)
        return moved

    def coef(self) -> None:
        """Return None: the members live in several spaces; ask ``members[...]`` for theirs."""
        return

    # -- keeping -----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return what was learned as plain arrays, each named after its view and member."""
        if not self.shares:
            raise BadInput("This model is not fitted yet: there is nothing to save.")
        state = {"shares": np.array(list(self.shares.values()))}
        for name, part in self.parts().items():
            state |= {f"{name}.{key}": value for key, value in part.state_dict().items()}
        if self.n_classes == 1:
            state["line"] = np.array([self.slope, self.shift])
        return state | self.calibration_state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take what :meth:`state_dict` gave."""
        self.make(f"{SERIES}.intercept" in state)
        for name, part in self.parts().items():
            head = name + "."
            part.load_state_dict({key.removeprefix(head): v for key, v in state.items() if key.startswith(head)})
        self.shares = dict(zip(self.names(), np.asarray(state["shares"]).tolist()))
        if self.n_classes == 1:
            self.slope, self.shift = np.asarray(state["line"]).tolist()
        self.load_calibration(state)


def stacked_weights(
    decisions: np.ndarray, target: np.ndarray, weight: np.ndarray, n_classes: int, prior: np.ndarray
) -> np.ndarray:
    """Return the weights of the members, none below 0, of sum 1: stacked, and drawn towards the prior.

    Parameters
    ----------
    decisions : array, (n, k, members)
        For subjects held out of the fits that made them.
    target, weight : array, (n,)
    prior : array, (members,)
        Of sum 1.
    """
    wanted = target[:, None].astype(np.float64) if n_classes == 1 else signs(target, n_classes)
    share = weight / weight.sum()
    wanted = wanted - share @ wanted
    centred = decisions - np.einsum("n,nkm->km", share, decisions)
    spread = np.sqrt(float((share @ wanted**2).mean()))
    if spread == 0.0:
        return prior
    n_members = len(prior)
    root = np.sqrt(np.repeat(share, wanted.shape[1]) / wanted.shape[1])
    flat = centred.reshape(-1, n_members) * root[:, None] / spread
    answer = wanted.reshape(-1) * root / spread
    average = flat @ prior
    slope = float(average @ answer) / max(float(average @ average), 1e-300)
    if slope <= 0.0:  # nothing was learned: no member can be preferred
        return prior
    subjects = PRIOR_SUBJECTS if n_classes > 1 else PRIOR_SUBJECTS_OF_SCORES
    strength = subjects * float((share**2).sum())  # over the number of subjects, where all count the same
    rows = np.concatenate([flat * slope, np.sqrt(strength) * np.eye(n_members)])
    found, _ = nnls(rows, np.concatenate([answer, np.sqrt(strength) * prior]))
    return found / found.sum() if found.sum() > 0 else prior


def line(prediction: np.ndarray, target: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """Return slope and intercept that turn predictions of held-out subjects into the score, the slope drawn towards 1.

    It is the mean of its posterior where it is 1 give or take :data:`PRIOR_SLOPE_SD` before the subjects are seen,
    and the score's variance is taken for that of the noise.
    """
    share = weight / weight.sum()
    centre, mean = float(share @ prediction), float(share @ target)
    variance = float(share @ (target - mean) ** 2)
    if variance == 0.0:
        return 1.0, 0.0
    prior = float((share**2).sum()) / PRIOR_SLOPE_SD**2  # over the number of subjects, where all count the same
    together = float(share @ ((prediction - centre) * (target - mean))) / variance
    own = float(share @ (prediction - centre) ** 2) / variance
    slope = max((together + prior) / (own + prior), LEAST_SLOPE)
    return slope, mean - slope * centre
