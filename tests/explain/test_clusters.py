from __future__ import annotations

import numpy as np
import pytest

from bnt.cohort._triangle import Networks
from bnt.errors import BadInput
from bnt.explain._attention import (
    agreement,
    class_means,
    clustering_stability,
    difference_score,
    hard_clusters,
    member_assignments,
)


def draws(n: int, v: int, k: int, seed: int) -> np.ndarray:
    p = np.random.default_rng(seed).random((n, v, k))
    return p / p.sum(axis=2, keepdims=True)


def test_assignments_of_every_member_are_probabilities(pair, cohort, test_rows):
    found = member_assignments(pair, cohort, test_rows)
    assert [p.shape for p in found] == [(len(test_rows), 24, 4)] * 2
    np.testing.assert_allclose(found[0].sum(axis=2), 1, atol=1e-5)
    assert np.abs(found[0] - found[1]).max() > 0.05  # members have centres of their own


def test_difference_score_is_the_papers_formula():
    # d = 1/(KV) sum |mean P of class a - mean P of class b| (docs/facts.md, Printed results)
    p, codes = draws(10, 5, 3, 0), np.array([0, 1] * 5)
    d = 0.0
    for node in range(5):
        for cluster in range(3):
            means = [np.mean([p[i, node, cluster] for i in range(10) if codes[i] == c]) for c in (0, 1)]
            d += abs(means[0] - means[1]) / (5 * 3)
    assert difference_score(p, codes, n_permutations=3).d == pytest.approx(d, rel=1e-5)


def test_difference_score_is_tested_against_its_own_chance():
    p, codes = draws(60, 8, 3, 1), np.arange(60) % 2
    nothing = difference_score(p, codes, n_permutations=199)
    assert nothing.p > 0.05
    assert nothing.d == pytest.approx(nothing.null_mean, rel=0.3)  # d of no effect is not 0
    moved = p.copy()
    moved[codes == 1, 0] = [0.9, 0.05, 0.05]
    assert difference_score(moved, codes, n_permutations=199).p == 1 / 200


def test_a_difference_between_sites_is_not_taken_for_one_between_classes():
    sites = np.repeat(["A", "B"], 40)
    codes = np.r_[np.arange(40) < 32, np.arange(40) < 8].astype(int)  # classes are unbalanced over sites
    naive, fair = [], []
    for seed in range(20):
        p = draws(80, 8, 3, seed)
        p[sites == "A", :4] = [0.8, 0.1, 0.1]
        naive.append(difference_score(p, codes, n_permutations=49).p)
        fair.append(difference_score(p, codes, sites, n_permutations=49).p)
    assert max(naive) == 1 / 50
    assert np.mean(np.array(fair) <= 0.1) <= 0.3  # 0.1 is expected of no effect; its SD over 20 is 0.07
    assert np.mean(fair) == pytest.approx(0.5, abs=0.2)


def test_clusters_that_are_the_networks_agree_whatever_their_numbers():
    networks = Networks.from_labels(np.repeat(["a", "b", "c"], 6))
    clusters = np.array([2, 0, 1])[networks.codes]
    found = agreement(clusters, networks, n_permutations=99)
    assert found["ari"]["value"] == pytest.approx(1)
    assert found["nmi"]["value"] == pytest.approx(1)
    assert found["ari"]["p"] == found["nmi"]["p"] == 1 / 100


def test_random_clusters_do_not_agree_and_nmi_has_a_chance_above_zero():
    networks = Networks.from_labels(np.repeat(["a", "b", "c", "d"], 5))
    rng = np.random.default_rng(3)
    found = [agreement(rng.integers(0, 4, 20), networks, n_permutations=19) for _ in range(15)]
    assert np.mean([one["ari"]["p"] for one in found]) == pytest.approx(0.5, abs=0.2)
    assert np.mean([one["ari"]["chance"] for one in found]) == pytest.approx(0, abs=0.02)
    assert np.mean([one["nmi"]["chance"] for one in found]) > 0.1


def test_stability_does_not_depend_on_the_numbers_of_clusters():
    one = np.array([0, 0, 1, 1, 2, 2])
    assert clustering_stability([one, 2 - one])["ari"] == pytest.approx(1)
    assert np.isnan(clustering_stability([one])["ari"])


def test_hard_clusters_are_the_likeliest_of_the_mean():
    p = np.array([[[0.9, 0.1]], [[0.2, 0.8]], [[0.2, 0.8]]])
    assert hard_clusters(p).tolist() == [1]
    np.testing.assert_allclose(class_means(p, np.array([0, 1, 1])), [[[0.9, 0.1]], [[0.2, 0.8]]])


def test_a_model_without_clusters_is_named(cohort, configured, split):
    from bnt.explain._stability import refit

    config = configured("svm")
    fitted = refit(config, cohort, cohort.labels("diagnosis"), split[0], split[1])
    with pytest.raises(BadInput, match="no clusters"):
        member_assignments(fitted, cohort, split[2])
