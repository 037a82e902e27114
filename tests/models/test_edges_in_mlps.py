"""BrainNetMLP and NeuroGraph's GNN against loops, numpy and PyTorch Geometric, their sizes and recipes as published."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bnt.errors import BadInput
from bnt.models import count_parameters, create_model
from bnt.models._neurograph import DenseGCN, normalised, strongest
from bnt.training import find_recipe

V, T = 9, 24


def subjects(n: int = 4, v: int = V, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Correlations (n, V, V) and standardised series (n, T, V)."""
    generator = torch.Generator().manual_seed(seed)
    series = torch.randn(n, T, v, generator=generator) + torch.randn(n, T, 1, generator=generator)
    series = (series - series.mean(1, keepdim=True)) / series.std(1, correction=0, keepdim=True)
    x = series.mT @ series / T
    return (x + x.mT) / 2, series


def made(name: str, **options):
    """Return a model in evaluation mode whose norms are not those of the start."""
    torch.manual_seed(0)
    net = create_model(name, V, 3, **options).eval()
    with torch.no_grad():
        for key, value in [*net.named_parameters(), *net.named_buffers()]:
            if value.ndim == 1 and value.is_floating_point():
                value.add_(0.3 * torch.rand_like(value)) if "var" in key else value.add_(0.3 * torch.randn_like(value))
    return net


# -- BrainNetMLP ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", [False, True])
def test_brainnetmlp_equals_loops_over_edges_and_frequencies(norm):
    net, (x, series) = made("brainnetmlp", n_volumes=T, hidden=4, n_frequencies=7, norm=norm), subjects()
    found = net(x, series=series).logits
    for i in range(len(x)):
        edges = torch.stack([x[i, a, b] for a in range(V) for b in range(a, V)])
        spatial = net.spatial.weight @ edges + net.spatial.bias
        spectral = []
        for j in range(1, 7):
            angles = 2 * np.pi * j * np.arange(T) / T
            real, imaginary = (torch.tensor(f(angles), dtype=torch.float32) @ series[i] for f in (np.cos, np.sin))
            amplitude = (real.square() + imaginary.square()).sqrt()  # (V,)
            spectral.append(net.spectral.weight @ amplitude + net.spectral.bias)
        joined = torch.cat([spatial, torch.stack(spectral).mean(0)])
        if norm:
            joined = (joined - net.norm.running_mean) / (net.norm.running_var + 1e-5).sqrt()
            joined = joined * net.norm.weight + net.norm.bias
        torch.testing.assert_close(found[i], net.last.weight @ F.gelu(joined) + net.last.bias, atol=1e-4, rtol=1e-4)


def test_brainnetmlp_drops_features_of_each_frequency_in_training():
    net, (_, series) = made("brainnetmlp", n_volumes=T, hidden=4, dropout=0.5), subjects()
    with torch.no_grad():
        evaluated = net._spectral(series)
        net.train()
        drawn = torch.stack([net._spectral(series) for _ in range(2000)])
    assert (drawn[0] != drawn[1]).any()
    torch.testing.assert_close(drawn.mean(0), evaluated, atol=0.1, rtol=0.05)


def test_brainnetmlp_has_as_many_parameters_as_published():
    assert count_parameters("brainnetmlp", 200) == 649_794  # made by the published code with its ABIDE configuration


def test_brainnetmlp_is_trained_as_published():
    recipe = find_recipe("default", "brainnetmlp")
    assert (recipe.lr, recipe.lr_end, recipe.weight_decay, recipe.batch_size) == (1e-4, 1e-4, 0.0, 64)
    assert (recipe.epochs, recipe.reduction, recipe.mixup, recipe.select) == (200, "sum", 0.0, "last")


def test_brainnetmlp_needs_one_frequency():
    with pytest.raises(BadInput, match="n_frequencies"):
        create_model("brainnetmlp", V, n_frequencies=1)


# -- NeuroGraph ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("density", [0.05, 0.2, 0.5, 1.0])
def test_the_threshold_is_numpys_percentile_of_the_positive_entries(density):
    x, _ = subjects(6, 15)
    rows, columns = torch.triu_indices(15, 15, 1)
    found = strongest(x[:, rows, columns], density)
    for i in range(len(x)):
        matrix = x[i].clone().fill_diagonal_(0)
        expected = np.percentile(matrix[matrix > 0].numpy().astype(np.float64), 100 * (1 - density))
        assert found[i].item() == pytest.approx(expected, abs=1e-6)


def test_without_positive_edges_there_is_no_graph():
    assert strongest(torch.tensor([[-0.2, 0.0, -0.1]]), 0.05).item() == torch.inf


def test_graph_convolution_equals_torch_geometric():
    nn = pytest.importorskip("torch_geometric.nn")
    torch.manual_seed(1)
    ours, theirs = DenseGCN(4, 3), nn.GCNConv(4, 3)
    theirs.lin.load_state_dict(ours.lin.state_dict())
    with torch.no_grad():
        theirs.bias.copy_(ours.bias.normal_())
    adjacency = (torch.rand(6, 6) > 0.6).float().triu(1)
    adjacency = adjacency + adjacency.T
    z = torch.randn(6, 4)
    found = ours(z[None], normalised(adjacency[None]))[0]
    torch.testing.assert_close(found, theirs(z, adjacency.nonzero().T), atol=1e-6, rtol=1e-5)


def test_neurograph_equals_loops_over_nodes_and_neighbours():
    net, (x, _) = made("neurograph", hidden=4, mlp=6, n_layers=2, density=0.3), subjects()
    out = net(x, explain=True)
    norm = lambda layer, y: (y - layer.running_mean) / (layer.running_var + 1e-5).sqrt() * layer.weight + layer.bias  # noqa: E731
    for i in range(len(x)):
        features = x[i].clone().fill_diagonal_(0)
        threshold = np.percentile(features[features > 0].numpy(), 70)
        neighbours = [[j for j in range(V) if j == v or features[v, j] >= threshold] for v in range(V)]
        assert [(out.attention[0][i, 0, v] > 0).sum() + 1 for v in range(V)] == [len(n) for n in neighbours]
        z, means = features, []
        for conv in net.convs:
            sent = [conv.lin.weight @ z[v] for v in range(V)]
            z = torch.stack(
                [
                    conv.bias + sum(sent[j] / (len(neighbours[v]) * len(neighbours[j])) ** 0.5 for j in neighbours[v])
                    for v in range(V)
                ]
            ).tanh()
            means.append(z.mean(0))
        edges = torch.stack([x[i, a, b] for a in range(V) for b in range(a + 1, V)])
        y = torch.cat([norm(net.norm_edges, edges), norm(net.norm_nodes, torch.cat(means))])
        y = torch.cat([net.of_edges.weight, net.of_nodes.weight], 1) @ y + net.of_edges.bias
        y = net.second.weight @ norm(net.norm1, y).relu() + net.second.bias
        y = net.third.weight @ norm(net.norm2, y).relu() + net.third.bias
        logits = net.last.weight @ norm(net.norm3, y).relu() + net.last.bias
        torch.testing.assert_close(out.logits[i], logits, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("n_rois", "expected"), [(200, 1_331_802), (1000, 33_011_002)])
def test_neurograph_has_as_many_parameters_as_the_published_code_makes(n_rois, expected):
    assert count_parameters("neurograph", n_rois) == expected


def test_neurograph_is_trained_as_published():
    recipe = find_recipe("default", "neurograph")
    assert (recipe.lr, recipe.lr_end, recipe.weight_decay, recipe.batch_size) == (1e-5, 1e-5, 5e-4, 16)
    assert (recipe.epochs, recipe.reduction, recipe.mixup, recipe.select) == (100, "mean", 0.0, "best")
