from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

from bnt.errors import BadInput
from bnt.explain._stability import map_stability, sanity_check, shuffled_within


def test_stability_equals_scipys_spearman_and_naive_counts():
    maps = np.random.default_rng(0).normal(size=(3, 100)) + np.linspace(-1, 1, 100)
    found = map_stability(maps, top=0.1)
    pairs = [(0, 1), (0, 2), (1, 2)]
    assert found.rank_correlation == pytest.approx(np.mean([spearmanr(maps[a], maps[b]).statistic for a, b in pairs]))
    assert found.sign_agreement == pytest.approx(np.mean([(maps[a] * maps[b] > 0).mean() for a, b in pairs]))
    tops = [set(sorted(range(100), key=lambda e: -abs(one[e]))[:10]) for one in maps]
    assert found.jaccard == pytest.approx(np.mean([len(tops[a] & tops[b]) / len(tops[a] | tops[b]) for a, b in pairs]))


def test_equal_maps_are_stable_and_random_ones_are_at_chance():
    rng = np.random.default_rng(1)
    one = rng.normal(size=2000)
    same = map_stability([one, 2 * one])
    assert (same.rank_correlation, same.sign_agreement, same.jaccard) == pytest.approx((1, 1, 1))
    other = map_stability(rng.normal(size=(8, 2000)))
    assert abs(other.rank_correlation) < 0.02
    assert other.jaccard == pytest.approx(other.jaccard_chance, abs=0.01)


def test_one_map_has_no_stability():
    with pytest.raises(BadInput, match="two or more"):
        map_stability(np.zeros((1, 5)))


def test_labels_are_shuffled_within_sites():
    y, sites = np.array([0, 0, 0, 1, 1, 1, 0, 1]), np.array(list("AAAAABBB"))
    shuffled = shuffled_within(y, sites, np.random.default_rng(0))
    for site in "AB":
        assert sorted(shuffled[sites == site]) == sorted(y[sites == site])


@pytest.mark.parametrize("method", ["pattern", "integrated-gradients"])
def test_shuffled_labels_give_no_stable_map(configured, cohort, split, method):
    train, val, test = (np.asarray(part) for part in split)
    found = sanity_check(configured("svm"), cohort, train, val, test, n=6, method=method)
    assert found.true.rank_correlation > 0.6
    assert abs(found.shuffled.rank_correlation) < 0.2
    assert found.passed
