"""The page about models after 2022: made from tables of runs and from what papers' code does."""

from __future__ import annotations

import csv
import re
import runpy
import sys
from pathlib import Path

import pandas as pd
import pytest

from bnt.errors import BadInput

ROOT = Path(__file__).parents[2]
SCRIPT = str(ROOT / "benchmarks" / "benchmark_page.py")
with (ROOT / "benchmarks" / "published.csv").open(encoding="utf-8") as file:
    PUBLISHED = list(csv.DictReader(file))


@pytest.fixture
def page(tmp_path, monkeypatch):
    """Return a function that writes the page from tables of rows (model, split, AUROC) and returns it."""

    def write(*tables: list[tuple[str, str, float]]) -> str:
        paths = []
        for number, rows in enumerate(tables):
            paths.append(str(tmp_path / f"runs{number}.csv"))
            table = pd.DataFrame(rows, columns=["variant", "split", "auroc"])
            table.assign(n_train=700, n_test=200, cpu_seconds=12.0).to_csv(paths[-1], index=False)
        monkeypatch.setattr(sys, "argv", [SCRIPT, *paths, "--out", str(tmp_path / "page.md")])
        runpy.run_path(SCRIPT, run_name="__main__")
        return (tmp_path / "page.md").read_text(encoding="utf-8")

    return write


def row(text: str, model: str) -> list[str]:
    """Return the cells of a model's first row."""
    return re.search(rf"^\| `{model}` \| (.*) \|$", text, flags=re.MULTILINE)[1].split(" | ")


def test_scores_differences_and_models_that_were_not_run(page):
    reference = [("tangent-logistic", f"split{i}", 0.70 + 0.01 * i) for i in range(3)]
    mine = [("bqn", "split0", 0.74), ("bqn", "split1", 0.76), ("alter", "split0", 0.6)]
    text = page(reference + mine, [("bqn", "split1", 0.80)])  # a later table counts
    scores = row(text, "bqn")
    assert scores[:2] == ["77.0 ± 4.2", "2"]
    assert scores[2].startswith("+6.5 (")
    assert scores[3] == "12"
    assert row(text, "alter")[:3] == ["60.0", "1", "-10.0"]  # one split allows no test
    assert row(text, "com-braintf")[0] == "not run"


def test_a_table_that_is_none_of_runs_is_refused(tmp_path):
    (tmp_path / "other.csv").write_text("model,score\nbqn,1\n")
    with pytest.raises(BadInput, match=r"other\.csv has no column 'variant'"):
        runpy.run_path(SCRIPT)["read_runs"]([tmp_path / "other.csv"])


@pytest.mark.parametrize("entry", PUBLISHED, ids=lambda entry: entry["paper"])
def test_every_claim_names_the_commit_and_the_files_that_were_read(entry):
    assert re.fullmatch(r"[0-9a-f]{7}", entry["commit"])
    assert entry["repository"].count("/") == 1
    assert all(text for column, text in entry.items() if column != "model")
    assert re.search(r"\.(py|md|npy)", entry["files read"])
