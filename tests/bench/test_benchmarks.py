"""The benchmarks run, compare like with like and keep their table."""

from __future__ import annotations

import csv
import re
import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bnt.bench import BenchSettings
from bnt.cli._main import main
from bnt.cli._model_commands import Bench


def test_connectivity_benchmark_agrees_with_nilearn_in_the_same_run(tmp_path, capsys):
    table = tmp_path / "bench.csv"
    Bench("connectivity", BenchSettings(subjects=4, rois=10, repeats=1), csv=table).run()
    rows = list(csv.DictReader(table.open()))
    assert [row["kind"] for row in rows] == ["ledoit-wolf", "pearson", "partial", "tangent"]
    assert all(float(row["largest difference"]) < 1e-4 for row in rows)
    assert "times faster" in capsys.readouterr().out


def test_data_benchmark_measures_both_stores_and_leaves_nothing_behind(tmp_path, monkeypatch):
    from bnt.bench import _cohorts as bench_data

    # In this process: a fresh one for each phase matters for the memory it reports only.
    monkeypatch.setattr(bench_data, "_phase", lambda *arguments, threads: bench_data.measure(*arguments))
    table = tmp_path / "bench.csv"
    place = tmp_path / "place"
    place.mkdir()
    Bench("data", BenchSettings(subjects=70, rois=12, repeats=1, folder=place), csv=table).run()
    rows = {row["store"]: row for row in csv.DictReader(table.open())}
    # float16 has 11 significant bits: values below 1 are rounded by at most 2^-12.
    assert 0 < float(rows["float16"]["rounding error"]) <= 2**-12
    assert float(rows["float32"]["rounding error"]) == 0
    assert list(place.iterdir()) == []


def test_a_phase_runs_in_a_fresh_process(tmp_path):
    from bnt.bench._cohorts import _phase

    measured = _phase("write", str(tmp_path / "cohort"), 5, 4, "float32", "", threads=1)
    assert (tmp_path / "cohort" / "cohort.json").is_file()
    assert measured["memory"] > 1


def test_bad_settings_exit_with_2_and_name_the_option(capsys):
    assert main(["bench", "data", "--folder", "/nowhere"]) == 2
    assert "(--folder)" in capsys.readouterr().err
    assert main(["bench", "data", "--subjects", "1"]) == 2
    assert "subjects is 1" in capsys.readouterr().err


def test_training_benchmark_compares_steps_and_epochs_with_the_released_code(monkeypatch):
    from bnt.bench import _train as bench_train

    monkeypatch.setattr(bench_train, "sgemm_peak", lambda repeats: 1.0)
    monkeypatch.setattr(bench_train, "STEPS", 1)
    rows = bench_train.train(BenchSettings(subjects=60, rois=16, repeats=1))
    assert [row["what"] for row in rows] == ["released step", "our step", "released epoch", "our epoch", "sgemm peak"]
    assert all(row["seconds"] > 0 for row in rows[:4])
    assert rows[0]["times faster"] == rows[2]["times faster"] == 1


def test_streamed_training_reports_its_memory_and_time(tmp_path, capsys):
    from bnt.bench._train import large_run

    large_run(str(tmp_path), n_subjects=40, n_rois=100, n_steps=1)
    memory, seconds = map(float, capsys.readouterr().out.split())
    assert memory > 1
    assert seconds > 0


@pytest.mark.parametrize(
    "script", sorted((Path(__file__).parents[2] / "benchmarks").glob("*.py")), ids=lambda p: p.stem
)
def test_scripts_behind_the_results_find_what_they_import(script, monkeypatch):
    monkeypatch.syspath_prepend(str(script.parent))  # as when it is run: scripts import from each other
    runpy.run_path(str(script))
    root = script.parents[1]
    pages = [*root.glob("results/**/README.md"), *root.glob("docs/*.md"), *script.parent.glob("*.py")]
    named = [
        page
        for page in pages
        if page != script and re.search(rf"{script.name}|(from|import) {script.stem}\b", page.read_text())
    ]
    assert named  # a script that no result needs is deleted


def test_the_study_benchmark_compares_both_sides_and_leaves_the_cohort_as_it_is(tmp_path, monkeypatch, capsys):
    import bnt
    from bnt.bench import _cohorts as bench_study

    bnt.simulate_cohort(n_subjects=60, n_rois=16, n_sites=2, seed=0).save(tmp_path / "cohort")
    before = sorted(file.name for file in (tmp_path / "cohort").iterdir())
    place = tmp_path / "place"
    place.mkdir()

    def in_this_process(words, threads):
        if words[0] == "-c":  # the user's code, as it is
            monkeypatch.setattr("sys.argv", words[1:])
            exec(words[1], {})
            return 1000.0, capsys.readouterr().out
        out = Path(words[words.index("--out") + 1])
        out.mkdir()
        (out / "summary.csv").write_text("auroc\n0.75\n")
        row = "svm,site-stratified:0:split0,2.5,0.5"
        (out / "runs.csv").write_text(f"variant,split,cpu_seconds,cpu_seconds_shared\n{row}\n")
        return 10.0, ""

    monkeypatch.setattr(bench_study, "_measured", in_this_process)
    settings = BenchSettings(cohort=tmp_path / "cohort", splits=4, user_splits=2, folder=place)
    ours, theirs = bench_study.study(settings)
    assert (ours["AUROC"], ours["CPU s"], ours["measured splits"]) == (0.75, 10.0, 4)
    assert theirs["measured splits"] == 2
    assert 1000.0 < theirs["CPU s"] < 2000.0  # twice as many splits; what was loaded before counts once
    assert ours["times faster"] == pytest.approx(theirs["CPU s"] / 10.0)
    assert 0.3 < theirs["AUROC"] <= 1.0
    assert sorted(file.name for file in (tmp_path / "cohort").iterdir()) == before
    assert list(place.iterdir()) == []
    one, whole = bench_study.study(replace(settings, user_splits=0))  # our side alone, run by run
    assert (one["side"], one["CPU s"], one["CPU s of other runs"]) == ("svm, split0", 2.5, 0.5)
    assert (whole["side"], whole["CPU s"]) == ("whole command, all processes", 10.0)


def test_cpu_seconds_count_processes_that_outlive_the_command():
    from bnt.bench._cohorts import _measured

    busy = "import time\nwhile time.process_time() < 0.5: pass"
    start = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {busy!r}]); print('said')"
    seconds, printed = _measured(["-c", start], 1)
    assert seconds >= 0.5
    assert printed.strip() == "said"


def test_growth_is_the_slope_of_the_logarithms_and_counts_on_from_the_largest_size():
    scale = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "scale.py"))
    sizes = np.array([1000, 2000, 5000])
    slope, at = scale["fitted"](sizes, 3e-4 * sizes**1.5, 1.0)
    assert slope == pytest.approx(1.5)
    assert at == pytest.approx(3e-4 * 40_000**1.5)
    assert scale["fitted"](sizes, np.array([2.0, 2.0, 2.0]), 1.0)[1] == pytest.approx(16.0)  # at least in proportion
    assert np.isnan(scale["fitted"](sizes[:2], np.array([2.0, 3.0]), 0.0)).all()  # two points are no curve
