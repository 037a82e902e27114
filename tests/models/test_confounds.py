"""Confounds regressed out within the fold: against scikit-learn, without a glance at the test subjects."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load, save
from sklearn.linear_model import LinearRegression

import bnt
from bnt.cli._main import main
from bnt.errors import BadInput
from bnt.models import create_model
from bnt.models.classical._features import Adjusted, EdgeFeatures
from bnt.models.classical._inputs import Confounds, Inputs

V = 16
MODELS = [
    "svm",
    "ridge",
    "logistic",
    "tangent-logistic",
    "linear-ensemble",
    "multi-kernel",
    "best",
    "kernel-transformer",
]
ALL = "age+sex+mean_fd"


def inputs_of(n: int = 60) -> Inputs:
    cohort = bnt.simulate_cohort(n_subjects=n, n_rois=V, n_sites=2, n_volumes=40, seed=0)
    inputs = Inputs.of(cohort)
    rng = np.random.default_rng(0)
    people = pd.DataFrame({"age": rng.normal(20, 5, n), "sex": rng.choice(["F", "M"], n), "mean_fd": rng.random(n)})
    return replace(inputs, people=people)


def test_residuals_are_scikit_learns():
    inputs = inputs_of()
    train, test = inputs.take(np.arange(40)), inputs.take(np.arange(40, 60))
    adjusted = Adjusted(EdgeFeatures(V), ("age", "sex", "mean_fd")).fit(train, np.ones(40))

    def design(people: pd.DataFrame) -> np.ndarray:
        return np.column_stack([people["age"], people["sex"] == "M", people["mean_fd"]]).astype(float)

    plain = EdgeFeatures(V).fit(train, np.ones(40))
    regression = LinearRegression().fit(design(train.people), plain.transform(train))
    for part in (train, test):
        expected = plain.transform(part) - regression.predict(design(part.people))
        got = adjusted.transform(part)
        np.testing.assert_allclose(got - got[0], expected - expected[0], atol=1e-4)  # the intercept is left in


def test_missing_numbers_are_the_training_mean_and_unknown_words_the_first_level():
    people = pd.DataFrame({"age": [10.0, 20.0, np.nan], "sex": ["F", "M", "M"]})
    confounds = Confounds(("age", "sex")).fit(people, np.ones(3))
    np.testing.assert_allclose(confounds.design(people), [[-5, 0], [5, 1], [0, 1]])
    new = pd.DataFrame({"age": ["n/a", "30"], "sex": ["other", "M"]})
    with pytest.warns(UserWarning, match="'other', which no training subject has .* it counts as 'F'"):
        np.testing.assert_allclose(confounds.design(new), [[0, 0], [15, 1]])


@pytest.mark.parametrize("odd", ["31 y", "inf"])
def test_a_word_among_numbers_is_refused_and_not_a_level(odd, tmp_path, capsys):
    ages = [odd, *np.arange(20, 49).astype(str)]
    with pytest.raises(BadInput, match=f"'age' of participants.tsv has '{odd}' among its numbers"):
        Confounds(("age",)).fit(pd.DataFrame({"age": ages}), np.ones(30))
    learned = Confounds(("age",)).fit(pd.DataFrame({"age": ages[1:]}), np.ones(29))
    with pytest.raises(BadInput, match="where training had numbers"):
        learned.design(pd.DataFrame({"age": ages[:1]}))
    folder = bnt.simulate_cohort(n_subjects=30, n_rois=V, n_sites=2, seed=0).save(tmp_path / "cohort").path
    people = pd.read_csv(folder / "participants.tsv", sep="\t")
    people.assign(age=ages).to_csv(folder / "participants.tsv", sep="\t", index=False)
    words = ["compare", str(folder), "--models", "ridge", "--splits", "1", "--confounds", "age"]
    assert main([*words, "--out", str(tmp_path / "study")]) == 2
    assert "write a finite number or n/a there" in capsys.readouterr().err
    assert not (tmp_path / "study").exists()


def test_decimal_commas_of_an_edited_table_are_no_levels():
    with pytest.raises(BadInput, match="has 30 different words, such as '20,5', in 30 subjects"):
        Confounds(("age",)).fit(pd.DataFrame({"age": [f"{20 + i},5" for i in range(30)]}), np.ones(30))


def test_sites_named_by_numbers_are_no_numbers():
    people = pd.DataFrame({"site": ["1", "2", "3"]})
    np.testing.assert_array_equal(Confounds(("site",)).fit(people, np.ones(3)).design(people), [[0, 0], [1, 0], [0, 1]])


def test_a_spelling_that_training_does_not_have_is_said():
    confounds = Confounds(("sex",)).fit(pd.DataFrame({"sex": ["F", "M"]}), np.ones(2))
    with pytest.warns(UserWarning, match="has 'female', which no training subject has"):
        confounds.design(pd.DataFrame({"sex": ["male", "female"]}))


@pytest.mark.parametrize("name", MODELS)
def test_a_feature_that_is_all_confound_tells_nothing_any_more(name: str):
    inputs = inputs_of(120)
    motion = inputs.people["mean_fd"].to_numpy()
    y = (motion > np.median(motion)).astype(int)
    rng = np.random.default_rng(1)
    pattern = rng.choice([-0.3, 0.3], size=inputs.edges.shape[1])
    edges = rng.normal(0, 0.05, size=inputs.edges.shape) + np.outer(motion - 0.5, pattern)
    inputs = replace(inputs, edges=edges.astype(np.float32), series=None)
    train, test = np.arange(80), np.arange(80, 120)
    options = {"n_members": 0} if name == "kernel-transformer" else {}
    hits = []
    for confounds in ("", "mean_fd"):
        model = create_model(name, V, 2, confounds=confounds, **options).fit(inputs.take(train), y[train])
        hits.append(np.mean(model.predict(inputs.take(test)) == y[test]))
    assert hits[0] > 0.85
    assert hits[1] < 0.75


@pytest.mark.parametrize("name", MODELS)
def test_saved_and_loaded_it_predicts_the_same(name: str):
    inputs = inputs_of(40)
    y = np.arange(40) % 2
    options = {"confounds": ALL} | ({"epochs": 1, "min_steps": 5} if name == "kernel-transformer" else {})
    model = create_model(name, V, 2, **options).fit(inputs, y)
    again = create_model(name, V, 2, **options)
    again.load_state_dict(load(save({k: np.array(v) for k, v in model.state_dict().items()})))
    np.testing.assert_allclose(again.predict_proba(inputs), model.predict_proba(inputs), atol=1e-6)


def test_a_column_that_is_not_there_is_named():
    inputs = inputs_of(20)
    with pytest.raises(BadInput, match=r"'weight' is not a column of participants\.tsv.*there are age, sex"):
        create_model("svm", V, 2, confounds="age+weight").fit(inputs, np.arange(20) % 2)
    model = create_model("svm", V, 2, confounds="age").fit(inputs, np.arange(20) % 2)
    with pytest.raises(BadInput, match="'age' is not a column"):
        model.predict(replace(inputs, people=None))
