"""The one interface for whatever learns: networks and models without epochs answer to the same calls."""

from __future__ import annotations

import numpy as np
import pytest

from bnt.errors import BadInput
from bnt.training import Recipe, make_learner
from bnt.training._config import RunConfig
from bnt.training._task import Task

OPTIONS = {"bnt": {"n_clusters": 2, "ffn": 8, "n_heads": 1}, "kernel-transformer": {"min_steps": 3, "epochs": 1}}


def learner_for(model: str, **recipe):
    settings = Recipe(**{"epochs": 1, "batch_size": 8, "select": "last"} | recipe)
    task = Task("classification", classes=(0, 1))
    return make_learner(RunConfig(model, "diagnosis", 0, settings, task, options=OPTIONS.get(model, {}), n_rois=8))


@pytest.mark.parametrize("model", ["bnt", "svm", "kernel-transformer"])
def test_a_learner_comes_back_from_its_state(model, small_cohort, split):
    first, second = learner_for(model), learner_for(model)
    first.fit(small_cohort, small_cohort.labels("diagnosis"), split[0], split[1])
    second.load(first.state())
    found = second.predict(small_cohort, split[2])
    assert found.shape == (len(split[2]), 2)
    np.testing.assert_array_equal(found, first.predict(small_cohort, split[2]))
    assert second.n_parameters == first.n_parameters > 0


def test_the_members_predictions_are_averaged(small_cohort, split):
    learner = learner_for("bnt", n_members=2)
    lines = learner.fit(small_cohort, small_cohort.labels("diagnosis"), split[0], split[1])
    each = learner.predict_each(small_cohort)
    assert each.shape == (2, 60, 2)
    assert np.ptp(each, axis=0).max() > 0
    np.testing.assert_array_equal(learner.predict(small_cohort), each.mean(axis=0))
    assert [line["member"] for line in lines] == [0, 1]
    assert {name.partition(".")[0] for name in learner.state()} == {"member0", "member1"}


def test_networks_are_given_ready_to_predict_and_only_where_there_are_any(small_cohort, split):
    network = learner_for("bnt")
    network.fit(small_cohort, small_cohort.labels("diagnosis"), split[0], split[1])
    assert [member.training for member in network.networks()] == [False]
    with pytest.raises(BadInput, match="'svm'"):
        learner_for("svm").networks()
