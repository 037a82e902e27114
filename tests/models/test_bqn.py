"""BQN: layer by layer against loops over entries, and its size."""

from __future__ import annotations

import pytest
import torch

from bnt.errors import BadInput
from bnt.models import count_parameters, create_model
from bnt.models._bqn import QuadraticLayer


def test_a_quadratic_layer_equals_a_loop_over_entries():
    torch.manual_seed(0)
    layer = QuadraticLayer(5, "leaky_relu", 0.5).eval()
    h, a = torch.randn(2, 5, 5), torch.randn(2, 5, 5)
    r, g = layer.linear, layer.squared
    for b in range(2):
        for i in range(5):
            for j in range(5):
                row = sum(a[b, i, k] * r.weight[j, k] for k in range(5)) + r.bias[j]
                squares = sum(h[b, i, k] ** 2 * g.weight[j, k] for k in range(5)) + g.bias[j]
                entry = h[b, i, j] * row + squares
                wanted = entry if entry > 0 else 0.01 * entry
                torch.testing.assert_close(layer(h, a)[b, i, j], wanted, atol=1e-5, rtol=1e-5)


def test_every_layer_multiplies_with_the_connectome_itself():
    torch.manual_seed(0)
    net = create_model("bqn", 12, n_layers=2).eval()
    x = torch.randn(3, 12, 12)
    h = net.layers[1](net.layers[0](x, x), x)
    torch.testing.assert_close(net(x).logits, net.head(net.readout(h).embedding))


def test_size_is_the_published_one_less_the_layers_that_are_never_used():
    # Counted on the published class at its defaults: 2,982,034, of which 3 * (200 * 200 + 200) get no gradient.
    assert count_parameters("bqn", 200) == 2_982_034 - 120_600


def test_an_unknown_activation_names_those_there_are():
    with pytest.raises(BadInput, match="gelu"):
        create_model("bqn", 12, activation="relu")
