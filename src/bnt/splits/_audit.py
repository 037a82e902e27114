"""Audit of splits and predictions from any source: leaks, fixed training sets, selection on the test set."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from bnt._words import counted, say
from bnt.cohort import Cohort
from bnt.errors import BadInput
from bnt.splits._protocols import ID_COLUMNS, WORDS, _positions, left_out, read_cells, sides, wide_table
from bnt.splits._split import PARTS, SPOKEN, Split, find_leak

FEWEST_SPLITS = 5  # for tests over splits
LEVEL = 0.01


@dataclass(frozen=True)
class Finding:
    """One finding of :func:`audit_splits`.

    Attributes
    ----------
    check : str
        The check: one of ``leak``, ``constant-training``, ``test-part-twice``, ``empty-set``, ``no-validation``,
        ``small-test``, ``not-in-test``, ``scored-twice``, ``not-scored``, ``labels``, ``label-inversion``,
        ``hard-labels``, ``test-selection``.
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
        A column ``fold`` of numbers stands for cross-validation: every fold is tested once.
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
    if unused := left_out(cohort, found):
        say(f"{unused} of the {len(cohort)} subjects of the cohort are in no split.")
    findings = [*_leaks(found, cohort), *_repeats(found), *_sizes(found)]
    if predictions is not None:
        table = read_predictions(Path(predictions), found)
        findings += _predictions(table, found, cohort, label)
    return findings


# -- reading ---------------------------------------------------------------------------------------


def read_any_splits(path: Path, cohort: Cohort) -> list[Split]:
    """Read a wide or a long table of splits without refusing leaks, which are for the audit to find.

    A column of numbers that is called fold is read as well: every fold is tested once.
    """
    table = read_cells(path)
    if {"split", "part"} <= set(table):
        return _long(path, table, cohort)
    table = wide_table(path, table)
    ids = cohort.ids[_positions(path, table, cohort)]
    out = []
    for name in table.columns[1:]:
        cells = table[name].str.strip().str.removesuffix(".0")
        numbers = "fold" in name.lower() and cells[cells != ""].str.fullmatch(r"\d+").all()
        if numbers and (name.lower() == "fold" or not cells.isin(list(WORDS)).all()):
            say(f"{path}, {name}: these are numbers of folds; each fold is the test set once, the others are training.")
            for k in sorted(set(cells) - {""}, key=int):
                out.append(_split(f"{name}{k}", ids, cells.map({"": "", k: "test"}).fillna("train"), path))
        else:
            out.append(_split(name, ids, sides(f"{path}, split {name}", cells, table.iloc[:, 0]), path))
    return out


def _long(path: Path, table: pd.DataFrame, cohort: Cohort) -> list[Split]:
    """Read one row per subject and split."""
    key = next((name for name in table if name in ID_COLUMNS), None)
    if key is None:
        raise BadInput(f"{path} has no column of subjects: call it {' or '.join(ID_COLUMNS)}.")
    people = table[[key]].apply(lambda cells: cells.str.strip()).drop_duplicates()
    known = dict(zip(people[key], cohort.ids[_positions(path, people, cohort)]))
    ids = table[key].str.strip().map(known).to_numpy()
    part = sides(str(path), table["part"], table[key])
    of = table["split"].to_numpy()
    return [_split(str(name), ids[of == name], part[of == name], path) for name in dict.fromkeys(of)]


def _split(name: str, ids: np.ndarray, part: pd.Series, path: Path) -> Split:
    train, validation, test = (tuple(ids[(part == word).to_numpy()].tolist()) for word in PARTS)
    return Split(name, train, validation, test, str(path))


def read_predictions(path: Path, splits: list[Split]) -> pd.DataFrame:
    """Read a table of predictions; the columns ``split`` and ``part`` are added where they follow from the splits."""
    text = {"participant_id": str, "split": str, "part": str}
    try:
        table = pd.read_csv(path, sep=None, engine="python", dtype=text, encoding="utf-8-sig")
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
    if table.empty:
        raise BadInput(f"{path} has no rows: give one row per person and split.")
    given, table["probability"] = table["probability"], pd.to_numeric(table["probability"], errors="coerce")
    wrong = ~np.isfinite(table["probability"])
    if wrong.any():
        one = wrong.idxmax()
        raise BadInput(
            f"{path}: the probability of {table['participant_id'][one]} is {given[one]}, which is not a number."
        )
    if "split" not in table:
        if len(splits) > 1:
            raise BadInput(f"{path} has no column 'split', and there are {len(splits)} splits: add the column.")
        table["split"] = splits[0].name
    names = [split.name for split in splits]
    unknown = set(table["split"]) - set(names)
    if unknown:
        raise BadInput(
            f"{path} names split {min(unknown, key=str)!r}, which the table of splits does not have; it has "
            f"{', '.join(names)}."
        )
    side = {(split.name, i): part for split in splits for part, ids in split.parts.items() for i in ids}
    derived = [side.get(pair, "") for pair in zip(table["split"], table["participant_id"])]
    part = sides(str(path), table["part"], table["participant_id"]) if "part" in table else derived
    return table.assign(part=part, derived=derived)


# -- checks of splits ------------------------------------------------------------------------------


def _leaks(splits: list[Split], cohort: Cohort) -> Iterable[Finding]:
    said = [(split.name, find_leak(split, cohort.identities)) for split in splits]
    leaks = [(name, sentence) for name, sentence in said if sentence]
    if leaks:
        more = f" ({len(leaks)} of {len(splits)} splits leak)" if len(leaks) > 1 else ""
        yield Finding("leak", f"Split {leaks[0][0]}: {leaks[0][1]}{more}")


def _repeats(splits: list[Split]) -> Iterable[Finding]:
    tested: dict[frozenset[str], list[frozenset[str]]] = {}  # by training set
    for split in splits:
        if split.train:
            tested.setdefault(frozenset(split.train), []).append(frozenset(split.test))
    fixed = max(tested.values(), key=lambda tests: len(set(tests)), default=[])
    if len(fixed) == len(splits) > 1 or len(set(fixed)) > 1:
        which = f"All {len(fixed)}" if len(fixed) == len(splits) else f"{len(fixed)} of {len(splits)}"
        yield Finding(
            "constant-training",
            f"{which} splits have the same training set: their spread says nothing about other people.",
        )
    seen: dict[frozenset[str], Split] = {}
    for split in splits:
        for name, ids in (("test", split.test), ("validation", split.validation)):
            first = seen.get(frozenset(ids)) if ids else None
            if first is None or (name == "test" and _inner(splits, split)):
                continue
            if name == "test" or len(tested) < len(splits):
                yield Finding(
                    "test-part-twice",
                    f"The {name} set of split {split.name} is the test set of split {first.name}, too.",
                )
                return
        seen[frozenset(split.test)] = split


def _inner(splits: list[Split], one: Split) -> bool:
    """Whether the splits with this test set are the inner folds of nested cross-validation.

    Their validation sets then divide everyone outside the test set.
    """
    folds = [split for split in splits if set(split.test) == set(one.test)]
    validated = [name for split in folds for name in split.validation]
    outside = {frozenset(split.train + split.validation) for split in folds}
    return len(folds) > 1 and outside == {frozenset(validated)} and len(set(validated)) == len(validated)


def _sizes(splits: list[Split]) -> Iterable[Finding]:
    for part in ("train", "test"):
        empty = [split.name for split in splits if not split.parts[part]]
        if empty:
            more = f" ({len(empty)} of {len(splits)})"
            yield Finding("empty-set", f"Split {empty[0]} has no {SPOKEN[part]} set{more}.")
    without = [split.name for split in splits if not split.validation]
    if without:
        yield Finding(
            "no-validation",
            f"Split {without[0]} has no validation set ({len(without)} of {len(splits)}): if an epoch or a setting was "
            "chosen, it was on training or on test people.",
        )
    swapped = [split for split in splits if 0 < len(split.test) < len(split.validation)]
    tests = {frozenset(split.test) for split in splits}
    folds = len(tests) > 1 and sum(map(len, tests)) == len(frozenset().union(*tests))  # such as sites, of any size
    if swapped and not folds:
        one = swapped[0]
        yield Finding(
            "small-test",
            f"Split {one.name} tests {len(one.test)} people and validates on {len(one.validation)}: are they swapped?",
        )


# -- checks of predictions -------------------------------------------------------------------------


def _predictions(table: pd.DataFrame, splits: list[Split], cohort: Cohort, label: str) -> Iterable[Finding]:
    y = cohort.labels(label)
    classes = np.unique(y)
    if len(classes) != 2:
        raise BadInput(
            f"Label {label!r} has {len(classes)} classes: only predictions of two classes can be audited.", "label"
        )
    truth = dict(zip(cohort.ids.tolist(), (y == classes[1]).astype(int)))
    positive = table["participant_id"].map(truth)
    if positive.isna().any():
        raise BadInput(
            f"The predictions have {table['participant_id'][positive.isna()].iloc[0]}, who is not in the cohort: use "
            "the cohort they were made for."
        )
    table = table.assign(positive=positive.astype(int))
    yield from _people(table, splits)
    if "label" in table:
        yield from _labels(table, classes, label)
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


def _people(table: pd.DataFrame, splits: list[Split]) -> Iterable[Finding]:
    """Check that everyone in a test set is scored there, once, and nobody else."""
    ignored = ~table["part"].isin(["validation", "test"])
    if ignored.any():
        say(f"{int(ignored.sum())} predictions of people in no validation or test set are not checked.")
    test = table[table["part"] == "test"]
    outside = test[test["derived"] != "test"]
    if len(outside):
        one = outside.iloc[0]
        where = f"the {SPOKEN[one['derived']]}" if one["derived"] else "no"
        yield Finding(
            "not-in-test",
            f"Split {one['split']}: {one['participant_id']} is scored as test and is in {where} set of that split "
            f"({len(outside)} such rows).",
        )
    again = test[test.duplicated(["split", "participant_id"])]
    if len(again):
        one = again.iloc[0]
        yield Finding(
            "scored-twice",
            f"Split {one['split']}: {one['participant_id']} is scored as test more than once ({len(again)} such rows).",
        )
    scored = set(zip(test["split"], test["participant_id"]))
    missing = [(split.name, i) for split in splits for i in split.test if (split.name, i) not in scored]
    if missing:
        total = sum(len(split.test) for split in splits)
        yield Finding(
            "not-scored",
            f"Split {missing[0][0]}: {missing[0][1]} is in the test set and has no prediction "
            f"({len(missing)} of {total} over all splits).",
        )


def _labels(table: pd.DataFrame, classes: np.ndarray, label: str) -> Iterable[Finding]:
    """Compare the labels of the predictions with the cohort's, in order, or by name where both have the same names."""
    table = table[table["label"].notna()]
    given = sorted(set(table["label"]))
    named = [f"{value:g}" if isinstance(value, int | float | np.number) else str(value) for value in (*classes, *given)]
    known = set(named[2:]) <= set(named[:2])
    if not known and len(given) != 2:
        yield Finding("labels", f"The predictions have {counted(len(given), 'label')}, {label} has two.")
        return
    of = {value: int(word == named[1]) if known else k for k, (value, word) in enumerate(zip(given, named[2:]))}
    same = float((table["label"].map(of) == table["positive"]).mean())
    words = not known and not pd.api.types.is_numeric_dtype(table["label"])  # their order says nothing
    if same < 0.05 and not words:
        yield Finding("label-inversion", f"The labels of the predictions are those of {label}, inverted.")
    elif 0 < same < 1:
        odd = table[(table["label"].map(of) == table["positive"]) == (words and same < 0.5)].iloc[0]
        share = min(same, 1 - same) if words else 1 - same
        yield Finding("labels", f"The label of {odd['participant_id']} is not that of the cohort ({share:.1%} differ).")


def _hard_labels(test: pd.DataFrame) -> Iterable[Finding]:
    distinct = test.groupby("split")["probability"].nunique()
    many = test.groupby("split").size()
    hard = distinct[(distinct <= 2) & (many >= FEWEST_SPLITS)]
    if len(hard):
        yield Finding(
            "hard-labels",
            f"Split {hard.index[0]}: the probabilities take {counted(int(hard.iloc[0]), 'value')} ({len(hard)} of "
            f"{len(distinct)} splits): an AUROC of hard labels is the balanced accuracy.",
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
