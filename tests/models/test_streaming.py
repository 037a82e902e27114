"""Classical models beyond their bound on memory: the same answers, never all in memory, nothing of the test part."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import bnt
from bnt.cli._options import Machine
from bnt.cohort import Cohort
from bnt.errors import BadInput
from bnt.models import create_model
from bnt.models.classical import _inputs
from bnt.models.classical._features import EdgeFeatures
from bnt.models.classical._inputs import Inputs, Streamed, bound_gb, memory_bound
from bnt.models.classical._streaming import Hinge, LogLoss, Loss, Squared, Tube
from bnt.splits import named_splits
from bnt.studies import Study, Variant
from bnt.studies._job import run_job

V, TRAIN, TEST = 14, np.arange(0, 140), np.arange(140, 220)
LITTLE = 1e-6  # GB
MODELS = {
    "svm": {},
    "logistic": {},
    "ridge": {"center_sites": True},
    "tangent-logistic": {"confounds": "age+sex"},
    "linear-ensemble": {},
    "multi-kernel": {},
    "best": {},
    "cpm": {"threshold": 0.1, "center_sites": True},
    "krr": {},
    "atlas-ensemble": {"base": "ridge"},
}


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch):
    monkeypatch.setattr(_inputs, "AT_ONCE", 32)


@pytest.fixture(scope="module")
def cohort(tmp_path_factory: pytest.TempPathFactory) -> Cohort:
    simulated = bnt.simulate_cohort(n_subjects=220, n_rois=V, n_sites=3, seed=4)
    return simulated.save(tmp_path_factory.mktemp("streaming") / "cohort")


def target(cohort: Cohort) -> np.ndarray:
    labels = cohort.labels("diagnosis")
    return (labels == labels.max()).astype(int)


@pytest.fixture
def products_fit(monkeypatch):
    """Features do not fit into memory, the products of all pairs of subjects do."""
    monkeypatch.setattr(_inputs, "products_gb", lambda n: 0.0)


def fitted(cohort: Cohort, name: str, stream: bool, n_classes: int = 2, y: np.ndarray | None = None):
    """The model, and its decisions for the test part: exact, or by passes over features on disk."""
    y = target(cohort) if y is None else y
    with memory_bound(LITTLE):
        train, test = (Inputs.of(cohort, rows, every_atlas=True, bounded=stream) for rows in (TRAIN, TEST))
        assert train.stored is stream
        model = create_model(name, V, n_classes, **MODELS[name]).fit(train, y[TRAIN])
        return model, model.decisions(test), model.predict_proba(test) if n_classes > 1 else None


@pytest.mark.parametrize("name", MODELS)
def test_auroc_is_within_0_002_of_the_exact_one(cohort, name):
    (_, exact, p_exact), (_, streamed, p_streamed) = (fitted(cohort, name, stream) for stream in (False, True))
    y = target(cohort)[TEST]
    assert abs(roc_auc_score(y, exact[:, 0]) - roc_auc_score(y, streamed[:, 0])) <= 0.002
    assert np.std(exact - streamed) < 0.03 * np.std(exact)
    # So the folds that calibrate agree too; krr takes over everyone's penalty in them.
    np.testing.assert_allclose(p_streamed, p_exact, atol=0.05 if name == "krr" else 0.01)


@pytest.mark.parametrize("name", ["svm", "logistic", "ridge", "tangent-logistic", "linear-ensemble", "krr"])
def test_it_is_the_exact_solution_while_products_fit(cohort, name, products_fit):
    (_, exact, p_exact), (_, streamed, p_streamed) = (fitted(cohort, name, stream) for stream in (False, True))
    np.testing.assert_allclose(streamed, exact, atol=1e-5 * np.std(exact))
    np.testing.assert_allclose(p_streamed, p_exact, atol=1e-5)


def test_products_are_made_of_a_few_thousand_people_within_the_bound(cohort, monkeypatch):
    with memory_bound(LITTLE):
        stored, whole = (Inputs.of(cohort, TRAIN, bounded=bounded) for bounded in (True, False))
        assert stored.by_passes
        assert "solved by passes" in stored.solver()
    with memory_bound(0.1):  # 140 people: 0.0016 GB of products and 0.014 GB of their features at a time
        assert not stored.by_passes
        assert "solved exactly" in stored.solver()
        monkeypatch.setattr(_inputs, "MOST_PRODUCTS", 100)
        assert stored.by_passes
        assert not whole.by_passes


@pytest.mark.parametrize("name", ["svm", "ridge", "multi-kernel", "krr", "cpm"])
def test_scores_are_predicted_as_by_the_exact_solver(cohort, name):
    age = cohort.labels("age").astype(float)
    (_, exact, _), (_, streamed, _) = (fitted(cohort, name, stream, 1, age) for stream in (False, True))
    assert np.std(exact - streamed) < 0.04 * np.std(exact)
    assert abs(np.mean(exact - streamed)) < 0.1


@pytest.mark.parametrize("name", ["logistic", "svm"])
def test_several_classes_are_those_of_the_exact_solver(cohort, name):
    y = (np.arange(len(cohort)) + target(cohort)) % 3
    (_, _, exact), (_, _, streamed) = (fitted(cohort, name, stream, 3, y) for stream in (False, True))
    np.testing.assert_allclose(streamed, exact, atol=0.02)


@pytest.mark.parametrize("name", ["multi-kernel", "best"])
def test_someone_alone_at_a_site_has_no_direction_there(cohort, name):
    sites = np.where(np.arange(len(cohort)) == 7, "alone", cohort.participants["site"])
    edges, people = np.array(cohort.connectomes), cohort.participants.assign(site=sites)
    other = Cohort(edges, people, timeseries=[np.array(one) for one in cohort.timeseries], kind=cohort.kind)
    (_, exact, _), (_, streamed, _) = (fitted(other, name, stream) for stream in (False, True))
    assert np.std(exact - streamed) < 0.03 * np.std(exact)


@pytest.mark.parametrize("name", ["linear-ensemble", "multi-kernel", "cpm"])
def test_a_test_subject_reaches_no_training_feature_on_the_streamed_path(cohort, name, tmp_path):
    series = [np.array(one) for one in cohort.timeseries]
    series[TEST[3]] = series[TEST[3]][::-1] ** 3
    edges = np.array(cohort.connectomes)
    edges[TEST[3]] = bnt.connectivity.connectomes([series[TEST[3]]])[0]
    other = Cohort(edges, cohort.participants, timeseries=series, kind=cohort.kind).save(tmp_path / "other")
    (before, one, _), (after, two, _) = (fitted(data, name, stream=True) for data in (cohort, other))
    for key, value in before.state_dict().items():
        np.testing.assert_array_equal(value, after.state_dict()[key], err_msg=key)
    assert np.flatnonzero((one != two).any(axis=1)).tolist() == [3]


def test_no_more_than_a_block_of_subjects_is_read_or_transformed_at_once(cohort, monkeypatch):
    most = []
    inner, edges = EdgeFeatures._transform, Cohort.edges
    monkeypatch.setattr(EdgeFeatures, "_transform", lambda self, i: most.append(len(i)) or inner(self, i))
    monkeypatch.setattr(Cohort, "edges", lambda self, rows: most.append(len(rows)) or edges(self, rows))
    fitted(cohort, "ridge", stream=True)
    assert max(most) == 32
    assert sum(most) > len(TRAIN)


def test_the_file_holds_the_features_and_is_read_in_blocks(cohort):
    with memory_bound(LITTLE):
        whole, stored = (Inputs.of(cohort, TRAIN, bounded=stream) for stream in (False, True))
    view = EdgeFeatures(V).fit(whole, np.ones(len(TRAIN)))
    streamed = view.transform(stored)
    assert isinstance(streamed, Streamed)
    blocks = [streamed.block(rows) for rows in streamed.slices()]
    assert {len(one) for one in blocks} == {32, 140 % 32}
    np.testing.assert_array_equal(np.concatenate(blocks), view.transform(whole))
    np.testing.assert_array_equal(streamed.columns(slice(10, 30)), view.transform(whole)[:, 10:30])


def test_a_full_disk_is_said_before_anything_is_computed(cohort, monkeypatch):
    monkeypatch.setattr(_inputs.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10})())
    with pytest.raises(BadInput, match="TMPDIR"):
        fitted(cohort, "ridge", stream=True)


@pytest.mark.parametrize("loss", [Squared, Hinge, Tube, LogLoss])
@pytest.mark.parametrize("c", [1, 3])
def test_slopes_and_curves_are_the_derivatives_of_the_loss(loss: type[Loss], c):
    rng = np.random.default_rng(0)
    y = (
        np.where(rng.random((50, 1, c)) < 0.5, 1.0, -1.0)
        if c == 1 or loss is not LogLoss
        else np.eye(c)[:, None][rng.integers(c, size=50)]
    )
    z, along, step = rng.normal(size=(50, 2, c)), rng.normal(size=(50, 2, c)), 1e-6
    one, everyone = loss(y), slice(None)
    ahead, behind = z + step * along, z - step * along
    rise = (one.value(ahead) - one.value(behind)) / (2 * step)
    np.testing.assert_allclose((one.slope(z, everyone) * along).sum(axis=2), rise, atol=1e-6)
    bend = (one.slope(ahead, everyone) - one.slope(behind, everyone)) / (2 * step)
    np.testing.assert_allclose(one.curve(z, along, everyone), bend, atol=5e-3)  # a hinge has a least curvature


def test_a_run_says_how_it_was_solved_in_its_report_and_card_only_beyond_the_bound(cohort, tmp_path):
    splits = named_splits(cohort, "diagnosis", "site-stratified", n_splits=1)
    for name, bound in (("little", LITTLE), ("enough", 1.0)):
        study = Study(tmp_path / name, cohort, "diagnosis", [Variant("ridge", "ridge")], splits, memory_gb=bound)
        run_job(study.jobs()[0])
    for name, said in (("little", True), ("enough", False)):
        (run,) = (tmp_path / name / "runs").iterdir()
        sentence = json.loads((run / "report.json").read_text()).get("solver", "")
        assert ("--memory-gb" in sentence) is said
        assert ("by passes over them" in (run / "model_card.md").read_text()) is said


def test_the_bound_is_half_of_the_machine_unless_said(monkeypatch):
    page, pages = 4096, 1_000_000
    monkeypatch.setattr(_inputs.os, "sysconf", {"SC_PAGE_SIZE": page, "SC_PHYS_PAGES": pages}.__getitem__)
    monkeypatch.setattr(Path, "is_file", lambda _: False)  # no container
    assert bound_gb() == page * pages / 2e9
    with memory_bound(3.0):
        assert bound_gb() == 3.0
    assert Machine(jobs=4).bound_gb() == page * pages / 2e9 / 4
    assert Machine(jobs=4, memory_gb=2.0).bound_gb() == 2.0
    assert Machine(engine="slurm", memory_gb=2.0).bound_gb() == 1.5
    with pytest.raises(BadInput, match="more than 0"), memory_bound(0.0):
        pass
