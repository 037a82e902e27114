"""Classes whose share differs between sites: what the AUROC owes to site is said, and what is left within sites."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold

from bnt.cli._main import main
from bnt.cohort import Cohort, load_cohort
from bnt.cohort._findings import site_confound
from bnt.cohort._inspect import inspect_cohort
from bnt.estimators import BrainNetworkClassifier
from bnt.report import write_report
from bnt.studies import run_table
from bnt.training._task import auroc_within

SHARES = (0.12, 0.35, 0.58, 0.81)


def confounded(n_per_site: int, seed: int = 0) -> Cohort:
    """Connectomes that show the site and nothing else, and a label whose share differs between sites."""
    rng = np.random.default_rng(seed)
    site = np.repeat(np.arange(4), n_per_site)
    y = np.concatenate([rng.permutation(np.arange(n_per_site) < round(share * n_per_site)) for share in SHARES])
    edges = rng.normal(0, 0.15, (len(site), 66)) + rng.normal(0, 0.06, (4, 66))[site]
    people = {"participant_id": [f"sub-{i:04d}" for i in range(len(site))], "site": [f"site-{s}" for s in site]}
    return Cohort(edges.clip(-0.99, 0.99), pd.DataFrame(people).assign(diagnosis=y.astype(int)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("sites") / "cohort"
    confounded(500).save(path)  # 3 test parts of 400: the area within sites has an SE of about 0.02
    return path


def test_the_area_within_sites_is_that_of_all_pairs_of_one_site():
    rng = np.random.default_rng(0)
    y, score, site = rng.random(80) < 0.4, rng.random(80).round(1), rng.integers(0, 5, 80).astype(str)
    won = [
        (score[i] > score[k]) + 0.5 * (score[i] == score[k])
        for i in np.flatnonzero(y)
        for k in np.flatnonzero(~y)
        if site[i] == site[k]
    ]
    assert auroc_within(y, score, site) == pytest.approx(np.mean(won))
    assert auroc_within(y, score, np.full(80, "A")) == pytest.approx(roc_auc_score(y, score))
    assert np.isnan(auroc_within(y, score, y.astype(str)))


@pytest.mark.parametrize(
    ("counts", "said"), [({"A": [20, 30], "B": [25, 25], "C": [3, 4]}, False), ({"A": [9, 1]}, False)]
)
def test_shares_that_chance_explains_get_no_caution(counts, said):
    assert bool(site_confound(counts, ["0", "1"])) is said


def test_info_says_that_site_gives_the_label_away(folder):
    (found,) = [c for c in inspect_cohort(load_cohort(folder)).checks if c.name == "classes by site"]
    assert found.state == "warning"
    assert all(text in found.text for text in ("12 %", "81 %", "site-0", "site-3"))


@pytest.mark.usefixtures("undrawn")
def test_a_headline_that_site_makes_gets_a_caution_and_the_area_within_sites(folder, tmp_path, capsys):
    words = [
        "compare",
        str(folder),
        "--models",
        "ridge",
        "--splits",
        "3",
        "--jobs",
        "1",
        "--out",
        str(tmp_path / "study"),
    ]
    assert main(words) == 0
    said = capsys.readouterr()
    runs = run_table(tmp_path / "study")
    assert runs["auroc"].mean() > 0.65
    assert runs["auroc_within_site"].mean() == pytest.approx(0.5, abs=0.06)
    assert "12 %" in said.err
    assert "AUROC within sites" in said.out
    assert "12 %" in said.out
    for page in (write_report(tmp_path / "study"), write_report(next((tmp_path / "study" / "runs").iterdir()))):
        text = page.read_text()
        assert "12 %" in text
        assert "AUROC within sites" in text
    assert "auroc_within_site" in pd.read_csv(tmp_path / "study" / "summary.csv")


def test_training_prints_the_caution_beside_the_area_within_sites(folder, tmp_path, capsys):
    assert main(["train", str(folder), "--model", "ridge", "--out", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out
    assert "AUROC within sites" in said
    assert "81 %" in said
    assert "81 %" in (tmp_path / "run" / "model_card.md").read_text()


def test_labels_permuted_within_sites_are_not_predicted_within_sites():
    """14 permutations of 960 people: the mean has an SE of about 0.007, so that 0.48 and 0.52 are three of them away.

    Each fold is scored by itself: scores pooled over folds that share out the labels are biased downwards (to 0.48).
    """
    cohort = confounded(240)
    y, sites, found = cohort.labels("diagnosis"), cohort.sites, []
    for seed in range(14):
        rng, permuted = np.random.default_rng(seed), y.copy()
        for site in np.unique(sites):
            permuted[sites == site] = rng.permutation(y[sites == site])
        for train, test in StratifiedKFold(3, shuffle=True, random_state=seed).split(y, sites):
            made = BrainNetworkClassifier(model="ridge", random_state=0).fit(cohort.connectomes[train], permuted[train])
            score = made.predict_proba(cohort.connectomes[test])[:, 1]
            found.append(auroc_within(permuted[test] == 1, score, sites[test]))
    assert 0.48 <= np.mean(found) <= 0.52


@pytest.mark.usefixtures("undrawn")
def test_of_several_classes_the_caution_speaks_of_no_area_within_sites(tmp_path, capsys):
    """Within sites there is an AUROC of two classes only; the page of the run must not ask for it."""
    rng = np.random.default_rng(0)
    site = np.repeat(["A", "B", "C"], 40)
    group = np.where(rng.random(120) < 0.8, np.repeat(["x", "y", "z"], 40), rng.choice(["x", "y", "z"], 120))
    table = pd.DataFrame({"participant_id": [f"s{i:03d}" for i in range(120)], "site": site, "group": group})
    Cohort(rng.uniform(-0.5, 0.5, (120, 45)).astype(np.float32), table).save(tmp_path / "cohort")
    words = ["train", str(tmp_path / "cohort"), "--label", "group", "--model", "ridge", "--out", str(tmp_path / "run")]
    assert main(words) == 0
    assert "can come from the site alone" in capsys.readouterr().out
    page = write_report(tmp_path / "run").read_text()
    assert "within sites" not in page
    assert "always predicting the largest class" in page
    assert "Fewer than 10 test people in class “" in page
