"""Brain Network Transformer and VanillaTF: counts, the released code's behaviour, what they explain."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from bnt.bench._train import ReleasedStep, copy_weights
from bnt.errors import BadInput
from bnt.models import count_parameters, create_model, model_options
from bnt.nn import list_readouts
from bnt.nn._ocread import clustering_loss


@pytest.fixture
def connectomes():
    x = torch.randn(4, 20, 20, generator=torch.Generator().manual_seed(0))
    return (x + x.mT) / 2


# docs/facts.md, Models: totals of the released model by K, frozen centres included
RELEASED = {
    (200, 2): 3_760_586,
    (200, 3): 3_762_834,
    (200, 4): 3_765_082,
    (200, 5): 3_767_330,
    (200, 10): 3_778_570,
    (200, 50): 3_868_490,
    (200, 100): 3_980_890,
    (360, 2): 10_961_226,
    (360, 4): 10_966_042,
    (360, 10): 10_980_490,
    (360, 50): 11_076_810,
    (360, 100): 11_197_210,
}


@pytest.mark.parametrize(("n_rois", "n_clusters"), RELEASED)
def test_released_parameter_counts(n_rois, n_clusters):
    assert count_parameters("bnt-released", n_rois, n_clusters=n_clusters) == RELEASED[n_rois, n_clusters]


def test_parameter_counts_of_the_named_models():
    # docs/facts.md, Models; bnt is 1,144,848 + 2,000 + 1,608 + 29,026
    assert count_parameters("bnt", 200) == 1_177_482
    assert count_parameters("bnt-released", 200) == 3_980_890
    assert count_parameters("bnt-released", 360) == 11_197_210


def test_hidden_mlp_is_65_percent_of_the_released_parameters():
    # docs/facts.md, Models
    with_mlp = count_parameters("bnt-released", 200)
    assert with_mlp - count_parameters("bnt-released", 200, hidden_mlp=False) == 2_601_088


@pytest.mark.parametrize("training", [True, False])
def test_released_equals_a_model_of_torchs_own_layers(training):
    torch.manual_seed(0)
    ours = create_model("bnt-released", 40, n_clusters=12, dropout=0.0).train(training)
    theirs = ReleasedStep(40, n_clusters=12, dropout=0.0).train(training)
    copy_weights(ours, theirs)
    x = torch.randn(3, 40, 40)
    torch.testing.assert_close(ours(x).logits, theirs(x), atol=1e-5, rtol=0)


def test_released_gradients_equal_those_of_torchs_own_layers():
    torch.manual_seed(0)
    ours = create_model("bnt-released", 20, n_clusters=6, dropout=0.0)
    theirs = ReleasedStep(20, n_clusters=6, dropout=0.0)
    copy_weights(ours, theirs)
    x = torch.randn(3, 20, 20)
    ours(x).logits.sum().backward()
    theirs(x).sum().backward()
    pairs = zip(ours.encoder.layers.parameters(), theirs.layers.parameters())
    assert all(torch.allclose(a.grad, b.grad, atol=1e-5) for a, b in pairs)


def test_released_differs_from_bnt_in_four_options_only():
    ours, released = model_options("bnt"), model_options("bnt-released")
    assert {name: released[name] for name in ours if ours[name] != released[name]} == {
        "n_clusters": 100,
        "assignment": "squared",
        "hidden_mlp": True,
        "normalise_first": False,
    }


@pytest.mark.parametrize(
    "option",
    [
        {"n_layers": 3},
        {"n_heads": 2},
        {"ffn": 64},
        {"dropout": 0.0},
        {"n_clusters": 20},
        {"assignment": "squared"},
        {"assignment": "student-t"},
        {"hidden_mlp": True},
        {"centres": "random"},
        {"centres": "learnable"},
        {"centres": "simplex"},
        {"frozen": False},
        {"normalise_first": False},
        {"dec_weight": 0.1},
        {"node_features": "identity"},
        {"node_features": "learned-identity"},
        {"node_features": "eigen", "extra_width": 8},
        *({"readout": name} for name in list_readouts()),
    ],
    ids=str,
)
def test_each_option_alone_trains_a_step(connectomes, option):
    torch.manual_seed(0)
    net = create_model("bnt", 20, 3, **option)
    out = net(connectomes)
    assert out.logits.shape == (4, 3)
    loss = out.logits.logsumexp(1).sum() + (0 if out.loss is None else out.loss)
    loss.backward()
    without = [name for name, p in net.named_parameters() if p.requires_grad and p.grad is None]
    assert not without


@pytest.mark.parametrize("training", [True, False])
def test_explained_under_no_grad_in_training_and_evaluation(connectomes, training):
    net = create_model("bnt", 20).train(training)
    with torch.no_grad():
        out = net(connectomes, explain=True)
    assert [a.shape for a in out.attention] == [(4, 4, 20, 20)] * 2
    for attention in out.attention:
        torch.testing.assert_close(attention.sum(-1), torch.ones(4, 4, 20))
    torch.testing.assert_close(out.assignments.sum(-1), torch.ones(4, 20))


def test_nothing_is_kept_unless_asked_for(connectomes):
    out = create_model("bnt", 20)(connectomes)
    assert out.attention == ()
    assert out.assignments is None
    assert out.loss is None


def test_clustering_loss_comes_through_the_output(connectomes):
    net = create_model("bnt", 20, dec_weight=2.0).eval()
    z, _ = net.encoder(connectomes)
    torch.testing.assert_close(net(connectomes).loss, 2 * clustering_loss(net.readout.assignment_logits(z)))


def test_evaluation_is_deterministic_and_training_follows_the_seed(connectomes):
    net = create_model("bnt", 20)
    torch.manual_seed(1)
    first = net(connectomes).logits
    assert not torch.equal(net(connectomes).logits, first)
    torch.manual_seed(1)
    assert torch.equal(net(connectomes).logits, first)
    net.eval()
    assert torch.equal(net(connectomes).logits, net(connectomes).logits)


def test_frozen_centres_stay_and_learnable_ones_move(connectomes):
    for centres, moves in (("orthonormal", False), ("learnable", True)):
        net = create_model("bnt", 20, centres=centres)
        before = net.readout.centres.detach().clone()
        optimiser = torch.optim.Adam((p for p in net.parameters() if p.requires_grad), lr=0.01)
        net(connectomes).logits.square().sum().backward()
        optimiser.step()
        assert (not torch.equal(net.readout.centres, before)) is moves


def test_gradcheck_of_the_whole_model():
    net = create_model("bnt", 6, n_clusters=2, n_heads=2, ffn=8, dropout=0.3).double().train()

    def run(x):
        torch.manual_seed(0)
        return net(x).logits

    assert torch.autograd.gradcheck(run, torch.randn(2, 6, 6, dtype=torch.double, requires_grad=True))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_clusters": 21}, "n_clusters is 21.*20 ROIs"),
        ({"n_heads": 3}, "n_heads is 3.*does not divide the width 20.*--option n_heads=2, or MODEL:n_heads=2"),
        ({"dropout": 1.0}, "dropout is 1.0"),
        ({"n_layers": 0}, "n_layers is 0"),
        ({"dec_weight": -1}, "dec_weight is -1"),
        ({"readout": "median"}, "readout 'median'"),
    ],
)
def test_bad_options_are_refused_in_a_sentence(options, message):
    with pytest.raises(BadInput, match=message):
        create_model("bnt", 20, **options)


def test_concat_with_the_hidden_mlp_is_a_control_of_its_own():
    # docs/facts.md, Printed results: a fair ablation adds CONCAT + the MLP. 64 V^2 + V^2 + 32 + 1,056 parameters more.
    plain, hidden = (count_parameters("bnt", 20, readout="concat", n_clusters=4, hidden_mlp=h) for h in (False, True))
    assert hidden - plain == 65 * 20**2 + 32 + 1056
    with pytest.raises(BadInput, match="not with 'mean'"):
        create_model("bnt", 20, 2, readout="mean", n_clusters=4, hidden_mlp=True)


@torch.no_grad()
def test_attention_only_is_equation_1_to_the_letter(connectomes):
    torch.manual_seed(0)
    model = create_model("bnt", 20, n_clusters=4, attention_only=True).eval()
    assert not any("linear1" in name or "norm" in name for name, _ in model.encoder.named_parameters())
    z, m, d = connectomes, 4, 5
    for layer in model.encoder.layers:
        w_q, w_k, w_v = layer.in_proj_weight.chunk(3)
        new = torch.zeros_like(z)
        for b in range(len(z)):
            heads = []
            for h in range(m):
                part = slice(h * d, (h + 1) * d)
                q, k, v = (z[b] @ w[part].T for w in (w_q, w_k, w_v))
                rows = [torch.stack([q[i] @ k[j] for j in range(20)]) / d**0.5 for i in range(20)]
                heads.append(torch.stack([row.softmax(0) @ v for row in rows]))
            new[b] = torch.cat(heads, -1) @ layer.out_proj.weight.T
        z = new
    expected = model.head(model.readout(z).embedding)
    torch.testing.assert_close(model(connectomes).logits, expected, atol=1e-5, rtol=1e-5)
    # Four V x V matrices a layer and what comes after the encoder.
    after = sum(p.numel() for part in (model.readout, model.head) for p in part.parameters())
    assert count_parameters("bnt", 20, n_clusters=4, attention_only=True) == 2 * 4 * 20**2 + after


def test_attention_only_trains_and_explains(connectomes):
    model = create_model("bnt", 20, n_clusters=4, attention_only=True)
    model(connectomes).logits.sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in model.encoder.parameters())
    assert len(model(connectomes, explain=True).attention) == 2


# -- VanillaTF -----------------------------------------------------------------------------------------

# docs/facts.md, Models
CONCAT = {
    (200, 1): 992_178,
    (200, 2): 1_564_602,
    (200, 3): 2_137_026,
    (360, 1): 2_008_658,
    (360, 2): 3_268_602,
    (360, 3): 4_528_546,
}


@pytest.mark.parametrize(("n_rois", "n_layers"), CONCAT)
def test_counts_with_concat(n_rois, n_layers):
    assert count_parameters("vanilla", n_rois, n_layers=n_layers) == CONCAT[n_rois, n_layers]


@pytest.mark.parametrize(("n_rois", "count"), [(200, 1_204_594), (360, 2_620_594)])
def test_counts_with_mean_max_and_sum(n_rois, count):
    assert count_parameters("vanilla", n_rois, readout="mean") == count
    assert count_parameters("vanilla", n_rois, readout="max") == count
    assert count_parameters("vanilla", n_rois, readout="sum") == count + 2 * n_rois  # BatchNorm


def test_equals_torchs_layers_and_the_concat_head():
    torch.manual_seed(0)
    net = create_model("vanilla", 20, dropout=0.0).eval()
    layers = [nn.TransformerEncoderLayer(20, 4, 1024, 0.0, batch_first=True).eval() for _ in range(2)]
    x = torch.randn(3, 20, 20)
    z = x
    for ours, theirs in zip(net.encoder.layers, layers):
        theirs.load_state_dict(ours.state_dict())
        z = theirs(z)
    h = F.leaky_relu(net.readout.reduce[0](z), 0.01).flatten(1)
    for linear in (net.head[0], net.head[2]):
        h = F.leaky_relu(linear(h), 0.01)
    torch.testing.assert_close(net(x).logits, net.head[4](h), atol=1e-5, rtol=0)


@pytest.mark.parametrize("readout", list_readouts())
def test_every_readout_explains_its_attention(readout):
    net = create_model("vanilla", 12, readout=readout).eval()
    with torch.no_grad():
        out = net(torch.randn(2, 12, 12), explain=True)
    assert len(out.attention) == 2
    assert (out.assignments is not None) == (readout in ("ocread", "diffpool"))


def test_ocread_in_its_place_makes_it_bnt():
    assert count_parameters("vanilla", 200, readout="ocread") == count_parameters("bnt", 200)


def test_readout_options_are_passed_on():
    net = create_model("vanilla", 12, readout="ocread", readout_options={"n_clusters": 3})
    assert net(torch.randn(2, 12, 12), explain=True).assignments.shape == (2, 12, 3)


def test_edge_weights_reach_every_layer_of_attention():
    x = torch.rand(2, 12, 12)
    outputs = {}
    for how in ("none", "bias", "factor"):
        torch.manual_seed(0)
        net = create_model("vanilla", 12, edge_weights=how).eval()
        outputs[how] = net(x, explain=True)
    none, bias, factor = (outputs[how].attention for how in ("none", "bias", "factor"))
    torch.testing.assert_close(factor[0], none[0] * x[:, None])
    ratio = bias[0] / none[0]  # rows differ by their normalisation alone
    torch.testing.assert_close(ratio / ratio[..., :1], (x - x[..., :1]).exp()[:, None].expand_as(ratio))
    assert not torch.allclose(bias[1], none[1])
    with pytest.raises(BadInput, match="edge_weights is 'mask'; it can be none, bias, factor"):
        create_model("vanilla", 12, edge_weights="mask")
