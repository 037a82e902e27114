"""The multi-kernel ridge with small Transformers beside it: both parts, their mean, seeds, saving, learning."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.numpy import load, save

from bnt.cohort._scans import Series
from bnt.connectivity import connectomes
from bnt.errors import BadInput
from bnt.models import create_model
from bnt.models._kernel_transformer import BATCH, Schedule, make_network, member_decisions, train_member
from bnt.models.classical._inputs import Inputs

V = 8
FAST = {"epochs": 1, "min_steps": 5}


def people(n: int, n_classes: int = 2, seed: int = 0) -> tuple[Inputs, np.ndarray]:
    """Each class ties another pair of regions together."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % n_classes)
    parts = []
    for code in y:
        x = rng.normal(size=(60, V)).astype(np.float32)
        x[:, code + 1] += x[:, code]
        parts.append(x)
    series = Series(np.concatenate(parts), np.arange(n) * 60, np.full(n, 60))
    return Inputs(connectomes(parts), "paper", 1.0, np.array(["a", "b"])[np.arange(n) % 2], series), y


@pytest.mark.parametrize("n_classes", [2, 3])
def test_both_parts_and_their_mean_learn_a_planted_effect(n_classes: int):
    (train, y), (test, truth) = people(40 * n_classes, n_classes), people(20 * n_classes, n_classes, seed=1)
    model = create_model("kernel-transformer", V, n_classes, epochs=1, min_steps=60).fit(train, y)
    for share in (0.0, 0.6, 1.0):
        model.share = share  # read when predicting
        p = model.predict_proba(test)
        assert p.shape == (len(test), n_classes)
        np.testing.assert_allclose(p.sum(1), 1.0, atol=1e-12)
        assert np.mean(p.argmax(1) == truth) > 0.8, share


def test_the_decision_is_the_weighted_mean_of_the_two_parts():
    (train, y), (test, _) = people(40), people(12, seed=1)
    model = create_model("kernel-transformer", V, 2, **FAST).fit(train, y)
    parts = {}
    for model.share in (0.0, 0.3, 1.0):
        parts[model.share] = model.decision(test)
    np.testing.assert_allclose(parts[0.3], 0.7 * parts[0.0] + 0.3 * parts[1.0], atol=1e-12)
    np.testing.assert_array_equal(parts[0.0], create_model("multi-kernel", V, 2).fit(train, y).decision(test))


@pytest.mark.parametrize("n_classes", [1, 2, 3])
def test_the_networks_expect_the_training_subjects_mean_target(n_classes: int):
    train, y = people(45, max(n_classes, 2))
    weight = np.where(y == 0, 3.0, 1.0)
    target = 5.0 + 2.0 * y if n_classes == 1 else y
    model = create_model("kernel-transformer", V, n_classes, share=1.0, **FAST).fit(train, target, weight)
    found = np.average(model.decisions(train), axis=0, weights=weight)
    wanted = target[:, None] if n_classes == 1 else np.stack([2.0 * (y == c) - 1.0 for c in range(n_classes)], 1)
    wanted = wanted[:, 1:] if n_classes == 2 else wanted
    np.testing.assert_allclose(found, np.average(wanted, axis=0, weights=weight), atol=1e-6)


def test_without_networks_it_is_the_linear_path():
    (train, y), (test, _) = people(30), people(9, seed=1)
    alone = create_model("kernel-transformer", V, 2, n_members=0).fit(train, y)
    np.testing.assert_array_equal(alone.decision(test), create_model("multi-kernel", V, 2).fit(train, y).decision(test))


def test_regression_is_in_the_units_of_the_target():
    (train, y), (test, truth) = people(60), people(30, seed=1)
    train, test = replace(train, series=None), replace(test, series=None)
    model = create_model("kernel-transformer", V, 1, epochs=1, min_steps=60).fit(train, 100.0 + 20.0 * y)
    predicted = model.predict(test)
    assert np.corrcoef(predicted, truth)[0, 1] > 0.7
    assert 95 < predicted.mean() < 125


def test_the_same_seed_gives_the_same_bits_and_leaves_the_global_generator_alone():
    (train, y), (test, _) = people(30), people(9, seed=1)
    torch.manual_seed(3)
    before = torch.get_rng_state()
    one, same, other = (
        create_model("kernel-transformer", V, 2, seed=s, **FAST).fit(train, y).decision(test) for s in (0, 0, 1)
    )
    assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("with_series", [True, False])
def test_saved_and_loaded_it_predicts_the_same_bits(with_series: bool):
    (train, y), (test, _) = people(30), people(9, seed=1)
    if not with_series:
        train, test = replace(train, series=None), replace(test, series=None)
    model = create_model("kernel-transformer", V, 2, n_members=2, **FAST).fit(train, y)
    again = create_model("kernel-transformer", V, 2, n_members=2, **FAST)
    again.load_state_dict(load(save({k: np.array(v) for k, v in model.state_dict().items()})))
    np.testing.assert_array_equal(again.predict_proba(test), model.predict_proba(test))


def test_a_subject_is_scored_the_same_alone_and_in_company():
    (train, y), (test, _) = people(30), people(9, seed=1)
    model = create_model("kernel-transformer", V, 2, **FAST).fit(train, y)
    alone = np.concatenate([model.decision(test.take([i])) for i in range(len(test))])
    np.testing.assert_allclose(alone, model.decision(test), atol=1e-5)


def test_a_weight_of_zero_is_as_good_as_absence_for_the_linear_path_and_never_trains_a_network():
    matrices = torch.randn(2 * BATCH, V, V, generator=torch.Generator().manual_seed(0))
    target = np.arange(2 * BATCH) % 2
    weight = np.ones(2 * BATCH)
    weight[:4] = 0.0
    changed = matrices.clone()
    flipped = np.where(weight == 0, 1 - target, target)
    one = train_member(changed, target, weight, 2, Schedule(1, 5), 0)
    two = train_member(changed, flipped, weight, 2, Schedule(1, 5), 0)
    np.testing.assert_array_equal(member_decisions(one, matrices, 2), member_decisions(two, matrices, 2))


@pytest.mark.parametrize("n_rois", [7, 9, 10, 12])
def test_any_number_of_rois_has_heads_that_divide_it(n_rois: int):
    logits = make_network(n_rois, 2)(torch.randn(2, n_rois, n_rois)).logits
    assert logits.shape == (2, 2)


@pytest.mark.parametrize("options", [{"share": 1.5}, {"n_members": -1}, {"epochs": 0}])
def test_options_out_of_range_are_refused(options: dict[str, float]):
    with pytest.raises(BadInput, match=next(iter(options))):
        create_model("kernel-transformer", V, 2, **options)


def test_features_that_do_not_fit_into_memory_are_made_anew_to_the_same_bits(monkeypatch: pytest.MonkeyPatch):
    (train, y), (test, _) = people(30), people(9, seed=1)
    kept = create_model("kernel-transformer", V, 2, **FAST).fit(train, y).decision(test)
    monkeypatch.setattr("bnt.models.classical._multi_kernel.KEPT_BYTES", 0)
    model = create_model("kernel-transformer", V, 2, **FAST).fit(train, y)
    features = model.linear.features_of(test)
    assert features["lagged"] is not features["lagged"]
    np.testing.assert_array_equal(model.decision(test), kept)
