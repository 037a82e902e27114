"""BrainGB: its sizes, and its three messages against a loop over edges."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from bnt.errors import BadInput
from bnt.models import count_parameters, create_model
from bnt.models._braingb import MESSAGES, DenseGAT


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


# docs/facts.md, Models.
@pytest.mark.parametrize(
    ("message", "n_rois", "expected"),
    [
        ("node_concat", 200, 1_082_554),
        ("node_concat", 360, 1_492_154),
        ("node_edge_concat", 200, 1_083_066),
        ("node_edge_concat", 360, 1_492_666),
    ],
)
def test_parameters_are_those_of_the_attention_design(message, n_rois, expected):
    assert count_parameters("braingb", n_rois, message=message) == expected


def gat_by_loops(layer: DenseGAT, z: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
    """Edge by edge, as a message-passing library would do it."""
    (b, v, _), m, h = z.shape, layer.n_heads, layer.width
    out = torch.zeros(b, v, m * h, dtype=z.dtype)
    for s in range(b):
        for head in range(m):
            x = z[s] @ layer.lin.weight[head * h : (head + 1) * h].T
            for i in range(v):
                score = torch.stack([layer.receiver[head] @ x[i] + layer.sender[head] @ x[j] for j in range(v)])
                alpha = torch.nn.functional.leaky_relu(score, 0.2).softmax(0)
                total = torch.zeros(h, dtype=z.dtype)
                for j in range(v):
                    w = edges[s, i, j] if i != j else (edges[s, i].sum() - edges[s, i, i]) / (v - 1)
                    if layer.message == "edge_weighted":
                        total = total + alpha[j] * w * x[j]
                    elif layer.message == "node_concat":
                        total = total + layer.concat(torch.cat([x[i], alpha[j] * x[j]]))
                    else:
                        total = total + layer.concat(torch.cat([x[i], alpha[j] * x[j], w[None]]))
                out[s, i, head * h : (head + 1) * h] = total
    return out + layer.bias


@torch.no_grad()
@pytest.mark.parametrize("message", MESSAGES)
def test_each_message_equals_a_loop_over_edges(message):
    layer = DenseGAT(6, 5, 2, message)
    layer.bias.normal_()
    z, edges = torch.randn(2, 6, 6), torch.rand(2, 6, 6)
    torch.testing.assert_close(layer(z, edges)[0], gat_by_loops(layer, z, edges), atol=1e-5, rtol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("message", ["edge_weighted", "node_edge_concat"])
def test_messages_with_edges_equal_torch_geometric_and_the_loops_it_adds(message):
    # Its GATConv takes self-loops out and gives those that it adds the mean weight of the edges into a node.
    nn = pytest.importorskip("torch_geometric.nn")
    ours = DenseGAT(6, 5, 2, message)

    class WithEdges(nn.GATConv):
        def edge_update(self, alpha_j, alpha_i, edge_attr, index, ptr, dim_size):
            self.weights = edge_attr.view(-1, 1, 1)
            return super().edge_update(alpha_j, alpha_i, None, index, ptr, dim_size)

        def message(self, x_i, x_j, alpha):
            x_j = alpha[..., None] * x_j
            if message == "edge_weighted":
                return self.weights * x_j
            return ours.concat(torch.cat([x_i, x_j, self.weights.expand(-1, 2, 1)], -1))

    theirs = WithEdges(6, 5, heads=2)
    theirs.lin.weight.copy_(ours.lin.weight)
    theirs.att_dst.copy_(ours.receiver[None])
    theirs.att_src.copy_(ours.sender[None])
    z, edges = torch.randn(7, 6), torch.rand(7, 7)
    pairs = torch.cartesian_prod(torch.arange(7), torch.arange(7)).T  # source, target; the diagonal among them
    expected = theirs(z, pairs, edges[pairs[1], pairs[0]])
    torch.testing.assert_close(ours(z[None], edges[None])[0][0], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("message", MESSAGES)
def test_each_message_passes_gradcheck(message):
    layer = DenseGAT(4, 3, 2, message).double()
    z = torch.randn(2, 4, 4, dtype=torch.float64, requires_grad=True)
    edges = torch.rand(2, 4, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda z, e: layer(z, e)[0], (z, edges))


@pytest.mark.parametrize(("message", "readout"), list(product(MESSAGES, ("mean", "max", "concat"))))  # the paper's grid
def test_the_whole_grid_of_the_paper_trains(message, readout):
    net = create_model("braingb", 8, message=message, readout=readout, hidden=6)
    net(torch.randn(3, 8, 8)).logits.sum().backward()
    assert all(p.grad is not None for p in net.parameters())


def test_attention_is_explained_and_sums_to_one():
    out = create_model("braingb", 8, hidden=6)(torch.randn(3, 8, 8), explain=True)
    assert [tuple(a.shape) for a in out.attention] == [(3, 2, 8, 8)] * 2
    for weights in out.attention:
        torch.testing.assert_close(weights.sum(-1), torch.ones(3, 2, 8))


def test_an_unknown_message_is_refused_with_the_known_ones():
    with pytest.raises(BadInput, match="edge_weighted, node_edge_concat, node_concat"):
        create_model("braingb", 8, message="sum")
