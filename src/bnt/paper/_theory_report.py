"""The report of ``bnt theory`` about the paper's two theorems: ``theory.csv``, ``theory.md`` and the figure."""

from __future__ import annotations

import time
from dataclasses import dataclass
from importlib.resources import files
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
PAGE = files("bnt.paper").joinpath("theory.md").read_text(encoding="utf-8")  # with names for its numbers


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


def page(found: Findings, picture: str = "theory.png") -> str:
    """Return the page as Markdown."""
    linear, same = found.angles["linear"], found.same
    angles = [[f"{r:g}", *(f"{v:.5f}" for v in line)] for r, line in zip(t.RADII, linear)]
    design, square = found.designs[10, 200], found.designs[8, 8]
    return PAGE.format(
        **vars(found),
        picture=picture,
        n_radial=t.N_RADIAL,
        n_angular=t.N_ANGULAR,
        n_points=t.N_POINTS,
        gains=", ".join(f"{100 * (line[-1] / line[4] - 1):+.0f} % at r = {r:g}" for r, line in zip(t.RADII, linear)),
        angle_rows=rows(("r", *_HEADS), angles).rstrip(),
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
