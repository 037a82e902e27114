"""Models that read whole scans of any length, meanMLP and BolT, and how they are given them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import bnt
from bnt.errors import BadInput
from bnt.models import count_parameters, create_model
from bnt.models._bolt import BolT
from bnt.models._own import OwnNetwork
from bnt.training import find_recipe
from bnt.training._batches import Batch, Batches, CentredInputs, Whole, mixup, window_of
from bnt.training._config import RunConfig
from bnt.training._learner import make_learner
from bnt.training._task import Task

V = 7
LENGTHS = (23, 12, 27)


def scans(lengths=LENGTHS, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Series padded with zeros to the longest, and their lengths."""
    generator = torch.Generator().manual_seed(seed)
    series = torch.zeros(len(lengths), max(lengths), V)
    for row, length in zip(series, lengths):
        row[:length] = torch.randn(length, V, generator=generator)
    return series, torch.tensor(lengths)


def made(name: str, **options):
    """Return a small model whose norms and biases are not those of the start."""
    torch.manual_seed(0)
    small = {"hidden": 5} if name == "meanmlp" else {"n_layers": 2, "n_heads": 2, "head": 3, "window": 10}
    net = create_model(name, V, 3, **{**small, **options}).eval()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return net


@pytest.mark.parametrize("name", ["meanmlp", "bolt", "bolt-released"])
def test_a_padded_scan_has_the_answer_that_it_has_alone(name):
    net, (series, lengths) = made(name), scans()
    x = torch.zeros(len(LENGTHS), V, V)
    together = net(x, series=series, lengths=lengths).logits
    alone = [net(x[:1], series=series[i : i + 1, :length]).logits for i, length in enumerate(LENGTHS)]
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", ["meanmlp", "bolt", "bolt-released"])
def test_what_stands_in_the_padding_does_not_matter(name):
    net, (series, lengths) = made(name), scans()
    x = torch.zeros(len(LENGTHS), V, V)
    other = series.clone()
    other[1, LENGTHS[1] :] = 100.0
    assert torch.equal(net(x, series=other, lengths=lengths).logits, net(x, series=series, lengths=lengths).logits)


@pytest.mark.parametrize("name", ["meanmlp", "bolt"])
def test_series_of_another_atlas_are_refused(name):
    with pytest.raises(BadInput, match=r"\(2, T, 7\)"):
        made(name)(torch.zeros(2, V, V), series=torch.zeros(2, 30, V + 1))


# -- meanMLP -------------------------------------------------------------------------------------------


def test_meanmlp_equals_a_loop_over_volumes():
    net, (series, lengths) = made("meanmlp", n_layers=2), scans()
    found = net(torch.zeros(3, V, V), series=series, lengths=lengths).logits
    for i, length in enumerate(LENGTHS):
        answers = []
        for t in range(length):
            z = F.relu(net.norm(net.first.weight @ series[i, t] + net.first.bias))
            for layer, norm in zip(net.layers, net.norms):
                z = F.relu(z + norm(layer.weight @ z + layer.bias))
            answers.append(net.last.weight @ z + net.last.bias)
        torch.testing.assert_close(found[i], torch.stack(answers).mean(0), atol=1e-5, rtol=0)


def test_meanmlp_has_as_many_parameters_as_published():
    assert count_parameters("meanmlp", 53) == 9_282  # README of neuroneural/meanMLP: 53 components, 2 classes


def test_meanmlp_is_trained_as_published():
    recipe = find_recipe("default", "meanmlp")
    published = (recipe.lr, recipe.lr_end, recipe.weight_decay, recipe.batch_size, recipe.epochs, recipe.patience)
    assert published == (5e-3, 5e-3, 0.0, 64, 400, 30)
    assert (recipe.mixup, recipe.reduction, recipe.ema) == (0.0, "sum", 0.0)


# -- BolT ----------------------------------------------------------------------------------------------


@torch.no_grad()
def naive_bolt(net: BolT, series: Tensor) -> tuple[Tensor, Tensor]:
    """Return logits and tokens of one scan (T, V), window by window, head by head, key by key."""
    w, s = net.window, net.shift
    n_windows = (len(series) - w) // s + 1
    z = series[: w + s * (n_windows - 1)]
    tokens = [net.token[0, 0]] * n_windows
    for block in net.blocks:
        a = block.attention
        f, d = a.fringe, a.q.out_features // a.n_heads
        new_tokens, sums, counts = [], torch.zeros_like(z), torch.zeros(len(z), 1)
        for i in range(n_windows):
            places = list(range(i * s - f, i * s + w + f))
            around = [z[t] if 0 <= t < len(z) else torch.zeros(V) for t in places]
            queries = block.norm1(torch.stack([tokens[i], *z[i * s : i * s + w]]))  # (1 + W, V)
            keys = block.norm1(torch.stack([tokens[i], *around]))  # (1 + R, V)
            q, (k, v) = a.q(queries), a.kv(keys).chunk(2, -1)
            heads = []
            for m in range(a.n_heads):
                part = slice(m * d, m * d + d)
                scores = q[:, part] @ k[:, part].T / math.sqrt(d)
                for row in range(1 + w):
                    for column in range(1 + len(places)):
                        if row and column:
                            distance = (row - 1) - (column - 1 - f)  # in volumes, f + w - 1 either way
                            scores[row, column] += a.distances[distance + f + w - 1, m]
                        elif row:
                            scores[row, 0] += a.volumes_to_token[0, m, row - 1, 0]
                        elif column:
                            scores[0, column] += a.token_to_volumes[0, m, 0, column - 1]
                        else:
                            scores[0, 0] += a.token_to_token[0, m, 0, 0]
                for column, t in enumerate(places, start=1):
                    if t < 0 or (t >= len(z) and not net.released):
                        scores[:, column] = -torch.inf
                heads.append(scores.softmax(-1) @ v[:, part])
            out = a.proj(torch.cat(heads, 1))
            new_tokens.append(tokens[i] + out[0])
            sums[i * s : i * s + w] += out[1:]
            counts[i * s : i * s + w] += 1
        z = z + sums / counts
        tokens = torch.stack(new_tokens)
        z, tokens = (u + block.linear2(F.gelu(block.linear1(block.norm2(u)))) for u in (z, tokens))
        tokens = list(tokens)
    final = net.norm(torch.stack(tokens))
    return net.last(final.mean(0)), final


@pytest.mark.parametrize("name", ["bolt", "bolt-released"])
def test_bolt_equals_loops_over_windows_heads_and_keys(name):
    net, (series, lengths) = made(name), scans()
    target = torch.eye(3)
    out = net(torch.zeros(3, V, V), series=series, lengths=lengths, target=target)
    apart = []
    for i, length in enumerate(LENGTHS):
        logits, tokens = naive_bolt(net, series[i, :length])
        torch.testing.assert_close(out.logits[i], logits, atol=1e-5, rtol=1e-5)
        apart.append((tokens - tokens.mean(0)).square().mean(1))
    torch.testing.assert_close(out.loss, torch.cat(apart).mean(), atol=1e-6, rtol=1e-5)


def test_only_the_released_bolt_attends_to_what_is_after_a_scan():
    net, (series, lengths) = made("bolt"), scans()
    x = torch.zeros(3, V, V)
    hidden = net(x, series=series, lengths=lengths).logits
    net.released = True
    assert not torch.allclose(net(x, series=series, lengths=lengths).logits, hidden, atol=1e-3)


def test_bolt_reaches_as_far_as_published():
    with torch.device("meta"):
        reaches = [block.attention.reach for block in BolT(200).blocks]
    assert reaches == [20, 68, 116, 164]  # printed by the published code when it is made


def test_bolt_has_as_many_parameters_as_published_but_for_an_unused_norm():
    # README of neuroneural/meanMLP: 53 components, 2 classes. The norm of the input is made there and never used.
    assert count_parameters("bolt", 53) == 675_785 - 2 * 53


def test_bolt_is_trained_as_published():
    recipe = find_recipe("default", "bolt")
    assert (recipe.lr, recipe.lr_end, recipe.warmup, recipe.weight_decay) == (4e-4, 2e-5, 0.3, 0.0)
    assert (recipe.batch_size, recipe.epochs, recipe.mixup, recipe.reduction) == (32, 20, 0.0, "mean")
    assert (recipe.select, recipe.patience) == ("last", 0)


def test_bolt_refuses_scans_shorter_than_a_window_and_pieces_too():
    with pytest.raises(BadInput, match="9 volumes"):
        made("bolt")(torch.zeros(1, V, V), series=torch.zeros(1, 9, V))
    with pytest.raises(BadInput, match="crop is 9"):
        create_model("bolt", V, crop=9)


# -- how whole scans reach a model ---------------------------------------------------------------------


@pytest.fixture
def cohort() -> bnt.Cohort:
    """Forty people with scans of 20 to 59 volumes."""
    plain = bnt.simulate_cohort(n_subjects=40, n_rois=14, n_sites=2, effect=4.0, seed=3, n_volumes=60)
    series = [np.array(plain.timeseries[i])[: 20 + i] for i in range(40)]
    edges = plain.edges(np.arange(40))
    return bnt.Cohort(edges, plain.participants, plain.rois, timeseries=series, kind=plain.kind)


def batches(cohort: bnt.Cohort, window, **more) -> Batches:
    return Batches(cohort, np.arange(40), torch.zeros(40, 2), window=window, **more)


def standardised(series: np.ndarray) -> np.ndarray:
    return (series - series.mean(0)) / series.std(0)


def test_evaluation_reads_whole_scans_padded_to_the_longest_of_the_batch(cohort):
    batch = next(batches(cohort, Whole(crop=15)).in_order(8))
    assert batch.lengths.tolist() == list(range(20, 28))
    assert batch.series.shape == (8, 27, 14)
    np.testing.assert_allclose(batch.series[3, :23], standardised(cohort.timeseries[3]), atol=1e-5)
    assert not batch.series[3, 23:].any()


def test_training_reads_random_pieces_of_standardised_scans(cohort):
    source = batches(cohort, Whole(crop=30))
    torch.manual_seed(1)
    seen = list(source.shuffled(40, drop_last=False))[0]
    assert sorted(seen.lengths.tolist()) == [*range(20, 30), *[30] * 30]
    scan = standardised(cohort.timeseries[39]).astype(np.float32)
    pieces = [row[:30].numpy() for row, length in zip(seen.series, seen.lengths) if length == 30]
    starts = [t for t in range(30) for piece in pieces if np.allclose(scan[t : t + 30], piece, atol=1e-4)]
    assert len(starts) == 1


def test_whole_scans_in_training_draw_no_numbers(cohort):
    torch.manual_seed(1)
    torch.randperm(40)
    expected = torch.get_rng_state()
    torch.manual_seed(1)
    assert next(batches(cohort, Whole()).shuffled(8, drop_last=True)).lengths.max() > 30
    assert torch.equal(torch.get_rng_state(), expected)


def test_scans_that_do_not_fit_into_memory_are_the_same(cohort):
    kept, read = batches(cohort, Whole()), batches(cohort, Whole(), resident_bytes=0)
    for _ in range(2):
        for one, other in zip(kept.in_order(16), read.in_order(16)):
            assert torch.equal(one.series, other.series)


def test_mixed_scans_are_as_long_as_the_shorter_one(cohort):
    batch = next(batches(cohort, Whole()).in_order(8))
    torch.manual_seed(0)
    mixed = mixup(batch, 1.0)
    torch.manual_seed(0)
    order = mixup(Batch(batch.lengths[:, None].float(), batch.lengths[:, None].float()), 1.0).x  # the same draws
    assert mixed.series.shape == batch.series.shape
    assert (mixed.lengths <= batch.lengths).all()
    assert (mixed.lengths <= order.squeeze(1)).all()


class Counting(torch.nn.Module):
    needs_series, whole_series, crop = True, True, 16

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))

    def forward(self, x, series, lengths):
        return self.scale * lengths[:, None]


def test_a_model_of_ones_own_is_given_lengths():
    own = OwnNetwork(Counting(), V, 1, "Counting")
    series, lengths = scans()
    assert own(torch.zeros(3, V, V), series=series, lengths=lengths).logits.squeeze(1).tolist() == list(LENGTHS)
    assert window_of(own) == window_of(CentredInputs(own, V)) == Whole(16)


@pytest.mark.parametrize("name", ["meanmlp", "bolt"])
def test_a_run_learns_from_scans_of_different_lengths(cohort, name):
    options = {"hidden": 8} if name == "meanmlp" else dict(BolT.small)
    recipe = find_recipe("default", name, epochs=2, batch_size=8)
    config = RunConfig(name, "diagnosis", 0, recipe, Task("classification", (0, 1)), options=options, n_rois=14)
    learner = make_learner(config)
    y = np.asarray(cohort.labels("diagnosis"))
    lines = learner.fit(cohort, y, np.arange(24), np.arange(24, 32))
    assert len(lines) == 2
    together, alone = learner.predict(cohort, np.arange(32, 40)), learner.predict(cohort, np.array([32]))
    np.testing.assert_allclose(together[:1], alone, atol=1e-6)


@pytest.mark.parametrize("name", ["meanmlp", "bolt"])
def test_connectomes_that_nobody_reads_are_not_read(name, cohort, monkeypatch):
    net = create_model(name, 14, 2, **create_model(name, 14).small).eval()
    read = batches(cohort, Whole())
    expected = [net(batch.x, **batch.of_series).logits for batch in read.in_order(16)]
    monkeypatch.setattr(type(cohort), "batch", lambda *_: pytest.fail("connectomes were read"))
    unread = batches(cohort, window_of(net))
    found = [net(batch.x, **batch.of_series).logits for batch in unread.in_order(16)]
    assert torch.equal(torch.cat(found), torch.cat(expected))
    assert mixup(next(unread.in_order(4)), 1.0).x.shape == (4, 14, 14)
