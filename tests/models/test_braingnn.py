"""BrainGNN: dense layers against loops over edges, losses against their formulas, its size and its memory."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

from bnt import Cohort, SiteStratifiedSplit, simulate_cohort
from bnt.errors import BadInput
from bnt.models import count_parameters, create_model
from bnt.models._braingnn import (
    RoiConv,
    consistency_loss,
    edge_weights,
    fisher_z,
    profiles,
    released_topk_loss,
    topk_loss,
    two_hops,
)
from bnt.nn._readouts import TopKPool
from bnt.splits import Split
from bnt.training._batches import Batches, window_of
from bnt.training._config import describe
from bnt.training._recipe import RECIPES, Recipe, find_recipe

V = 6


def graphs(n: int = 3, v: int = V, seed: int = 0, dtype=torch.float32) -> torch.Tensor:
    """Symmetric matrices with a zero diagonal, one pair of nodes without an edge."""
    x = torch.randn(n, v, v, generator=torch.Generator().manual_seed(seed)).to(dtype)
    x = (x + x.mT) / 4
    x.diagonal(dim1=1, dim2=2).zero_()
    x[:, 0, 1] = x[:, 1, 0] = 0
    return x


def loop_convolution(conv: RoiConv, z, adjacency, rois):
    """One target, one edge at a time, with the weight matrix of each source made from its one-hot code."""
    out = torch.zeros(*z.shape[:2], conv.out_features)
    for b in range(z.shape[0]):
        for i in range(z.shape[1]):
            edges = [(j, 1.0 if j == i else float(adjacency[b, i, j])) for j in range(z.shape[1])]
            edges = [(j, w) for j, w in edges if w != 0]
            total = sum(torch.tensor(w).exp() for _, w in edges)
            for j, w in edges:
                one_hot = torch.eye(V)[rois[b, j]]
                weight = conv.kernels(torch.relu(conv.membership(one_hot))).view(conv.in_features, conv.out_features)
                out[b, i] += torch.tensor(w).exp() / total * (z[b, j] @ weight)
    return out + conv.bias


# docs/facts.md, Models, exact integers.
@pytest.mark.parametrize(("n_rois", "expected"), [(200, 93_282), (360, 141_922)])
def test_parameter_count_is_that_of_the_published_model(n_rois, expected):
    assert count_parameters("braingnn", n_rois) == count_parameters("braingnn-released", n_rois) == expected


def test_feature_dim_of_the_search_grid_adds_the_map_and_shortens_the_first_convolution():
    # A map of 200 x 100 more; the 8 kernels and their bias act on 100 features instead of 200.
    assert count_parameters("braingnn", 200, feature_dim=100) == 93_282 + 200 * 100 - 9 * 32 * 100


@pytest.mark.parametrize("known_order", [True, False])
def test_convolution_equals_a_loop_over_edges(known_order):
    torch.manual_seed(0)
    conv, z, adjacency = RoiConv(V, 5, 4), torch.randn(3, V, 5), graphs().abs()
    rois = torch.arange(V).expand(3, V) if known_order else torch.stack([torch.randperm(V) for _ in range(3)])
    dense = conv(z, adjacency, None if known_order else rois)
    torch.testing.assert_close(dense, loop_convolution(conv, z, adjacency, rois), atol=1e-5, rtol=0)


def test_pooling_equals_torch_geometric():
    nn = pytest.importorskip("torch_geometric.nn")
    from torch_geometric.utils import dense_to_sparse, to_dense_adj

    torch.manual_seed(1)
    ours = TopKPool(4, 0.5, "sigmoid")
    theirs = nn.TopKPooling(4, 0.5, nonlinearity=torch.sigmoid)
    with torch.no_grad():
        theirs.select.weight.copy_(ours.weight[None])
    z, adjacency = torch.randn(2, V, 4), graphs(2).abs()
    kept = ours(z, adjacency)
    for b in range(2):
        edges, weights = dense_to_sparse(adjacency[b])
        x, edges, weights, _, nodes, _ = theirs(z[b], edges, weights)
        assert kept.nodes[b].tolist() == nodes.tolist()
        torch.testing.assert_close(kept.z[b], x, atol=1e-6, rtol=0)
        torch.testing.assert_close(kept.adjacency[b], to_dense_adj(edges, edge_attr=weights, max_num_nodes=3)[0])


def test_two_hops_counts_walks_of_up_to_two_steps():
    adjacency = graphs(1).abs()
    walked = two_hops(adjacency)[0]
    for i in range(V):
        for j in range(V):
            loops = [adjacency[0, i, k] + (i == k) for k in range(V)]
            expected = sum(loops[k] * (adjacency[0, k, j] + (k == j)) for k in range(V)) if i != j else 0.0
            assert float(walked[i, j]) == pytest.approx(float(expected), abs=1e-6)


def test_layers_pass_gradcheck():
    torch.manual_seed(2)
    conv, pool = RoiConv(V, 3, 2, n_communities=2).double(), TopKPool(2, 0.5, "sigmoid", standardise=True).double()
    adjacency = graphs(2, dtype=torch.float64).abs()
    rois = torch.stack([torch.randperm(V) for _ in range(2)])
    z = torch.randn(2, V, 3, dtype=torch.float64, requires_grad=True)

    def through(z, *_):
        kept = pool(conv(z, adjacency) + conv(z, adjacency, rois), adjacency)
        return kept.z, kept.scores

    assert gradcheck(through, (z, *conv.parameters(), pool.weight))


def test_released_edges_and_features_are_those_of_nilearn():
    # As published: Ledoit-Wolf partial correlation and correlation, arctanh; edges absolute, infinite features 0.
    connectome = pytest.importorskip("nilearn.connectome")
    cohort = simulate_cohort(n_subjects=12, n_rois=15, n_sites=3, kind="shrunk-z", seed=0)
    series = [np.asarray(one, dtype=np.float64) for one in cohort.timeseries]
    assert len({len(one) for one in series}) > 1
    model = create_model("braingnn-released", 15)
    batch = next(Batches(cohort, np.arange(12), torch.zeros(12, 2), window=window_of(model)).in_order())
    for kind, ours in (
        ("partial correlation", edge_weights(fisher_z(batch.series))),
        ("correlation", profiles(batch.x)),
    ):
        with np.errstate(divide="ignore"):
            theirs = np.arctanh(connectome.ConnectivityMeasure(kind=kind).fit_transform(series))
        theirs[:, np.arange(15), np.arange(15)] = 0
        np.testing.assert_allclose(ours, np.abs(theirs) if "partial" in kind else theirs, atol=1e-4)
    seen = []
    model.conv1.register_forward_pre_hook(lambda _, given: seen.extend(given))
    model.eval()(batch.x, series=batch.series)
    torch.testing.assert_close(seen[0], profiles(batch.x))
    torch.testing.assert_close(seen[1], edge_weights(fisher_z(batch.series)))


def test_features_of_pearson_correlations_are_their_fisher_z_with_a_zero_diagonal():
    x = torch.tensor([[[1.0, 0.5], [0.5, 1.0]]])
    expected = torch.tensor([[[0.0, 0.5493061], [0.5493061, 0.0]]])
    torch.testing.assert_close(profiles(x), expected)
    torch.testing.assert_close(profiles(expected), expected)


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_trains_it_at_its_own_rate(recipe):
    # docs/facts.md, Training: the released row has the published Adam 0.01 halved every 20 epochs, batches of 100.
    own, released = find_recipe(recipe, "braingnn"), find_recipe(recipe, "braingnn-released")
    assert (own.lr, own.mixup, own.reduction) == (1e-3, 0.0, "mean")
    assert (released.lr, released.halve_every, released.weight_decay, released.batch_size) == (1e-2, 20, 5e-3, 100)
    assert (released.mixup, released.reduction, released.drop_last) == (0.0, "mean", False)
    assert find_recipe("default", "braingnn-released").epochs == 100
    assert find_recipe(recipe, "braingnn", lr=5e-3).lr == 5e-3


def test_a_cohort_without_series_is_told_so():
    cohort = simulate_cohort(n_subjects=30, n_rois=14, n_sites=2, seed=0)
    bare = Cohort(cohort.edges(np.arange(30)), cohort.participants, cohort.rois, diagonal=cohort.diagonal)
    split = next(SiteStratifiedSplit(n_splits=1).split(bare, "diagnosis"))
    with pytest.raises(BadInput, match="'braingnn-released' reads time series and the cohort has none"):
        describe(bare, "diagnosis", Split.of(bare, split), model="braingnn-released", recipe=Recipe(epochs=1))


def test_consistency_loss_is_the_mean_squared_distance_within_a_class():
    # tr(S^T L S) with W all ones is half the sum over pairs of |s_i - s_j|^2.
    torch.manual_seed(4)
    scores, labels = torch.rand(7, V), torch.tensor([0, 1, 0, 0, 1, 1, 0])
    expected = 0.0
    for c in (0, 1):
        s = scores[labels == c]
        expected += float(sum((a - b).square().sum() for a in s for b in s)) / 2 / len(s) ** 2
    one_hot = torch.nn.functional.one_hot(labels, 2).float()
    assert float(consistency_loss(scores, one_hot)) == pytest.approx(expected, rel=1e-5)


def test_topk_loss_is_the_cross_entropy_of_being_kept():
    scores = torch.tensor([[3.0, -1.0, 0.5, -2.0]])
    s = torch.sigmoid(scores)
    expected = -(s[0, 0].log() + s[0, 2].log()) / 2 - ((1 - s[0, 1]).log() + (1 - s[0, 3]).log()) / 2
    assert float(topk_loss(scores, 2)) == pytest.approx(float(expected), rel=1e-5)
    assert float(released_topk_loss(s, 0.5)) == pytest.approx(float(expected), rel=1e-5)


def test_released_losses_see_scores_that_hardly_differ():
    # A second sigmoid leaves scores between 0.5 and 0.73: the TPK loss of a perfect selection stays above 0.3 + 0.69.
    torch.manual_seed(5)
    x, target = graphs(8, 20), torch.eye(2).repeat(4, 1)
    released, fixed = create_model("braingnn-released", 20), create_model("braingnn", 20)
    fixed.load_state_dict(released.state_dict())
    assert float(released(x, series=x, target=target).loss.detach()) > 2 * 0.1 * (0.3 + 0.69)
    assert not torch.allclose(released.eval()(x, series=x).logits, fixed.eval()(x).logits)


def test_regression_has_no_class_consistency_loss():
    torch.manual_seed(6)
    x, target = graphs(4, 20), torch.randn(4, 1)
    with_weight, without = create_model("braingnn", 20, 1, glc_weight=9.0), create_model("braingnn", 20, 1)
    without.load_state_dict(with_weight.state_dict())
    assert torch.equal(with_weight(x, target=target).loss, without(x, target=target).loss)


@pytest.mark.parametrize("name", ["braingnn", "braingnn-released"])
def test_gradients_reach_every_parameter_and_constant_rois_make_no_nan(name):
    torch.manual_seed(7)
    x = graphs(6, 20)
    x[:2, 3:5] = 0
    x[:2, :, 3:5] = 0
    model = create_model(name, 20)
    out = model(x, series=x, target=torch.eye(2).repeat(3, 1))
    (out.logits.square().sum() + out.loss).backward()
    for parameter_name, p in model.named_parameters():
        assert p.grad is not None, parameter_name
        assert torch.isfinite(p.grad).all(), parameter_name
        assert p.grad.abs().sum() > 0, parameter_name
    nothing = torch.zeros(1, 20, 20)
    assert torch.isfinite(model.eval()(nothing, series=nothing).logits).all()


def test_a_subject_is_scored_alike_alone_and_in_a_batch():
    torch.manual_seed(8)
    model, x = create_model("braingnn", 20).eval(), graphs(5, 20)
    torch.testing.assert_close(model(x[2:3]).logits, model(x).logits[2:3], atol=1e-5, rtol=1e-5)
    explained = model(x, explain=True)
    assert explained.assignments is not None
    assert explained.assignments.shape == (5, 20, 1)


def test_wrong_options_and_shapes_are_refused_in_a_sentence():
    with pytest.raises(BadInput, match="edges is 'signed'"):
        create_model("braingnn", 20, edges="signed")
    with pytest.raises(BadInput, match="features is 'z'"):
        create_model("braingnn", 20, features="z")
    with pytest.raises(BadInput, match="reads partial correlations of time series"):
        create_model("braingnn-released", 20)(torch.zeros(2, 20, 20), series=torch.zeros(2, 30, 20))
    with pytest.raises(BadInput, match="connectomes of 20 ROIs"):
        create_model("braingnn", 20)(torch.zeros(2, 10, 10))


def test_a_step_at_360_rois_and_batch_64_stays_below_two_gigabytes():
    # docs/facts.md, Models: the paper ran out of 48 GB. A fresh process, so that the peak is this step's; what a batch
    # of 64 takes is four times what one of 16 does.
    code = """
import resource, torch
from bnt.models import create_model
torch.set_num_threads(1)
model = create_model("braingnn", 360)
adam = torch.optim.Adam(model.parameters())
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
x = torch.randn(16, 360, 360) / 5
out = model(x, target=torch.eye(2).repeat(8, 1))
(out.logits.square().sum() + out.loss).backward()
adam.step()
print((before + 4 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)) / 1024)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 2000


@pytest.mark.parametrize(
    ("kind", "changes", "said"), [("partial", {}, "are partial"), ("paper", {"inputs": "centred"}, "centred")]
)
def test_fisher_z_is_not_taken_of_what_are_no_correlations(kind, changes, said):
    cohort = simulate_cohort(n_subjects=30, n_rois=14, n_sites=2, kind=kind, seed=0)
    split = next(SiteStratifiedSplit(n_splits=1).split(cohort, "diagnosis"))
    recipe = replace(Recipe(epochs=1), **changes)
    with pytest.raises(BadInput, match=said):
        describe(cohort, "diagnosis", Split.of(cohort, split), model="braingnn-released", recipe=recipe)
    describe(cohort, "diagnosis", Split.of(cohort, split), model="braingnn", recipe=recipe)
