"""Dropout: its statistics, its gradient, its reproducibility."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bnt.nn._kernels import dropout, feed_forward, keep_mask, resolved, survivor_scale


@given(st.floats(0.01, 0.95), st.integers(0, 2**31))
@settings(max_examples=25, deadline=None)
def test_share_of_dropped_entries_is_binomial(p, seed):
    torch.manual_seed(seed)
    n = 200_003  # not a multiple of the four numbers in a word
    dropped = n - int(keep_mask((n,), p).sum())
    sd = (n * p * (1 - p)) ** 0.5
    assert abs(dropped - n * resolved(p)) < 6 * sd


def test_neighbours_and_successive_masks_are_uncorrelated():
    torch.manual_seed(0)
    first, second = (keep_mask((1_000_000,), 0.1).double() for _ in range(2))
    for lag in (1, 2, 3, 4, 8, 64, 1024):
        r = np.corrcoef(first[:-lag], first[lag:])[0, 1]
        assert abs(r) < 5e-3, lag
    assert abs(np.corrcoef(first, second)[0, 1]) < 5e-3


def test_probability_is_resolved_to_one_in_65536():
    # 0.1 * 65536 = 6553.6
    assert resolved(0.1) == 6554 / 65536
    assert survivor_scale(0.5) == 2.0


def test_survivors_are_scaled_and_the_rest_zero():
    torch.manual_seed(0)
    x = torch.rand(500, 40) + 1
    y = dropout(x, 0.25)
    kept = y != 0
    torch.testing.assert_close(y[kept], x[kept] / 0.75)
    assert 0.72 < kept.float().mean() < 0.78


def test_same_generator_state_gives_the_same_mask():
    x = torch.ones(1000)
    torch.manual_seed(9)
    torch.rand(3)
    state = torch.get_rng_state()
    first = dropout(x, 0.3)
    then = dropout(x, 0.3)
    torch.set_rng_state(state)
    assert torch.equal(dropout(x, 0.3), first)
    assert not torch.equal(first, then)


@pytest.mark.parametrize(("p", "training"), [(0.0, True), (0.5, False)])
def test_nothing_is_dropped_in_evaluation_or_at_zero(p, training):
    x = torch.randn(5)
    assert dropout(x, p, training) is x


def test_gradcheck_of_dropout():
    def run(x):
        torch.manual_seed(2)
        return dropout(x, 0.3)

    assert torch.autograd.gradcheck(run, torch.randn(7, 5, dtype=torch.double, requires_grad=True))


@pytest.mark.parametrize("p", [0.0, 0.3])
def test_gradcheck_of_the_feed_forward_network(p):
    shapes = [(2, 3, 4), (6, 4), (6,), (4, 6), (4,)]
    inputs = [torch.randn(shape, dtype=torch.double, requires_grad=True) for shape in shapes]

    def run(*tensors):
        torch.manual_seed(2)
        return feed_forward(*tensors, p, True)

    assert torch.autograd.gradcheck(run, inputs)


def test_feed_forward_equals_its_parts_with_the_same_mask():
    z, w1, b1, w2, b2 = (torch.randn(s) for s in [(2, 3, 4), (6, 4), (6,), (4, 6), (4,)])
    torch.manual_seed(4)
    fused = feed_forward(z, w1, b1, w2, b2, 0.5, True)
    torch.manual_seed(4)
    keep = keep_mask((6, 6), 0.5).view(2, 3, 6)
    hidden = (z @ w1.T + b1).relu() * keep * 2
    torch.testing.assert_close(fused, hidden @ w2.T + b2, atol=1e-5, rtol=1e-5)


def test_frozen_weights_get_no_gradient():
    z, w1, b1, w2, b2 = (torch.randn(s) for s in [(2, 3, 4), (6, 4), (6,), (4, 6), (4,)])
    w2.requires_grad_()
    feed_forward(z, w1, b1, w2, b2, 0.1, True).sum().backward()
    assert w2.grad is not None
    assert w1.grad is None
