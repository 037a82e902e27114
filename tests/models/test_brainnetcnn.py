"""BrainNetCNN: its sizes, its filters against convolutions and loops, and what the released version does."""

from __future__ import annotations

import pytest
import torch

from bnt.models import count_parameters, create_model
from bnt.models._brainnetcnn import EdgeToEdge, EdgeToNode


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


# docs/facts.md, Models.
@pytest.mark.parametrize(("n_rois", "expected"), [(200, 933_277), (360, 1_650_077)])
def test_parameters_are_as_many_as_in_the_released_code(n_rois, expected):
    assert count_parameters("brainnetcnn", n_rois) == expected


def edge_to_edge_by_loops(layer: EdgeToEdge, a: torch.Tensor) -> torch.Tensor:
    b, v, c, _ = a.shape
    n_out = layer.row.out_features
    row = layer.row.weight.view(n_out, c, v)
    column = layer.column.weight.view(n_out, v, c)
    out = torch.zeros(b, v, n_out, v, dtype=a.dtype)
    for s in range(b):
        for o in range(n_out):
            for i in range(v):
                for j in range(v):
                    total = layer.row.bias[o] + layer.column.bias[o]
                    for k in range(v):
                        for ch in range(c):
                            total = total + row[o, ch, k] * a[s, i, ch, k] + column[o, k, ch] * a[s, k, ch, j]
                    out[s, i, o, j] = total
    return out


@torch.no_grad()
def test_edge_to_edge_equals_a_loop_over_edges():
    layer = EdgeToEdge(6, 2, 3)
    a = torch.randn(2, 6, 2, 6)
    torch.testing.assert_close(layer(a), edge_to_edge_by_loops(layer, a), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_edge_to_edge_equals_the_two_convolutions_of_the_paper():
    layer, v, c, o = EdgeToEdge(7, 3, 4), 7, 3, 4
    a = torch.randn(2, v, c, v)
    image = a.permute(0, 2, 1, 3)  # (B, c, V, V)
    rows = torch.nn.functional.conv2d(image, layer.row.weight.view(o, c, 1, v), layer.row.bias)
    kernel = layer.column.weight.view(o, v, c).permute(0, 2, 1).unsqueeze(-1)
    columns = torch.nn.functional.conv2d(image, kernel, layer.column.bias)
    torch.testing.assert_close(layer(a), (rows + columns).permute(0, 2, 1, 3), atol=1e-5, rtol=1e-5)


def test_filters_pass_gradcheck():
    a = torch.randn(2, 4, 2, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(EdgeToEdge(4, 2, 3).double(), a)
    assert torch.autograd.gradcheck(EdgeToNode(4, 2).double(), a)


def test_edges_that_are_never_made_give_the_nodes_and_gradients_of_those_that_are():
    layer = EdgeToNode(9, 4).double()
    # Small whole numbers: many sums are 0 exactly, where the rectifier has its corner.
    rows = torch.randint(-3, 4, (2, 9, 4)).double().requires_grad_()
    columns = torch.randint(-3, 4, (2, 4, 9)).double().requires_grad_()
    made = layer(rows[..., None] + columns[:, None])
    torch.testing.assert_close(layer.of_parts(rows, columns), made)
    inputs = (rows, columns, *layer.parameters())
    expected = torch.autograd.grad(made.square().sum(), inputs)
    for one, other in zip(torch.autograd.grad(layer.of_parts(rows, columns).square().sum(), inputs), expected):
        torch.testing.assert_close(one, other)


def test_dropout_is_on_at_evaluation_only_where_it_is_asked_for():
    x = torch.randn(4, 10, 10)
    torch.manual_seed(0)
    fixed = create_model("brainnetcnn", 10).eval()
    released = create_model("brainnetcnn-released", 10).eval()
    noisy = create_model("brainnetcnn-released", 10, noise=True).eval()
    assert torch.equal(fixed(x).logits, fixed(x).logits)
    assert torch.equal(released(x).logits, released(x).logits)
    assert not torch.equal(noisy(x).logits, noisy(x).logits)


@torch.no_grad()
def test_the_released_version_rectifies_its_logits():
    x = torch.randn(16, 10, 10)
    fixed = create_model("brainnetcnn", 10, dropout=0.0).eval()
    released = create_model("brainnetcnn-released", 10, dropout=0.0).eval()
    released.load_state_dict(fixed.state_dict())
    expected = torch.where(fixed(x).logits > 0, fixed(x).logits, 0.33 * fixed(x).logits)
    torch.testing.assert_close(released(x).logits, expected)


@pytest.mark.parametrize("p", [0.3, 0.5, 0.7])  # the paper's grid
def test_dropouts_of_the_grid_train(p):
    net = create_model("brainnetcnn", 8, dropout=p)
    net(torch.randn(2, 8, 8)).logits.sum().backward()
    assert net.e2e1.row.weight.grad.isfinite().all()


def test_graphs_one_by_one_have_the_gradients_of_the_whole_batch():
    net = create_model("brainnetcnn", 6).double()
    x = torch.randn(3, 6, 6, dtype=torch.float64, requires_grad=True)
    wanted = (x, *net.e2e1.parameters(), *net.e2e2.parameters(), *net.e2n.parameters())
    by_graph = torch.autograd.grad(net._by_graph(x).square().sum(), wanted)
    at_once = torch.autograd.grad(net._nodes(x).square().sum(), wanted)
    for one, other in zip(by_graph, at_once):
        torch.testing.assert_close(one, other)
