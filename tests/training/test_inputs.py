"""Centred inputs: the training part's mean and SD, saved with the weights, blind to everyone else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from bnt.models import create_model
from bnt.splits import Split
from bnt.training._batches import CentredInputs, prepare
from bnt.training._config import describe
from bnt.training._recipe import Recipe
from bnt.training._run import train_run
from bnt.training._trained import TrainedRun

TINY = {"n_layers": 1, "n_heads": 2, "ffn": 8, "n_clusters": 3}
RECIPE = Recipe(epochs=2, batch_size=8, inputs="centred")


def test_centred_training_matrices_have_mean_zero_and_sd_one():
    x = torch.randn(30, 8, 8, dtype=torch.float64).float() * 0.2 + 0.3
    net = CentredInputs(create_model("bnt", 8, 2, **TINY), 8)
    prepare(net, lambda: iter(x.split(7)))
    seen = net.transform(x)
    assert torch.allclose(seen.mean(dim=0), torch.zeros(8, 8), atol=1e-5)
    assert abs(seen.square().mean().sqrt().item() - 1) < 1e-5


def test_statistics_come_from_the_training_part_and_travel_with_the_run(small_cohort, split, tmp_path):
    config = describe(
        small_cohort, "diagnosis", Split.of(small_cohort, split), model="bnt", options=TINY, recipe=RECIPE
    )
    result = train_run(small_cohort, Split.of(small_cohort, split), config, tmp_path / "run")
    trained = TrainedRun(tmp_path / "run")
    expected = small_cohort.square(split[0]).mean(axis=0)
    assert np.allclose(trained.learner.state()["member0.mean"].numpy(), expected, atol=1e-6)
    test = result.predictions[result.predictions["part"] == "test"]
    assert np.allclose(trained.table(small_cohort.select(split[2]))["p_1"], test["p_1"], atol=1e-6)


def test_raw_inputs_reach_the_network_untouched(small_cohort, split, tmp_path):
    recipe = replace(RECIPE, inputs="raw")
    config = describe(
        small_cohort, "diagnosis", Split.of(small_cohort, split), model="bnt", options=TINY, recipe=recipe
    )
    train_run(small_cohort, Split.of(small_cohort, split), config, tmp_path / "run")
    assert "member0.mean" not in TrainedRun(tmp_path / "run").learner.state()


def test_explanations_pass_through():
    net = CentredInputs(create_model("bnt", 8, 2, **TINY), 8).eval()
    out = net(torch.randn(2, 8, 8), explain=True)
    assert out.attention[0].shape == (2, 2, 8, 8)
    assert out.assignments.shape == (2, 8, 3)
