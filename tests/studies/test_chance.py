"""The test against chance that fits models anew with permuted labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from small_studies import LOGISTIC, make_study, tiny

from bnt.cohort import Cohort, load_cohort
from bnt.errors import BadInput
from bnt.splits import Split, named_splits
from bnt.studies import _chance as chance
from bnt.studies._job import Variant
from bnt.studies._results import run_table
from bnt.studies._study import Study
from bnt.studies._summary import write_tables

RIDGE = Variant("ridge", "ridge")


def noise(rng: np.random.Generator, n: int = 48, v: int = 6, sites: int = 1) -> Cohort:
    """People whose connectomes know nothing of their class."""
    matrices = np.stack([np.corrcoef(rng.normal(size=(20, v)).T) for _ in range(n)]).astype(np.float32)
    table = pd.DataFrame({"participant_id": [f"s{i:03d}" for i in range(n)], "diagnosis": np.arange(n) % 2})
    return Cohort(matrices, table.assign(site=[f"site{i}" for i in np.arange(n) // 2 % sites]))


def draws(folder: Path) -> list[str]:
    """The lines of every file of draws."""
    return sorted(line for file in (folder / "permuted").glob("*/draws.csv") for line in file.read_text().splitlines())


def test_labels_are_permuted_within_sites_and_scans_follow_their_person() -> None:
    cohort = noise(np.random.default_rng(0), n=48, sites=3)
    people = [f"p{i // 2}" for i in range(48)]
    twice = Cohort(cohort.connectomes, cohort.participants.assign(person=people, diagnosis=np.arange(48) // 2 % 2))
    y = twice.labels("diagnosis")
    seen = [chance.permuted_labels(twice, "diagnosis", draw) for draw in range(20)]
    for one in seen:
        assert all(one[0::2] == one[1::2])  # both scans of a person
        for site in np.unique(twice.sites):
            here = twice.sites == site
            assert sorted(one[here]) == sorted(y[here])
    assert len({tuple(one) for one in seen}) > 15
    assert (chance.permuted_labels(twice, "diagnosis", 3) == seen[3]).all()


def test_a_label_that_changes_within_a_person_cannot_be_permuted() -> None:
    cohort = noise(np.random.default_rng(0))
    both = Cohort(cohort.connectomes, cohort.participants.assign(person=[f"p{i // 2}" for i in range(48)]))
    with pytest.raises(BadInput, match="p0"):
        chance.permuted_labels(both, "diagnosis", 0)


def test_scores_and_p_are_those_of_scikit_learn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One site, one split: permutation_test_score with the same draws of labels."""
    from sklearn.model_selection import permutation_test_score

    from bnt.estimators import BrainNetworkClassifier

    cohort = noise(np.random.default_rng(1))
    cohort.save(tmp_path / "cohort")
    cohort = load_cohort(tmp_path / "cohort")
    y, order = cohort.labels("diagnosis"), np.random.default_rng(2).permutation(48)
    rows = np.sort(order[:28]), np.sort(order[28:32]), np.sort(order[32:])
    split = Split.of(cohort, rows, "mine:0:split0")
    _, theirs, p = permutation_test_score(
        BrainNetworkClassifier(model="ridge", n_rois=6, random_state=0),
        np.asarray(cohort.connectomes),
        y,
        cv=[(rows[0], rows[2])],
        scoring="roc_auc",
        n_permutations=9,
        random_state=5,
    )
    state = np.random.RandomState(5)
    labels = [y[state.permutation(len(y))] for _ in range(9)]
    monkeypatch.setattr(chance, "permuted_labels", lambda cohort, label, draw: labels[draw])
    study = Study(tmp_path / "study", cohort, "diagnosis", [RIDGE], [split])
    assert study.run() == {}
    runs = run_table(tmp_path / "study")
    job = study.jobs()[0]
    config = chance.configure(job, cohort)
    ours = [chance.permuted_score(cohort, config, split, draw) for draw in range(9)]
    np.testing.assert_allclose(ours, theirs, atol=1e-12)
    lines = ["draw,score,config", *(f"{draw},{score!r},{config.digest()}" for draw, score in enumerate(ours))]
    file = tmp_path / "study" / "permuted" / job.name / "draws.csv"
    file.parent.mkdir(parents=True)
    file.write_text("\n".join(lines) + "\n")
    assert chance.refit_p(tmp_path / "study", runs, "ridge", 9) == pytest.approx(p)


def test_p_is_uniform_where_there_is_nothing_to_find(tmp_path: Path) -> None:
    """Of 24 cohorts of noise, p is at most 0.1, 0.3, 0.5 and 0.8 about as often as it says."""
    found = []
    for seed in range(24):
        cohort = noise(np.random.default_rng([7, seed]), n=32, v=5, sites=2)
        (split,) = named_splits(cohort, "diagnosis", "site-stratified", n_splits=1, seed=seed)
        config = _config(cohort, split)
        observed = _observed(cohort, config, split)
        null = [chance.permuted_score(cohort, config, split, draw) for draw in range(9)]
        found.append((1 + sum(score >= observed for score in null)) / 10)
    for level in (0.1, 0.3, 0.5, 0.8):
        share = np.mean(np.array(found) <= level + 1e-9)
        assert abs(share - level) < 3 * np.sqrt(level * (1 - level) / 24), (level, share)


def _config(cohort: Cohort, split: Split):
    from bnt.training._config import describe
    from bnt.training._recipe import find_recipe

    return describe(cohort, "diagnosis", split, model="ridge", recipe=find_recipe("default"), options={"penalty": 1.0})


def _observed(cohort: Cohort, config, split: Split) -> float:
    from bnt.training._learner import make_learner

    train, val, test = split.rows(cohort)
    learner = make_learner(config)
    y = cohort.labels("diagnosis")
    learner.fit(cohort, y, train, val)
    return config.task.score(y[test], learner.predict(cohort, test))


def test_an_interrupted_test_resumes_to_the_same_draws(cohort: Cohort, tmp_path: Path) -> None:
    whole, cut = (make_study(tmp_path / name, cohort, [LOGISTIC, RIDGE]) for name in ("whole", "cut"))
    for study in (whole, cut):
        assert study.run() == {}
    assert chance.run_permuted(whole, ["ridge"], 6, n_processes=2) == {}
    assert chance.run_permuted(cut, ["ridge"], 3, n_processes=2) == {}
    files = sorted((cut.folder / "permuted").glob("*/draws.csv"))
    assert len(files) == 2
    files[0].write_text(files[0].read_text()[:-40])  # killed while it wrote a line
    assert chance.run_permuted(cut, ["ridge"], 6, n_processes=2) == {}
    assert draws(cut.folder) == draws(whole.folder)
    summary = write_tables(cut.folder, None, 6, ["ridge"])[1].set_index("variant")
    assert summary.loc["ridge", "chance_test"] == "refit"
    assert summary.loc["logistic", "chance_test"] == "predictions"
    assert summary.loc["ridge", "p_chance"] == pytest.approx(1 / 7)  # the class is in one edge
    assert "refitted" in (cut.folder / "summary.md").read_text()
    stale = files[1].read_text().replace(files[1].read_text().splitlines()[1].split(",")[2], "0" * 64)
    files[1].write_text(stale)  # draws of another configuration count for nothing
    assert np.isnan(write_tables(cut.folder, None, 6, ["ridge"])[1].set_index("variant").loc["ridge", "p_chance"])


def test_a_network_is_fitted_anew_on_request(cohort: Cohort, tmp_path: Path) -> None:
    study = make_study(tmp_path / "study", cohort, [tiny(epochs=2)], n_splits=1)
    assert study.run() == {}
    assert chance.run_permuted(study, ["bnt"], 2) == {}
    assert len(draws(study.folder)) == 3


def test_names_of_models_to_fit_anew() -> None:
    variants = [tiny("net"), LOGISTIC, RIDGE]
    assert chance.refitted_names(["classical"], variants) == ["logistic", "ridge"]
    assert chance.refitted_names(["all"], variants) == ["net", "logistic", "ridge"]
    assert chance.refitted_names(["ridge", "net"], variants) == ["net", "ridge"]
    with pytest.raises(BadInput, match="svm"):
        chance.refitted_names(["svm"], variants)
