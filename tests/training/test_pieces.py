"""Schedule, mixup, averaging and recipes against closed forms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from bnt.errors import BadInput
from bnt.nn._network import AveragedWeights
from bnt.training._batches import Batch, mixup
from bnt.training._loop import halved_rate, learning_rate
from bnt.training._recipe import RECIPES, Recipe, find_recipe


def test_schedule_starts_just_below_lr_and_ends_exactly_at_lr_end():
    # docs/facts.md, Training: all recipes but ``released`` count real steps.
    assert 0.999e-4 < learning_rate(1, 8800, 1e-4, 1e-5) < 1e-4
    assert learning_rate(8800, 8800, 1e-4, 1e-5) == pytest.approx(1e-5, rel=1e-12)


@pytest.mark.parametrize(("n", "planned", "made"), [(706, 9000, 8800), (704, 8800, 8800), (705, 9000, 8800)])
def test_recipe_released_plans_the_batches_that_it_drops(n, planned, made):
    # docs/facts.md, Training: S = 200 ceil(n / 16) steps are planned, 200 floor(n / 16) are made.
    released = RECIPES["released"]
    assert released.epochs * released.steps_per_epoch(n) == made
    assert released.planned_steps(n, 0) == planned
    last = learning_rate(made, released.planned_steps(n, 0), released.lr, released.lr_end)
    assert last == pytest.approx(1.011e-5 if planned > made else 1e-5, abs=5e-9)
    counted = replace(released, count_dropped=False)
    assert counted.planned_steps(n, 0) == made
    assert counted.planned_steps(n, 300) == 300 * 44


@given(st.integers(2, 500), st.floats(0, 0.5))
def test_schedule_rises_then_falls(n_steps, warmup):
    rates = [learning_rate(s, n_steps, 1.0, 0.1, warmup) for s in range(1, n_steps + 1)]
    top = int(np.argmax(rates))
    assert all(np.diff(rates[: top + 1]) >= 0)
    assert all(np.diff(rates[top:]) <= 1e-12)
    assert max(rates) <= 1.0


@given(st.integers(0, 1000), st.floats(0.1, 3))
def test_mixup_uses_one_weight_and_one_permutation_for_everything(seed, alpha):
    n = 7
    values = torch.arange(n, dtype=torch.float64)
    batch = Batch(
        values[:, None, None].expand(n, 3, 3).clone(),
        torch.stack([1 - values / 10, values / 10], dim=1),
        values.clone(),
        values[:, None, None].expand(n, 5, 3).clone(),
    )
    torch.manual_seed(seed)
    mixed = mixup(batch, alpha)
    once = mixed.x[:, 0, 0]
    assert torch.allclose(mixed.target[:, 1] * 10, once)
    assert torch.allclose(mixed.weight, once)
    assert torch.allclose(mixed.series[:, 0, 0], once)
    assert torch.allclose(mixed.target.sum(dim=1), torch.ones(n, dtype=torch.float64))
    assert once.min() >= 0
    assert once.max() <= n - 1
    torch.manual_seed(seed)
    assert torch.equal(mixup(batch, alpha).x, mixed.x)


def test_mixup_keeps_connectomes_symmetric():
    x = torch.randn(6, 4, 4)
    x = x + x.mT
    mixed = mixup(Batch(x, torch.eye(2)[torch.arange(6) % 2]), 1.0)
    assert torch.equal(mixed.x, mixed.x.mT)


def test_averaged_weights_equal_the_naive_recursion():
    model = nn.Linear(2, 1)
    average = AveragedWeights(model, 0.9)
    expected = model.weight.detach().clone()
    for step in range(1, 40):
        with torch.no_grad():
            model.weight.add_(0.1 * step)
        average.update(model)
        decay = min(0.9, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * model.weight.detach()
    assert torch.allclose(average.state["weight"], expected, atol=1e-5)


def test_averaged_weights_copy_counters():
    model = nn.BatchNorm1d(3)
    average = AveragedWeights(model, 0.9)
    model(torch.randn(4, 3))
    average.update(model)
    assert average.state["num_batches_tracked"] == 1


def test_recipe_paper_is_what_the_paper_prints():
    paper = RECIPES["paper"]  # section 4.1
    assert (paper.epochs, paper.batch_size, paper.lr, paper.weight_decay) == (200, 64, 1e-4, 1e-4)
    assert (paper.mixup, paper.select, paper.lr_end) == (0, "best", paper.lr)


def test_recipe_released_is_what_the_code_does():
    released = RECIPES["released"]  # docs/facts.md, Training
    assert (released.epochs, released.batch_size, released.mixup, released.reduction) == (200, 16, 1.0, "sum")
    assert (released.lr, released.lr_end, released.select, released.drop_last) == (1e-4, 1e-5, "last", True)


@pytest.mark.parametrize(
    ("change", "word"),
    [({"epochs": 0}, "epochs"), ({"lr": 0.0}, "lr"), ({"ema": 1.0}, "ema"), ({"warmup": -0.1}, "warmup")],
)
def test_recipe_refuses_what_cannot_be_trained(change, word):
    with pytest.raises(BadInput, match=word):
        replace(Recipe(), **change)


def test_unknown_recipe_and_field_are_named():
    with pytest.raises(BadInput, match="paper, released, default"):
        find_recipe("papers")
    with pytest.raises(BadInput, match="did you mean 'epochs'"):
        find_recipe("default", epoch=3)
    assert find_recipe("default", epochs=3, lr=None).lr == RECIPES["default"].lr


def test_small_cohorts_get_the_epochs_that_make_the_steps():
    recipe = Recipe(epochs=12, min_steps=528)
    assert recipe.for_steps(44).epochs == 12  # ABIDE: 706 // 16 = 44 steps an epoch
    assert recipe.for_steps(13).epochs == 41
    assert find_recipe("default", epochs=3).for_steps(1).epochs == 3


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_takes_the_training_of_a_models_row_and_ours_its_budget_too(recipe):
    from bnt.models._catalog import CATALOG

    for entry in CATALOG:
        budget = entry.budget if recipe in ("default", "best") else {}
        assert find_recipe(recipe, entry.name) == replace(RECIPES[recipe], **{**entry.training, **budget})


@pytest.mark.parametrize(("field", "value"), [("epochs", "abc"), ("lr", "fast"), ("refit", 1), ("epochs", 2.5)])
def test_recipe_fields_of_another_type_are_refused_in_a_sentence(field, value):
    with pytest.raises(BadInput, match=f"Recipe: {field} is {value!r}, it must be"):
        find_recipe("default", **{field: value})


@pytest.mark.parametrize(
    "wrong", [{"inputs": "centered"}, {"select": "lst"}, {"reduction": "median"}, {"patience": -1}, {"min_steps": -5}]
)
def test_words_and_numbers_that_mean_nothing_are_refused(wrong):
    with pytest.raises(BadInput, match=next(iter(wrong))):
        find_recipe("default", **wrong)


def test_halved_rate_follows_the_published_step_schedule():
    # xxlya/BrainGNN_Pytorch steps torch's StepLR(20, 0.5) before each epoch, so that epoch 20 is halved already.
    adam = torch.optim.Adam([nn.Parameter(torch.zeros(1))], lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(adam, 20, 0.5)
    for epoch in range(1, 101):
        adam.step()
        schedule.step()
        assert halved_rate(epoch, 0.01, 20) == pytest.approx(adam.param_groups[0]["lr"])


@pytest.mark.parametrize("recipe", RECIPES)
def test_models_keep_their_published_rates_in_every_recipe(recipe):
    # docs/facts.md, Training
    gnn, dgm = find_recipe(recipe, "brainnetgnn"), find_recipe(recipe, "dgm")
    assert (gnn.lr, gnn.mixup, gnn.reduction) == (5e-4, 0.0, "mean")
    assert (dgm.lr, dgm.mixup, dgm.reduction) == (1e-2, 0.0, "mean")
    for name in ("brainnetgnn", "dgm", "fbnetgen"):
        assert find_recipe(recipe, name) == find_recipe(recipe, f"{name}-released")
    # What is our budget for bnt does not change the paper's and the authors' recipes.
    assert (find_recipe(recipe, "bnt") == RECIPES[recipe]) == (recipe in ("paper", "released"))
