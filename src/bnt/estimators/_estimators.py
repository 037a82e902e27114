"""The classifier and the regressor.

Beside them, which of scikit-learn's estimator checks are expected to fail, and why: give them to
``check_estimator(..., expected_failed_checks=EXPECTED_FAILED_CHECKS)``. The checks feed tables of 1 to 30 features, few
of which are V(V-1)/2 for a V, so they are run with ``strict=False`` and a model small enough for the smallest table
(``n_clusters=2, n_heads=1``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.multiclass import check_classification_targets

from bnt.errors import BadInput
from bnt.estimators._base import BrainNetworkEstimator
from bnt.estimators._layout import labels_of
from bnt.training._task import Task

EXPECTED_FAILED_CHECKS: dict[str, str] = {
    "check_sample_weight_equivalence_on_dense_data": (
        "Networks are trained by steps on random batches: a subject of weight 2 counts twice in one step, a subject "
        "given twice is met in two. The svm and the ridge classifier calibrate on folds, which repeated subjects "
        "change. Weight 0 does equal leaving out; logistic and the ridge regressor pass."
    ),
    "check_methods_subset_invariance": (
        "Networks compute in float32, and a matrix product of another batch size rounds otherwise: predictions "
        "agree to about 1e-6, the check asks for 1e-7."
    ),
}


class BrainNetworkClassifier(ClassifierMixin, BrainNetworkEstimator):
    """Classify subjects by their connectomes, with any model of the catalogue.

    Parameters
    ----------
    model : str
        A name of :func:`bnt.list_models`, of a network or of a classical model.
    options : dict, optional
        Options of the model, see :func:`bnt.models.model_options`.
    recipe : str or Recipe
        How networks are trained: ``default``, ``best``, ``paper``, ``released``, or a :class:`bnt.training.Recipe`.
    epochs, batch_size, lr, n_members, refit : optional
        Recipe fields to change. A batch is never larger than the training set.
    validation_fraction : float
        Share of the subjects given to ``fit`` that is held out to select the epoch. It is stratified by site and class,
        and groups stay together. With 0 or too few subjects, the network is trained on all of them and the last weights
        are used. Classical models are always fitted on all subjects.
    harmonise, harmonise_keep : str, optional
        ``combat`` harmonises the edges of sites, fitted on the training set; ``harmonise_keep`` names columns whose
        effects are preserved, such as ``age+sex``.
    confounds : str
        Columns to regress out, such as ``age+sex+mean_fd``, fitted on the training set. With arrays, pass them as
        ``participants`` to ``fit`` and to the methods that predict.
    class_weight : "balanced", mapping of class to weight, or None
        Weights of the classes; ``balanced`` gives all classes the same total weight. For thresholds, use scikit-learn's
        ``TunedThresholdClassifierCV``.
    kind : str
        Kind of the values in arrays (``pearson``, ``shrunk-z``, ``fisher-z``, ``partial``, ``tangent``, ...); cohorts
        have their own.
    diagonal : float, optional
        Value on the diagonal of the matrices that a model reads. By default that of the given matrices, and 1 for
        vectors; cohorts have their own.
    n_rois : int, optional
        V, the number of ROIs. It is needed if the length of a vector is ambiguous: V(V+1)/2 entries are V ROIs with the
        diagonal, or V + 1 ROIs without it. This concerns vectors in tangent space; correlations, covariances and
        precisions are recognised.
    strict : bool
        Refuse vectors whose length is not V(V-1)/2 for any V. False treats any features as the edges of the smallest
        graph that is large enough, and fills up with 0. Use this for general tables, not for connectomes.
    random_state : int, RandomState or None
        An integer gives bit-identical results on the same machine with the same number of threads.
    device : str
    threads : int, optional
        Threads of torch during ``fit`` and ``predict``; None keeps the current number.
    verbose : int
        1 prints one line per epoch.

    Attributes
    ----------
    classes_ : array, (C,)
    n_features_in_ : int
        Entries of a vector: V(V-1)/2, unless vectors with the diagonal were given.
    n_rois_ : int
    model_ : torch.nn.Module, list of them, or a classical model
    history_ : list of dict
        One line per epoch of each member.
    n_iter_ : int
        Number of epochs that the weights were trained for.
    config_ : bnt.training._config.RunConfig
        All settings that affect the numbers.

    Notes
    -----
    X is a stack of symmetric matrices (n, V, V); or vectors (n, V(V-1)/2) in the order of nilearn's
    ``ConnectivityMeasure(vectorize=True, discard_diagonal=True)``; or a :class:`bnt.Cohort`, with ``y`` an array
    or the name of a column. Vectors that keep a constant diagonal (nilearn's default for correlations) are
    recognised and read without it; a diagonal that varies (covariance, tangent) has to be discarded first.

    Subjects with ``sample_weight`` 0 are left out; for networks the other weights are scaled to a mean of 1.

    Models that centre sites (``linear-ensemble``) take ``sites`` in ``fit`` and in the methods that predict. Without
    it, all subjects belong to one site. Cohorts have their own sites.

    Parallel fits need separate processes (joblib's default), because threads would share torch's random generator.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.simulate_cohort(n_subjects=60, n_rois=20, n_sites=2, seed=0)
    >>> clf = bnt.BrainNetworkClassifier("bnt", {"n_clusters": 4}, epochs=2, random_state=0)
    >>> clf.fit(cohort, "diagnosis").predict_proba(cohort).shape
    (60, 2)
    >>> X, y = cohort.connectomes, cohort.labels("diagnosis")
    >>> from sklearn.model_selection import GroupKFold, cross_val_score
    >>> cross_val_score(clf, X, y, groups=cohort.sites, cv=GroupKFold(2)).shape
    (2,)
    """

    def _task(self, y: np.ndarray, weights: np.ndarray | None) -> Task:
        check_classification_targets(y)
        classes = np.unique(y)
        if len(classes) < 2:
            raise BadInput(
                f"The labels have one class only, {classes.tolist()[0]!r}: a classifier needs two classes or more."
            )
        self.classes_ = classes
        return Task("classification", classes=tuple(classes.tolist()))

    def _probabilities(self, X: Any, sites: Any, participants: Any) -> np.ndarray:
        """Return probabilities in the order of ``classes_``; a run of ``--positive`` has the positive class last."""
        found = self._predictions(X, sites, participants)
        return found[:, np.argsort(np.array(self.config_.task.classes, dtype=self.classes_.dtype), kind="stable")]

    def predict_proba(self, X: Any, *, sites: Any = None, participants: Any = None) -> np.ndarray:
        """Return the probability of each class, (n, C), in the order of ``classes_``.

        Parameters
        ----------
        X : array or Cohort
            As for :meth:`fit`.
        sites : array, (n,), optional
            For models that know sites, and for harmonising.
        participants : DataFrame or mapping of columns, optional
            What ``confounds`` and ``harmonise_keep`` name.
        """
        return self._probabilities(X, sites, participants)

    def predict_log_proba(self, X: Any, *, sites: Any = None, participants: Any = None) -> np.ndarray:
        """Return the logarithm of :meth:`predict_proba`, (n, C)."""
        return np.log(np.maximum(self._probabilities(X, sites, participants), np.finfo(np.float64).tiny))

    def decision_function(self, X: Any, *, sites: Any = None, participants: Any = None) -> np.ndarray:
        """Return log-odds of the second class (n,), or log-probabilities (n, C) of more classes."""
        log = self.predict_log_proba(X, sites=sites, participants=participants)
        return log[:, 1] - log[:, 0] if log.shape[1] == 2 else log

    def predict(self, X: Any, *, sites: Any = None, participants: Any = None) -> np.ndarray:
        """Return the likeliest class of each subject, (n,)."""
        codes = self._probabilities(X, sites, participants).argmax(axis=1)
        return self.classes_[codes]

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, sites: Any = None, participants: Any = None) -> float:
        """Return the accuracy; with a cohort ``y`` may be the name of a label."""
        return accuracy_score(
            labels_of(X, y), self.predict(X, sites=sites, participants=participants), sample_weight=sample_weight
        )


class BrainNetworkRegressor(RegressorMixin, BrainNetworkEstimator):
    """Predict a score (age, a test result) from connectomes, with any model of the catalogue.

    Parameters
    ----------
    model, options, recipe, epochs, batch_size, lr, n_members, refit, validation_fraction, harmonise, harmonise_keep, \
confounds, class_weight, kind, diagonal, strict, random_state, device, threads, verbose
        As in :class:`BrainNetworkClassifier`; the validation set is stratified by quintiles of the score.

    Attributes
    ----------
    n_features_in_, n_rois_, model_, history_, n_iter_, config_
        As in :class:`BrainNetworkClassifier`.

    Notes
    -----
    Networks are trained on the standardised score; predictions are in the original units.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.simulate_cohort(n_subjects=40, n_rois=20, n_sites=2, seed=0)
    >>> reg = bnt.BrainNetworkRegressor("bnt", {"n_clusters": 4}, epochs=2, random_state=0)
    >>> reg.fit(cohort, "age").predict(cohort.connectomes).shape
    (40,)
    """

    def _task(self, y: np.ndarray, weights: np.ndarray | None) -> Task:
        mean = np.average(y, weights=weights)
        sd = np.sqrt(np.average((y - mean) ** 2, weights=weights))
        return Task("regression", mean=float(mean), sd=float(sd) or 1.0)  # a constant score is predicted as it is

    def predict(self, X: Any, *, sites: Any = None, participants: Any = None) -> np.ndarray:
        """Return the score of each subject, (n,); parameters as of :meth:`BrainNetworkClassifier.predict_proba`."""
        return self._predictions(X, sites, participants)[:, 0]

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, sites: Any = None, participants: Any = None) -> float:
        """Return the coefficient of determination; with a cohort ``y`` may be the name of a label."""
        return r2_score(
            labels_of(X, y), self.predict(X, sites=sites, participants=participants), sample_weight=sample_weight
        )
