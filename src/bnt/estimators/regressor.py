"""The regressor."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score

from bnt.estimators.base import BrainNetworkEstimator
from bnt.estimators.reading import labels_of
from bnt.training.task import Task


class BrainNetworkRegressor(RegressorMixin, BrainNetworkEstimator):
    """Predict a score (age, a test result) from connectomes, with any model of the catalogue.

    Parameters
    ----------
    model, options, recipe, epochs, batch_size, lr, n_members, refit, validation_fraction, kind, diagonal, strict, \
random_state, device, threads, verbose
        As those of :class:`BrainNetworkClassifier`; the validation part is spread over quintiles of the score.

    Attributes
    ----------
    n_features_in_, n_rois_, model_, history_, n_iter_, config_
        As those of :class:`BrainNetworkClassifier`.

    Notes
    -----
    Networks are trained on the standardised score; predictions are in its own units.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.simulate_cohort(n_subjects=40, n_rois=20, n_sites=2, seed=0)
    >>> reg = bnt.BrainNetworkRegressor("bnt", {"n_clusters": 4}, epochs=2, random_state=0)
    >>> reg.fit(cohort, "age").predict(cohort.connectomes).shape
    (40,)
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, sites: Any = None, groups: Any = None) -> Self:
        """Train on subjects and their scores.

        Parameters
        ----------
        X : array, (n, V, V) or (n, V(V-1)/2), or Cohort
        y : array, (n,), or str
            With a cohort also the name of a label.
        sample_weight : array, (n,), optional
        sites : array, (n,), optional
            Used to share out the validation part, and by models that know sites. A cohort has its own.
        groups : array, (n,), optional
            Subjects of one group stay on one side of the internal validation. A cohort has its own.

        Returns
        -------
        self
        """
        return self._fit(X, y, sample_weight, sites, groups, y_numeric=True)

    def _task(self, y: np.ndarray, weights: np.ndarray | None) -> Task:
        mean = np.average(y, weights=weights)
        sd = np.sqrt(np.average((y - mean) ** 2, weights=weights))
        return Task("regression", mean=float(mean), sd=float(sd) or 1.0)  # a constant score is predicted as it is

    def predict(self, X: Any, *, sites: Any = None) -> np.ndarray:
        """Return the score of each subject, (n,).

        Parameters
        ----------
        X : array or Cohort
            As for :meth:`fit`.
        sites : array, (n,), optional
            For models that know sites.
        """
        return self._predictions(X, sites)[:, 0]

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, sites: Any = None) -> float:
        """Return the coefficient of determination; with a cohort ``y`` may be the name of a label."""
        return r2_score(labels_of(X, y), self.predict(X, sites=sites), sample_weight=sample_weight)
