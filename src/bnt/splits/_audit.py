"""Audit of splits and predictions from any source: leaks, fixed training sets, selection on the test set."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from bnt.cohort import Cohort
from bnt.errors import BadInput
from bnt.splits._protocols import WORDS, _positions, _read
from bnt.splits._split import PARTS, SPOKEN, Split, find_leak

FEWEST_SPLITS = 5  # for tests over splits
LEVEL = 0.01


@dataclass(frozen=True)
class Finding:
    """One finding of :func:`audit_splits`.

    Attributes
    ----------
    check : str
        The check: one of ``leak``, ``constant-training``, ``test-part-twice``, ``no-validation``, ``small-test``,
        ``not-in-test``, ``labels``, ``label-inversion``, ``hard-labels``, ``test-selection``.
    sentence : str
        The finding, with the split and a subject.

    Examples
    --------
    >>> from bnt.splits import Finding
    >>> Finding("leak", "Subject a is in both the training and the test set.").check
    'leak'
    """

    check: str
    sentence: str


def audit_splits(
    splits: str | Path, cohort: Cohort, predictions: str | Path | None = None, label: str = "diagnosis"
) -> list[Finding]:
    """Check a table of splits and, if given, predictions made with it. An empty list means no findings.

    Parameters
    ----------
    splits : path
        One row per subject and one column per split, or a long table with the columns ``participant_id``, ``split``
        and ``part``, in which a subject may be in two sets.
    cohort : Cohort
    predictions : path, optional
        A table with ``participant_id``, ``probability`` (of the positive class, the larger of the two labels) and, if
        there are several splits, ``split``; if known also ``part`` (validation or test) and ``label``. The
        ``predictions.csv`` of a run, with one column ``p_<class>`` per class, is read as well.
    label : str
        The predicted column of the cohort, with two classes.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.simulate_cohort(n_subjects=40, n_rois=20, n_sites=2, seed=0)
    >>> from bnt.splits import audit_splits, named_splits, save_splits
    >>> save_splits("audited.csv", cohort, named_splits(cohort, "diagnosis", "site-stratified", n_splits=3))
    >>> audit_splits("audited.csv", cohort)
    []
    """
    found = read_any_splits(Path(splits), cohort)
    findings = [*_leaks(found, cohort), *_repeats(found), *_sizes(found)]
    if predictions is not None:
        table = read_predictions(Path(predictions), found)
        findings += _predictions(table, found, cohort, label)
    return findings


# -- reading ---------------------------------------------------------------------------------------


def read_any_splits(path: Path, cohort: Cohort) -> list[Split]:
    """Read a wide or a long table of splits without refusing leaks, which are for the audit to find."""
    try:
        first = path.read_text(encoding="utf-8-sig").partition("\n")[0] if path.is_file() else ""
        names = [word.strip() for word in first.replace("\t", ",").split(",")]
        is_long = {"split", "part"} <= set(names)
        if is_long:
            table = pd.read_csv(path, sep="\t" if "\t" in first else ",", dtype=str, keep_default_na=False)
            table.columns = names
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read as a table of splits ({' '.join(str(error).split())}).") from error
    if is_long:
        key = next((name for name in names if name not in ("split", "part")), "")
        _check_words(path, table["part"], table[key])
        known = set(cohort.ids.tolist())
        absent = next((name for name in table[key] if name not in known), None)
        if absent is not None:
            raise BadInput(f"{path} lists {absent}, who is not in the cohort: use the cohort it was made for.")
        sides = table["part"].str.strip().map(WORDS)
        long = []
        for name, rows in table.groupby("split", sort=False):
            train, validation, test = (tuple(rows.loc[sides[rows.index] == part, key]) for part in PARTS)
            long.append(Split(str(name), train, validation, test, str(path)))
        return long
    table = _read(path)
    ids = cohort.ids[_positions(path, table, cohort)]
    out = []
    for name in table.columns[1:]:
        cells = table[name].str.strip().str.removesuffix(".0")
        _check_words(path, cells, table.iloc[:, 0])
        side = cells.map(WORDS).to_numpy()
        train, validation, test = (tuple(ids[side == part].tolist()) for part in PARTS)
        out.append(Split(str(name), train, validation, test, str(path)))
    return out


def _check_words(path: Path, cells: pd.Series, ids: pd.Series) -> None:
    wrong = ~cells.str.strip().isin(list(WORDS))
    if wrong.any():
        raise BadInput(
            f"{path}, subject {ids[wrong].iloc[0]}: {cells[wrong].iloc[0]!r} is not train, validation, test (0, 1, 2) "
            "or empty."
        )


def read_predictions(path: Path, splits: list[Split]) -> pd.DataFrame:
    """Read a table of predictions; the columns ``split`` and ``part`` are added where they follow from the splits."""
    try:
        table = pd.read_csv(path, sep=None, engine="python", dtype={"participant_id": str, "split": str, "part": str})
    except (OSError, ValueError, csv.Error) as error:
        raise BadInput(f"{path} cannot be read as a table of predictions: {error}.") from None
    classes = [str(name).removeprefix("p_") for name in table if str(name).startswith("p_")]
    if "probability" not in table and len(classes) == 2:  # of a run: the larger of the two labels is the positive one
        numbers = pd.to_numeric(pd.Series(classes), errors="coerce")
        larger = classes[int(numbers.argmax())] if numbers.notna().all() else max(classes)
        table["probability"] = table[f"p_{larger}"]
    for column in ("participant_id", "probability"):
        if column not in table:
            raise BadInput(f"{path} has no column {column!r}, only {', '.join(map(str, table.columns))}.")
    table["probability"] = pd.to_numeric(table["probability"], errors="coerce")
    missing = table["probability"].isna()
    if missing.any():
        raise BadInput(f"{path}: the probability of {table['participant_id'][missing].iloc[0]} is not a number.")
    if "split" not in table:
        if len(splits) > 1:
            raise BadInput(f"{path} has no column 'split', and there are {len(splits)} splits: add the column.")
        table["split"] = splits[0].name
    unknown = set(table["split"]) - {split.name for split in splits}
    if unknown:
        raise BadInput(f"{path} names split {sorted(unknown)[0]!r}, which the table of splits does not have.")
    side = {(split.name, i): part for split in splits for part, ids in split.parts.items() for i in ids}
    derived = [side.get(pair, "") for pair in zip(table["split"], table["participant_id"])]
    return table.assign(part=table["part"].map(WORDS) if "part" in table else derived, derived=derived)


# -- checks of splits ------------------------------------------------------------------------------


def _leaks(splits: list[Split], cohort: Cohort) -> Iterable[Finding]:
    said = [(split.name, find_leak(split, cohort.identities)) for split in splits]
    leaks = [(name, sentence) for name, sentence in said if sentence]
    if leaks:
        more = f" ({len(leaks)} of {len(splits)} splits leak)" if len(leaks) > 1 else ""
        yield Finding("leak", f"Split {leaks[0][0]}: {leaks[0][1]}{more}")


def _repeats(splits: list[Split]) -> Iterable[Finding]:
    training = {frozenset(split.train) for split in splits}
    if len(splits) > 1 and len(training) == 1:
        yield Finding(
            "constant-training",
            f"All {len(splits)} splits have the same training set: their spread says nothing about other people.",
        )
    seen: dict[frozenset[str], str] = {}
    for split in splits:
        for name, ids in (("test", split.test), ("validation", split.validation)):
            first = seen.get(frozenset(ids)) if ids else None
            if first is not None and (name == "test" or len(training) < len(splits)):
                yield Finding(
                    "test-part-twice", f"The {name} set of split {split.name} is the test set of split {first}, too."
                )
                return
        seen[frozenset(split.test)] = split.name


def _sizes(splits: list[Split]) -> Iterable[Finding]:
    without = [split.name for split in splits if not split.validation]
    if without:
        yield Finding(
            "no-validation",
            f"Split {without[0]} has no validation set ({len(without)} of {len(splits)}): a choice of epoch or "
            "setting was made on training or on test people.",
        )
    swapped = [split for split in splits if 0 < len(split.test) < len(split.validation)]
    if swapped:
        one = swapped[0]
        yield Finding(
            "small-test",
            f"Split {one.name} tests {len(one.test)} people and validates on {len(one.validation)}: are they swapped?",
        )


# -- checks of predictions -------------------------------------------------------------------------


def _predictions(table: pd.DataFrame, splits: list[Split], cohort: Cohort, label: str) -> Iterable[Finding]:
    outside = table[(table["part"] == "test") & (table["derived"] != "test")]
    if len(outside):
        one = outside.iloc[0]
        where = f"the {SPOKEN[one['derived']]}" if one["derived"] else "no"
        yield Finding(
            "not-in-test",
            f"Split {one['split']}: {one['participant_id']} is scored as test and is in {where} set of that split "
            f"({len(outside)} such rows).",
        )
    y = cohort.labels(label)
    classes = np.unique(y)
    if len(classes) != 2:
        raise BadInput(
            f"Label {label!r} has {len(classes)} classes: only predictions of two classes can be audited.", "label"
        )
    truth = dict(zip(cohort.ids.tolist(), (y == classes[1]).astype(int)))
    positive = table["participant_id"].map(truth)
    if positive.isna().any():
        raise BadInput(f"The cohort has no participant {table['participant_id'][positive.isna()].iloc[0]!r}.")
    table = table.assign(positive=positive.astype(int))
    if "label" in table and table["label"].nunique() == 2:
        given = (table["label"] == table["label"].max()).astype(int)
        same = float((given == table["positive"]).mean())
        if same < 0.05:
            yield Finding("label-inversion", f"The labels of the predictions are those of {label}, inverted.")
        elif same < 1:
            odd = table[given != table["positive"]].iloc[0]
            yield Finding(
                "labels", f"The label of {odd['participant_id']} is not that of the cohort ({1 - same:.1%} differ)."
            )
    scores = {
        (split, part): _auroc(rows["positive"], rows["probability"])
        for (split, part), rows in table[table["part"].isin(["validation", "test"])].groupby(["split", "part"])
    }
    test = table[table["part"] == "test"]
    yield from _hard_labels(test)
    tested = np.array([value for (_, part), value in scores.items() if part == "test" and np.isfinite(value)])
    if len(tested) and _surely_below_chance(test, tested):
        yield Finding(
            "label-inversion",
            f"The mean test AUROC is {tested.mean():.3f}, well below chance: the classes are inverted somewhere.",
        )
    pairs = [
        (scores[s, "validation"], scores[s, "test"])
        for s in dict.fromkeys(table["split"])
        if {(s, "validation"), (s, "test")} <= set(scores)
    ]
    gain = np.array([b - a for a, b in pairs if np.isfinite(a) and np.isfinite(b)])
    # An epoch chosen on validation scores higher there than on test, on average; the other way round it was the test.
    if len(gain) >= FEWEST_SPLITS and stats.ttest_1samp(gain, 0, alternative="greater").pvalue < LEVEL:
        yield Finding(
            "test-selection",
            f"The test set scores higher than the validation set in {int((gain > 0).sum())} of {len(gain)} splits "
            f"(by {gain.mean():.3f} on average), as if the epoch or setting had been chosen on test.",
        )


def _hard_labels(test: pd.DataFrame) -> Iterable[Finding]:
    distinct = test.groupby("split")["probability"].nunique()
    many = test.groupby("split").size()
    hard = distinct[(distinct <= 2) & (many >= FEWEST_SPLITS)]
    if len(hard):
        yield Finding(
            "hard-labels",
            f"Split {hard.index[0]}: the probabilities take {hard.iloc[0]} values ({len(hard)} of {len(distinct)} "
            "splits): an AUROC of hard labels is the balanced accuracy.",
        )


def _surely_below_chance(test: pd.DataFrame, scores: np.ndarray) -> bool:
    """Whether the mean AUROC is more than four standard errors below one half, for as many different people."""
    people = test.drop_duplicates("participant_id")["positive"]
    m, n = int(people.sum()), int((1 - people).sum())
    return bool(m and n and scores.mean() < 0.5 - 4 * np.sqrt((m + n + 1) / (12 * m * n)))


def _auroc(positive: pd.Series, probability: pd.Series) -> float:
    """Return the share of pairs in order, from ranks; NaN without both classes."""
    m = int(positive.sum())
    n = len(positive) - m
    if not m or not n:
        return float("nan")
    ranks = stats.rankdata(probability)
    return float((ranks[positive.to_numpy() == 1].sum() - m * (m + 1) / 2) / (m * n))
