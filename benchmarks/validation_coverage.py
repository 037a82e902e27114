"""Measure how often the intervals of ``bnt validate`` hold the truth, in people whose truth is known.

python benchmarks/validation_coverage.py --draws 10000 --out results/validation_coverage.csv

A person has a logit l ~ N(0, 1.2); the model says expit(l), and the person is positive with probability
expit(slope l + shift): a slope other than 1 and a shift other than 0 are planted miscalibrations. A score is
intercept + slope prediction + noise. The truth of AUROC, Brier score, sensitivity and specificity is computed from two
million people. ``coverage`` should be 0.95; ``error`` is its own standard error.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import expit

from bnt.cohort._files import write_atomic
from bnt.predict._transport import Estimate, binary_transport, score_transport
from bnt.training._task import auroc_or_nan

CLASSES = [(150, 0.0, 1.0), (400, 0.0, 1.0), (400, 0.7, 1.0), (400, 0.0, 0.5), (400, -1.2, 0.7)]  # n, shift, slope
SCORES = [(100, 0.0, 1.0), (200, 2.0, 0.6)]
THRESHOLD = 0.55
PEOPLE = 2_000_000  # of whom the truth is computed


def classes(n: int, shift: float, slope: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw who is positive, and what the model says."""
    value = rng.normal(0.0, 1.2, n)
    return rng.random(n) < expit(slope * value + shift), expit(value)


def scores(n: int, shift: float, slope: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw scores, and what the model says."""
    predicted = rng.normal(0.0, 3.0, n)
    return shift + slope * predicted + rng.normal(0.0, 4.0, n), predicted


def truth_of_classes(shift: float, slope: float) -> dict[str, float]:
    """Return what the intervals should hold."""
    positive, probability = classes(PEOPLE, shift, slope, np.random.default_rng(1))
    called = probability > THRESHOLD
    large = np.log(positive.mean() / (1 - positive.mean()))
    for _ in range(50):  # the shift that makes the mean probability right, with the slope held at 1
        p = expit(np.log(probability / (1 - probability)) + large)
        large += (positive.mean() - p.mean()) / (p * (1 - p)).mean()
    return {
        "auroc": auroc_or_nan(positive, probability),
        "calibration_slope": slope,
        "calibration_intercept": float(large),
        "brier": float(((probability - positive) ** 2).mean()),
        "accuracy": float((called == positive).mean()),
        "sensitivity": float(called[positive].mean()),
        "specificity": float((~called[~positive]).mean()),
    }


def truth_of_scores(shift: float, slope: float) -> dict[str, float]:
    """Return what the intervals should hold."""
    y, predicted = scores(PEOPLE, shift, slope, np.random.default_rng(1))
    return {
        "r2": float(1 - ((y - predicted) ** 2).mean() / y.var()),
        "r": float(np.corrcoef(y, predicted)[0, 1]),
        "calibration_slope": slope,
        "mae": float(np.abs(y - predicted).mean()),
        "calibration_intercept": float((y - predicted).mean()),
    }


def coverage(kind: str, n: int, shift: float, slope: float, draws: int, seed: int = 0) -> pd.DataFrame:
    """Return how often each interval holds its truth, one row per estimate."""
    rng = np.random.default_rng([seed, n, int(1000 * slope), int(1000 * abs(shift))])
    is_class = kind == "classes"
    truth = truth_of_classes(shift, slope) if is_class else truth_of_scores(shift, slope)
    held: dict[str, list[bool]] = {name: [] for name in truth}
    for _ in range(draws):
        y, predicted = (classes if is_class else scores)(n, shift, slope, rng)
        found: dict[str, Estimate] = (
            binary_transport(y, predicted, THRESHOLD) if is_class else score_transport(y, predicted)
        )
        for name, value in truth.items():
            if np.isfinite(found[name].low):
                held[name].append(found[name].low <= value <= found[name].high)
    return pd.DataFrame(
        [
            {
                "kind": kind,
                "n": n,
                "shift": shift,
                "slope": slope,
                "estimate": name,
                "truth": round(truth[name], 4),
                "draws": len(hits),
                "coverage": round(float(np.mean(hits)), 4),
                "error": round(float(np.sqrt(np.mean(hits) * (1 - np.mean(hits)) / len(hits))), 4),
            }
            for name, hits in held.items()
        ]
    )


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    parts = [coverage("classes", *case, options.draws) for case in CLASSES]
    parts += [coverage("scores", *case, options.draws) for case in SCORES]
    table = pd.concat(parts)
    write_atomic(options.out, table.to_csv(index=False))
    print(table.to_string(index=False))


if __name__ == "__main__":
    main()
