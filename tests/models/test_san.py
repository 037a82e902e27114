"""SAN: its sizes, edge attention against a loop, spectral positions against SciPy, and every readout."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import scipy.sparse.csgraph
import torch
from torch import nn

from bnt.errors import BadInput
from bnt.models import count_parameters, create_model
from bnt.models._san import EdgeAttention, LaplacianEncoding, MLPReadout, laplacian_eigenpairs
from bnt.nn import list_readouts


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def connectomes(b: int, v: int, seed: int = 0) -> torch.Tensor:
    series = np.random.default_rng(seed).standard_normal((b, v, 40))
    return torch.from_numpy(np.stack([np.corrcoef(s) for s in series])).float()


# docs/facts.md, Models.
@pytest.mark.parametrize(
    ("n_rois", "readout", "least", "most"),
    [(200, 57_612_002, 57.665e6, 57.705e6), (360, 186_645_602, 186.705e6, 186.745e6)],
)
def test_parameters_are_those_that_fit_the_paper(n_rois, readout, least, most):
    with torch.device("meta"):
        assert sum(p.numel() for p in MLPReadout(48 * n_rois, 2).parameters()) == readout
    assert least <= count_parameters("san", n_rois) <= most


def attention_by_loops(layer: EdgeAttention, z: torch.Tensor, edges: torch.Tensor, embedding: nn.Linear):
    """Edge by edge: an embedding of each edge, mapped and multiplied into query and key channel by channel."""
    (b, v, d), m = z.shape, layer.n_heads
    h = d // m
    out = torch.zeros(b, v, d, dtype=z.dtype)
    for s in range(b):
        q, k, value = layer.query(z[s]), layer.key(z[s]), layer.value(z[s])
        for i in range(v):
            for head in range(m):
                part = slice(head * h, (head + 1) * h)
                weights = []
                for j in range(v):
                    e = layer.edge(embedding(edges[s, i, j][None]))
                    score = (q[i, part] * k[j, part] * e[part] / h**0.5).sum()
                    weights.append(score.clamp(-5, 5).exp())
                total = sum(weights) + 1e-6
                out[s, i, part] = sum(w / total * value[j, part] for j, w in enumerate(weights))
    return out


@torch.no_grad()
def test_edge_attention_equals_a_loop_over_edges():
    layer, embedding = EdgeAttention(8, 2), nn.Linear(1, 8)
    z, edges = 3 * torch.randn(2, 6, 8), connectomes(2, 6)
    expected = attention_by_loops(layer, z, edges, embedding)
    torch.testing.assert_close(layer(z, edges, embedding)[0], expected, atol=1e-5, rtol=1e-5)


def test_edge_attention_passes_gradcheck():
    layer, embedding = EdgeAttention(4, 2).double(), nn.Linear(1, 4).double()
    z = torch.randn(2, 4, 4, dtype=torch.float64, requires_grad=True)
    edges = torch.randn(2, 4, 4, dtype=torch.float64, requires_grad=True)
    parameters = (z, edges, embedding.weight, embedding.bias, layer.edge.weight)
    assert torch.autograd.gradcheck(lambda z, e, *_: layer(z, e, embedding)[0], parameters)


def test_eigenpairs_are_those_of_the_normalised_laplacian():
    x = connectomes(3, 12).double()
    values, vectors = laplacian_eigenpairs(x, 5)
    for i in range(3):
        a = x[i].abs().numpy() * (1 - np.eye(12))
        laplacian = scipy.sparse.csgraph.laplacian(a, normed=True)
        np.testing.assert_allclose(values[i], np.linalg.eigvalsh(laplacian)[:5], atol=1e-10)
        np.testing.assert_allclose(laplacian @ vectors[i].numpy(), vectors[i].numpy() * values[i].numpy(), atol=1e-10)


def test_signs_of_eigenvectors_follow_a_rule():
    _, vectors = laplacian_eigenpairs(connectomes(4, 10), 6)
    largest = vectors.gather(1, vectors.abs().argmax(1, keepdim=True))
    assert (largest > 0).all()


def test_nodes_without_edges_have_finite_positions():
    x = connectomes(2, 10)
    x[:, 3] = x[:, :, 3] = 0
    values, vectors = laplacian_eigenpairs(x, 10)
    assert values.isfinite().all()
    assert vectors.isfinite().all()
    assert (laplacian_eigenpairs(torch.zeros(1, 5, 5), 5)[0] == 1).all()


def test_the_position_of_a_node_without_edges_is_no_rounding_error():
    torch.manual_seed(0)
    encoding = LaplacianEncoding().eval()
    x = connectomes(1, 60)
    x[:, 7] = x[:, :, 7] = 0
    near = x + 1e-6 * torch.randn_like(x) * (x != 0)
    before, after = encoding(x), encoding((near + near.mT) / 2)
    torch.testing.assert_close(after[:, 7], before[:, 7], atol=1e-3, rtol=0)


@pytest.mark.parametrize("model", ["san", "braingb"])
def test_concat_with_the_hidden_mlp_is_concat_and_the_mlp(model):
    plain = create_model(model, 20)
    control = create_model(model, 20, readout_options={"hidden_mlp": True})
    width = {"san": 48, "braingb": 8}[model]
    hidden = (20 * width * 32 + 32) + (32 * 32 + 32) + (32 * 20 * width + 20 * width)
    count = [sum(p.numel() for p in one.parameters()) for one in (plain, control)]
    assert count[1] - count[0] == hidden


@pytest.mark.parametrize("readout", list_readouts())
def test_every_readout_trains(readout):
    net = create_model("san", 12, width=12, lpe_dim=4, lpe_ffn=8, n_heads=2, lpe_heads=2, readout=readout)
    out = net(connectomes(3, 12))
    (out.logits.sum() + (out.loss if out.loss is not None else 0)).backward()
    assert all(p.grad is not None for p in net.parameters() if p.requires_grad)


@pytest.mark.parametrize(("lpe_dim", "layers", "heads"), list(product((4, 8, 16), (1, 2), (2, 4))))  # the paper's grid
def test_the_whole_grid_of_the_paper_can_be_made(lpe_dim, layers, heads):
    options = {"lpe_dim": lpe_dim, "lpe_layers": layers, "n_layers": layers, "n_heads": heads, "lpe_heads": heads}
    net = create_model("san", 6, lpe_ffn=8, **options).eval()
    assert net(connectomes(2, 6)).logits.shape == (2, 2)


def test_positions_too_wide_for_the_nodes_are_refused():
    with pytest.raises(BadInput, match="lpe_dim is 48"):
        create_model("san", 6, lpe_dim=48)
