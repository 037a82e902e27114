"""The loop: what it selects, that it is deterministic, that streaming changes nothing."""

from __future__ import annotations

import multiprocessing
import platform
import resource
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from bnt.cohort import Cohort
from bnt.errors import BadInput
from bnt.nn import Output
from bnt.nn._network import Adam
from bnt.training._batches import Batches
from bnt.training._checkpoint import Checkpoint, TrainState
from bnt.training._loop import fit, logits_of, reuse_freed_memory
from bnt.training._recipe import RECIPES, Recipe
from bnt.training._task import task_for

RECIPE = Recipe(epochs=4, batch_size=8, lr=1e-2, lr_end=1e-3, drop_last=False)


class Plain(nn.Module):
    """The smallest network that fits the interface."""

    def __init__(self, v: int = 8, c: int = 2, aux: float | None = None) -> None:
        super().__init__()
        self.linear, self.aux = nn.Linear(v * v, c), aux

    def forward(self, x, series=None, target=None, explain=False):
        logits = self.linear(x.flatten(1))
        return Output(logits, loss=None if self.aux is None else self.aux * self.linear.weight.square().sum())


def parts(cohort, split, label="diagnosis", **more):
    y = cohort.labels(label)
    task = task_for(y, train=split[0])
    train, val = (Batches(cohort, rows, task.targets(y[rows]), **more) for rows in split[:2])
    return task, train, val, y[split[1]]


def trained(cohort, split, recipe=RECIPE, model=None, **more):
    task, train, val, y_val = parts(cohort, split, **more)
    torch.manual_seed(0)
    model = model or Plain(c=task.n_outputs)
    return fit(model, task, recipe, train, val, y_val), task


def same(a, b):
    return all(torch.equal(a[k], b[k]) for k in a)


def test_loop_learns_and_repeats_to_the_bit(small_cohort, split):
    recipe = replace(RECIPE, epochs=30, mixup=1.0, ema=0.9)
    first, _ = trained(small_cohort, split, recipe)
    second, _ = trained(small_cohort, split, recipe)
    assert first.history[-1]["val_score"] > 0.9
    assert same(first.chosen, second.chosen)


def test_a_training_resumed_in_its_middle_ends_at_the_same_weights(small_cohort, split, tmp_path):
    recipe = replace(RECIPE, select="last", ema=0.9)
    whole, _ = trained(small_cohort, split, recipe)

    def stop(line):
        if line["epoch"] == 2:
            raise KeyboardInterrupt

    task, train, val, y_val = parts(small_cohort, split)
    for watch, end in ((stop, pytest.raises(KeyboardInterrupt)), (None, nullcontext())):
        torch.manual_seed(0)
        model = Plain()
        with end:
            fit(model, task, recipe, train, val, y_val, checkpoint=Checkpoint(tmp_path, "a"), watch=watch)
    assert same(whole.chosen, model.state_dict())


@pytest.mark.parametrize("amount", [0.0, 1.0])
def test_a_network_is_trained_on_mixed_people_where_the_recipe_says_so(small_cohort, split, amount):
    targets = []

    class Noting(Plain):
        def forward(self, x, series=None, target=None, explain=False):
            targets.append(target)
            return super().forward(x)

    trained(small_cohort, split, replace(RECIPE, epochs=1, mixup=amount), model=Noting())
    seen = torch.cat([target for target in targets if target is not None])
    assert bool(((seen == 0) | (seen == 1)).all()) is (amount == 0)


def test_streamed_batches_train_to_the_same_bits_as_resident_ones(small_cohort, split, tmp_path):
    stored = small_cohort.save(tmp_path / "cohort")
    resident, _ = trained(stored, split)
    streamed, _ = trained(stored, split, resident_bytes=0)
    assert same(resident.chosen, streamed.chosen)


def test_batches_cover_everyone_once_and_drop_only_the_short_last_one(small_cohort, split):
    _, train, _, _ = parts(small_cohort, split)
    seen = torch.cat([b.x for b in train.shuffled(8, drop_last=False)])
    assert len(seen) == 36
    assert torch.equal(seen.sum().round(decimals=3), torch.cat([b.x for b in train.in_order()]).sum().round(decimals=3))
    assert sum(len(b.x) for b in train.shuffled(8, drop_last=True)) == 32


@pytest.mark.parametrize("drop_last", [True, False])
def test_steps_are_counted_as_the_loop_makes_them(small_cohort, drop_last):
    for n in range(2, 30):
        batches = Batches(small_cohort, np.arange(n), torch.zeros(n, 2))
        for size in (2, 4, 7):
            recipe = Recipe(batch_size=size, drop_last=drop_last)
            assert recipe.steps_per_epoch(n) == len(list(batches.shuffled(size, drop_last)))


def test_series_windows_are_standardised_and_the_first_in_order(small_cohort, split):
    _, train, _, _ = parts(small_cohort, split, window=30)
    batch = next(train.in_order(4))
    assert batch.series.shape == (4, 30, 8)
    assert torch.allclose(batch.series.mean(dim=1), torch.zeros(4, 8), atol=1e-5)
    raw = small_cohort.timeseries[0][:30]
    expected = (raw - raw.mean(0)) / raw.std(0)
    assert np.allclose(batch.series[0].numpy(), expected, atol=1e-5)
    torch.manual_seed(1)
    drawn = next(train.shuffled(36, False)).series
    assert not torch.equal(drawn, next(train.in_order(36)).series)


def test_every_step_of_recipe_released_has_the_authors_rate(monkeypatch):
    # docs/facts.md, Training: lr(s) = 1e-5 + 9e-5 (1 + cos(pi s / S)) / 2, s = 1, 2, ..., S = epochs x ceil(706 / 16).
    n, seen = 706, []
    y = np.arange(n) % 2
    edges = np.random.default_rng(0).uniform(-1, 1, size=(n, 1)).astype(np.float32)
    cohort = Cohort(edges, pd.DataFrame({"participant_id": [f"sub-{i}" for i in range(n)]}))
    task = task_for(y)

    def watched(self, *args, **kwargs):
        seen.append(self.param_groups[0]["lr"])

    monkeypatch.setattr(Adam, "step", watched)
    fit(Plain(v=2), task, replace(RECIPES["released"], epochs=4), Batches(cohort, np.arange(n), task.targets(y)))
    s = np.arange(1, 4 * 44 + 1)
    np.testing.assert_allclose(seen, 1e-5 + 9e-5 * (1 + np.cos(np.pi * s / (4 * 45))) / 2, rtol=1e-12)


def test_too_long_a_window_names_the_subject(small_cohort, split):
    with pytest.raises(BadInput, match="sub-000 has 40 volumes and the model reads 41"):
        parts(small_cohort, split, window=41)


def test_selection_takes_the_best_epoch_and_the_earliest_on_ties():
    state = TrainState(Plain(), replace(RECIPE, epochs=5))
    for epoch, score in enumerate([0.6, 0.8, 0.7, 0.8, 0.75], start=1):
        state.epoch = epoch
        state.history.append({"val_score": score})
        state.consider()
    assert state.chosen_epoch == 2


def test_smoothed_selection_ignores_a_lucky_epoch():
    state = TrainState(Plain(), replace(RECIPE, epochs=6, select="smoothed", smooth=3))
    for epoch, score in enumerate([0.5, 0.95, 0.5, 0.7, 0.8, 0.8], start=1):
        state.epoch = epoch
        state.history.append({"val_score": score})
        state.consider()
    assert state.chosen_epoch == 6


def test_early_stopping_waits_for_its_patience(small_cohort, split):
    task, train, val, y_val = parts(small_cohort, split)
    model = Plain()
    for p in model.parameters():
        p.data.zero_()  # a constant score: AUROC 0.5 in every epoch
    frozen = replace(RECIPE, epochs=50, patience=3, lr=1e-30, lr_end=0.0)
    state = fit(model, task, frozen, train, val, y_val)
    assert state.epoch == 4
    assert state.chosen_epoch == 1


def test_last_weights_are_kept_where_the_recipe_says_so(small_cohort, split):
    state, _ = trained(small_cohort, split, replace(RECIPE, select="last"))
    assert state.chosen_epoch == 4
    assert same(state.chosen, state.model.state_dict())


def test_auxiliary_loss_is_added(small_cohort, split):
    free, _ = trained(small_cohort, split, replace(RECIPE, select="last"), Plain())
    torch.manual_seed(0)
    bound, _ = trained(small_cohort, split, replace(RECIPE, select="last"), Plain(aux=10.0))
    assert bound.chosen["linear.weight"].norm() < 0.5 * free.chosen["linear.weight"].norm()


def test_summed_loss_is_batch_size_times_the_mean(small_cohort, split):
    task, train, _, _ = parts(small_cohort, split)
    batch = next(train.in_order(8))
    logits = Plain()(batch.x).logits
    total = task.loss(logits, batch.target, None, "sum")
    expected = nn.functional.cross_entropy(logits, batch.target, reduction="sum")
    assert torch.allclose(total, expected)
    assert torch.allclose(task.loss(logits, batch.target, None, "mean") * 8, total)


def test_sample_weights_of_zero_remove_subjects(small_cohort, split):
    y = small_cohort.labels("diagnosis")
    task = task_for(y)
    rows = split[0]
    kept = rows[:20]
    weights = torch.zeros(len(rows))
    weights[:20] = 1.0
    batch = next(Batches(small_cohort, rows, task.targets(y[rows]), weights).in_order())
    few = next(Batches(small_cohort, kept, task.targets(y[kept])).in_order())
    model = Plain()
    with_weights = task.loss(model(batch.x).logits, batch.target, batch.weight, "sum")
    assert torch.allclose(with_weights, task.loss(model(few.x).logits, few.target, None, "sum"))


def test_regression_is_predicted_in_its_own_units(small_cohort, split):
    state, task = trained(small_cohort, split, replace(RECIPE, epochs=30), label="score")
    _, _, val, y_val = parts(small_cohort, split, label="score")
    predicted = task.predictions(logits_of(state.model, val))[:, 0]
    assert np.corrcoef(predicted, y_val)[0, 1] > 0.8
    assert abs(predicted.mean() - y_val.mean()) < 0.3


def test_a_loss_that_explodes_is_said_so(small_cohort, split):
    with pytest.raises(BadInput, match="lower the learning rate"):
        trained(small_cohort, split, replace(RECIPE, lr=1e30, lr_end=1e30))


def test_a_batch_larger_than_the_training_part_is_refused(small_cohort, split):
    with pytest.raises(BadInput, match="lower batch_size"):
        trained(small_cohort, split, replace(RECIPE, batch_size=100, drop_last=True))


def pages_taken(reuse: bool) -> int:
    """Return how many pages 20 tensors of 64 MB, one after the other, take from the system."""
    if reuse:
        reuse_freed_memory()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        torch.ones(2**24)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has the setting")
def test_freed_memory_is_used_again_by_the_next_step():
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as process:  # the setting is for a whole process
        plain, reused = (process.submit(pages_taken, reuse).result() for reuse in (False, True))
    assert reused < plain / 5


def test_training_a_network_does_not_load_torchs_compiler():
    code = (
        "import sys, torch; from bnt.nn._network import Adam, AdamW\n"
        "for kind in (Adam, AdamW):\n"
        "    parameter = torch.nn.Parameter(torch.ones(3)); optimiser = kind([parameter], lr=0.1, fused=True)\n"
        "    optimiser.zero_grad(); parameter.square().sum().backward(); optimiser.step()\n"
        "    optimiser.load_state_dict(optimiser.state_dict())\n"
        "    assert not torch.equal(parameter, torch.ones(3))\n"
        "assert 'torch._dynamo' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
