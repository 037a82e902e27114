"""ALTER: random-walk features against powers of the walk, and its size."""

from __future__ import annotations

import pytest
import torch

from bnt.errors import BadInput
from bnt.models import count_parameters, create_model
from bnt.models._alter import return_probabilities


def symmetric(v: int, seed: int = 0) -> torch.Tensor:
    x = torch.randn(3, v, v, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (x + x.mT) / 2


@pytest.mark.parametrize("k", [1, 2, 3, 7, 32])
def test_return_probabilities_equal_diagonals_of_powers_of_the_walk(k):
    x = symmetric(11)
    found = return_probabilities(x, k)
    assert found.shape == (3, 11, k)
    for subject, matrix in enumerate(x):
        positive = torch.where(matrix > 0, matrix, 0.0)
        walk = positive / positive.sum(1, keepdim=True)
        for n in range(k):
            wanted = torch.linalg.matrix_power(walk, n).diagonal()
            torch.testing.assert_close(found[subject, :, n], wanted, atol=1e-10, rtol=1e-8)


def test_a_node_without_positive_edges_never_returns():
    x = symmetric(8)
    x[1, 3] = x[1, :, 3] = -0.5
    found = return_probabilities(x, 6)
    assert found[1, 3].tolist() == [1, 0, 0, 0, 0, 0]
    assert found.isfinite().all()


def test_the_transformer_reads_profiles_and_walks_side_by_side():
    torch.manual_seed(0)
    net = create_model("alter", 12, n_clusters=4, walk_length=8, n_heads=2, ffn=16).eval()
    x = symmetric(12).float()
    z = net.encoder(torch.cat([x, return_probabilities(x, 8)], -1))[0]
    torch.testing.assert_close(net(x).logits, net.head(net.readout(z).embedding))


def test_size_is_that_of_the_published_class():
    # Counted on the published class at its defaults (V = 200, walk length 32).
    assert count_parameters("alter", 200) == 4_642_586


def test_heads_that_do_not_divide_profile_and_walk_are_refused():
    with pytest.raises(BadInput, match="n_heads"):
        create_model("alter", 21, n_clusters=4, walk_length=8)
