"""The fast kernels against stock torch layers, and the switch between them."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import bnt
from bnt.errors import BadInput
from bnt.models._bnt import EncoderLayer
from bnt.models._san import PairLayer
from bnt.nn import _kernels, kernels
from bnt.nn._kernels import (
    KERNELS,
    ROWS,
    biased_attention,
    computes_in_float32,
    dropout,
    fast_kernels,
    feed_forward,
    keep_mask,
    narrow_feed_forward,
    resolved,
    self_attention,
    survivor_scale,
    wide_products,
)

# -- the switch --------------------------------------------------------------------------------------


def test_the_innermost_choice_wins(monkeypatch):
    monkeypatch.delenv("BNT_KERNELS", raising=False)
    assert fast_kernels()
    monkeypatch.setenv("BNT_KERNELS", "stock")
    assert not fast_kernels()
    with kernels("fast"):
        assert fast_kernels()
        with kernels("stock"):
            assert not fast_kernels()
        assert fast_kernels()
    assert not fast_kernels()


def test_an_unknown_choice_is_refused(monkeypatch):
    with pytest.raises(BadInput, match="'quick'.*fast, stock"), kernels("quick"):
        pass
    monkeypatch.setenv("BNT_KERNELS", "quick")
    with pytest.raises(BadInput, match="BNT_KERNELS"):
        fast_kernels()


def test_stock_draws_the_masks_of_torch():
    x = torch.ones(1000)
    torch.manual_seed(0)
    expected = nn.functional.dropout(x, 0.3)
    torch.manual_seed(0)
    with kernels("stock"):
        assert torch.equal(dropout(x, 0.3), expected)
    torch.manual_seed(0)
    assert not torch.equal(dropout(x, 0.3), expected)


# -- matrix products ---------------------------------------------------------------------------------

SETTING = torch.backends.mkldnn.matmul


@pytest.mark.parametrize("which", KERNELS)
def test_products_are_float32_and_the_setting_of_torch_is_as_before(which):
    before = SETTING.fp32_precision
    a, b = torch.randn(300, 200), torch.randn(200, 400)
    many, more = a.expand(5, -1, -1), b.expand(5, -1, -1)
    with kernels(which), wide_products():
        found, found_many = a @ b, many @ more
    exact = a.double() @ b.double()
    assert (found - exact).abs().max() < 1e-5 * exact.abs().max()  # 3e-3 with bfloat16
    assert (found_many - exact).abs().max() < 1e-5 * exact.abs().max()
    with pytest.raises(ValueError, match="inside"), wide_products():
        raise ValueError("inside")
    assert SETTING.fp32_precision == before


def test_products_in_bfloat16_are_noticed():
    assert computes_in_float32()
    assert not computes_in_float32(torch.bfloat16)


@pytest.mark.parametrize(
    ("cpu", "capability", "precise", "wide"),
    [
        ("AuthenticAMD", "AVX512", True, True),
        ("AuthenticAMD", "AVX512", False, False),
        ("AuthenticAMD", "AVX2", True, False),
        ("GenuineIntel", "AVX512", True, False),
    ],
)
def test_onednn_multiplies_only_where_mkl_is_slower_and_it_keeps_float32(monkeypatch, cpu, capability, precise, wide):
    monkeypatch.setattr(_kernels.Path, "read_text", lambda path: f"vendor_id : {cpu}")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    monkeypatch.setattr(_kernels, "computes_in_float32", lambda: precise)
    monkeypatch.setattr(_kernels, "_wider_than_mkl", _kernels._wider_than_mkl.__wrapped__)
    before = SETTING.fp32_precision
    with wide_products():
        assert (SETTING.fp32_precision == "bf16") is wide
    assert SETTING.fp32_precision == before
    with kernels("stock"), wide_products():
        assert SETTING.fp32_precision == before


# -- equal to stock layers without dropout -----------------------------------------------------------


def by_encoder_layer(p: float, training: bool):
    """Make our encoder layer, as BNT has it, and torch's, with the same weights."""
    theirs = nn.TransformerEncoderLayer(24, 4, 50, dropout=p, batch_first=True).train(training)
    ours = EncoderLayer(24, 4, 50, p).train(training)
    ours.load_state_dict(theirs.state_dict())
    return lambda x: ours(x)[0], theirs, (ours, theirs), torch.randn(3, 11, 24)


def by_pair_layer(p: float, training: bool):
    """Make SAN's layer of few numbers and many tokens, and torch's."""
    theirs = nn.TransformerEncoderLayer(8, 2, 16, dropout=p, batch_first=True).train(training)
    ours = PairLayer(8, 2, 16, dropout=p, batch_first=True).train(training)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs, (ours, theirs), torch.randn(ROWS // 5 + 7, 10, 8)


def by_attention(p: float, training: bool):
    """Use the kernel on torch's own layer."""
    theirs = nn.MultiheadAttention(24, 4, dropout=p, batch_first=True).train(training)
    ours = copy.deepcopy(theirs)
    return lambda x: self_attention(ours, x), lambda x: theirs(x, x, x)[0], (ours, theirs), torch.randn(3, 11, 24)


def by_biased_attention(p: float, training: bool):
    """Use torch's attention with the biases as a mask."""
    torch.manual_seed(1)
    kinds = torch.randint(5, (3, 11, 11))
    ours = nn.ParameterDict({"table": torch.randn(5, 4)}).train(training)
    theirs = copy.deepcopy(ours)

    def heads(x):
        return x.unflatten(-1, (4, 6)).transpose(1, 2)

    def fast(x):
        return biased_attention(heads(x) * 6**-0.5, heads(x), heads(x), ours["table"], kinds, p, training)

    def stock(x):
        mask = theirs["table"][kinds].permute(0, 3, 1, 2)
        return nn.functional.scaled_dot_product_attention(
            heads(x), heads(x), heads(x), attn_mask=mask, dropout_p=p if training else 0.0
        )

    return fast, stock, (ours, theirs), torch.randn(3, 11, 24)


LAYERS = [by_encoder_layer, by_pair_layer, by_attention, by_biased_attention]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("make", LAYERS)
def test_forward_and_gradients_equal_stock_layers(make, training):
    torch.manual_seed(0)
    fast, stock, modules, x = make(0.0, training)
    x = x.double()
    for module in modules:
        module.double()
    weight = torch.randn(fast(x).shape, dtype=torch.double)
    results = []
    for run, module in zip((fast, stock), modules):
        given = x.clone().requires_grad_()
        out = run(given)
        (out * weight).sum().backward()
        results.append([out, given.grad, *(p.grad for p in module.parameters())])
    for mine, expected in zip(*results, strict=True):
        torch.testing.assert_close(mine, expected, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("make", [by_attention, by_biased_attention])
def test_dropout_keeps_the_expectation_and_spread_of_stock_layers(make):
    torch.manual_seed(0)
    fast, stock, _, x = make(0.4, True)
    with torch.no_grad():
        ours, theirs = (torch.stack([run(x) for _ in range(600)]) for run in (fast, stock))
    error = (ours.var(0) / 600 + theirs.var(0) / 600).sqrt()
    assert ((ours.mean(0) - theirs.mean(0)).abs() < 5.5 * error + 1e-6).all()
    torch.testing.assert_close(ours.var(0).mean(), theirs.var(0).mean(), rtol=0.05, atol=0)


@pytest.mark.parametrize("name", ["bnt", "bnt-released", "vanilla", "san", "graphormer"])
def test_networks_answer_and_learn_alike_with_either(name):
    torch.manual_seed(0)
    options = {"n_clusters": 4} if name.startswith("bnt") else {"lpe_dropout": 0.0} if name == "san" else {}
    if name == "graphormer":
        options = {"attention_dropout": 0.0, "activation_dropout": 0.0}
    net = bnt.create_model(name, 20, **{"dropout": 0.0, **options}).train()
    x = torch.randn(3, 20, 20)
    found = []
    for which in ("fast", "stock"):
        net.zero_grad()
        torch.manual_seed(1)  # SAN flips signs
        with kernels(which):
            logits = net(x).logits
            logits.square().sum().backward()
        found.append([logits.detach(), *(p.grad for p in net.parameters() if p.grad is not None)])
    for mine, expected in zip(*found, strict=True):
        torch.testing.assert_close(mine, expected, atol=2e-5, rtol=1e-3)


@pytest.mark.parametrize("make", [by_encoder_layer, by_pair_layer])
@pytest.mark.parametrize("p", [0.0, 0.4])
def test_gradcheck_in_training(make, p):
    _, _, (layer, _), x = make(p, True)
    layer.double()
    names = [name for name, _ in layer.named_parameters()]

    def run(x, *weights):
        torch.manual_seed(1)  # the same masks at every evaluation
        out = torch.func.functional_call(layer, dict(zip(names, weights)), (x,))
        return out[0] if isinstance(out, tuple) else out

    inputs = [x[:1, :3].double().requires_grad_(), *(w.detach().clone().requires_grad_() for w in layer.parameters())]
    assert torch.autograd.gradcheck(run, inputs, fast_mode=True)


# -- dropout -----------------------------------------------------------------------------------------


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
        assert abs(np.corrcoef(first[:-lag], first[lag:])[0, 1]) < 5e-3, lag
    assert abs(np.corrcoef(first, second)[0, 1]) < 5e-3


def test_probability_is_resolved_to_one_in_65536():
    assert resolved(0.1) == 6554 / 65536  # 0.1 * 65536 = 6553.6
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
    first, then = dropout(x, 0.3), dropout(x, 0.3)
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


# -- feed-forward network ----------------------------------------------------------------------------


def test_feed_forward_equals_its_parts_with_the_same_mask():
    one, two, z = nn.Linear(4, 6), nn.Linear(6, 4), torch.randn(2, 3, 4)
    torch.manual_seed(4)
    fused = feed_forward(z, one, two, 0.5, True)
    torch.manual_seed(4)
    hidden = one(z).relu() * keep_mask((6, 6), 0.5).view(2, 3, 6) * 2
    torch.testing.assert_close(fused, two(hidden), atol=1e-5, rtol=1e-5)


def test_frozen_weights_get_no_gradient():
    one, two = nn.Linear(4, 6).requires_grad_(False), nn.Linear(6, 4)
    feed_forward(torch.randn(2, 3, 4), one, two, 0.1, True).sum().backward()
    assert two.weight.grad is not None
    assert one.weight.grad is None


def test_backward_of_the_narrow_network_draws_the_masks_of_forward_again():
    one, two = nn.Linear(4, 16).double(), nn.Linear(16, 4).double()
    z = torch.randn(2 * ROWS + 3, 1, 4, dtype=torch.double)

    def loss(weight):
        torch.manual_seed(3)  # the same masks whenever it is called
        two.weight = nn.Parameter(weight)
        return narrow_feed_forward(z, one, two, 0.4, True).sum()

    start = two.weight.detach().clone()
    loss(start).backward()
    gradient, direction = two.weight.grad, torch.randn_like(start)
    with torch.no_grad():  # linear in this weight, so that a difference is the derivative
        expected = loss(start + direction) - loss(start)
    torch.testing.assert_close((gradient * direction).sum(), expected)


@pytest.mark.parametrize("p", [0.1, 0.5])
@pytest.mark.parametrize("network", [feed_forward, narrow_feed_forward])
@torch.no_grad()
def test_dropout_of_hidden_units_has_its_share_and_scale(network, p):
    h = 64
    one, two = nn.Linear(2, h), nn.Linear(h, 2)
    for layer, weight, bias in ((one, 0.0, 1.0), (two, 1 / h, 0.0)):
        layer.weight.fill_(weight)
        layer.bias.fill_(bias)
    out = network(torch.zeros(4000, 1, 2), one, two, p, True)[:, 0, 0]
    assert out.mean() == pytest.approx(1, abs=0.02)
    assert out.std() == pytest.approx((p / (1 - p) / h) ** 0.5, rel=0.1)  # of a mean of h independent entries


def test_extreme_scores_stay_finite():
    layer = nn.MultiheadAttention(8, 2, dropout=0.3, batch_first=True).train()
    x = (torch.randn(1, 5, 8) * 1e4).requires_grad_()
    out = self_attention(layer, x)
    out.sum().backward()
    assert out.isfinite().all()
    assert x.grad.isfinite().all()
