"""The Python block of the design works as written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.model_selection import cross_val_score

import bnt

BLOCK = """\
import bnt
cohort = bnt.load_cohort("abide/")            # or bnt.simulate_cohort(n_subjects=400, n_rois=100, n_sites=8, seed=0)
cohort.connectomes, cohort.labels("diagnosis"), cohort.sites, cohort.participants, cohort.rois, cohort.timeseries
for train, val, test in bnt.SiteStratifiedSplit(n_splits=20, seed=0).split(cohort, "diagnosis"): ...
clf = bnt.BrainNetworkClassifier(model="bnt", random_state=0)      # a scikit-learn estimator; BrainNetworkRegressor beside it
clf.fit(cohort.connectomes, y); clf.predict_proba(X); cross_val_score(clf, X, y, groups=sites)
net = bnt.create_model("bnt", n_rois=200, n_classes=2); bnt.list_models()
out = net(x)                                   # out.logits, out.loss (auxiliary), out.attention, out.assignments
"""  # noqa: E501 - as written
DESIGN = Path(__file__).parents[3] / "shared" / "design.md"


def test_the_block_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    saved = bnt.simulate_cohort(n_subjects=32, n_rois=16, n_sites=3, seed=0).save(tmp_path / "abide")
    space = {
        "X": saved.connectomes,
        "y": saved.labels("diagnosis"),
        "sites": saved.sites,
        "x": torch.zeros(2, 200, 200),
        "cross_val_score": cross_val_score,
    }
    exec(compile(BLOCK, "design.md", "exec"), space)
    assert space["clf"].predict_proba(space["X"]).shape == (32, 2)
    assert space["out"].logits.shape == (2, 2)
    assert len(np.concatenate([space["train"], space["val"], space["test"]])) == 32


def test_the_block_is_the_designs():
    if not DESIGN.is_file():
        pytest.skip(f"{DESIGN} is not beside this checkout")
    assert BLOCK in DESIGN.read_text()
