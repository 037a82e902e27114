"""Dual path: the graph path against PyTorch Geometric's kind of loop over edges, and its size."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from bnt.models import count_parameters, create_model
from bnt.models._dual_path import GraphAttention, SeriesEncoder


def test_graph_attention_equals_a_loop_over_neighbours():
    torch.manual_seed(0)
    layer = GraphAttention(6, 2)
    z, absent = torch.randn(2, 5, 6), torch.rand(2, 1, 5, 5) > 0.5
    absent = absent | absent.mT
    absent[..., range(5), range(5)] = False
    found, _ = layer(z, torch.zeros(2, 1, 5, 5).masked_fill(absent, float("-inf")))
    for b in range(2):
        h = (z[b] @ layer.lin.weight.T).view(5, 2, 3)
        for i in range(5):
            near = [j for j in range(5) if not absent[b, 0, i, j]]
            for m in range(2):
                scores = torch.stack(
                    [F.leaky_relu(layer.receiver[m] @ h[i, m] + layer.sender[m] @ h[j, m], 0.2) for j in near]
                )
                mixed = sum(weight * h[j, m] for weight, j in zip(scores.softmax(0), near))
                wanted = mixed + layer.bias[3 * m : 3 * m + 3]
                torch.testing.assert_close(found[b, i, 3 * m : 3 * m + 3], wanted, atol=1e-5, rtol=1e-4)


def test_the_encoder_and_its_gradients_equal_convolution_and_max_pooling():
    torch.manual_seed(0)
    encoder = SeriesEncoder(7)
    series = torch.randn(3, 20, 4)
    rows = series.transpose(1, 2).reshape(12, 1, 20)
    wanted = encoder.map(F.adaptive_max_pool1d(encoder.filters(rows).relu(), 1).squeeze(-1)).view(3, 4, 7)
    torch.testing.assert_close(encoder(series), wanted, atol=1e-5, rtol=1e-4)
    ours = torch.autograd.grad(encoder(series).square().sum(), encoder.filters.parameters())
    theirs = torch.autograd.grad(wanted.square().sum(), encoder.filters.parameters())
    for mine, other in zip(ours, theirs):
        torch.testing.assert_close(mine, other, atol=1e-4, rtol=1e-4)


def test_both_paths_add_up_and_negative_edges_are_no_edges():
    torch.manual_seed(0)
    net = create_model("dual-path", 8, hidden=4, n_volumes=16).eval()
    x = torch.randn(2, 8, 8)
    x, series = (x + x.mT) / 2, torch.randn(2, 16, 8)
    both = net(x, series=series).logits
    pairs = [(i, j) for i in range(8) for j in range(i + 1, 8)]
    linear = net.edges(torch.stack([x[:, i, j] for i, j in pairs], 1))
    weaker = torch.where(x < 0, 3 * x, x)
    others = net.edges(torch.stack([weaker[:, i, j] for i, j in pairs], 1))
    torch.testing.assert_close(net(weaker, series=series).logits - others, both - linear, atol=1e-5, rtol=1e-4)


def test_size_is_that_of_the_parts_that_the_published_model_uses():
    # Counted on the published class with the options of its ABIDE script: 220,836, of which 164,744 get no gradient.
    assert count_parameters("dual-path", 200) == 220_836 - 164_744
