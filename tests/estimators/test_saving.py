"""Saved estimators are plain files, and come back with the same predictions."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score
from sklearn.utils.validation import NotFittedError

import bnt
from bnt import BrainNetworkClassifier, BrainNetworkRegressor, Cohort, SiteStratifiedSplit
from bnt.cli._main import main
from bnt.errors import BadInput
from bnt.report._render import train_command
from bnt.splits import Split
from bnt.training._config import describe
from bnt.training._recipe import Recipe, find_recipe
from bnt.training._run import train_run
from bnt.training._trained import TrainedRun


@pytest.mark.parametrize("model", ["bnt", "vanilla", "svm", "logistic", "tangent-logistic", "linear-ensemble"])
def test_predictions_are_identical_after_loading(cohort, y, tiny, tmp_path, model):
    options = {"bnt": tiny["options"], "vanilla": {"readout": "ocread", "readout_options": {"n_clusters": 3}}}
    clf = BrainNetworkClassifier(**tiny | {"model": model, "options": options.get(model)}, n_members=2)
    clf.fit(cohort, y)
    loaded = BrainNetworkClassifier.load(clf.save(tmp_path / "clf"))
    np.testing.assert_array_equal(loaded.predict_proba(cohort), clf.predict_proba(cohort))
    assert loaded.get_params() == clf.get_params()
    assert (loaded.n_rois_, loaded.n_features_in_, loaded.n_iter_) == (clf.n_rois_, clf.n_features_in_, clf.n_iter_)
    assert loaded.history_ == clf.history_


def test_the_folder_holds_plain_files_only(cohort, y, tiny, tmp_path):
    folder = BrainNetworkClassifier(**tiny).fit(cohort, y).save(tmp_path / "clf")
    assert {f.name for f in folder.iterdir()} == {"config.toml", "weights.safetensors", "estimator.json", "DONE"}


@pytest.mark.parametrize(
    "labels", [lambda y: np.where(y == 1, "ASD", "control"), lambda y: y.astype(bool), lambda y: y * 2.0 + 1]
)
def test_classes_keep_their_type(cohort, y, tiny, tmp_path, labels):
    X = pd.DataFrame(cohort.connectomes, columns=[f"edge {i}" for i in range(120)])
    clf = BrainNetworkClassifier(**tiny).fit(X, labels(y))
    loaded = BrainNetworkClassifier.load(clf.save(tmp_path / "clf"))
    assert loaded.classes_.dtype == clf.classes_.dtype
    np.testing.assert_array_equal(loaded.predict(X), clf.predict(X))
    np.testing.assert_array_equal(loaded.feature_names_in_, clf.feature_names_in_)


def test_vectors_with_the_diagonal_are_remembered(cohort, y, tmp_path):
    from nilearn.connectome import sym_matrix_to_vec

    X = sym_matrix_to_vec(cohort.square(np.arange(60)))
    clf = BrainNetworkClassifier("svm").fit(X, y)
    loaded = BrainNetworkClassifier.load(clf.save(tmp_path / "clf"))
    np.testing.assert_array_equal(loaded.predict_proba(X), clf.predict_proba(X))


def test_regressors_too(cohort, tiny, tmp_path):
    reg = BrainNetworkRegressor(**tiny).fit(cohort, "age")
    loaded = BrainNetworkRegressor.load(reg.save(tmp_path / "reg"))
    np.testing.assert_array_equal(loaded.predict(cohort), reg.predict(cohort))
    with pytest.raises(BadInput, match="open it with BrainNetworkRegressor"):
        BrainNetworkClassifier.load(tmp_path / "reg")


def test_the_command_lines_predictions_are_the_same(cohort, y, tiny, tmp_path):
    clf = BrainNetworkClassifier(**tiny).fit(cohort, y)
    run = TrainedRun(clf.save(tmp_path / "clf"))
    np.testing.assert_array_equal(run.predict(cohort), clf.predict_proba(cohort))


def test_a_run_of_the_command_line_opens_as_an_estimator(cohort, tiny, tmp_path):
    from bnt.training._config import describe
    from bnt.training._run import train_run

    split = next(bnt.SiteStratifiedSplit(1).split(cohort, "diagnosis"))
    config = describe(
        cohort, "diagnosis", Split.of(cohort, split), model="bnt", options=tiny["options"], recipe=tiny["recipe"]
    )
    result = train_run(cohort, Split.of(cohort, split), config, tmp_path / "run")
    clf = BrainNetworkClassifier.load(tmp_path / "run")
    expected = result.predictions.query("part == 'test'")["p_1"]
    np.testing.assert_allclose(clf.predict_proba(cohort.select(split[2]))[:, 1], expected, atol=1e-5)


def test_a_damaged_note_is_named(cohort, y, tmp_path):
    folder = BrainNetworkClassifier("logistic").fit(cohort, y).save(tmp_path / "clf")
    (folder / "estimator.json").write_text("{}")
    with pytest.raises(BadInput, match="estimator.json"):
        BrainNetworkClassifier.load(folder)


def test_saving_needs_a_fit_and_an_empty_place(cohort, y, tiny, tmp_path):
    with pytest.raises(NotFittedError):
        BrainNetworkClassifier(**tiny).save(tmp_path / "clf")
    clf = BrainNetworkClassifier("logistic").fit(cohort, y)
    clf.save(tmp_path / "clf")
    with pytest.raises(BadInput, match="exists already"):
        clf.save(tmp_path / "clf")
    clf.save(tmp_path / "clf", overwrite=True)
    with pytest.raises(BadInput, match="not a run"):
        BrainNetworkClassifier.load(tmp_path / "nothing")


def test_a_network_with_centred_inputs_comes_back(cohort, y, tiny, tmp_path):
    recipe = find_recipe("default", inputs="centred", epochs=2)
    clf = BrainNetworkClassifier(**tiny | {"recipe": recipe}).fit(cohort, y)
    loaded = BrainNetworkClassifier.load(clf.save(tmp_path / "clf"))
    np.testing.assert_array_equal(loaded.predict_proba(cohort), clf.predict_proba(cohort))


def test_the_command_predicts_with_a_saved_estimator(cohort, y, tmp_path):
    folder = BrainNetworkClassifier("svm").fit(cohort, y).save(tmp_path / "clf")
    cohort.save(tmp_path / "cohort")
    assert main(["predict", str(folder), str(tmp_path / "cohort"), "--out", str(tmp_path / "p.csv")]) == 0
    table = pd.read_csv(tmp_path / "p.csv")
    assert len(table) == len(cohort)
    assert table["interval_from"].str.startswith("not available").all()


def test_classes_of_a_run_with_another_positive_class_are_sorted(cohort, tmp_path):
    split = next(SiteStratifiedSplit(n_splits=1).split(cohort, "diagnosis"))
    config = describe(
        cohort, "diagnosis", Split.of(cohort, split), model="svm", recipe=find_recipe("default", "svm"), positive="0"
    )
    report = train_run(cohort, Split.of(cohort, split), config, tmp_path / "run").report
    assert report["positive_class"] == 0
    loaded = BrainNetworkClassifier.load(tmp_path / "run")
    test, y = cohort.select(split[2]), cohort.labels("diagnosis")[split[2]]
    assert loaded.classes_.tolist() == [0, 1]
    assert roc_auc_score(y, loaded.predict_proba(test)[:, 1]) == pytest.approx(report["test"]["auroc"])
    assert (loaded.predict(test) == y).mean() == pytest.approx(report["test"]["accuracy"], abs=0.1)
    assert "--positive 0" in train_command(config)


def test_what_is_predicted_does_not_depend_on_the_diagonal_of_the_new_cohort(cohort, tiny):
    fitted = BrainNetworkClassifier(**tiny).fit(cohort, "diagnosis")
    other = Cohort(cohort.connectomes, cohort.participants, kind="unknown", diagonal=0.0)
    np.testing.assert_array_equal(fitted.predict_proba(other), fitted.predict_proba(cohort))


def test_epochs_beside_a_recipe_are_the_number_of_epochs(tiny):
    given = Recipe(epochs=5, min_steps=300)
    assert BrainNetworkClassifier(**{**tiny, "recipe": given, "epochs": 2})._recipe().min_steps == 0
    assert BrainNetworkClassifier(**{**tiny, "recipe": given})._recipe() == given


def test_a_missing_group_is_of_its_own_and_a_missing_site_unknown(cohort):
    from bnt.estimators._layout import Layout, _cohort

    n = len(cohort)
    layout = Layout(cohort.connectomes.shape[1], cohort.n_rois, 1.0, "paper")
    groups = np.array([np.nan] * (n - 2) + [1.0, 1.0])
    found = _cohort(cohort.connectomes, layout, group=groups, site=np.array([None] + ["A"] * (n - 1), dtype=object))
    assert len(set(found.families)) == n - 1
    assert found.sites.tolist() == ["unknown"] + ["A"] * (n - 1)


def test_an_estimator_of_ones_own_is_not_saved_because_it_could_not_be_loaded(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from sklearn.linear_model import LogisticRegression\n\n\ndef plain():\n    return LogisticRegression()\n"
    )
    cohort = bnt.simulate_cohort(n_subjects=40, n_rois=20, n_sites=2, seed=0)
    fitted = BrainNetworkClassifier(f"{file}:plain").fit(cohort, "diagnosis")
    with pytest.raises(BadInput, match=r"mine\.py:plain.*pickle"):
        fitted.save(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()
