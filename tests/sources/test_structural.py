"""Structural connectomes, non-negative and sparse, take the same way as functional ones (docs/cohorts.md)."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from bnt.cli._main import main
from bnt.cohort import load_cohort

N, V = 40, 12


def streamline_counts(rng: np.random.Generator, patient: bool) -> np.ndarray:
    """Counts of streamlines: whole numbers, most of them 0, a few in the thousands."""
    counts = rng.lognormal(5 + 1.5 * patient, 2, size=(V, V)).astype(int) * (rng.random((V, V)) < 0.25)
    counts = np.triu(counts, 1)
    counts[np.arange(V - 1), np.arange(1, V)] += 1 + rng.integers(50, size=V - 1)  # no ROI stands alone
    return counts + counts.T


@pytest.fixture(scope="module")
def structural(tmp_path_factory):
    folder = tmp_path_factory.mktemp("structural")
    rng = np.random.default_rng(0)
    labels = np.arange(N) % 2
    (folder / "scans").mkdir()
    for i, label in enumerate(labels):
        weights = np.log1p(streamline_counts(rng, bool(label)))
        weights /= 1.01 * weights.max()  # each subject's own largest weight: no other subject has a say
        np.fill_diagonal(weights, 1)
        np.save(folder / "scans" / f"sub-{i:02d}.npy", weights)
    table = pd.DataFrame({"participant_id": [f"sub-{i:02d}" for i in range(N)], "diagnosis": labels})
    table.assign(site="A").to_csv(folder / "participants.tsv", sep="\t", index=False)
    cohort = folder / "cohort"
    given = ["import", str(folder / "scans"), str(cohort), "--participants", str(folder / "participants.tsv")]
    assert main(given) == 0
    return cohort


def test_weights_arrive_as_they_are(structural):
    edges = load_cohort(structural).edges(range(N))
    assert edges.min() == 0
    assert 0.5 < (edges == 0).mean() < 0.9  # sparse
    assert edges.max() < 1


@pytest.mark.parametrize("model", ["bnt", "san", "logistic"])
@pytest.mark.usefixtures("undrawn")
def test_training_and_explaining(structural, tmp_path, model):
    run = tmp_path / "run"
    options = {
        "bnt": ["--option", "n_clusters=4", "ffn=16"],
        "san": ["--option", "width=16", "n_eigen=4"],
        "logistic": [],
    }
    epochs = [] if model == "logistic" else ["--epochs", "2", "--change", "batch_size=8"]
    given = ["train", str(structural), "--model", model, "--protocol", "random", "--out", str(run)]
    assert main([*given, *epochs, *options[model]]) == 0
    report = json.loads((run / "report.json").read_text())
    assert 0 <= report["test"]["auroc"] <= 1
    if model == "san":
        return  # explained as bnt is
    assert main(["explain", str(run), str(structural), "--out", str(tmp_path / "explain")]) == 0
    edges = pd.read_csv(tmp_path / "explain" / "edges.csv")
    assert np.isfinite(edges[["score", "importance"]]).all(axis=None)


def test_counts_are_told_from_fisher_z(tmp_path, capsys):
    (tmp_path / "scans").mkdir()
    rng = np.random.default_rng(0)
    for i in range(4):
        np.save(tmp_path / "scans" / f"sub-{i}.npy", streamline_counts(rng, False).astype(float))
    table = pd.DataFrame({"participant_id": [f"sub-{i}" for i in range(4)], "diagnosis": [0, 1, 0, 1]})
    table.to_csv(tmp_path / "p.tsv", sep="\t", index=False)
    given = ["import", str(tmp_path / "scans"), str(tmp_path / "out"), "--participants", str(tmp_path / "p.tsv")]
    assert main(given) == 2
    said = capsys.readouterr().err
    assert "look like a structural connectome" in said
    assert "fisher-z" not in said
