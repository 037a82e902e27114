"""Fitting is repeatable, keeps its hands off the caller's program, and selects on people it did not train on."""

from __future__ import annotations

import doctest
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import bnt.estimators._estimators
from bnt import BrainNetworkClassifier, BrainNetworkRegressor
from bnt.cohort import Cohort
from bnt.estimators._layout import hold_out
from bnt.training import find_recipe
from bnt.training._task import Task


def test_same_random_state_same_bits_and_another_state_others(cohort, y, tiny):
    first, again, other = (
        BrainNetworkClassifier(**tiny | {"random_state": s}).fit(cohort, y).model_.state_dict() for s in (0, 0, 1)
    )
    assert all(torch.equal(first[k], again[k]) for k in first)
    assert not all(torch.equal(first[k], other[k]) for k in first)


def test_a_random_state_object_advances(cohort, y, tiny):
    state = np.random.RandomState(0)
    one, two = (BrainNetworkClassifier(**tiny | {"random_state": state}).fit(cohort, y) for _ in range(2))
    assert one.config_.seed != two.config_.seed


def test_the_callers_random_numbers_stay(cohort, y, tiny):
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002 - the legacy generator is what must not move
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    clf = BrainNetworkClassifier(**tiny).fit(cohort, y)
    clf.predict(cohort)
    assert torch.equal(torch.get_rng_state(), before[0])
    np.testing.assert_array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002


@pytest.fixture
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_the_callers_number_of_threads_stays(cohort, y, tiny, three_threads):
    clf = BrainNetworkClassifier(**tiny, threads=1).fit(cohort, y)
    clf.predict(cohort)
    assert clf.config_.threads == 1
    assert torch.get_num_threads() == 3


def test_threads_come_back_after_an_error(cohort, y, tiny, three_threads):
    with pytest.raises(ValueError, match="n_clusters"):
        BrainNetworkClassifier(**tiny | {"options": {"n_clusters": 99}}, threads=1).fit(cohort, y)
    assert torch.get_num_threads() == 3


def test_overrides_go_on_top_of_the_recipe(cohort, y, tiny):
    clf = BrainNetworkClassifier(**tiny | {"recipe": "default"}, epochs=2, lr=5e-4, n_members=2, refit=True)
    clf.fit(cohort, y)
    assert clf.config_.recipe == find_recipe("default", "bnt", epochs=2, lr=5e-4, n_members=2, refit=True)
    assert len(clf.model_) == 2
    assert {line["stage"] for line in clf.history_} >= {"member0-selected", "member0-refit", "member1-refit"}


def test_members_are_averaged(cohort, y, tiny):
    clf = BrainNetworkClassifier(**tiny, n_members=2).fit(cohort, y)
    x = cohort.batch(np.arange(60))
    with torch.no_grad():
        each = [net(x).logits.double().softmax(1) for net in clf.model_]
    np.testing.assert_allclose(clf.predict_proba(cohort), (each[0] + each[1]).numpy() / 2, atol=1e-6)


def test_no_validation_takes_the_last_weights(cohort, y, tiny):
    clf = BrainNetworkClassifier(**tiny, validation_fraction=0).fit(cohort, y)
    assert clf.n_iter_ == 3
    assert [line["val_score"] for line in clf.history_] == [None] * 3


def test_verbose_tells_each_epoch(cohort, y, tiny, capsys):
    BrainNetworkClassifier(**tiny, verbose=1).fit(cohort, y)
    assert "epoch 3 of 3" in capsys.readouterr().err


@settings(max_examples=25, deadline=None)
@given(
    n=st.integers(20, 80),
    families=st.integers(8, 80),
    fraction=st.floats(0.1, 0.4),
    n_classes=st.integers(2, 3),
    seed=st.integers(0, 99),
)
def test_the_part_held_out_shares_no_group_and_has_every_class(n, families, fraction, n_classes, seed):
    import pandas as pd

    rng = np.random.default_rng(seed)
    groups = rng.integers(0, families, n).astype(str)
    table = pd.DataFrame({"participant_id": np.arange(n).astype(str), "family": groups})
    cohort = Cohort(rng.normal(size=(n, 3)).astype(np.float32), table)
    y = rng.permutation(np.arange(n) % n_classes)
    train, val = hold_out(cohort, y, Task("classification", tuple(range(n_classes))), fraction, seed)
    assert sorted([*train, *val]) == list(range(n))
    assert not set(groups[train]) & set(groups[val])
    if len(val):
        assert set(y[val]) == set(y[train]) == set(range(n_classes))


def test_a_group_never_straddles_training_and_validation_of_a_fit(cohort, y, tiny):
    """Everyone of one group: nothing can be held out, and everyone is trained on."""
    clf = BrainNetworkClassifier(**tiny).fit(cohort.connectomes, y, groups=np.zeros(60, dtype=int))
    assert all(line["val_score"] is None for line in clf.history_)


def test_pickling_by_users_keeps_predictions(cohort, y, tiny):
    clf = BrainNetworkClassifier(**tiny).fit(cohort, y)
    again = pickle.loads(pickle.dumps(clf))  # noqa: S301 - our own bytes
    np.testing.assert_array_equal(again.predict_proba(cohort), clf.predict_proba(cohort))


def test_a_constant_score_is_predicted_as_it_is(cohort, tiny):
    reg = BrainNetworkRegressor("ridge").fit(cohort.connectomes, np.full(60, 7.0))
    np.testing.assert_allclose(reg.predict(cohort), 7.0)


@pytest.mark.parametrize("module", [bnt.estimators._estimators])
def test_the_examples_in_the_docstrings_run(module):
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0
