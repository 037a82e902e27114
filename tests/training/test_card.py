"""The model card tells in words what the recipe did."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bnt.training._config import RunConfig
from bnt.training._recipe import find_recipe
from bnt.training._run import model_card
from bnt.training._task import Task

REPORT = {
    "test": {"auroc": 0.7},
    "n": {"train": 7, "validation": 1, "test": 2},
    "positive_class": 1,
    "versions": {"bnt": "1"},
    "n_parameters": 10,
    "weights_sha256": "0" * 64,
    "seconds": 1.0,
    "cpu_seconds": 1.0,
    "peak_memory_mb": 1,
}


@pytest.mark.parametrize(
    ("model", "recipe", "words"),
    [
        ("bnt", "paper", "at most 200 epochs in batches of 64, Adam, rate 0.0001 to 0.0001"),
        ("bnt-released", "default", "mixup 1, weights averaged with decay 0.99, tested: the best mean of 5 epochs"),
        ("svm", "best", "the model fits itself"),
    ],
)
def test_the_recipe_is_told_in_words(model: str, recipe: str, words: str):
    task = Task("classification", (0, 1))
    config = RunConfig(model, "diagnosis", 0, find_recipe(recipe, model), task, recipe_name=recipe, n_rois=20)
    card = model_card(config, REPORT)
    assert words in card
    assert "Recipe(" not in card
    assert ("trained again on training + validation" in card) == (recipe == "best")
    assert "trained again" in model_card(replace(config, recipe=replace(config.recipe, refit=True)), REPORT)
