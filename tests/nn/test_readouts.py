"""Readouts: naive loops, padding, gradients, and one interface."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from bnt.errors import BadInput
from bnt.nn import create_readout, list_readouts, padded_batch
from bnt.nn._readouts import assignment_entropy, link_loss

V, D = 12, 6
OPTIONS: dict[str, dict] = {"sort": {"keep": 8}, "diffpool": {"n_clusters": 3}, "ocread": {"n_clusters": 3}}


def make(name: str, n_nodes: int = V):
    torch.manual_seed(0)
    return create_readout(name, n_nodes, D, **OPTIONS.get(name, {}))


def links(b: int = 2, v: int = V) -> torch.Tensor:
    a = torch.randn(b, v, v) * 0.5
    return (a + a.mT) / 2


def test_the_seven_readouts_of_the_paper_are_there():
    assert sorted(list_readouts()) == ["concat", "diffpool", "max", "mean", "ocread", "sort", "sum"]


@pytest.mark.parametrize("name", list_readouts())
def test_one_interface(name):
    readout = make(name)
    embedding, loss, assignments = readout(torch.randn(2, V, D), None, links())
    assert embedding.shape == (2, readout.out_features)
    assert (loss is not None) == (name == "diffpool")
    assert (assignments is not None) == (name in ("diffpool", "ocread"))


@pytest.mark.parametrize("garbage", [0.0, 1e6, float("nan")])
@pytest.mark.parametrize("name", list_readouts())
def test_padding_changes_nothing(name, garbage):
    readout = make(name, n_nodes=V + 4).eval()
    z, a = torch.randn(2, V, D), links()
    alone = readout(z, None, a)
    padded = F.pad(z, (0, 0, 0, 4), value=garbage)
    mask = torch.arange(V + 4).expand(2, -1) < V
    pooled = readout(padded, mask, F.pad(a, (0, 4, 0, 4), value=garbage))
    torch.testing.assert_close(pooled.embedding, alone.embedding)
    if name == "diffpool":
        torch.testing.assert_close(pooled.loss, alone.loss)
    if alone.assignments is not None:
        torch.testing.assert_close(pooled.assignments[:, :V], alone.assignments)
        assert not pooled.assignments[:, V:].any()


@pytest.mark.parametrize("name", list_readouts())
def test_graphs_of_different_sizes_pool_as_they_do_alone(name):
    readout = make(name).eval()
    graphs = [torch.randn(size, D) for size in (3, 12, 7)]
    z, mask = padded_batch(graphs)
    together = readout(z, mask).embedding
    alone = torch.cat([readout(graph[None]).embedding for graph in graphs])
    torch.testing.assert_close(together, alone)


@pytest.mark.parametrize("name", list_readouts())
def test_gradcheck(name):
    readout = make(name, n_nodes=4).double()
    z = torch.randn(3, 4, D, dtype=torch.double, requires_grad=True)
    a = links(3, 4).double().clamp(0.05, 0.95)
    names = [key for key, _ in readout.named_parameters()]
    weights = [p.detach().clone().requires_grad_() for p in readout.parameters()]

    def run(z, *values):
        pooled = torch.func.functional_call(readout, dict(zip(names, values)), (z, None, a))
        return tuple(part for part in pooled if part is not None)

    assert torch.autograd.gradcheck(run, (z, *weights))


def test_mean_max_and_sum_by_loops():
    z = torch.randn(2, V, D)
    mean, largest = make("mean")(z).embedding, make("max")(z).embedding
    total = make("sum").eval()(z).embedding.detach()
    for b in range(2):
        for c in range(D):
            column = [float(z[b, i, c]) for i in range(V)]
            assert float(mean[b, c]) == pytest.approx(sum(column) / V, abs=1e-6)
            assert float(largest[b, c]) == max(column)
            # BatchNorm as it starts: mean 0, variance 1, eps 1e-5
            assert float(total[b, c]) == pytest.approx(sum(column) / math.sqrt(1 + 1e-5), abs=1e-5)


def test_sum_is_batch_normalised_in_training():
    out = make("sum").train()(torch.randn(16, V, D) * 3 + 2).embedding
    torch.testing.assert_close(out.mean(0), torch.zeros(D), atol=1e-5, rtol=0)


def test_concat_by_loops():
    readout = make("concat")
    z = torch.randn(2, V, D)
    linear = readout.reduce[0]
    parts = [F.leaky_relu(linear.weight @ z[1, i] + linear.bias, 0.01) for i in range(V)]
    torch.testing.assert_close(readout(z).embedding[1], torch.cat(parts), atol=1e-6, rtol=1e-6)


def test_concat_refuses_more_nodes_than_it_was_made_for():
    with pytest.raises(BadInput, match="at most 12.*13"):
        make("concat")(torch.randn(1, 13, D))


def test_sort_keeps_the_nodes_largest_in_the_last_channel_in_order():
    z = torch.randn(2, V, D)
    top = make("sort").sort(z)
    for b in range(2):
        order = sorted(range(V), key=lambda i: -float(z[b, i, -1]))[:8]
        assert torch.equal(top[b], z[b, order])


def test_sort_convolutions_are_those_of_dgcnn():
    """A 1-D convolution of kernel and stride D over all nodes, max-pooling by 2, a convolution of kernel 4."""
    readout = make("sort")
    z = torch.randn(2, V, D)
    flat = readout.sort(z).flatten(1)[:, None]  # (B, 1, k D)
    first = F.relu(F.conv1d(flat, readout.node.weight[:, None], readout.node.bias, stride=D))
    second = F.relu(readout.along(F.max_pool1d(first, 2)))
    torch.testing.assert_close(readout(z).embedding, second.flatten(1))


@pytest.mark.parametrize("name", ["mean", "max", "sum", "sort", "ocread", "diffpool"])
def test_order_of_nodes_does_not_matter(name):
    readout = make(name).eval()
    z, a = torch.randn(2, V, D), links()
    order = torch.randperm(V)
    shuffled = readout(z[:, order], None, a[:, order][:, :, order]).embedding
    torch.testing.assert_close(shuffled, readout(z, None, a).embedding, atol=1e-5, rtol=1e-4)


def test_diffpool_losses_by_loops():
    torch.manual_seed(1)
    logits, a = torch.randn(1, 5, 3), torch.rand(1, 5, 5)
    s = logits.softmax(-1)
    squared = sum(
        (float(a[0, i, j]) - sum(float(s[0, i, k] * s[0, j, k]) for k in range(3))) ** 2
        for i in range(5)
        for j in range(5)
    )
    entropy = -sum(float(p) * math.log(float(p)) for p in s.flatten()) / 5
    assert float(link_loss(a, s)) == pytest.approx(math.sqrt(squared) / 25, rel=1e-5)
    assert float(assignment_entropy(logits)) == pytest.approx(entropy, rel=1e-5)


def test_diffpool_losses_equal_pytorch_geometric():
    dense = pytest.importorskip("torch_geometric.nn.dense")
    logits, a = torch.randn(1, 7, 3), torch.rand(1, 7, 7)
    _, _, link, entropy = dense.dense_diff_pool(torch.randn(1, 7, 2), a, logits)
    torch.testing.assert_close(link_loss(a, logits.softmax(-1)), link)
    torch.testing.assert_close(assignment_entropy(logits), entropy)


def test_unknown_readout_and_option_are_named_in_a_sentence():
    with pytest.raises(BadInput, match="readout 'median'.*mean, max"):
        create_readout("median", 5, 5)
    with pytest.raises(BadInput, match="'sort' has no option 'k'.*keep"):
        create_readout("sort", 5, 5, k=3)
