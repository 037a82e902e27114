"""ComBat against a naive loop over edges, and against numbers of neuroHarmonize 2.5.2 (``harmonizationLearn``)."""

import numpy as np
import pytest

from bnt.connectivity._combat import Combat
from bnt.errors import BadInput

# neuroHarmonize 2.5.2 on drawn(): rows 0, 17 and 59, edges 0, 5 and 11.
FROZEN = [
    [0.498868575, 0.841016625, 0.563280183],
    [0.692606395, 1.108767206, 0.112784937],
    [-0.049299612, 0.76691372, 0.439057541],
]


def drawn(n=60, n_edges=12):
    """Return edges of three sites with shifts and scales of their own, and age and sex with effects."""
    rng = np.random.default_rng(3)
    site = np.array(["A", "B", "C"])[rng.integers(0, 3, n)]
    age, sex = rng.integers(8, 40, n).astype(float), rng.integers(0, 2, n).astype(float)
    edges = rng.normal(0.3, 0.2, (n, n_edges)) + 0.01 * age[:, None] * rng.normal(1, 0.3, n_edges) + 0.05 * sex[:, None]
    for i, name in enumerate("ABC"):
        edges[site == name] = edges[site == name] * (1 + 0.3 * i) + rng.normal(0, 0.15, n_edges) * (i + 1)
    return edges, site, np.stack([age, sex], axis=1)


def in_batches(edges, size=25):
    return lambda: ((np.arange(i, min(i + size, len(edges))), edges[i : i + size]) for i in range(0, len(edges), size))


def naive(edges, site, covariates):
    """Harmonise one edge and one site at a time, as Johnson, Li and Rabinovic (2007) write it."""
    names = sorted(set(site))
    n, n_edges = edges.shape
    design = np.array([[float(s == name) for name in names] + list(x) for s, x in zip(site, covariates)])
    standard, mean_of, sd = np.zeros_like(edges), np.zeros_like(edges), np.zeros(n_edges)
    for e in range(n_edges):
        beta = np.linalg.solve(design.T @ design, design.T @ edges[:, e])
        grand = sum((site == name).sum() / n * beta[i] for i, name in enumerate(names))
        sd[e] = np.sqrt(np.mean((edges[:, e] - design @ beta) ** 2))
        mean_of[:, e] = grand + covariates @ beta[len(names) :]
        standard[:, e] = (edges[:, e] - mean_of[:, e]) / sd[e]
    out = edges.copy()
    for name in names:
        mine = site == name
        gamma, delta = standard[mine].mean(axis=0), standard[mine].var(axis=0, ddof=1)
        bar, t2, m, v = gamma.mean(), gamma.var(ddof=1), delta.mean(), delta.var(ddof=1)
        a, b, k = (2 * v + m**2) / v, (m * v + m**3) / v, mine.sum()
        g, d = gamma.copy(), delta.copy()
        while True:
            g_new = (t2 * k * gamma + d * bar) / (t2 * k + d)
            d_new = (0.5 * ((standard[mine] - g_new) ** 2).sum(axis=0) + b) / (k / 2 + a - 1)
            change = max((np.abs(g_new - g) / g).max(), (np.abs(d_new - d) / d).max())
            g, d = g_new, d_new
            if change <= 1e-4:
                break
        out[mine] = mean_of[mine] + sd * (standard[mine] - g) / np.sqrt(d)
    return out


def test_training_subjects_have_the_numbers_of_a_naive_loop():
    edges, site, covariates = drawn()
    found = Combat.fit(in_batches(edges), site, covariates).transform(edges, site, covariates)
    np.testing.assert_allclose(found, naive(edges, site, covariates), atol=1e-12)


def test_training_subjects_have_the_numbers_of_neuroharmonize():
    edges, site, covariates = drawn()
    found = Combat.fit(in_batches(edges), site, covariates).transform(edges, site, covariates)
    np.testing.assert_allclose(found[np.ix_([0, 17, 59], [0, 5, 11])], FROZEN, atol=1e-6)


def test_batches_and_order_of_reading_do_not_matter():
    edges, site, covariates = drawn()
    whole = Combat.fit(in_batches(edges, 60), site, covariates)
    np.testing.assert_allclose(whole.shift, Combat.fit(in_batches(edges, 7), site, covariates).shift, atol=1e-12)


def test_a_new_site_gets_the_shift_and_scale_that_its_own_scans_show():
    edges, site, covariates = drawn(400)
    known, new = site != "C", site == "C"
    combat = Combat.fit(in_batches(edges[known]), site[known], covariates[known])
    more = {"C": combat.estimate(in_batches(edges[new]), covariates[new])}
    after = combat.transform(edges[new], site[new], covariates[new], more)
    expected = combat.mean + covariates[new] @ combat.slopes
    standard = (after - expected) / combat.sd
    before = (edges[new] - expected) / combat.sd
    assert np.abs(before.mean(axis=0)).max() > 0.5
    assert np.abs(standard.mean(axis=0)).max() < 0.05
    assert np.abs(standard.std(axis=0) - 1).max() < 0.2


def test_subjects_of_a_site_that_is_not_known_keep_their_edges():
    edges, site, covariates = drawn()
    combat = Combat.fit(in_batches(edges), site, covariates)
    np.testing.assert_array_equal(combat.transform(edges[:2], np.array(["X", "X"]), covariates[:2]), edges[:2])


def test_an_edge_that_never_varies_stays_and_disturbs_no_other():
    edges, site, covariates = drawn()
    flat = np.concatenate([edges, np.full((len(edges), 1), 0.25)], axis=1)
    found = Combat.fit(in_batches(flat), site, covariates).transform(flat, site, covariates)
    np.testing.assert_array_equal(found[:, -1], 0.25)
    np.testing.assert_allclose(found[:, :-1], naive(edges, site, covariates), atol=1e-12)


def test_one_site_alone_is_refused():
    edges, _, covariates = drawn()
    with pytest.raises(BadInput, match="sites"):
        Combat.fit(in_batches(edges), np.array(["A"] * len(edges)), covariates)
