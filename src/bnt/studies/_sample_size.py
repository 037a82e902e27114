"""Learning curves: score by size of the training set, and the sample size that a target score needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import curve_fit

from bnt._words import counted, heading, is_share, percent, shown, shown_name, spoken
from bnt.cohort import Cohort
from bnt.errors import BadInput
from bnt.models import find_entry
from bnt.splits import Split, named_splits
from bnt.splits._protocols import canonical
from bnt.splits._split import absent_classes
from bnt.studies._job import Variant

SHRINKABLE = ("site-stratified", "random", "released")
DRAWS = 500
LOW, HIGH = (0.0, 0.0, 0.05), (1.0, 50.0, 2.0)  # of a, b and c below
FEWEST_SIZES = 4
MOST_PEOPLE = 100_000  # that an estimate names


def share_name(fraction: float) -> str:
    """Return the ending of a split's name that says which share of the training set it keeps."""
    return f"+{100 * fraction:.0f}pc"


def thinned_splits(
    cohort: Cohort, label: str, protocol: str, fractions: Sequence[float], *, n_splits: int, seed: int = 0
) -> list[Split]:
    """Return a protocol's splits with each share of their training set; validation and test stay as they are."""
    if canonical(protocol) not in SHRINKABLE:
        raise BadInput(
            f"A learning curve draws smaller training sets itself: protocol must be one of {', '.join(SHRINKABLE)}, "
            f"not {protocol}.",
            "protocol",
        )
    found = []
    for fraction in fractions:
        splits = named_splits(cohort, label, protocol, n_splits=n_splits, seed=seed, train_fraction=fraction)
        found += [replace(split, name=split.name + share_name(fraction)) for split in splits]
    return found


def trainable_fractions(
    cohort: Cohort,
    label: str,
    protocol: str,
    fractions: Sequence[float],
    variants: Sequence[Variant],
    *,
    n_splits: int,
    seed: int = 0,
) -> tuple[tuple[float, ...], str]:
    """Return the shares of the training set that can be trained on, and which others are left out, in words.

    Those do not fill one batch of every network, or they lack a class. They are left out for all models, so that all
    curves have the same shares.
    """
    networks = [v.recipe for v in variants if find_entry(v.model).trains_in_epochs]
    batch = max((one.batch_size if one.drop_last else 2 for one in networks), default=0)
    kept, most = [], 0
    left_out: dict[str, list[str]] = {}
    for fraction in fractions:
        splits = thinned_splits(cohort, label, protocol, (fraction,), n_splits=n_splits, seed=seed)
        n = min(len(split.train) for split in splits)
        most = max(most, n)
        if n < batch:
            why = f"less than one batch of {batch}"
        elif any(one.part == "training" for one in absent_classes(cohort, label, splits)):
            why = "where a training set lacks a class"
        else:
            kept.append(fraction)
            continue
        left_out.setdefault(why, []).append(f"{percent(fraction)} ({counted(n, 'subject')})")
    if most < batch:
        raise BadInput(
            f"The whole training set, {counted(most, 'subject')}, does not fill one batch of {batch}: lower the "
            "recipe's batch_size.",
            "change",
        )
    if not kept:
        return tuple(fractions), ""  # the study says which class its splits lack
    return tuple(kept), " ".join(f"Left out: {', '.join(shares)}, {why}." for why, shares in left_out.items())


def sites_name(n_sites: int) -> str:
    """Return the ending of a split's name that says how many sites are trained on."""
    return f"+{n_sites}sites"


def fewer_sites(cohort: Cohort, label: str, counts: Sequence[int], *, seed: int = 0) -> list[Split]:
    """Return each left-out site with fewer of the other sites to train on.

    Per left-out site the others are put in one random order, and the first of them are trained on: a smaller number
    of sites is part of a larger one. The test set is the left-out site for every number.
    """
    splits = named_splits(cohort, label, "leave-one-site-out", n_splits=len(np.unique(cohort.sites)), seed=seed)
    most = len(splits) - 1
    wrong = [n for n in counts if not 1 <= n <= most]
    if wrong:
        raise BadInput(f"{wrong[0]} training sites were asked for; the cohort leaves 1 to {most}.", "sites")
    site_of = dict(zip(cohort.ids.tolist(), cohort.sites.tolist()))
    found = []
    for number, split in enumerate(splits):
        others = sorted({site_of[name] for name in split.train + split.validation})
        order = np.random.default_rng([seed, number]).permutation(others).tolist()
        for n in counts:
            kept = set(order[:n])
            train, validation = (
                tuple(name for name in part if site_of[name] in kept) for part in (split.train, split.validation)
            )
            found.append(replace(split, name=split.name + sites_name(n), train=train, validation=validation))
    return found


def curve_table(
    runs: pd.DataFrame, sizes: Sequence[float], metric: str, ending: Callable[[Any], str] = share_name
) -> pd.DataFrame:
    """Return one row per model and size of a table of runs: people, mean and SD over splits of a metric.

    Sizes are shares of the training set (``share_name``) or numbers of sites (``sites_name``).
    """
    found = []
    column = "sites" if ending is sites_name else "fraction"
    for model, group in runs.groupby("variant", sort=False):
        for size in sizes:
            part = group[group["split"].str.endswith(ending(size))]
            scores = part.groupby("split")[metric].mean()
            found.append(
                {
                    "model": model,
                    column: size,
                    "n_train": float(part["n_train"].mean()) if len(part) else np.nan,
                    "n_splits": len(scores),
                    metric: scores.mean(),
                    f"{metric}_sd": scores.std(ddof=1) if len(scores) > 1 else np.nan,
                }
            )
    return pd.DataFrame(found)


@dataclass(frozen=True)
class PowerLaw:
    """The curve a - b n^-c: a score that rises with n people towards its limit a.

    Attributes
    ----------
    limit, scale, exponent : float
        a, b and c.

    Examples
    --------
    >>> from bnt.studies import PowerLaw
    >>> law = PowerLaw(limit=0.8, scale=1.0, exponent=0.5)
    >>> round(law.people_for(0.75))
    400
    >>> law.people_for(0.9)
    inf
    """

    limit: float
    scale: float
    exponent: float

    def score(self, n: np.ndarray) -> np.ndarray:
        """Return the score with n training people."""
        return self.limit - self.scale * np.asarray(n, dtype=float) ** -self.exponent

    def people_for(self, target: float) -> float:
        """Return how many training people reach a score; infinitely many if it is above the limit."""
        if self.limit <= target:
            return float("inf")
        return float((self.scale / (self.limit - target)) ** (1 / self.exponent))


def fit_power_law(n: np.ndarray, scores: np.ndarray) -> PowerLaw:
    """Fit a power law by least squares, with a limit of at most 1.

    Parameters
    ----------
    n, scores : array
        People and score of each run, at four sizes or more.

    Examples
    --------
    >>> import numpy as np
    >>> from bnt.studies import fit_power_law
    >>> n = np.array([50, 100, 200, 400, 800])
    >>> round(fit_power_law(n, 0.8 - n**-0.5).limit, 3)
    0.8
    """
    n, scores = np.asarray(n, dtype=float), np.asarray(scores, dtype=float)
    known = np.isfinite(n) & np.isfinite(scores)
    if len(np.unique(n[known])) < FEWEST_SIZES:
        raise BadInput(f"A learning curve is fitted to {FEWEST_SIZES} sizes or more: give more fractions.", "fractions")

    def curve(x: np.ndarray, a: float, b: float, c: float) -> np.ndarray:
        return a - b * x**-c

    start = (min(float(scores[known].max()) + 0.02, 0.999), 1.0, 0.5)
    try:
        found, _ = curve_fit(curve, n[known], scores[known], p0=start, bounds=(LOW, HIGH), max_nfev=20000)
    except RuntimeError as error:
        raise BadInput(f"No learning curve fits these scores ({error}).") from error
    return PowerLaw(*map(float, found))


def people_needed(runs: pd.DataFrame, metric: str, target: float, seed: int = 0) -> tuple[float, float, float]:
    """Return how many training people a target needs, and a 95 % interval from resampled splits.

    Parameters
    ----------
    runs : DataFrame
        Runs of one model on :func:`thinned_splits`.
    seed : int
        Of the resampling: whole splits, with all their sizes, are drawn with replacement.
    """
    base = runs["split"].str.rsplit("+", n=1).str[0]
    names = base.unique()
    groups = {name: runs[base == name] for name in names}
    rng = np.random.default_rng(seed)
    whole = fit_power_law(runs["n_train"].to_numpy(), runs[metric].to_numpy()).people_for(target)
    if len(names) < 2:
        return whole, float("nan"), float("nan")
    drawn = []
    for _ in range(DRAWS):
        some = pd.concat([groups[name] for name in rng.choice(names, len(names))])
        drawn.append(fit_power_law(some["n_train"].to_numpy(), some[metric].to_numpy()).people_for(target))
    low, high = np.quantile(drawn, [0.025, 0.975], method="nearest")
    return whole, float(low), float(high)


def curve_text(
    table: pd.DataFrame,
    metric: str,
    label: str,
    laws: Mapping[str, PowerLaw],
    needed: Mapping[str, tuple[float, float, float]],
    target: float | None,
) -> str:
    """Return a learning curve in Markdown: the scores, each model's fitted curve, and the people that a target needs.

    Parameters
    ----------
    table : DataFrame
        From :func:`curve_table`.
    laws, needed : mapping
        For each model the fitted curve, and what :func:`people_needed` returns.
    """
    size = "training sites" if "sites" in table else "share of the training set"
    lines = [f"| model | {size} | training people | splits | {heading(metric)}, mean ± SD |", "|---|---|---|---|---|"]
    for _, row in table.iterrows():
        share = f"{row['sites']:.0f}" if "sites" in table else percent(row["fraction"])
        score, sd = shown(row[metric], metric, nothing="–"), shown(row[f"{metric}_sd"], metric, like=row[metric])
        score += f" ± {sd}" if sd else ""
        lines.append(f"| {row['model']} | {share} | {row['n_train']:.0f} | {row['n_splits']} | {score} |")
    said = []
    for name, law in laws.items():
        b = law.scale * (100 if is_share(metric) else 1)
        said.append(f"{name}: fitted {heading(metric)} = {shown(law.limit, metric)} - {b:.3g} n^-{law.exponent:.2f}.")
        if target is not None:
            n, low, high = needed[name]
            aim = f"{shown_name(metric)} {spoken(target, metric)}"
            ends = [_people(end) for end in (low, high)]
            span = "" if np.isnan(low) else f" (95 % interval {ends[0]} to {ends[1]})"
            span = f" (95 % interval: {ends[0]})" if ends[0] == ends[1] else span
            said[-1] += f" {aim} needs {_people(n)} training people{span}."
    return "\n".join([f"# Learning curve, {label}", "", *lines, "", *said, ""])


def _people(n: float) -> str:
    """Return a number of people; beyond MOST_PEOPLE the curve says nothing more."""
    return f"more than {MOST_PEOPLE:,}" if n > MOST_PEOPLE else f"{n:,.0f}"
