"""Several atlases in one study: every model in every atlas, and an ensemble stacked inside the training part."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import bnt
from bnt.cli._main import main
from bnt.cohort import Cohort
from bnt.cohort._beside import write_together
from bnt.errors import BadInput
from bnt.models import create_model
from bnt.models.classical._inputs import Inputs


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The same 60 people in 16 ROIs and in 9 others of 24."""
    whole = bnt.simulate_cohort(n_subjects=60, n_rois=24, n_sites=2, effect=1.5, seed=0)
    squares = whole.square(np.arange(60))

    def part(name, rois):
        chosen = squares[:, rois][:, :, rois]
        table = whole.participants.drop(columns="n_volumes")
        return Cohort(chosen, table, kind=whole.kind, atlas=name, source=whole.source, levels=whole.levels)

    out = tmp_path_factory.mktemp("atlases") / "cohort"
    parts = {"fine": part("fine", np.arange(16)), "coarse": part("coarse", np.arange(15, 24))}
    write_together(out, {name: one.save for name, one in parts.items()})
    return out


def inputs_of(folder, rows):
    return Inputs.of(bnt.load_cohort(folder), rows, every_atlas=True)


def test_the_stack_is_logistic_regression_on_held_out_decisions_of_each_atlas(folder):
    from sklearn.linear_model import LogisticRegression

    from bnt.models.classical._solvers import folds

    train, rest = np.arange(40), np.arange(40, 60)
    y = bnt.load_cohort(folder).labels("diagnosis")
    model = create_model("atlas-ensemble", 16, base="svm").fit(inputs_of(folder, train), y[train])
    columns, new = [], []
    for atlas, n_rois in (("fine", 16), ("coarse", 9)):
        cohort = bnt.load_cohort(folder, atlas)
        held_out = np.zeros(40)
        for fitted, out in folds(y[train], 2):
            one = create_model("svm", n_rois).fit(Inputs.of(cohort, train[fitted]), y[train[fitted]])
            held_out[out] = one.decision(Inputs.of(cohort, train[out]))
        whole = create_model("svm", n_rois).fit(Inputs.of(cohort, train), y[train])
        columns.append((held_out - held_out.mean()) / held_out.std())
        new.append((whole.decision(Inputs.of(cohort, rest)) - held_out.mean()) / held_out.std())
    stack = LogisticRegression(C=1.0).fit(np.stack(columns, axis=1), y[train])
    expected = stack.decision_function(np.stack(new, axis=1))
    np.testing.assert_allclose(model.decision(inputs_of(folder, rest)), expected, atol=1e-6)


def test_labels_of_the_test_part_change_nothing(folder):
    train, rest = np.arange(40), np.arange(40, 60)
    cohort = bnt.load_cohort(folder)
    y = cohort.labels("diagnosis").copy()
    first = create_model("atlas-ensemble", 16).fit(inputs_of(folder, train), y[train])
    y[rest] = 1 - y[rest]
    second = create_model("atlas-ensemble", 16).fit(inputs_of(folder, train), y[train])
    np.testing.assert_array_equal(
        first.predict_proba(inputs_of(folder, rest)), second.predict_proba(inputs_of(folder, rest))
    )


@pytest.mark.parametrize(
    ("combine", "n_classes"), [("stack", 2), ("mean", 2), ("stack", 3), ("mean", 3), ("stack", 1), ("mean", 1)]
)
def test_an_ensemble_predicts_the_same_after_saving(folder, combine, n_classes):
    rows = np.arange(60)
    inputs = inputs_of(folder, rows)
    y = np.sin(rows) if n_classes == 1 else rows % n_classes
    model = create_model("atlas-ensemble", 16, n_classes, combine=combine, base="ridge").fit(inputs, y)
    again = create_model("atlas-ensemble", 16, n_classes, combine=combine, base="ridge")
    again.load_state_dict(model.state_dict())
    np.testing.assert_array_equal(again.predict(inputs), model.predict(inputs))
    assert sum(model.atlas_weights().values()) == pytest.approx(1.0)


def test_people_of_one_group_are_in_one_fold(folder):
    inputs = inputs_of(folder, np.arange(60))
    groups = np.repeat([f"family-{i}" for i in range(20)], 3)
    inputs = Inputs(inputs.edges, people=pd.DataFrame({"family": groups}))
    model = create_model("atlas-ensemble", 16)
    parts = model._folds(inputs, np.tile([0, 1, 0], 20))
    assert len(parts) == 5
    for fitted, out in parts:
        assert not set(groups[fitted]) & set(groups[out])


def test_another_cohort_without_one_of_the_atlases_is_refused(folder):
    rows = np.arange(40)
    y = bnt.load_cohort(folder).labels("diagnosis")[rows]
    model = create_model("atlas-ensemble", 16).fit(inputs_of(folder, rows), y)
    with pytest.raises(BadInput, match="coarse"):
        model.decisions(Inputs.of(bnt.load_cohort(folder), rows))


def test_a_base_that_is_no_linear_model_is_refused():
    with pytest.raises(BadInput, match="base is 'bnt'"):
        create_model("atlas-ensemble", 16, base="bnt")


@pytest.fixture(scope="module")
def study(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("studies") / "study"
    words = ["compare", str(folder), "--models", "ridge", "svm@coarse:C=0.5", "atlas-ensemble:base=ridge"]
    assert main([*words, "--atlas", "all", "--splits", "2", "--jobs", "1", "--out", str(out)]) == 0
    return out


def test_a_comparison_has_every_model_in_every_atlas_on_the_same_people(study):
    runs = pd.read_csv(study / "runs.csv")
    names = ["ridge@fine", "ridge@coarse", "svm@coarse:C=0.5", "atlas-ensemble:base=ridge"]
    assert runs["variant"].drop_duplicates().tolist() == names
    tested = {}
    for run, split in zip(runs["run"], runs["split"]):
        people = pd.read_csv(study / "runs" / run / "predictions.csv")["participant_id"].tolist()
        assert tested.setdefault(split, people) == people


def test_a_run_of_an_atlas_opens_with_its_folder(study, folder):
    from bnt.training import TrainedRun

    run = next((study / "runs").glob("ridge_coarse*"))
    trained = TrainedRun(run)
    assert trained.config.n_rois == 9
    assert trained.predict(bnt.load_cohort(folder, "coarse")).shape == (60, 2)


@pytest.mark.usefixtures("undrawn")
def test_the_page_names_the_atlases_and_the_command_repeats_the_study(study, folder):
    assert main(["report", str(study)]) == 0
    page = (study / "report.html").read_text()
    assert "coarse (9 ROIs)" in page
    assert "ridge@fine ridge@coarse svm@coarse:C=0.5 atlas-ensemble:base=ridge" in page


def test_the_same_command_resumes_and_an_unknown_atlas_is_named(study, folder, capsys):
    words = ["compare", str(folder), "--splits", "2", "--jobs", "1", "--out", str(study), "--models", "ridge"]
    assert main([*words, "--atlas", "coarse"]) == 0
    assert "All 2 runs are done already" in capsys.readouterr().err
    assert main([*words, "--atlas", "msdl"]) == 2
    assert "fine, coarse" in capsys.readouterr().err
