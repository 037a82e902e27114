"""Node features."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bnt.errors import BadInput
from bnt.nn import NodeFeatures, leading_eigenvectors


@pytest.fixture
def connectomes():
    x = torch.randn(3, 20, 20, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    return (x + x.mT) / 2


def test_profile_is_the_row_of_the_connectome(connectomes):
    assert NodeFeatures("profile", 20)(connectomes) is connectomes


def test_the_diagonal_can_be_left_out_of_the_profile(connectomes):
    features = NodeFeatures("no-diagonal", 20, n_heads=4)
    out = features(connectomes)
    assert features.width == 20
    assert not out.diagonal(dim1=1, dim2=2).any()
    off = ~torch.eye(20, dtype=torch.bool)
    assert torch.equal(out[:, off], connectomes[:, off])


def test_identity_is_one_hot_beside_the_profile(connectomes):
    features = NodeFeatures("identity", 20)
    out = features(connectomes)
    assert out.shape == (3, 20, features.width) == (3, 20, 40)
    assert torch.equal(out[1, :, 20:], torch.eye(20, dtype=torch.double))
    assert not list(features.parameters())


def test_learned_identity_is_the_released_width_and_trained():
    # docs/facts.md, Models: a learned matrix of width 360 beside the profile
    features = NodeFeatures("learned-identity", 200, n_heads=4)
    assert features.width == 560
    features(torch.zeros(2, 200, 200)).sum().backward()
    assert features.identity.grad is not None


def test_eigenvectors_equal_numpys_up_to_the_stated_sign(connectomes):
    ours = leading_eigenvectors(connectomes, 5)
    for x, vectors in zip(connectomes.numpy(), ours.numpy()):
        values, expected = np.linalg.eigh(x)
        for column, which in enumerate(np.argsort(-np.abs(values))[:5]):
            v = expected[:, which]
            v = v * np.sign(v[np.argmax(np.abs(v))])
            np.testing.assert_allclose(vectors[:, column], v, atol=1e-8)


@pytest.mark.parametrize("n_rois", [19, 20, 30, 116, 200])
@pytest.mark.parametrize("kind", ["learned-identity", "eigen"])
def test_free_widths_are_chosen_to_fit_the_heads(kind, n_rois):
    assert NodeFeatures(kind, n_rois, n_heads=4).width % 4 == 0


def test_a_choice_of_width_where_there_is_none_is_refused():
    with pytest.raises(BadInput, match="leaves no width to choose"):
        NodeFeatures("identity", 20, extra_width=4)
    with pytest.raises(BadInput, match="21"):
        NodeFeatures("eigen", 20, extra_width=21)


def test_unknown_features_list_what_there_is():
    with pytest.raises(BadInput, match="profile, no-diagonal, identity, learned-identity, eigen"):
        NodeFeatures("degree", 20)
