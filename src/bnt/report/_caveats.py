"""What a reader must know before believing a number, each in one sentence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

SMALL_TEST = 100
FEW_SPLITS = 10
UNSTABLE_SD = 0.05  # of an AUROC over splits: Hanley-McNeil gives 0.034 for 203 test subjects and 0.049 for 100
NOT_A_DEVICE = "A research result. Not a diagnostic device: it must not decide about the care of any person."


def of_protocol(protocol: str) -> list[str]:
    """Return what is wrong with a protocol that we offer only to repeat published numbers."""
    if protocol.startswith("released"):
        return [
            "Protocol `released` repeats the authors' splitter: the training part never changes, and the part called "
            "validation is larger than the test part. Its numbers are for comparison with the paper only."
        ]
    return []


def of_leak(leak: str | None) -> list[str]:
    """Return the leak guard's finding where it is bad news."""
    if leak is None:
        return ["The cohort is not where it was: the leak guard passed before training, and cannot be repeated here."]
    return [f"LEAK: {leak}. The scores of this split are not to be believed."] if leak else []


def of_run(report: dict[str, Any], split: str, leak: str | None, in_study: bool, chosen: bool) -> list[str]:
    """Return the cautions of one run; ``chosen`` says whether its epoch was chosen on the validation part."""
    found = of_leak(leak)
    n_test = report["n"]["test"]
    if not in_study:
        found.append(
            "One split: another split of the same people moves an AUROC by 3 to 5 points; use bnt compare for a claim."
        )
    if n_test < SMALL_TEST:
        found.append(f"The test part has {n_test} people: the interval is wide, look at it before the number.")
    test = report["test"]
    low, high = test.get("auroc_ci", (np.nan, np.nan))
    if low <= 0.5 <= high:
        found.append("The interval of the AUROC includes 0.5: this run cannot be told from guessing.")
    low, high = test.get("r_ci", (np.nan, np.nan))
    if low <= 0 <= high:
        found.append("The interval of r includes 0: this run cannot be told from guessing.")
    score = "auroc" if "auroc" in test else "r"
    if chosen and report["validation"].get(score, 0) - test[score] > 0.1 and not report["refit_on_validation"]:
        found.append(
            f"The validation score ({report['validation'][score]:.3f}) is far above the test score: the choice of the "
            "epoch fitted the validation part."
        )
    return found + of_protocol(split)


def of_study(study: dict[str, Any], runs: pd.DataFrame, planned: int, leak: str | None) -> list[str]:
    """Return the cautions of a study."""
    found = of_leak(leak) + of_protocol(study["protocol"])
    if len(runs) < planned:
        found.append(f"{len(runs)} of {planned} runs are finished: the tables are of those.")
    if len(study["splits"]) < FEW_SPLITS:
        found.append(f"{len(study['splits'])} splits: differences of a few points cannot be told from chance; use 20.")
    if runs.empty:
        return found
    if runs["n_test"].min() < SMALL_TEST:
        found.append(f"The test parts have {runs['n_test'].min()} people: single scores are uncertain by many points.")
    if "auroc" in runs:
        spread = runs.groupby("variant", sort=False)["auroc"].std()
        shaky = spread[spread > UNSTABLE_SD]
        if len(shaky):
            names = ", ".join(f"{name} (SD {sd:.3f})" for name, sd in shaky.items())
            found.append(f"Unstable over splits: {names}. One split of such a model says little.")
    return found
