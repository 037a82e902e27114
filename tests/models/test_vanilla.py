"""VanillaTF: counts, readouts, heads."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from bnt.errors import BadInput
from bnt.models import count_parameters, create_model
from bnt.nn import list_readouts

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


def test_six_heads_cannot_divide_200():
    # docs/facts.md, Training: a cell of the paper's own grid that cannot be run
    with pytest.raises(BadInput, match="n_heads is 6, which does not divide the width 200"):
        create_model("vanilla", 200, n_heads=6)


@pytest.mark.parametrize("node_features", ["profile", "no-diagonal", "identity", "learned-identity", "eigen"])
def test_node_features_train_a_step(node_features):
    net = create_model("vanilla", 20, node_features=node_features)
    net(torch.randn(2, 20, 20)).logits.sum().backward()
    assert all(p.grad is not None for p in net.parameters())


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
