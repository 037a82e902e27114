"""What every protocol promises: exact sizes, even strata, nobody in two sets, the same by seed."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import numpy as np
import pytest
from cohorts import cohort_of
from hypothesis import given, settings
from hypothesis import strategies as st

import bnt
import bnt.splits
from bnt.errors import BadInput
from bnt.splits import LeaveOneSiteOut, RandomSplit, ReleasedSplit, RepeatedKFold, SiteStratifiedSplit, check_split
from bnt.splits._strata import classes_of, strata_of

PROTOCOLS = [
    SiteStratifiedSplit(n_splits=2),
    SiteStratifiedSplit(n_splits=2, stratify=False),
    RandomSplit(n_splits=2),
    RepeatedKFold(n_folds=3, n_repeats=2),
    LeaveOneSiteOut(),
    ReleasedSplit(n_splits=2),
    ReleasedSplit(n_splits=2, stratify=False),
]


@st.composite
def cohorts(draw, groups: bool):
    n = draw(st.integers(30, 120))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    n_sites = draw(st.integers(2, 8))
    sites = rng.choice([f"s{i}" for i in range(n_sites)], size=n, p=rng.dirichlet(np.ones(n_sites)))
    sites[:2] = "s0", "s1"
    labels = (rng.random(n) < draw(st.floats(0.1, 0.9))).astype(int)
    labels[:2] = 0, 1
    family = rng.integers(0, max(2, int(n * draw(st.floats(0.5, 3.0)))), size=n) if groups else None
    return cohort_of(sites, labels, family)


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda p: f"{type(p).__name__}-{getattr(p, 'stratify', '')}")
@settings(max_examples=8, deadline=None)
@given(cohort=cohorts(groups=True), seed=st.integers(0, 99))
def test_no_leak_and_the_same_by_seed(protocol, cohort, seed):
    from dataclasses import replace

    protocol = replace(protocol, seed=seed)
    try:
        splits = list(protocol.split(cohort, "diagnosis"))
    except BadInput:  # a site that leaves too few others, or groups too large for the parts
        return
    for split in splits:
        check_split(cohort, *split)
    for one, again in zip(splits[0], next(protocol.split(cohort, "diagnosis")), strict=True):
        np.testing.assert_array_equal(one, again)


@settings(max_examples=20, deadline=None)
@given(cohort=cohorts(groups=False), seed=st.integers(0, 99))
def test_sizes_are_exact_and_strata_within_one_of_their_quota(cohort, seed):
    n = len(cohort)
    sizes = [int(0.7 * n + 1e-9), int(0.1 * n + 1e-9)]
    sizes.append(n - sum(sizes))
    strata = strata_of(cohort.sites, classes_of(cohort, "diagnosis"))
    for parts in SiteStratifiedSplit(n_splits=2, seed=seed).split(cohort, "diagnosis"):
        assert [len(p) for p in parts] == sizes
        np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(n))
        for part, size in zip(parts, sizes):
            quota = np.bincount(strata) * size / n
            assert (np.abs(np.bincount(strata[part], minlength=len(quota)) - quota) < 1).all()


@settings(max_examples=25, deadline=None)
@given(cohort=cohorts(groups=True), seed=st.integers(0, 99))
def test_sizes_stay_exact_with_groups_when_there_are_enough_single_subjects(cohort, seed):
    _, inverse, counts = np.unique(cohort.families, return_inverse=True, return_counts=True)
    n, alone = len(cohort), (counts[inverse] == 1).sum()
    parts = next(SiteStratifiedSplit(seed=seed).split(cohort, "diagnosis"))
    if alone >= 3 * counts.max() and counts.max() <= int(0.1 * n):
        assert [len(p) for p in parts[:2]] == [int(0.7 * n + 1e-9), int(0.1 * n + 1e-9)]
    assert sum(map(len, parts)) == n


def test_classes_are_within_one_of_their_quota_when_all_strata_are_tiny():
    rng = np.random.default_rng(0)
    cohort = cohort_of([f"s{i % 20}" for i in range(60)], rng.permutation(np.arange(60) % 2))
    labels = cohort.labels("diagnosis")
    for train, val, test in SiteStratifiedSplit(n_splits=5).split(cohort, "diagnosis"):
        assert [labels[part].sum() for part in (train, val, test)] == [21, 3, 6]


def test_paper_sizes_on_abide(abide):
    # docs/facts.md, Splits: 706 / 100 / 203 of the 1,009.
    splits = list(bnt.SiteStratifiedSplit(n_splits=20, seed=0).split(abide, "diagnosis"))
    assert {tuple(len(p) for p in parts) for parts in splits} == {(706, 100, 203)}
    assert len({train.tobytes() for train, _, _ in splits}) == 20


def test_paper_sizes_on_abcd():
    # docs/facts.md, Splits: 5530 / 790 / 1581 of 7,901.
    n = 7901
    cohort = cohort_of([f"s{i % 21}" for i in range(n)], np.arange(n) // 21 % 2)
    parts = next(SiteStratifiedSplit().split(cohort, "diagnosis"))
    assert [len(p) for p in parts] == [5530, 790, 1581]


def test_split_k_does_not_depend_on_how_many_are_asked_for(abide):
    few = list(SiteStratifiedSplit(n_splits=2).split(abide, "diagnosis"))
    more = list(SiteStratifiedSplit(n_splits=3).split(abide, "diagnosis"))
    for one, other in zip(few, more):
        np.testing.assert_array_equal(one[0], other[0])


@pytest.mark.parametrize(("fraction", "size"), [(0.1, 70), (0.5, 353), (0.9, 635)])
def test_learning_curves_thin_the_training_part_only(abide, fraction, size):
    # docs/facts.md, Splits: 70, 353 and 635 training subjects.
    full = next(SiteStratifiedSplit(seed=3).split(abide, "diagnosis"))
    thin = next(SiteStratifiedSplit(seed=3, train_fraction=fraction).split(abide, "diagnosis"))
    assert len(thin[0]) == size
    assert np.isin(thin[0], full[0]).all()
    np.testing.assert_array_equal(thin[1], full[1])
    np.testing.assert_array_equal(thin[2], full[2])


def test_k_folds_test_everyone_once_a_repeat(abide):
    splits = list(RepeatedKFold(n_folds=5, n_repeats=2).split(abide, "diagnosis"))
    assert len(splits) == 10
    for repeat in (splits[:5], splits[5:]):
        tested = np.concatenate([test for _, _, test in repeat])
        np.testing.assert_array_equal(np.sort(tested), np.arange(1009))
    assert {len(test) for _, _, test in splits} == {201, 202}
    assert all(len(val) == int(0.125 * (1009 - len(test))) for _, val, test in splits)


def test_leaving_one_site_out_tests_each_site_whole(abide):
    tested = []
    for train, val, test in LeaveOneSiteOut().split(abide, "diagnosis"):
        (site,) = set(abide.sites[test])
        assert (abide.sites == site).sum() == len(test)
        assert site not in set(abide.sites[np.concatenate([train, val])])
        assert len(train) + len(val) + len(test) == 1009
        tested.append(site)
    assert tested == sorted(set(abide.sites))


def test_a_relative_at_another_site_is_left_out_of_training():
    cohort = cohort_of(["a", "b"] * 20, [0, 0, 1, 1] * 10, groups=[0, 0, *range(1, 39)])
    train, val, test = next(LeaveOneSiteOut().split(cohort, "diagnosis"))
    assert 0 in test
    assert 1 not in np.concatenate([train, val])


def test_released_splitter_fixes_the_training_set_and_swaps_the_others(abide):
    # docs/facts.md, Splits: 706 / 203 ("val") / 100 ("test"), the same 706 in every repeat.
    from sklearn.model_selection import StratifiedShuffleSplit

    splits = list(ReleasedSplit(n_splits=3).split(abide, "diagnosis"))
    assert {tuple(len(p) for p in parts) for parts in splits} == {(706, 203, 100)}
    first = StratifiedShuffleSplit(n_splits=1, train_size=706, test_size=303, random_state=42)
    expected, _ = next(first.split(np.zeros(1009), abide.sites))
    assert all(np.array_equal(train, np.sort(expected)) for train, _, _ in splits)
    assert len({val.tobytes() for _, val, _ in splits}) == 3


@pytest.mark.parametrize("fraction", [1.0, 0.5])
@pytest.mark.parametrize("seed", [0, 7])
def test_released_splitter_draws_the_authors_subjects(abide, seed, fraction):
    # docs/facts.md, Splits, written out: the second stage has no seed of its own and draws from numpy's global state,
    # in the order in which the first stage left the subjects; what it calls train is the test part.
    from sklearn.model_selection import StratifiedShuffleSplit

    n_train, n_val, n_test = (706, 100, 203) if fraction == 1 else (353, 100, 201)
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(seed)  # noqa: NPY002
    expected = []
    for _ in range(3):
        people, sites = np.arange(1009), abide.sites
        one = StratifiedShuffleSplit(n_splits=1, train_size=n_train, test_size=n_val + n_test, random_state=42)
        trained, others = next(one.split(people, sites))
        two = StratifiedShuffleSplit(n_splits=1, test_size=n_test)
        tested, selected = next(two.split(people[others], sites[others]))
        expected.append((set(people[trained]), set(people[others][selected]), set(people[others][tested])))
    np.random.set_state(before)  # noqa: NPY002
    found = ReleasedSplit(n_splits=3, seed=seed, train_fraction=fraction).split(abide, "diagnosis")
    assert [tuple(set(part) for part in parts) for parts in found] == expected


def test_released_splitter_without_strata_trains_on_others_in_every_repeat_and_swaps_nothing(abide):
    # docs/facts.md, Splits: without strata the authors' code draws the parts it names, validation the smaller.
    splits = list(ReleasedSplit(n_splits=3, stratify=False).split(abide, "diagnosis"))
    assert {tuple(len(p) for p in parts) for parts in splits} == {(706, 100, 203)}
    assert len({train.tobytes() for train, _, _ in splits}) == 3
    other = next(ReleasedSplit(seed=1, stratify=False).split(abide, "diagnosis"))
    assert not np.array_equal(other[0], splits[0][0])


@pytest.mark.parametrize("n", [90, 130, 250])
def test_released_sizes_are_truncated_as_the_authors_truncate(n):
    # 0.7 x 90 is 62.99999999999999 in floating point, and the authors' int() makes 62 of it.
    cohort = cohort_of([f"s{i % 3}" for i in range(n)], np.arange(n) // 3 % 2)
    train, val, test = next(ReleasedSplit().split(cohort, "diagnosis"))
    assert (len(train), len(test)) == (int(n * 0.7), int(n * 0.1))
    assert len(train) + len(val) + len(test) == n


@pytest.mark.parametrize(("stratify", "family"), [(True, 4), (False, 6)])
def test_a_released_split_has_no_empty_part(stratify, family):
    cohort = cohort_of(["a", "b"] * 6, [0, 0, 1, 1] * 3, groups=[i // family for i in range(12)])
    with pytest.raises(BadInput, match="too large for the released splitter"):
        list(ReleasedSplit(n_splits=20, stratify=stratify).split(cohort, "diagnosis"))


def test_exchanged_subjects_take_each_others_places():
    from bnt.splits._strata import brought_together

    units = np.array([0, 1, 2, 3, 1, 5, 6, 7])  # subjects 1 and 4 are of one family
    one, two = brought_together(
        np.array([5, 1, 0, 7]), np.array([6, 4, 2, 3]), np.array(["a"] * 8), np.zeros(8, int), units
    )
    assert one.tolist() == [5, 1, 4, 7]
    assert two.tolist() == [6, 0, 2, 3]


def test_a_seed_that_numpy_cannot_take_is_refused(abide):
    with pytest.raises(BadInput, match="seed of the released splitter"):
        next(ReleasedSplit(seed=2**32).split(abide, "diagnosis"))


def test_released_learning_curve_sizes(abide):
    # docs/facts.md, Splits: with half of the training set, 353 / 201 / 100 as realised (swapped).
    assert [len(p) for p in next(ReleasedSplit(train_fraction=0.5).split(abide, "diagnosis"))] == [353, 201, 100]


def test_released_splitter_brings_families_together_and_keeps_its_sizes(abide):
    table = abide.participants.assign(family=[f"family-{i // 3}" if i % 11 < 3 else f"one-{i}" for i in range(1009)])
    cohort = bnt.Cohort(abide.connectomes, table)
    for parts in ReleasedSplit(n_splits=2).split(cohort, "diagnosis"):
        check_split(cohort, *parts)
        assert [len(p) for p in parts] == [706, 203, 100]


def test_identical_scans_stay_together_without_being_listed_as_a_group():
    cohort = cohort_of(["a"] * 40, [0, 1] * 20)
    edges = cohort.connectomes.copy()
    edges[7] = edges[3]
    cohort = bnt.Cohort(edges, cohort.participants)
    sides = set()
    for parts in SiteStratifiedSplit(n_splits=30).split(cohort, "diagnosis"):
        check_split(cohort, *parts)
        sides |= {k for k, part in enumerate(parts) if 3 in part}
    assert sides == {0, 1, 2}  # a pair is not always training


def test_sharing_is_transitive():
    from bnt.splits._strata import units_of

    cohort = cohort_of(["a"] * 6, [0, 1] * 3, groups=[0, 0, 1, 2, 3, 4])
    edges = cohort.connectomes.copy()
    edges[3] = edges[1]  # 0 and 1 are a family, 1 and 3 the same scan
    cohort = bnt.Cohort(edges, cohort.participants)
    assert units_of(cohort).tolist() == [0, 0, 2, 0, 4, 5]


def test_a_continuous_label_is_shared_out_by_quantiles(abide):
    age = np.random.default_rng(0).uniform(6, 60, size=1009)
    cohort = bnt.Cohort(abide.connectomes, abide.participants.assign(age=age))
    _, _, test = next(SiteStratifiedSplit().split(cohort, "age"))
    fifth = np.searchsorted(np.quantile(age, [0.2, 0.4, 0.6, 0.8]), age)
    counts = np.bincount(fifth[test])
    assert counts.max() - counts.min() <= 2


@pytest.mark.parametrize("kind", [int, float])
def test_whole_numbers_of_few_values_are_shared_out_value_by_value(kind):
    y = np.repeat(np.arange(15), 10).astype(kind)
    cohort = cohort_of(["a", "b"] * 75, y)
    assert len(np.unique(classes_of(cohort, "diagnosis"))) == 15
    for parts in SiteStratifiedSplit(n_splits=3).split(cohort, "diagnosis"):
        assert [set(np.bincount(y[part].astype(int), minlength=15)) for part in parts] == [{7}, {1}, {2}]


@settings(max_examples=50, deadline=None)
@given(n_values=st.integers(2, 40), step=st.sampled_from([1, 1.0, 0.5, 3]), order=st.randoms(use_true_random=False))
def test_what_is_trained_as_a_class_is_shared_out_as_a_class(n_values, step, order):
    from bnt.training._task import task_for

    values = [(k + 1) * step for k in range(n_values)] * 5
    order.shuffle(values)
    y = np.array(values)
    n_strata = len(np.unique(classes_of(cohort_of(["a"] * len(y), y), "diagnosis")))
    by_value = n_values <= 20 and step != 0.5
    assert n_strata == (n_values if by_value else min(n_values, 5))
    if task_for(y).kind == "classification":
        assert n_strata == n_values


def test_one_subject_sites_do_not_stop_any_protocol():
    cohort = cohort_of(["big"] * 40 + [f"tiny{i}" for i in range(7)], [0, 1] * 23 + [0])
    for protocol in PROTOCOLS:
        for parts in protocol.split(cohort, "diagnosis"):
            check_split(cohort, *parts)


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda p: type(p).__name__)
def test_one_class_only_and_missing_labels_are_refused(protocol):
    one_class = cohort_of(["a", "b"] * 20, [1] * 40)
    with pytest.raises(BadInput, match="one value only"):
        list(protocol.split(one_class, "diagnosis"))
    missing = cohort_of(["a", "b"] * 20, [0.0, 1.0, np.nan, 1.0] * 10)
    with pytest.raises(BadInput, match="missing for 10 of 40"):
        list(protocol.split(missing, "diagnosis"))


@pytest.mark.parametrize(
    ("protocol", "message"),
    [
        (SiteStratifiedSplit(sizes=(0.7, 0.1, 0.1)), "sum to 1"),
        (SiteStratifiedSplit(train_fraction=0.0), "train_fraction"),
        (SiteStratifiedSplit(n_splits=0), "n_splits"),
        (RepeatedKFold(n_folds=1), "folds"),
        (RepeatedKFold(n_folds=100), "folds"),
        (LeaveOneSiteOut(validation=1.0), "validation"),
    ],
)
def test_settings_that_cannot_be_are_refused(protocol, message):
    cohort = cohort_of(["a", "b"] * 20, [0, 0, 1, 1] * 10)
    with pytest.raises(BadInput, match=message):
        list(protocol.split(cohort, "diagnosis"))


@pytest.mark.parametrize("module", [m.name for m in pkgutil.iter_modules(bnt.splits.__path__)])
def test_the_examples_in_docstrings_run(module, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some of them write a table
    assert doctest.testmod(importlib.import_module(f"bnt.splits.{module}")).failed == 0


def test_too_few_subjects_are_refused():
    with pytest.raises(BadInput, match="too few"):
        list(SiteStratifiedSplit().split(cohort_of(["a"] * 6, [0, 1] * 3), "diagnosis"))
