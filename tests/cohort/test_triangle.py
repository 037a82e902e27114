"""Triangles: nilearn's order, and back."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from nilearn.connectome import sym_matrix_to_vec, vec_to_sym_matrix

from bnt.cohort._triangle import endpoints, flat, n_edges, n_rois_of, square, square_tensor
from bnt.errors import BadInput


def symmetric(seed: int, n: int, v: int) -> np.ndarray:
    m = np.random.default_rng(seed).normal(size=(n, v, v)).astype(np.float32)
    return m + m.transpose(0, 2, 1)


@given(st.integers(0, 1000), st.integers(1, 4), st.integers(2, 12))
def test_order_is_nilearns(seed, n, v):
    m = symmetric(seed, n, v)
    assert np.array_equal(flat(m), sym_matrix_to_vec(m, discard_diagonal=True))
    again = vec_to_sym_matrix(flat(m), diagonal=np.ones((n, v)) * np.sqrt(2))  # nilearn scales the diagonal
    assert np.allclose(square(flat(m))[:, ~np.eye(v, dtype=bool)], again[:, ~np.eye(v, dtype=bool)])


@given(st.integers(0, 1000), st.integers(2, 12), st.sampled_from([0.0, 1.0]))
def test_square_undoes_flat_and_sets_the_diagonal(seed, v, diagonal):
    m = symmetric(seed, 2, v)
    m[:, np.arange(v), np.arange(v)] = diagonal
    assert np.array_equal(square(flat(m), diagonal), m)
    assert np.array_equal(square_tensor(torch.from_numpy(flat(m)), diagonal).numpy(), m)


def test_endpoints_name_the_two_rois_of_each_edge():
    low, high = endpoints(4)
    assert list(zip(low, high)) == [(0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3)]


def test_lengths_that_are_no_triangle_are_refused():
    assert n_rois_of(n_edges(360)) == 360
    with pytest.raises(BadInput, match="without the diagonal"):
        n_rois_of(5)
    with pytest.raises(BadInput):
        n_rois_of(0)
