"""OCRead against naive loops and its own equations."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from bnt.errors import BadInput
from bnt.nn import OCRead, edge_subgraphs, node_subgraphs
from bnt.nn._ocread import ASSIGNMENTS, clustering_loss


def naive_logit(kind: str, z: torch.Tensor, e: torch.Tensor) -> float:
    if kind == "softmax":
        return float(z @ e)
    if kind == "squared":
        return float((z @ e) ** 2 / e.norm())
    return -math.log(1 + float((z - e).square().sum()))


@pytest.mark.parametrize("assignment", ASSIGNMENTS)
def test_equations_2_and_3_by_loops(assignment):
    torch.manual_seed(0)
    readout = OCRead(7, 3, assignment=assignment, normalise_first=False).double()
    z = torch.randn(2, 5, 7, dtype=torch.double)
    pooled = readout(z)
    for b in range(2):
        graph = torch.zeros(3, 7, dtype=torch.double)
        for i in range(5):
            raised = [math.exp(naive_logit(assignment, z[b, i], e)) for e in readout.centres]
            for k in range(3):
                p = raised[k] / sum(raised)
                assert float(pooled.assignments[b, i, k]) == pytest.approx(p, abs=1e-12)
                graph[k] += p * z[b, i]
        torch.testing.assert_close(pooled.embedding[b].detach(), graph.flatten())


@given(st.sampled_from(ASSIGNMENTS), st.floats(0.01, 100), st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_rows_of_p_sum_to_one(assignment, size, seed):
    torch.manual_seed(seed)
    p = OCRead(9, 4, assignment=assignment)(torch.randn(2, 6, 9) * size).assignments
    torch.testing.assert_close(p.sum(-1), torch.ones(2, 6))


@pytest.mark.parametrize(("assignment", "invariant"), [("squared", True), ("softmax", False), ("student-t", False)])
def test_only_the_squared_projection_is_blind_to_the_sign_of_a_centre(assignment, invariant):
    torch.manual_seed(0)
    readout = OCRead(9, 4, assignment=assignment)
    z = torch.randn(2, 6, 9)
    before = readout(z).assignments
    with torch.no_grad():
        readout.centres[1] *= -1
    assert torch.allclose(readout(z).assignments, before, atol=1e-6) is invariant


@pytest.mark.parametrize("hidden_mlp", [False, True])
def test_permuting_nodes_changes_nothing_without_the_hidden_mlp(hidden_mlp):
    torch.manual_seed(0)
    readout = OCRead(6, 3, n_nodes=8, hidden_mlp=hidden_mlp)
    z = torch.randn(2, 8, 6)
    same = torch.allclose(readout(z).embedding, readout(z[:, torch.randperm(8)]).embedding, atol=1e-5)
    assert same is not hidden_mlp


def test_hidden_mlp_pools_what_comes_out_of_it():
    readout = OCRead(4, 2, n_nodes=3, hidden_mlp=True)
    z = torch.randn(1, 3, 4)
    seen = nn.Sequential(*readout.hidden)(z.flatten(1)).view(1, 3, 4)
    p = (seen @ readout.centres.T).softmax(-1)
    torch.testing.assert_close(readout(z).embedding, (p.mT @ seen).flatten(1))


@pytest.mark.parametrize("hidden_mlp", [False, True])
@pytest.mark.parametrize("assignment", ASSIGNMENTS)
def test_gradcheck(assignment, hidden_mlp):
    torch.manual_seed(0)
    readout = OCRead(
        4, 3, assignment=assignment, centres="learnable", reduce=2, n_nodes=3, hidden_mlp=hidden_mlp
    ).double()
    names = [name for name, _ in readout.named_parameters()]
    weights = [p.detach().clone().requires_grad_() for p in readout.parameters()]

    def run(z, *values):
        pooled = torch.func.functional_call(readout, dict(zip(names, values)), (z,))
        return pooled.embedding, pooled.assignments

    z = torch.randn(2, 3, 4, dtype=torch.double, requires_grad=True)
    # Random projections of the Jacobian for the hidden MLP's thousands of weights, all of it otherwise.
    assert torch.autograd.gradcheck(run, (z, *weights), fast_mode=hidden_mlp)


def naive_clustering_loss(q: torch.Tensor) -> torch.Tensor:
    frequency = q.sum(0)
    target = q**2 / frequency
    target = target / target.sum(1, keepdim=True)
    return (target * (target / q).log()).sum() / len(q)


def test_clustering_loss_equals_its_formula():
    logits = torch.randn(2, 5, 4, dtype=torch.double)
    expected = naive_clustering_loss(logits.flatten(0, 1).softmax(-1))
    torch.testing.assert_close(clustering_loss(logits), expected)


def test_clustering_loss_is_finite_when_nobody_chooses_a_cluster():
    logits = torch.zeros(1, 4, 3)
    logits[..., 2] = -500.0  # its probability is zero in float32
    logits.requires_grad_()
    loss = clustering_loss(logits)
    loss.backward()
    assert loss.isfinite()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_clustering_target_is_not_differentiated():
    logits = torch.randn(1, 5, 3, dtype=torch.double, requires_grad=True)
    (gradient,) = torch.autograd.grad(clustering_loss(logits), logits)
    q = logits.detach()[0].softmax(-1)
    target = (q**2 / q.sum(0)) / (q**2 / q.sum(0)).sum(1, keepdim=True)
    torch.testing.assert_close(gradient[0], (q - target) / 5)


def test_clustering_loss_is_weighted_and_off_by_default():
    z = torch.randn(2, 5, 6)
    assert OCRead(6, 3)(z).loss is None
    readout = OCRead(6, 3, dec_weight=0.5)
    torch.testing.assert_close(readout(z).loss, 0.5 * clustering_loss(readout.assignment_logits(z)))


def test_subgraphs_by_matrix_by_lists_and_by_masked_copies_agree():
    torch.manual_seed(0)
    readout = OCRead(6, 3, reduce=4)
    z = torch.randn(7, 6)
    lists = [[0, 1, 5], [6], [], [2, 3, 4]]
    inside = torch.zeros(4, 7, dtype=torch.bool)
    for row, nodes in enumerate(lists):
        inside[row, nodes] = True
    one_by_one = torch.cat([readout(z[None], row[None]).embedding for row in inside])
    torch.testing.assert_close(readout.pool_subgraphs(z, inside), one_by_one)
    torch.testing.assert_close(readout.pool_subgraphs(z, lists), one_by_one)


def test_neighbourhoods_on_a_path_of_five_nodes():
    path = torch.diag(torch.ones(4), 1)
    path = path + path.T
    around = node_subgraphs(path, hops=1)
    assert around[0].tolist() == [True, True, False, False, False]
    assert around[2].tolist() == [False, True, True, True, False]
    assert node_subgraphs(path, hops=2)[0].sum() == 3
    edge = edge_subgraphs(path, torch.tensor([[0, 1]]), hops=1)
    assert edge[0].tolist() == [True, True, True, False, False]


def test_members_outside_the_graph_are_named():
    with pytest.raises(BadInput, match="node 9.*0 to 6"):
        OCRead(6, 3).pool_subgraphs(torch.randn(7, 6), [[0, 9]])


def test_hidden_mlp_without_a_number_of_nodes_is_refused():
    with pytest.raises(BadInput, match="n_nodes"):
        OCRead(6, 3, hidden_mlp=True)


def test_unknown_assignment_lists_what_there_is():
    with pytest.raises(BadInput, match="softmax, squared, student-t"):
        OCRead(6, 3, assignment="cosine")
