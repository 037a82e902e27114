"""Cluster centres."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bnt.errors import BadInput
from bnt.nn import OCRead
from bnt.nn._ocread import draw_centres, gram_schmidt


@pytest.mark.parametrize(("k", "width"), [(1, 5), (4, 200), (10, 200), (100, 200), (200, 200), (360, 360)])
def test_orthonormal_to_1e_6_in_float32_up_to_k_equal_v(k, width):
    torch.manual_seed(k)
    e = draw_centres("orthonormal", k, width)
    assert e.dtype == torch.float32
    # Products are summed in float64, so that what is measured is the centres' error.
    assert (e.double() @ e.double().T - torch.eye(k)).abs().max() <= 1e-6
    assert (e @ e.T - torch.eye(k)).abs().max() <= 1e-6


@given(st.integers(1, 12), st.integers(0, 8), st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_equals_the_textbook_recursion(k, more, seed):
    """The paper's equation 3, written as it is printed."""
    c = torch.rand(k, k + more, dtype=torch.double, generator=torch.Generator().manual_seed(seed)) * 2 - 1
    u: list[torch.Tensor] = []
    for row in c:
        u.append(row - sum((v @ row) / (v @ v) * v for v in u) if u else row)
    expected = torch.stack([v / v.norm() for v in u])
    torch.testing.assert_close(gram_schmidt(c), expected, atol=1e-6, rtol=1e-6)


def test_released_first_centre_keeps_the_length_it_was_drawn_with():
    # docs/facts.md, Models: norm about sqrt(2V / (K + V)) = 1.155 at K = 100, V = 200.
    norms = []
    for seed in range(20):
        torch.manual_seed(seed)
        e = draw_centres("orthonormal", 100, 200, normalise_first=False)
        norms.append(float(e[0].norm()))
        torch.testing.assert_close(e[1:].norm(dim=1), torch.ones(99))
        assert (e[1:] @ e[0]).abs().max() < 1e-6
    assert sum(norms) / 20 == pytest.approx(1.155, abs=0.02)


@pytest.mark.parametrize("k", [2, 3, 10, 50])
def test_simplex_centres_have_equal_inner_products(k):
    e = draw_centres("simplex", k, 50).double()
    expected = torch.full((k, k), -1 / (k - 1), dtype=torch.double).fill_diagonal_(1.0)
    torch.testing.assert_close(e @ e.T, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("kind", ["random", "learnable"])
def test_random_and_learnable_rows_have_unit_length(kind):
    torch.testing.assert_close(draw_centres(kind, 10, 40).norm(dim=1), torch.ones(10))


def test_random_and_learnable_start_alike():
    torch.manual_seed(1)
    random = draw_centres("random", 5, 20)
    torch.manual_seed(1)
    assert torch.equal(draw_centres("learnable", 5, 20), random)


@pytest.mark.parametrize(
    ("centres", "frozen", "trained"),
    [
        ("orthonormal", None, False),
        ("random", None, False),
        ("simplex", None, False),
        ("learnable", None, True),
        ("orthonormal", False, True),
        ("learnable", True, False),
    ],
)
def test_which_centres_are_trained(centres, frozen, trained):
    readout = OCRead(8, 3, centres=centres, frozen=frozen)
    assert readout.centres.requires_grad is trained
    assert any(p is readout.centres for p in readout.parameters())


@pytest.mark.parametrize(("kind", "k", "width"), [("orthonormal", 21, 20), ("random", 21, 20), ("simplex", 1, 20)])
def test_more_centres_than_fit_are_refused_in_a_sentence(kind, k, width):
    with pytest.raises(BadInput, match=rf"n_clusters is {k}.*{width}.*\.$"):
        draw_centres(kind, k, width)


def test_unknown_kind_lists_what_there_is():
    with pytest.raises(BadInput, match="orthonormal, random, learnable, simplex"):
        draw_centres("orthogonal", 2, 5)
