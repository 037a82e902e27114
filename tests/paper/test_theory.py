"""The paper's theorems: quadrature, Monte-Carlo and regression against closed forms and docs/facts.md, Theory."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from bnt.cli._main import main
from bnt.paper import _theorems as t
from bnt.paper import _theory_report as theory_report
from bnt.paper._theory_report import PAGE

# docs/facts.md, Theory: K = V = 2, radii x angles 0, 1/21, 1/6, 1/3, 1/2, 2/3, 5/6, 1 (of pi).
TABLE = np.array(
    [
        [0, 0.00017, 0.00208, 0.00765, 0.01500, 0.02206, 0.02706, 0.02886],
        [0, 0.00070, 0.00819, 0.02886, 0.05364, 0.07521, 0.08931, 0.09416],
        [0, 0.00277, 0.03076, 0.09416, 0.15186, 0.19141, 0.21349, 0.22052],
        [0, 0.01668, 0.13564, 0.26493, 0.32643, 0.35640, 0.37062, 0.37486],
        [0, 0.05895, 0.27158, 0.37486, 0.41072, 0.42690, 0.43439, 0.43660],
        [0, 0.33507, 0.45093, 0.47455, 0.48200, 0.48530, 0.48682, 0.48727],
    ]
)


def closed_form(phi: float, r: float) -> float:
    """F = E[tanh^2(z.(e1 - e2)/2)]/2; a coordinate of a point of the unit disk has the semicircle density."""
    distance = 2 * np.sin(phi / 2)
    return quad(
        lambda x: np.sqrt(1 - x * x) / np.pi * np.tanh(r * x * distance / 2) ** 2, -1, 1, epsabs=1e-12, limit=400
    )[0]


@pytest.fixture(scope="module")
def angles():
    return t.angle_table()


def test_table_of_angles_is_that_of_the_facts(angles):
    assert np.abs(angles - TABLE).max() < 1e-5


def test_page_of_the_documentation_shows_this_table(angles):
    page = (Path(__file__).parents[2] / "docs" / "theory.md").read_text()
    for r, line in zip(t.RADII, angles):
        assert f"| {r:g} | " + " | ".join(f"{v:.5f}" for v in line) + " |" in page
    for sentence in (PAGE.split("\n\n")[2], PAGE.rstrip().split("\n\n")[-1]):
        assert sentence in page  # given by the same text as the command's


@pytest.mark.parametrize(("phi", "r"), [(0.3, 0.7), (np.pi / 2, 2.0), (2.5, 5.0), (np.pi, 10.0)])
def test_quadrature_is_the_closed_form(phi, r):
    assert t.by_quadrature(t.two_centres(phi), r) == pytest.approx(closed_form(phi, r), abs=1e-9)


def test_linear_score_rises_up_to_opposite_centres():
    angles = np.linspace(0, np.pi, 181)
    values = [t.by_quadrature(t.two_centres(a), 1.0, n_radial=30, n_angular=90) for a in angles]
    assert (np.diff(values) > 0).all()


def test_squared_score_is_largest_at_a_right_angle():
    row = t.angle_table((1.0,), score="squared")[0]
    # docs/facts.md, Theory
    assert row == pytest.approx([0, 0.00046, 0.0051, 0.0148, 0.0194, 0.0148, 0.0051, 0], abs=1e-4)
    assert row.argmax() == 4


def test_longer_centres_give_more_variance():
    right = t.two_centres(np.pi / 2)
    # docs/facts.md, Theory: 0.053 and 0.232
    assert t.by_quadrature(right, 1.0) == pytest.approx(0.05364, abs=1e-5)
    assert t.by_quadrature(3 * right, 1.0) == pytest.approx(0.232, abs=5e-4)


@pytest.mark.parametrize(
    ("k", "v", "ratios"),
    # docs/facts.md, Theory: simplex over orthonormal at r = 1, 5, 20
    [
        (3, 3, (1.45, 1.13, 1.025)),
        (4, 4, (1.32, 1.12, 1.02)),
        (5, 10, (1.25, 1.15, 1.03)),
        (10, 20, (1.11, 1.11, 1.03)),
    ],
)
def test_simplex_beats_orthonormal_by_the_known_ratios(k, v, ratios):
    points = t.ball_points(v, 1 << 14)
    for r, expected in zip((1, 5, 20), ratios):
        simplex, straight = (
            t.by_sampling(centres, r, points=points) for centres in (t.simplex(k, v), t.orthonormal(k, v))
        )
        assert simplex / straight == pytest.approx(expected, abs=0.01)


def test_sampling_agrees_with_quadrature():
    points = t.ball_points(2, 1 << 15)
    for score in t.SCORES:
        for phi in (1.0, np.pi / 2, 3.0):
            centres = t.two_centres(phi)
            by_sampling = t.by_sampling(centres, 2.0, score, points=points)
            assert by_sampling == pytest.approx(t.by_quadrature(centres, 2.0, score), abs=1e-4)


def test_points_fill_the_ball_evenly():
    z = t.ball_points(5, 1 << 14)
    radius = np.linalg.norm(z, axis=1)
    assert radius.max() <= 1
    assert (radius <= 0.5 ** (1 / 5)).mean() == pytest.approx(0.5, abs=0.005)  # half of the volume
    assert z.mean(axis=0) == pytest.approx(np.zeros(5), abs=1e-12)
    assert z.T @ z / len(z) == pytest.approx(np.eye(5) / 7, abs=2e-3)  # E z z^T = I / (V + 2)


@given(st.integers(2, 5), st.integers(0, 3), st.integers(0, 1000))
@settings(max_examples=15, deadline=None)
def test_small_radius_is_decided_by_the_sum_of_cosines(k, extra, seed):
    centres = t.random_centres(k, k + extra, np.random.default_rng(seed))
    points = t.ball_points(k + extra, 1 << 13)
    assert t.by_sampling(centres, 0.02, points=points) == pytest.approx(t.small_radius(centres, 0.02), rel=0.02)


@pytest.mark.parametrize(("score", "wanted"), [("linear", -0.5), ("squared", 0.0)])
def test_ascent_finds_the_simplex_or_for_the_squared_score_orthonormal_centres(score, wanted):
    centres, value = t.best_centres(3, 3, 2.0, score, steps=150, n=1 << 12)
    assert t.cosines(centres) == pytest.approx(np.full(3, wanted), abs=0.03)  # docs/facts.md, Theory
    frame = t.nearest_orthonormal(centres)
    target = t.simplex_of(frame) if score == "linear" else frame
    assert value == pytest.approx(t.by_sampling(target, 2.0, score), rel=1e-3)


@pytest.mark.parametrize("r", [1.0, 20.0])
def test_no_random_set_with_non_negative_mean_cosine_beats_orthonormal(r):
    found = {score: t.contest(3, 3, r, score, sets=60) for score in t.SCORES}
    for result in found.values():
        assert result["allowed"] > 10
        assert result["allowed_beat"] == 0
    if r == 1.0:
        assert found["linear"]["beat"] > 20  # docs/facts.md, Theory: 35 of 60


def test_printed_mean_of_inflation_factors_is_above_one_for_uncorrelated_variables():
    for r in (2, 5, 10):
        design = t.orthogonal_design(60, r, np.random.default_rng(r))
        assert t.printed_mean(t.inflation_factors(design)) == pytest.approx(r / (r - 1))  # docs/facts.md, Theory


def test_inflation_factors_are_those_of_regressing_each_column_on_the_others():
    x = np.random.default_rng(0).standard_normal((80, 4)) @ t.mixing(4, 0.6)
    for p, factor in enumerate(t.inflation_factors(x)):
        _, r2, _ = t.fit(np.delete(x, p, axis=1), x[:, p])
        assert factor == pytest.approx(1 / (1 - r2))


def test_inflation_leaves_the_fit_and_widens_the_coefficients():
    same = t.same_fit()
    assert same["vif_correlated"] > 10 * same["vif_orthogonal"]
    assert same["r2_correlated"] == pytest.approx(same["r2_orthogonal"], abs=1e-10)
    assert same["mse_correlated"] == pytest.approx(same["mse_orthogonal"], rel=1e-10)
    wider = t.coefficient_inflation()
    assert wider["observed"] == pytest.approx(wider["factor"], rel=0.05)


@pytest.mark.parametrize(("k", "v"), [(4, 20), (8, 8)])
def test_orthonormal_centres_as_samples_have_no_inflation_factors(k, v):
    facts = t.centre_design(k, v)
    assert facts["row_product"] < 1e-12
    assert facts["rank"] == k - 1
    assert not facts["defined"]


def test_the_command_says_first_how_long_it_takes(monkeypatch, capsys):
    monkeypatch.setattr(theory_report, "expected_seconds", lambda: 240.0)
    monkeypatch.setattr(theory_report, "find", lambda: None)
    monkeypatch.setattr(theory_report, "short", lambda found: "what was found")
    assert main(["theory"]) == 0
    out, err = capsys.readouterr()
    assert "about 4 min" in err
    assert out == "what was found\n"


def test_the_estimate_is_twice_as_long_on_a_machine_of_half_the_speed(monkeypatch):
    # A fixed half minute was announced once, and it took six.
    monkeypatch.setattr(theory_report.t, "contest", lambda *_, **__: None)
    found = []
    for seconds in (0.5, 1.0):
        clock = iter([0.0, seconds])
        monkeypatch.setattr(theory_report, "time", SimpleNamespace(perf_counter=lambda clock=clock: next(clock)))
        found.append(theory_report.expected_seconds())
    assert found[1] == 2 * found[0] > 0
