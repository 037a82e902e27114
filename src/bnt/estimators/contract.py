"""Which of scikit-learn's estimator checks are expected to fail, and why.

Give it to ``check_estimator(..., expected_failed_checks=EXPECTED_FAILED_CHECKS)``. The checks feed tables of 1 to
30 features, few of which are V(V-1)/2 for a V, so they are run with ``strict=False`` and a model small enough for
the smallest table (``n_clusters=2, n_heads=1``).
"""

from __future__ import annotations

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
