"""Table 1 from tables of runs: what is committed is what the command makes, and no run counts twice."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pandas as pd
import pytest

from bnt.errors import BadInput
from bnt.paper._tables import order

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "benchmarks" / "table1.py"
from_runs, read_runs = (runpy.run_path(str(SCRIPT))[name] for name in ("from_runs", "read_runs"))
RESULTS = ROOT / "results" / "abide"


def test_every_method_of_the_paper_and_both_variants_have_a_row():
    rows = order()
    for name in ("fbnetgen", "braingnn", "brainnetcnn", "brainnetgnn", "dgm", "bnt"):
        assert rows.index(name) == rows.index(f"{name}-released") + 1
    assert len(rows) == len(set(rows))


@pytest.mark.parametrize(
    ("name", "pages"), [("table1", ["docs/results.md"]), ("table1_stopping", ["README.md", "docs/results.md"])]
)
def test_the_committed_table_and_the_pages_are_made_by_the_command(name, pages, tmp_path, monkeypatch):
    copies = [tmp_path / Path(page).name for page in pages]
    for page, copy in zip(pages, copies):
        copy.write_text((ROOT / page).read_text())
    words = [SCRIPT, RESULTS / f"{name}_runs.csv", "--name", name, "--out", tmp_path, "--page", *copies]
    monkeypatch.setattr(sys, "argv", list(map(str, words)))
    runpy.run_path(str(SCRIPT), run_name="__main__")
    assert (tmp_path / f"{name}.md").read_text() == (RESULTS / f"{name}.md").read_text()
    for file in (f"{name}.csv", f"{name}_comparisons.csv"):  # their last digits are the machine's
        pd.testing.assert_frame_equal(pd.read_csv(tmp_path / file), pd.read_csv(RESULTS / file))
    assert [copy.read_text() for copy in copies] == [(ROOT / page).read_text() for page in pages]


def runs_of(model: str, scores: list[float], **more: object) -> pd.DataFrame:
    metrics = dict.fromkeys(("auroc", "accuracy", "sensitivity", "specificity"), scores)
    splits = [f"site-stratified:0:split{i}" for i in range(len(scores))]
    return pd.DataFrame({"variant": model, "model": model, "split": splits, "seed": 0, **metrics}).assign(
        n_train=70, n_val=10, n_test=20, n_parameters=1, cpu_seconds=1.0, peak_memory_mb=1.0, command="bnt", **more
    )


def test_rows_of_several_sessions_show_their_own_number_of_splits(tmp_path):
    how = {"recipe": "default", "epochs": 40, "patience": 10, "select": "smoothed", "batch_size": 16}
    for name, table in (
        ("a", runs_of("bnt-released", [0.6, 0.7, 0.8], **how)),
        ("b", runs_of("dgm", [0.5, 0.6], **how)),
    ):
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    runs = read_runs([tmp_path / "a.csv", tmp_path / "b.csv"])
    made = from_runs(runs)
    table, text, short = made.table, made.text, made.short
    assert table.set_index("model").loc[["bnt-released", "dgm"], "n_splits"].tolist() == [3, 2]
    assert "| `bnt-released` | 80.2 ± 1.0 | 70.0 ± 10.0 | 71.0 ± 1.2 | 70.0 ± 10.0 | 3 |" in short
    assert "| `dgm` (our correction) | – | 55.0 ± 7.1 | – | 55.0 ± 7.1 | 2 |" in short
    assert "| `dgm-released` | 52.7 ± 3.8 | – | 60.7 ± 12.6 | – | – |" in short  # printed, and not run
    assert "3 splits (fewer for some rows, the first 2 at least) of 70 training, 10 validation, 20 test people" in text
    assert "40 epochs at most, batch 16, stopped after 10 epochs without a better validation AUROC" in text
    assert "-10.0" in text  # paired over the two splits that both have: 0.55 - 0.65
    with pytest.raises(BadInput, match="is in these tables twice"):
        read_runs([tmp_path / "a.csv", tmp_path / "a.csv"])
    longer = runs_of("dgm", [0.5, 0.6], **{**how, "epochs": 8}).replace("split0", "split9", regex=True)
    with pytest.raises(BadInput, match="Runs of dgm were trained in 2 ways"):
        from_runs(pd.concat([runs, longer]))
    (tmp_path / "c.csv").write_text("x\n1\n")
    with pytest.raises(BadInput, match="has no column 'variant'"):
        read_runs([tmp_path / "c.csv"])
