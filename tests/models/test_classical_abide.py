"""The linear models on the real data, against the published score of each split (baselines.csv)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from bnt.cohort._scans import Series
from bnt.connectivity import connectomes
from bnt.models import create_model
from bnt.models.classical._inputs import Inputs

RESULTS = Path(__file__).resolve().parents[2] / "results" / "abide" / "linear_baselines.csv"

pytestmark = pytest.mark.abide


def published(shared_abide: Path) -> pd.DataFrame:
    table = pd.read_csv(shared_abide / "baselines.csv")
    table["split"] = "seed" + table["seed"].astype(str)
    table["refit"] = table["refit_on_train_and_val"].astype(str) == "True"
    return table


def test_linear_ensemble_has_the_published_auroc_on_the_first_confirmation_split(shared_abide: Path):
    packed = np.load(shared_abide / "cpac_filt_noglobal_rois_cc200.npz", allow_pickle=False)
    stacked, length, scale, offset = (packed[k] for k in ("series", "length", "scale", "offset"))
    starts = np.cumsum(length) - length
    part = pd.read_csv(shared_abide / "splits.csv", index_col=0)["seed100"]
    part = part[part != 1]  # validation is not needed here
    position = pd.Index(packed["file_id"]).get_indexer(part.index)
    series = [stacked[starts[i] : starts[i] + length[i]] * scale[i] + offset[i] for i in position]
    lengths = length[position]
    facts = pd.read_csv(shared_abide / "Phenotypic_V1_0b_preprocessed1.csv").set_index("FILE_ID").loc[part.index]
    joined = Series(np.concatenate(series), np.cumsum(lengths) - lengths, lengths)
    inputs = Inputs(connectomes(series), "paper", 1.0, facts["SITE_ID"].to_numpy(dtype="U"), joined)
    y = (facts["DX_GROUP"] == 1).to_numpy(dtype=int)
    train, test = np.flatnonzero(part == 0), np.flatnonzero(part == 2)
    model = create_model("linear-ensemble", 200, 2).fit(inputs.take(train), y[train])
    score = roc_auc_score(y[test], model.predict_proba(inputs.take(test))[:, 1])
    table = published(shared_abide)
    expected = table[(table.split == "seed100") & ~table.refit & (table.model == "linear-ensemble")].auroc.item()
    assert score == pytest.approx(expected, abs=0.003)


def test_the_committed_table_agrees_with_the_published_one_on_every_split(shared_abide: Path):
    both = pd.read_csv(RESULTS).merge(published(shared_abide), on=["split", "model", "refit"], suffixes=("", "_then"))
    assert set(both.model) == {"pearson-svm", "tangent-svm", "tangent-ridge", "linear-ensemble"}
    assert len(both) == 4 * 2 * 20
    assert (both.auroc - both.auroc_then).abs().max() <= 0.003
