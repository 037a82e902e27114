"""BrainNetGNN: its dense layers against loops and torch_geometric, what is trained, its size against the facts."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import gradcheck

from bnt.errors import BadInput
from bnt.models import count_parameters, create_model
from bnt.models._brainnetgnn import GatedGraphConv, Set2Set

V, T = 12, 40


def inputs(n: int = 4, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, V, V, generator=generator), torch.randn(n, T, V, generator=generator)


# docs/facts.md, Models.
@pytest.mark.parametrize(
    ("n_rois", "n_volumes", "expected"),
    [(200, 100, 13_321_182), (360, 512, 23_872_862), (116, 160, 7_825_758)],
)
def test_parameter_count_is_that_of_the_published_model(n_rois, n_volumes, expected):
    assert count_parameters("brainnetgnn", n_rois, n_volumes=n_volumes) == expected


def test_without_its_encoder_classifier_the_model_is_small():
    # docs/facts.md, Models: "about 82k / 147k".
    assert round(count_parameters("brainnetgnn", 200, encoder_classifier=False) / 1000) in (81, 82)
    assert round(count_parameters("brainnetgnn", 360, n_volumes=512, encoder_classifier=False) / 1000) == 147


def test_gated_convolution_equals_a_loop_over_edges():
    torch.manual_seed(0)
    layer, z, adjacency = GatedGraphConv(4, 2), torch.randn(2, 6, 4), torch.rand(2, 6, 6)
    expected = z.clone()
    for step in range(2):
        messages = torch.zeros_like(z)
        for b in range(2):
            for i in range(6):
                for j in range(6):
                    messages[b, i] += adjacency[b, i, j] * (expected[b, j] @ layer.weight[step])
        expected = torch.stack([layer.cell(m, s) for m, s in zip(messages, expected)])
    torch.testing.assert_close(layer(z, adjacency), expected, atol=1e-5, rtol=0)


def test_gated_convolution_equals_torch_geometric():
    nn = pytest.importorskip("torch_geometric.nn")
    from torch_geometric.utils import dense_to_sparse

    torch.manual_seed(1)
    ours, theirs = GatedGraphConv(4, 2), nn.GatedGraphConv(4, 2)
    with torch.no_grad():
        theirs.weight.copy_(ours.weight)
    theirs.rnn.load_state_dict(ours.cell.state_dict())
    z, adjacency = torch.randn(6, 4), torch.rand(6, 6)
    edges, weights = dense_to_sparse(adjacency.T)  # there the first index is the source
    torch.testing.assert_close(ours(z[None], adjacency[None])[0], theirs(z, edges, weights), atol=1e-5, rtol=0)


def test_set2set_equals_torch_geometric_and_ignores_the_order_of_nodes():
    aggr = pytest.importorskip("torch_geometric.nn.aggr")
    torch.manual_seed(2)
    ours, theirs = Set2Set(4, 2), aggr.Set2Set(4, 2)
    theirs.lstm.load_state_dict({f"{k}_l0": v for k, v in ours.cell.state_dict().items()})
    z = torch.randn(3, 6, 4)
    expected = theirs(z.flatten(0, 1), torch.arange(3).repeat_interleave(6))
    torch.testing.assert_close(ours(z), expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(ours(z[:, torch.randperm(6)]), ours(z), atol=1e-6, rtol=1e-5)


def test_layers_pass_gradcheck():
    torch.manual_seed(3)
    conv, readout = GatedGraphConv(3, 2).double(), Set2Set(3, 2).double()
    z = torch.randn(2, 4, 3, dtype=torch.float64, requires_grad=True)
    adjacency = torch.rand(2, 4, 4, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda z, a, *_: readout(conv(z, a)), (z, adjacency, *conv.parameters(), *readout.parameters()))


def test_messages_go_from_the_one_who_attends_to_the_one_attended_to():
    # The published edge list pairs weight (i, j) of the attention with source i and target j.
    torch.manual_seed(4)
    x, series = inputs()
    model = create_model("brainnetgnn", V, n_volumes=T, encoder_classifier=False).eval()
    encoded = model.encoder(series)
    z, edges = model.attention(model.query(encoded), model.key(encoded), model.value(encoded))
    torch.testing.assert_close(edges.sum(-1), torch.ones(4, V))  # rows are the queries'
    expected = model.head(model.graph(z, edges.transpose(1, 2)))
    out = model(x, series=series, explain=True)
    torch.testing.assert_close(out.logits, expected)
    torch.testing.assert_close(out.attention[0][:, 0], edges)


def test_default_trains_everything():
    torch.manual_seed(5)
    x, series = inputs()
    series[:2, :, 3:5] = 0
    model = create_model("brainnetgnn", V, n_volumes=T)
    out = model(x, series=series)  # without a target: the L1 norm alone would reach every weight
    out.logits.square().sum().backward()
    for name, p in model.named_parameters():
        assert p.requires_grad, name
        assert p.grad is not None, name
        assert torch.isfinite(p.grad).all(), name
        assert p.grad.abs().sum() > 0, name


def test_released_leaves_the_encoder_classifier_untouched_though_it_adds_to_the_logits():
    torch.manual_seed(6)
    x, series = inputs()
    model = create_model("brainnetgnn-released", V, n_volumes=T)
    frozen = {name for name, p in model.named_parameters() if not p.requires_grad}
    assert frozen == {f"classifier.{i}.{kind}" for i in (0, 2, 4) for kind in ("weight", "bias")}
    before = model.eval()(x, series=series).logits
    with torch.no_grad():
        model.classifier[4].bias += 1
    torch.testing.assert_close(model(x, series=series).logits, before + 1)


@pytest.mark.parametrize(("name", "alive"), [("brainnetgnn", True), ("brainnetgnn-released", False)])
def test_published_gain_puts_out_the_graph_networks_signal_and_ours_does_not(name, alive):
    torch.manual_seed(8)
    x, series = inputs(16)
    model = create_model(name, V, n_volumes=T, encoder_classifier=False).eval()
    spread = float(model(x, series=series).logits.detach().std(0).max())
    assert (spread > 1e-3) if alive else (spread < 1e-6)


def test_auxiliary_loss_is_the_norm_of_all_weights_but_the_encoders_and_the_last():
    x, series = inputs()
    model = create_model("brainnetgnn", V, n_volumes=T)
    total = sum(
        float(p.detach().abs().sum())
        for name, p in model.named_parameters()
        if not name.startswith(("encoder.", "head.")) and "bias" not in name
    )
    loss = model(x, series=series, target=torch.eye(2).repeat(2, 1)).loss
    assert float(loss.detach()) == pytest.approx(1e-5 * total, rel=1e-5)
    assert model(x, series=series).loss is None


def test_a_subject_is_scored_alike_alone_and_in_a_batch_whatever_its_connectome():
    torch.manual_seed(7)
    x, series = inputs()
    model = create_model("brainnetgnn", V, n_volumes=T).eval()
    alone = model(x[1:2] * 0, series=series[1:2]).logits
    torch.testing.assert_close(alone, model(x, series=series).logits[1:2], atol=1e-5, rtol=1e-5)


def test_missing_and_short_series_are_refused_in_a_sentence():
    x, _ = inputs()
    with pytest.raises(BadInput, match="reads time series and was given none"):
        create_model("brainnetgnn", V, n_volumes=T)(x)
    with pytest.raises(BadInput, match="at least 14 volumes"):
        create_model("brainnetgnn", V, n_volumes=13)
    assert create_model("brainnetgnn", V, n_volumes=14)(x, series=torch.randn(4, 14, V)).logits.shape == (4, 2)
