"""DGM: the sampler against its distribution, convolutions against loops and torch_geometric, the reward, its size."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import gradcheck

from bnt.errors import BadInput
from bnt.models import count_parameters, create_model
from bnt.models._dgm import GraphConv, gumbel, sample_neighbours, symmetric_normalised

V = 12


def connectomes(n: int = 6, seed: int = 0) -> torch.Tensor:
    x = torch.randn(n, V, V, generator=torch.Generator().manual_seed(seed)) / 3
    return (x + x.mT) / 2


# docs/facts.md, Models.
@pytest.mark.parametrize(("n_rois", "expected"), [(200, 8_375), (360, 13_495)])
def test_parameter_count_is_that_of_the_published_layers(n_rois, expected):
    assert count_parameters("dgm", n_rois) == expected


def test_convolution_equals_torch_geometric_and_a_loop_over_edges():
    nn = pytest.importorskip("torch_geometric.nn")
    from torch_geometric.utils import dense_to_sparse

    torch.manual_seed(0)
    ours, theirs = GraphConv(5, 3), nn.GCNConv(5, 3)
    with torch.no_grad():
        ours.bias.normal_()
        theirs.lin.weight.copy_(ours.weight.T)
        theirs.bias.copy_(ours.bias)
    z, adjacency = torch.randn(6, 5), torch.rand(6, 6) * (torch.rand(6, 6) > 0.4)
    adjacency[0, 0], adjacency[1, 1] = 0.7, 0.0  # with and without a self-loop of its own
    dense = ours(z[None], symmetric_normalised(adjacency[None]))[0]
    torch.testing.assert_close(dense, theirs(z, *dense_to_sparse(adjacency.T)), atol=1e-5, rtol=0)

    weights = {(i, j): float(adjacency[i, j]) for i in range(6) for j in range(6) if adjacency[i, j] != 0}
    weights |= {(i, i): 1.0 for i in range(6) if (i, i) not in weights}
    degree = [sum(w for (i, _), w in weights.items() if i == node) for node in range(6)]
    expected = ours.bias.repeat(6, 1)
    for (i, j), w in weights.items():
        expected[i] = expected[i] + w / (degree[i] * degree[j]) ** 0.5 * (z[j] @ ours.weight)
    torch.testing.assert_close(dense, expected, atol=1e-5, rtol=0)


def test_neighbours_are_drawn_in_proportion_to_their_probability():
    # k = 1: the Gumbel-max trick draws j with probability softmax(-|z_i - z_j|^2 e^t).
    torch.manual_seed(1)
    z, t = torch.randn(1, 4, 2), torch.tensor(-0.5)
    expected = torch.softmax(-torch.cdist(z, z)[0].square() * t.exp(), -1)
    drawn = sample_neighbours(z.expand(20_000, -1, -1), t, 1, gumbel((20_000, 4, 4))).adjacency().mean(0)
    assert (drawn - expected).abs().max() < 0.02


def test_released_noise_has_the_other_sign_and_stays_in_the_log_probabilities():
    torch.manual_seed(2)
    z, t, noise = torch.randn(2, 5, 3), torch.tensor(0.3), gumbel((2, 5, 5))
    distances = torch.cdist(z, z).square() * t.exp()
    fixed, released = sample_neighbours(z, t, 2, noise), sample_neighbours(z, t, 2, noise, released=True)
    assert torch.equal(fixed.nodes, (noise - distances).topk(2).indices)
    torch.testing.assert_close(fixed.log_p, -distances.gather(2, fixed.nodes), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(released.log_p, (-distances - noise).topk(2).values, atol=1e-4, rtol=1e-4)


def test_without_noise_the_nearest_are_taken_and_a_node_is_nearest_to_itself():
    z = torch.tensor([[[0.0], [1.0], [3.0], [7.0]]])
    drawn = sample_neighbours(z, torch.tensor(0.0), 2)
    assert drawn.nodes[0].tolist() == [[0, 1], [1, 0], [2, 1], [3, 2]]


def test_layers_pass_gradcheck():
    torch.manual_seed(3)
    conv = GraphConv(3, 2).double()
    z = torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True)
    adjacency = torch.rand(2, 5, 5, dtype=torch.float64)
    t = torch.tensor(0.2, dtype=torch.float64, requires_grad=True)
    noise = gumbel((2, 5, 5)).double()

    def through(z, t, *_):
        return sample_neighbours(conv(z, symmetric_normalised(adjacency)), t, 2, noise).log_p.exp()

    assert gradcheck(through, (z, t, *conv.parameters()))


@pytest.mark.parametrize("name", ["dgm", "dgm-released"])
@pytest.mark.parametrize("embedding", ["gcn", "mlp"])
def test_gradients_reach_every_parameter_and_constant_rois_make_no_nan(name, embedding):
    torch.manual_seed(4)
    x = connectomes()
    x[:2, 3:5] = 0
    x[:2, :, 3:5] = 0
    model = create_model(name, V, embedding=embedding)
    out = model(x, target=torch.eye(2).repeat(3, 1))
    (out.logits.square().sum() + out.loss).backward()
    for parameter_name, p in model.named_parameters():
        assert p.grad is not None, parameter_name
        assert torch.isfinite(p.grad).all(), parameter_name
        assert p.grad.abs().sum() > 0, parameter_name
    assert torch.isfinite(model.eval()(x * 0).logits).all()


def test_the_task_does_not_reach_the_embedding():
    model = create_model("dgm", V)
    model(connectomes()).logits.sum().backward()
    assert model.embed.weight.grad is None
    assert model.temperature.grad is None


def test_reward_makes_edges_of_the_rightly_classified_likelier_and_of_others_less_likely():
    torch.manual_seed(5)
    x, model = connectomes(), create_model("dgm", V)
    state = torch.get_rng_state()
    right = torch.nn.functional.one_hot(model(x).logits.argmax(1), 2).float()
    losses = []
    for target in (right, 1 - right):
        torch.set_rng_state(state)
        model.mean_reward.fill_(0.5)
        losses.append(float(model(x, target=target).loss.detach()))
    assert losses[0] < 0 < losses[1]
    assert losses[0] == pytest.approx(-losses[1], rel=1e-5)  # -0.5 and +0.5 times the same mean of exp(log p)


def test_mean_reward_moves_a_twentieth_of_the_way_in_training_only():
    x, model = connectomes(), create_model("dgm", V)
    everyone = torch.full((6, 2), 1.0)  # whatever is predicted is right
    model(x, target=everyone)
    assert float(model.mean_reward) == pytest.approx(0.5 + 0.05 * 0.5)
    model.eval()(x, target=everyone)
    assert float(model.mean_reward) == pytest.approx(0.525)


@pytest.mark.parametrize("n_samples", [0, 10])
@pytest.mark.parametrize("n_classes", [1, 2, 5])
def test_evaluation_is_the_same_twice_alone_and_in_a_batch(n_samples, n_classes):
    torch.manual_seed(6)
    x, model = connectomes(), create_model("dgm", V, n_classes, n_samples=n_samples).eval()
    logits = model(x).logits
    torch.rand(3)  # the global generator has no part in it
    assert torch.equal(model(x).logits, logits)
    torch.testing.assert_close(model(x[4:5]).logits, logits[4:5], atol=1e-5, rtol=1e-5)


def test_evaluation_averages_the_probabilities_of_the_drawn_graphs():
    torch.manual_seed(7)
    x, model = connectomes(), create_model("dgm", V, 3, n_samples=4).eval()
    z = model.reduce(x)
    place = model._place(z, x)
    each = [
        model._read(z, sample_neighbours(place, model.temperature, 5, noise).adjacency()).softmax(1)
        for noise in model._noises(place)
    ]
    out = model(x, explain=True)
    torch.testing.assert_close(out.logits.softmax(1), torch.stack(each).mean(0), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(out.attention[0].sum(-1), torch.full((6, 1, V), 5.0))


def test_training_draws_a_new_graph_each_time_from_the_global_generator():
    x, model = connectomes(), create_model("dgm", V, readout="concat")
    torch.manual_seed(8)
    first, second = model(x).logits, model(x).logits
    assert not torch.equal(first, second)
    torch.manual_seed(8)
    assert torch.equal(model(x).logits, first)


def test_wrong_options_are_refused_in_a_sentence():
    for option, words in (({"k": 13}, "k is 13"), ({"embedding": "gat"}, "embedding"), ({"readout": "max"}, "readout")):
        with pytest.raises(BadInput, match=words):
            create_model("dgm", V, **option)
