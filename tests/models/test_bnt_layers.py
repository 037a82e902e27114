"""The layers of BNT: node features, equation 1, the encoder."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from bnt.errors import BadInput
from bnt.models._bnt import Attention, Encoder, EncoderLayer, NodeFeatures, leading_eigenvectors

# -- node features -----------------------------------------------------------------------------------


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


# -- equation 1 --------------------------------------------------------------------------------------


def test_encoder_layer_starts_as_torchs_does():
    torch.manual_seed(5)
    ours = EncoderLayer(16, 4, 32).state_dict()
    torch.manual_seed(5)
    theirs = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize("training", [True, False])
def test_explained_weights_equal_those_of_torch(training):
    theirs = nn.MultiheadAttention(24, 4, batch_first=True).train(training)
    ours = Attention(24, 4, p=0.0).train(training)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(3, 11, 24)
    expected, weights = theirs(x, x, x, average_attn_weights=False)
    out, attention = ours(x, explain=True)
    torch.testing.assert_close(out, expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(attention, weights, atol=1e-6, rtol=0)
    assert ours(x)[1] is None


def test_explained_weights_are_those_before_dropout():
    ours = Attention(12, 3, p=0.5).train()
    _, weights = ours(torch.randn(2, 8, 12), explain=True)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, 8))


def test_explained_and_fused_training_draw_the_same_masks():
    layer = EncoderLayer(12, 3, 16, p=0.4).train()
    x = torch.randn(2, 8, 12)
    torch.manual_seed(0)
    plain = layer(x)[0]
    torch.manual_seed(0)
    explained = layer(x, explain=True)[0]
    torch.testing.assert_close(plain, explained, atol=1e-5, rtol=1e-5)


def test_one_set_of_weights_per_layer_is_returned_under_no_grad():
    encoder = Encoder(8, n_layers=3, n_heads=2, ffn=16, p=0.1).eval()
    with torch.no_grad():
        _, attention = encoder(torch.randn(2, 5, 8), explain=True)
    assert [a.shape for a in attention] == [(2, 2, 5, 5)] * 3


def test_heads_that_do_not_divide_the_width_are_refused():
    with pytest.raises(BadInput, match="6.*does not divide.*200"):
        Attention(200, 6)


def test_edge_weights_are_added_to_scores_or_multiplied_with_weights():
    torch.manual_seed(0)
    layer = Attention(8, 2, p=0.0).double()
    z, edges = torch.randn(3, 8, 8).double(), torch.rand(3, 8, 8).double()
    q, k, value = layer.in_proj_weight.chunk(3)
    for given, weigh in (
        ({"bias": edges}, lambda scores: (scores + edges).softmax(-1)),
        ({"factor": edges}, lambda scores: scores.softmax(-1) * edges),
    ):
        mixed = []
        for part in (slice(0, 4), slice(4, 8)):  # two heads of four
            scores = (z @ q[part].T) @ (z @ k[part].T).mT / 2
            mixed.append(weigh(scores) @ (z @ value[part].T))
        expected = layer.out_proj(torch.cat(mixed, -1))
        for mode in (True, False):
            layer.train(mode)
            out, weights = layer(z, **given)
            torch.testing.assert_close(out, expected)
            assert weights is None
        torch.testing.assert_close(layer(z, explain=True, **given)[0], expected)
