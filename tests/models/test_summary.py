"""results/models.csv lists every model of the catalogue with its true size."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from bnt.cli._model_commands import write_summary
from bnt.models import list_models

SUMMARY = Path(__file__).resolve().parents[2] / "results" / "models.csv"


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return pd.read_csv(SUMMARY, keep_default_na=False)


def test_every_model_is_in_the_summary(table):
    assert table["model"].tolist() == list_models()


def test_the_summary_is_what_the_command_writes(tmp_path):
    write_summary(tmp_path / "models.csv")  # bnt models --csv results/models.csv
    assert (tmp_path / "models.csv").read_text() == SUMMARY.read_text()


def test_sizes_are_those_of_the_fact_sheet(table):
    # docs/facts.md, Models; the paper prints 15.6M for VanillaTF, a factor of ten too much.
    sizes = table.set_index("model")[["n_parameters_200", "n_parameters_360"]]
    assert sizes.loc["bnt-released"].tolist() == ["3980890", "11197210"]
    assert sizes.loc["vanilla"].tolist() == ["1564602", "3268602"]
    assert sizes.loc["brainnetcnn"].tolist() == ["933277", "1650077"]
    assert sizes.loc["braingb"].tolist() == ["1082554", "1492154"]
    assert sizes.loc["braingnn"].tolist() == ["93282", "141922"]
    assert sizes.loc["dgm"].tolist() == ["8375", "13495"]
