"""Attention and encoder against torch's own layers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from bnt.errors import BadInput
from bnt.nn import Encoder, EncoderLayer, MultiHeadAttention


@pytest.fixture
def pair():
    """Our attention and torch's, made from the same seed."""
    torch.manual_seed(3)
    ours = MultiHeadAttention(24, 4, p=0.0)
    torch.manual_seed(3)
    theirs = nn.MultiheadAttention(24, 4, batch_first=True)
    return ours, theirs


def test_same_seed_gives_the_initial_weights_of_torch(pair):
    ours, theirs = pair
    for name, value in theirs.state_dict().items():
        assert torch.equal(ours.state_dict()[name], value), name


def test_encoder_layer_starts_as_torchs_does():
    torch.manual_seed(5)
    ours = EncoderLayer(16, 4, 32).state_dict()
    torch.manual_seed(5)
    theirs = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("explain", [True, False])
def test_output_equals_torch_multihead_attention(pair, training, explain):
    ours, theirs = (module.train(training) for module in pair)
    x = torch.randn(3, 11, 24)
    expected, weights = theirs(x, x, x, average_attn_weights=False)
    out, attention = ours(x, explain)
    torch.testing.assert_close(out, expected, atol=1e-6, rtol=0)
    if explain:
        torch.testing.assert_close(attention, weights, atol=1e-6, rtol=0)
    else:
        assert attention is None


def test_gradients_equal_torch_multihead_attention(pair):
    ours, theirs = pair
    x = torch.randn(2, 7, 24)
    weight = torch.randn(2, 7, 24)
    (ours(x)[0] * weight).sum().backward()
    (theirs(x, x, x)[0] * weight).sum().backward()
    grads = dict(ours.named_parameters())
    for name, parameter in theirs.named_parameters():
        torch.testing.assert_close(grads[name].grad, parameter.grad, atol=1e-5, rtol=1e-5)


def test_encoder_layer_equals_torchs_layer_without_dropout():
    torch.manual_seed(0)
    theirs = nn.TransformerEncoderLayer(20, 4, 50, dropout=0.0, batch_first=True)
    ours = EncoderLayer(20, 4, 50, p=0.0)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 9, 20)
    torch.testing.assert_close(ours(x)[0], theirs(x), atol=2e-6, rtol=0)


def test_explained_weights_are_those_before_dropout():
    ours = MultiHeadAttention(12, 3, p=0.5).train()
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


@pytest.mark.parametrize("p", [0.0, 0.4])
def test_gradcheck_of_the_encoder_layer_in_training(p):
    layer = EncoderLayer(6, 2, 8, p=p).double().train()
    names = [name for name, _ in layer.named_parameters()]

    def run(x, *weights):
        torch.manual_seed(1)  # the same masks at every evaluation
        return torch.func.functional_call(layer, dict(zip(names, weights)), (x,))[0]

    inputs = [torch.randn(2, 3, 6, dtype=torch.double, requires_grad=True)]
    inputs += [p.detach().clone().requires_grad_() for p in layer.parameters()]
    assert torch.autograd.gradcheck(run, inputs)


def test_one_set_of_weights_a_layer_is_returned_under_no_grad():
    encoder = Encoder(8, n_layers=3, n_heads=2, ffn=16).eval()
    with torch.no_grad():
        _, attention = encoder(torch.randn(2, 5, 8), explain=True)
    assert [a.shape for a in attention] == [(2, 2, 5, 5)] * 3


def test_heads_that_do_not_divide_the_width_are_refused():
    with pytest.raises(BadInput, match="6.*does not divide.*200"):
        MultiHeadAttention(200, 6)


def test_extreme_scores_stay_finite():
    ours = MultiHeadAttention(8, 2, p=0.3).train()
    x = (torch.randn(1, 5, 8) * 1e4).requires_grad_()
    out, _ = ours(x)
    out.sum().backward()
    assert out.isfinite().all()
    assert x.grad is not None
    assert x.grad.isfinite().all()


def test_edge_weights_are_added_to_scores_or_multiplied_with_weights():
    torch.manual_seed(0)
    layer = MultiHeadAttention(8, 2, p=0.0).double()
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
