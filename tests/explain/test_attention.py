from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bnt.cohort._triangle import Networks
from bnt.errors import BadInput
from bnt.explain._attention import MeanAttention, attention_by_network, mean_attention, network_enrichment


def naive_attention(run, cohort, rows):
    """One subject and one member at a time."""
    total = []
    for model in run.learner.networks():
        with torch.no_grad():
            total += [[a[0].numpy() for a in model(cohort.batch([r]), explain=True).attention] for r in rows]
    return [np.mean([one[layer] for one in total], axis=0) for layer in range(2)]


def test_mean_attention_is_the_mean_over_subjects_and_members(pair, cohort, test_rows):
    rows = test_rows[:7]
    found = mean_attention(pair, cohort, rows, batch_size=3)
    for layer, expected in zip(found.layers, naive_attention(pair, cohort, rows)):
        np.testing.assert_allclose(layer[0], expected, atol=1e-6)


def test_no_more_than_a_batch_of_matrices_is_in_memory(pair, cohort, test_rows, monkeypatch):
    asked = []
    batch = type(cohort).batch
    monkeypatch.setattr(type(cohort), "batch", lambda self, rows, *a: asked.append(len(rows)) or batch(self, rows, *a))
    mean_attention(pair, cohort, test_rows, batch_size=4)
    assert max(asked) == 4
    assert sum(asked) == 2 * len(test_rows)  # once a member


def test_attention_of_a_class_is_that_of_its_subjects_alone(pair, cohort, test_rows):
    y = cohort.labels("diagnosis")[test_rows]
    both = mean_attention(pair, cohort, test_rows, y)
    alone = mean_attention(pair, cohort, test_rows[y == 1])
    assert both.groups == ("all", "0", "1")
    assert both.counts == (len(y), int((y == 0).sum()), int((y == 1).sum()))
    np.testing.assert_allclose(both.matrix(1, head=0, group="1"), alone.matrix(1, head=0), atol=1e-6)


def test_attention_is_taken_without_dropout(make_run, cohort, test_rows):
    run = make_run("bnt", epochs=1)
    object.__setattr__(run.config, "options", {**run.config.options, "dropout": 0.5})
    rows = mean_attention(run, cohort, test_rows[:4]).layers[0].sum(axis=-1)
    np.testing.assert_allclose(rows, 1, atol=1e-5)  # dropped weights would not sum to 1


def test_network_means_leave_out_an_rois_own_attention(pair, cohort, test_rows):
    networks = Networks.of(cohort)
    found = mean_attention(pair, cohort, test_rows[:3])
    table = attention_by_network(found, networks)
    row = table[(table["layer"] == 1) & (table["head"] == "mean")].set_index(["from_network", "to_network"])
    matrix = found.matrix(0)
    for a, b in (("Default", "Default"), ("Visual", "Limbic")):
        entries = [
            matrix[i, j]
            for i in np.flatnonzero(networks.labels == a)
            for j in np.flatnonzero(networks.labels == b)
            if i != j
        ]
        assert row.loc[(a, b), "attention"] == pytest.approx(np.mean(entries))


@pytest.mark.parametrize("row_sum", [1.0, 5.0])
def test_times_uniform_is_one_where_nothing_is_preferred(row_sum):
    uniform = np.full((1, 2, 6, 6), row_sum / 6)  # rows of a graph that is no softmax sum to other numbers
    table = attention_by_network(
        MeanAttention(("all",), (3,), (uniform,)), Networks.from_labels(np.array(["Visual", "Default"] * 3))
    )
    assert table["times_uniform"].to_numpy() == pytest.approx(1.0)


def test_a_linear_model_has_no_attention(svm, cohort):
    with pytest.raises(BadInput, match="not a neural network"):
        mean_attention(svm, cohort)


def networks_of(*sizes: int) -> Networks:
    found = Networks.from_labels(np.repeat([f"net{i}" for i in range(len(sizes))], sizes))
    assert found is not None
    return found


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.lists(st.integers(2, 5), min_size=2, max_size=4))
def test_enrichment_means_equal_naive_loops(seed, sizes):
    networks = networks_of(*sizes)
    v = sum(sizes)
    matrix = np.random.default_rng(seed).random((v, v))
    table = network_enrichment(matrix, networks, n_permutations=3).set_index("network")
    same = [[matrix[i, j] for j in range(v) if j != i and networks.codes[i] == networks.codes[j]] for i in range(v)]
    other = [[matrix[i, j] for j in range(v) if networks.codes[i] != networks.codes[j]] for i in range(v)]
    assert table.loc["all", "within"] == pytest.approx(np.mean(sum(same, [])))
    assert table.loc["all", "between"] == pytest.approx(np.mean(sum(other, [])))
    first = sizes[0]
    assert table.loc["net0", "within"] == pytest.approx(np.mean(sum(same[:first], [])))
    assert table.loc["net0", "between"] == pytest.approx(np.mean(sum(other[:first], [])))


def test_enrichment_finds_modules_and_only_modules():
    networks = networks_of(6, 6, 6)
    rng = np.random.default_rng(0)
    noise = rng.random((18, 18))
    modular = noise + 0.5 * (networks.codes[:, None] == networks.codes)
    table = network_enrichment(np.stack([noise, modular]), networks, n_permutations=199)
    p = table.loc[table["network"] == "all", "p"].to_numpy()
    assert p[1] == 1 / 200  # the smallest there can be
    assert p[0] > 0.05


def test_enrichment_p_values_are_uniform_without_modules():
    networks = networks_of(4, 5, 6)
    matrices = np.random.default_rng(1).random((300, 15, 15))
    table = network_enrichment(matrices, networks, n_permutations=99)
    p = table.loc[table["network"] == "all", "p"].to_numpy()
    # A binomial SD of 300 tests at 0.1 is 0.017.
    assert abs((p <= 0.1).mean() - 0.1) < 0.06
    assert abs(p.mean() - 0.5) < 0.06


def test_unassigned_rois_and_networks_of_one_are_not_tested():
    networks = Networks.from_labels(np.array(["", "a", "a", "b", "b", "c"]))
    table = network_enrichment(np.random.default_rng(0).random((6, 6)), networks, n_permutations=5)
    assert table["network"].tolist() == ["all", "a", "b"]
