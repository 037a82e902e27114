"""The report of ``bnt theory`` about the paper's two theorems: ``theory.csv``, ``theory.md`` and the figure."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bnt._words import duration
from bnt.paper import _theorems as t
from bnt.paper._grid import GREY, open_output, rows, write_outputs
from bnt.plotting._style import COLOURS, DASHES, canvas, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bnt.paper._plan import Plan


SIZES = ((3, 3), (4, 4), (5, 10), (10, 20))  # (K, V)
SIZE_RADII = (1.0, 5.0, 20.0)
CURVE_RADII = (1.0, 2.0, 5.0, 10.0)
CURVE_ANGLES = 61
ASCENTS = ((2, 2), (3, 3), (4, 4), (4, 8))
TIMES_CONTEST = 270  # all of it, in contests of ten sets; measured on one core
CONTESTS = ((3, 3, 1.0), (3, 3, 5.0), (3, 3, 20.0), (10, 20, 1.0), (10, 20, 20.0))


@dataclass
class Findings:
    """All numbers of the page."""

    angles: dict[str, np.ndarray]  # score -> (radii, angles)
    curves: dict[str, np.ndarray]  # score -> (curve radii, curve angles)
    ratios: dict[tuple[int, int], list[float]]
    ascents: list[dict[str, Any]]
    contests: list[dict[str, Any]]
    expansion: tuple[float, float]  # by the formula, by sampling
    scaled: tuple[float, float]  # orthonormal, three times orthonormal
    inflation: dict[int, float]
    same: dict[str, float]
    coefficients: dict[str, float]
    designs: dict[tuple[int, int], dict[str, float]]
    tail: dict[str, float]
    hits: int


def expected_seconds() -> float:
    """Return about how long :func:`find` will take here and now, from a small part of it."""
    k, v, r = CONTESTS[-1]
    t.contest(k, v, r, "squared", sets=2)  # to warm up
    started = time.perf_counter()
    t.contest(k, v, r, "squared", sets=10)
    return TIMES_CONTEST * (time.perf_counter() - started)


def find(*, ascent_steps: int = 300, contest_sets: int = 200) -> Findings:
    """Compute everything; :func:`expected_seconds` says how long it takes."""
    curve_angles = np.linspace(0, 1, CURVE_ANGLES)
    curves = {
        score: np.array(
            [
                [t.by_quadrature(t.two_centres(a * np.pi), r, score, n_radial=40, n_angular=720) for a in curve_angles]
                for r in CURVE_RADII
            ]
        )
        for score in t.SCORES
    }
    ratios = {}
    for k, v in SIZES:
        points = t.ball_points(v)
        ratios[k, v] = [
            t.by_sampling(t.simplex(k, v), r, points=points) / t.by_sampling(t.orthonormal(k, v), r, points=points)
            for r in SIZE_RADII
        ]
    ascents = []
    for k, v in ASCENTS:
        for score in t.SCORES:
            centres, value = t.best_centres(k, v, 2.0, score, steps=ascent_steps)
            found = t.cosines(centres)
            # In the frame of the centres found, the same points are equally lucky for all three.
            frame = t.nearest_orthonormal(centres)
            ascents.append(
                {
                    "K": k,
                    "V": v,
                    "score": score,
                    "lowest": float(found.min()),
                    "highest": float(found.max()),
                    "value": value,
                    "orthonormal": t.by_sampling(frame, 2.0, score),
                    "simplex": t.by_sampling(t.simplex_of(frame), 2.0, score),
                }
            )
    contests = [
        {"K": k, "V": v, "r": r, "score": score, **t.contest(k, v, r, score, sets=contest_sets)}
        for k, v, r in CONTESTS
        for score in t.SCORES
    ]
    rng = np.random.default_rng(0)
    small = t.simplex(4, 6)
    right_angle = t.two_centres(np.pi / 2)
    return Findings(
        angles={score: t.angle_table(score=score) for score in t.SCORES},
        curves=curves,
        ratios=ratios,
        ascents=ascents,
        contests=contests,
        expansion=(t.small_radius(small, 0.05), t.by_sampling(small, 0.05)),
        scaled=(t.by_quadrature(right_angle, 1.0), t.by_quadrature(3 * right_angle, 1.0)),
        inflation={r: t.printed_mean(t.inflation_factors(t.orthogonal_design(300, r, rng))) for r in (2, 5, 10, 100)},
        same=t.same_fit(),
        coefficients=t.coefficient_inflation(),
        designs={(k, v): t.centre_design(k, v) for k, v in ((4, 200), (10, 200), (8, 8))},
        tail=t.tail_counterexample(),
        hits=t.exact_hits(),
    )


def theory_table(found: Findings) -> pd.DataFrame:
    """Return every number as one row: theorem, quantity, setting, value."""
    lines: list[dict[str, Any]] = []

    def add(theorem: str, quantity: str, value: float, **setting: Any) -> None:
        lines.append({"theorem": theorem, "quantity": quantity, **setting, "value": value})

    for score, values in found.angles.items():
        for r, line in zip(t.RADII, values):
            for a, value in zip(t.ANGLES, line):
                add("3.1", "F, two centres, quadrature", value, score=score, K=2, V=2, r=r, phi_over_pi=round(a, 6))
    for (k, v), line in found.ratios.items():
        for r, value in zip(SIZE_RADII, line):
            add("3.1", "F(simplex) / F(orthonormal), Monte-Carlo", value, score="linear", K=k, V=v, r=r)
    for one in found.ascents:
        where = {"score": one["score"], "K": one["K"], "V": one["V"], "r": 2.0}
        for name in ("lowest", "highest"):
            add("3.1", f"{name} cosine of the best centres found", one[name], **where)
        for name, label in (("value", "best found"), ("orthonormal", "orthonormal"), ("simplex", "simplex")):
            add("3.1", f"F, {label}, Monte-Carlo", one[name], **where)
    for one in found.contests:
        where = {name: one[name] for name in ("score", "K", "V", "r")}
        for name, label in (
            ("sets", "random sets"),
            ("beat", "random sets that beat orthonormal"),
            ("allowed", "random sets with mean cosine >= 0"),
            ("allowed_beat", "random sets with mean cosine >= 0 that beat orthonormal"),
        ):
            add("3.1", label, one[name], **where)
    add("3.1", "F of a simplex, leading term", found.expansion[0], score="linear", K=4, V=6, r=0.05)
    add("3.1", "F of a simplex, Monte-Carlo", found.expansion[1], score="linear", K=4, V=6, r=0.05)
    add("3.1", "F, orthonormal", found.scaled[0], score="linear", K=2, V=2, r=1.0)
    add("3.1", "F, three times orthonormal", found.scaled[1], score="linear", K=2, V=2, r=1.0)
    for n, value in found.inflation.items():
        add("3.2", "printed mean VIF of uncorrelated variables", value, r=n)
    for name, value in found.same.items():
        add("3.2", f"same fit: {name}", value)
    for name, value in found.coefficients.items():
        add("3.2", f"coefficient variance, correlated over uncorrelated: {name}", value)
    for (k, v), facts in found.designs.items():
        for name, value in facts.items():
            add("3.2", f"orthonormal centres as samples: {name}", value, K=k, V=v)
    for name, value in found.tail.items():
        add("3.2", f"two-sided tail at 2 SD: {name}", value)
    add("3.2", "of 10,000 unbiased estimates, exactly equal to the truth", found.hits)
    return pd.DataFrame(lines)


@styled
def draw_theory(found: Findings) -> Figure:
    """Draw F against the angle between two centres, for both scores and several radii."""
    drawn, axes = canvas(height=2.6, columns=2)
    angles = np.linspace(0, 1, CURVE_ANGLES)
    titles = {"linear": "paper: softmax of z·e", "squared": "released code: softmax of (z·e)² / |e|"}
    for panel, score in zip(axes, t.SCORES):
        for i, (r, line) in enumerate(zip(CURVE_RADII, found.curves[score])):
            panel.plot(angles, line, color=COLOURS[i], ls=DASHES[i], label=f"r = {r:g}")
            best = int(np.argmax(line))
            panel.plot(angles[best], line[best], "o", color=COLOURS[i], mfc="white", ms=5, clip_on=False, zorder=3)
        panel.axvline(0.5, color=GREY, lw=0.7, ls=":")
        panel.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "π/4", "π/2\northogonal", "3π/4", "π\nopposite"])
        panel.set(xlim=(0, 1), ylim=(0, 0.5), xlabel="angle φ between two unit centres")
        panel.set_title(titles[score], fontsize=8)
    axes[0].set_ylabel("variance of the assignment, F(φ)")
    handles, labels = axes[0].get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside right center", title="ring: maximum", title_fontsize=7)
    return drawn


def theory(plan: Plan) -> tuple[pd.DataFrame, str, Figure]:
    """Check both theorems and return table, Markdown and figure."""
    expected = duration(expected_seconds())
    plan.say(f"Both theorems are checked by quadrature and sampling: about {expected} at the speed just measured.")
    found = find()
    return theory_table(found), page(found), draw_theory(found)


def write_theory(folder: str | Path, found: Findings | None = None) -> Findings:
    """Write ``theory.csv``, ``theory.md``, ``theory.png`` and ``theory.pdf``."""
    folder = open_output(folder, "theory")
    found = found or find()
    write_outputs(folder, "theory", theory_table(found), page(found), draw_theory(found))
    return found


_HEADS = ("0", "π/21", "π/6", "π/3", "π/2", "2π/3", "5π/6", "π")


def _angle_rows(values: np.ndarray) -> str:
    return rows(("r", *_HEADS), [[f"{r:g}", *(f"{v:.5f}" for v in line)] for r, line in zip(t.RADII, values)])


def _ratio_rows(found: Findings) -> str:
    body = [[str(k), str(v), *(f"{value:.3f}" for value in line)] for (k, v), line in found.ratios.items()]
    return rows(("K", "V", *(f"r = {r:g}" for r in SIZE_RADII)), body)


def _ascent_rows(found: Findings) -> str:
    body = []
    for one in found.ascents:
        low, high = (round(one[name], 2) + 0.0 for name in ("lowest", "highest"))  # + 0.0 turns -0.0 into 0.0
        span = f"{low:.2f}" if low == high else f"{low:.2f} to {high:.2f}"
        values = (f"{one[name]:.4f}" for name in ("value", "orthonormal", "simplex"))
        body.append([one["score"], str(one["K"]), str(one["V"]), span, *values])
    return rows(("score", "K", "V", "cosines of the centres found", "F found", "F orthonormal", "F simplex"), body)


def _contest_rows(found: Findings) -> str:
    counts = ("sets", "beat", "allowed", "allowed_beat")
    body = [
        [one["score"], str(one["K"]), str(one["V"]), f"{one['r']:g}", *(str(one[name]) for name in counts)]
        for one in found.contests
    ]
    wins = ("random sets", "better than orthonormal", "with mean cosine ≥ 0", "of these better")
    return rows(("score", "K", "V", "r", *wins), body)


PAGE = """\
# Check of the paper's theorems

This page is made by `bnt theory`, which computes every number on it. Each number is also a row of `theory.csv`.

**In short.** Theorem 3.1 is false as stated. For the paper's formula and unit centres, the regular simplex is better
than orthonormal centres; for two centres, opposite centres are best. The theorem is true for the formula in the
released code (proved for K = 2, checked numerically for more). As far as we can find, it is also true for the paper's
formula among centres whose mean cosine is not negative. Theorem 3.2 is a heuristic: none of the five steps below holds
as written.

## Theorem 3.1

Take node features z from a ball of radius r, assign each to K clusters by P = softmax(z·e₁, …, z·e_K), and average F =
Σₖ (Pₖ − 1/K)² over the ball. The theorem says that F is largest when the centres e₁ … e_K are orthonormal.

### The length of the centres

The theorem needs an assumption about the length of the centres, because longer centres make every assignment harder
(closer to 0 or 1). With K = V = 2 and r = 1, orthonormal centres give {scaled[0]:.3f}, and the same centres three times
as long give {scaled[1]:.3f}. All results below are for centres of unit length.

### Two centres: opposite is best

F for two unit centres at an angle φ in the plane, by quadrature ({n_radial} Gauss-Legendre nodes in the radius,
{n_angular} trapezoids in the angle):

{angle_rows}

F rises all the way to φ = π. Opposite centres beat orthogonal ones by
{gains}.
The reason is short: with two centres F is the mean of ½ tanh²(z·(e₁ − e₂)/2), which only depends on the distance
|e₁ − e₂| = 2 sin(φ/2). The paper's proof shows the same: its derivative is not negative for every φ from 0 to π, but
the proof stops at π/2. (The proof also has misprints, which do not change the order. The printed range is 0 to π/21, a
second centre is printed as E₁, the factor ρ of polar coordinates is missing, and +1/2 should be −1/2.)

![F by angle]({picture})

### More centres: the simplex is best

F of the regular simplex (all cosines −1/(K−1)) divided by F of orthonormal centres, by Monte-Carlo on {n_points:,}
points:

{ratio_rows}

Gradient ascent over unit centres from a random start (r = 2) ends at the simplex for the paper's formula, and at
orthonormal centres for the formula of the released code:

{ascent_rows}

### When orthonormal centres are best

*Small balls.* For unit centres F = r² / ((V+2) K²) · (K − 1 − (2/K) Σ cos) + smaller terms, where the sum is over
pairs. So only the sum of the cosines matters: orthonormal centres are better than exactly those centres whose mean
cosine is positive. (For a simplex with K = 4, V = 6, r = 0.05 the formula gives {expansion[0]:.4e}, Monte-Carlo
{expansion[1]:.4e}.)

*Centres with a mean cosine of zero or more.* Among random unit centres of this kind, none was better than orthonormal
centres. Without this restriction, about half are better at a small radius:

{contest_rows}

For K = 2 this follows from the formula for two centres above. For more centres it is a conjecture that these numbers
support.

*The released code.* It takes the softmax of (z·e)²/|e|. A centre and its opposite are then equivalent, F is symmetric
about π/2, and the maximum is at π/2. At r = 1 the row of the table of angles becomes
{squared}.
For K = 2 the difference of the two squares has eigenvalues ± sin φ, which proves it for every V. So the theorem holds
for the released code, but not for the printed formula.

**A corrected statement.** Among unit centres, the average variance of the linear softmax is largest for the regular
simplex. Among unit centres whose mean cosine is not negative, it is largest for orthonormal centres. For the squared
projection and K ≤ V, it is largest for orthonormal centres. All three are proved for K = 2 and supported numerically
for more centres.

**What it means in practice.** Random unit vectors in 200 dimensions have cosines of about 0.07, so they are nearly
orthonormal already. The centres are fixed and the layers before them are trained, so a network can rotate and scale its
features to suit any centres. `bnt reproduce figure3a` compares all four kinds, the simplex among them.

## Theorem 3.2

The theorem regresses assignments on the centres. It argues that orthonormal centres give the smallest variance
inflation factors (VIF), therefore the best fit, and therefore the smallest chance of rejecting a good readout.

1. **The average VIF is never 1.** It is printed as a sum over r variables divided by r − 1. For uncorrelated variables
   that is r/(r−1):
   {vif}.
   With division by r, the claim (at least 1, and equal to 1 only for uncorrelated variables) is the textbook result.
2. **Orthonormal centres are not uncorrelated variables.** The centres are rows; the variables are columns. With K = 10
   orthonormal centres in 200 dimensions the rows are orthonormal to {row_product:.0e}, yet two columns correlate at
   {column:.2f}, and the centred design has rank {rank} for 200 variables: no VIF exists. Taking as many centres as
   dimensions does not help (K = V = 8: rank {square_rank}): centring reduces the rank of any K samples by one.
3. **A large VIF does not make a worse fit.** We regressed the same outcome on five uncorrelated variables and on five
   strongly correlated variables that span the same space: mean VIF {vif_a:.2f} and {vif_b:.2f}; R² {r2_a:.6f} and
   {r2_b:.6f}; mean squared error {mse_a:.6f} and {mse_b:.6f}. A VIF inflates the variance of a coefficient: observed
   {wider:.2f} times, expected {factor:.2f} times. So a small error does not follow from a small VIF.
4. **The test always rejects.** Its rejection region is "the estimate differs from the truth". Of 10,000 unbiased
   estimates {hits} were exactly equal to the truth.
5. **The tail bound needs a unimodal distribution.** The Vysochanskij-Petunin bound at two standard deviations is
   {bound:.3f}; a variable with three values reaches {reached:.3f}. The proof does not show that its statistic is
   unimodal, and a significance level is chosen, not derived.

Theorem 3.2 is best read as an intuition.
"""


def page(found: Findings, picture: str = "theory.png") -> str:
    """Return the page as Markdown."""
    linear, same = found.angles["linear"], found.same
    design, square = found.designs[10, 200], found.designs[8, 8]
    return PAGE.format(
        **vars(found),
        picture=picture,
        n_radial=t.N_RADIAL,
        n_angular=t.N_ANGULAR,
        n_points=t.N_POINTS,
        gains=", ".join(f"{100 * (line[-1] / line[4] - 1):+.0f} % at r = {r:g}" for r, line in zip(t.RADII, linear)),
        angle_rows=_angle_rows(linear).rstrip(),
        ratio_rows=_ratio_rows(found).rstrip(),
        ascent_rows=_ascent_rows(found).rstrip(),
        contest_rows=_contest_rows(found).rstrip(),
        squared=", ".join(f"{v:.5f}" for v in found.angles["squared"][1]),
        vif=", ".join(f"{value:.3f} for r = {r}" for r, value in found.inflation.items()),
        row_product=design["row_product"],
        column=design["column_correlation"],
        rank=int(design["rank"]),
        square_rank=int(square["rank"]),
        vif_a=same["vif_orthogonal"],
        vif_b=same["vif_correlated"],
        r2_a=same["r2_orthogonal"],
        r2_b=same["r2_correlated"],
        mse_a=same["mse_orthogonal"],
        mse_b=same["mse_correlated"],
        wider=found.coefficients["observed"],
        factor=found.coefficients["factor"],
        bound=found.tail["bound"],
        reached=found.tail["probability"],
    )


def short(found: Findings) -> str:
    """Return the findings in a few lines for a terminal."""
    row = found.angles["linear"][1]
    ratio = found.ratios[4, 4]
    beat = sum(one["allowed_beat"] for one in found.contests)
    squared = found.angles["squared"][1]
    return "\n".join(
        [
            "Theorem 3.1 (orthonormal centres maximise the variance of P):",
            f"  paper's softmax, K = 2, r = 1: {row[4]:.5f} orthogonal, {row[-1]:.5f} opposite: false as stated",
            f"  K = V = 4: the simplex has {ratio[0]:.2f}, {ratio[1]:.2f}, {ratio[2]:.2f} times F at r = 1, 5, 20",
            f"  squared (released code), r = 1: {squared[4]:.5f} orthogonal, {squared[-1]:.5f} opposite: true",
            f"  random centres with mean cosine >= 0 that beat orthonormal ones: {beat}",
            "Theorem 3.2 (smallest rejection probability):",
            f"  printed mean VIF of 5 uncorrelated variables: {found.inflation[5]:.3f}, not 1",
            f"  mean VIF {found.same['vif_orthogonal']:.1f} and {found.same['vif_correlated']:.1f}, same R2 "
            f"{found.same['r2_orthogonal']:.4f} and {found.same['r2_correlated']:.4f}: a VIF does not worsen a fit",
        ]
    )
