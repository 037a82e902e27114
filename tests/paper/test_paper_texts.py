"""What the parts of the paper say beside their tables: recipes, steps, times, failures and p-values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bnt._words import p_words
from bnt.cohort._triangle import UNASSIGNED, Networks
from bnt.paper import _cost as cost
from bnt.paper import _figures as attention_figure
from bnt.paper import _figures as cluster_figures
from bnt.paper import _grid as grid
from bnt.paper import _tables as table1
from bnt.paper._grid import circumstances, skipped, training
from bnt.paper._plan import Plan
from bnt.studies import _job as step_time
from bnt.studies._study import Study
from bnt.training._recipe import Recipe, find_recipe


@pytest.fixture
def plan(cohort, tmp_path):
    return Plan(cohort=cohort, out=tmp_path / "out", model_options={"bnt": {"n_clusters": 4}})


def result_of(plan, models=("bnt", "vanilla", "svm"), n_train=706, **more):
    """Results of two splits per model, all AUROCs 0.6 and 0.7."""
    runs = pd.DataFrame(
        [
            {"variant": m, "split": f"s:0:{i}", "auroc": 0.6 + i / 10, "n_train": n_train, "n_test": 203}
            for m in models
            for i in range(2)
        ]
    ).assign(cpu_seconds=60.0)
    summary = pd.DataFrame([{"variant": m, "auroc": 0.65, "auroc_sd": 0.07} for m in models])
    summary = summary.assign(auroc_n=2, n_splits=2)
    variants = [plan.variant(m, m) for m in models]
    return grid.GridResult(runs, summary, more.pop("missing", {}), 0.0, Path("out"), variants=variants, **more)


def test_models_with_a_recipe_of_their_own_are_named(plan):
    result = result_of(plan, ("bnt", "vanilla", "san", "svm"))
    said = training(result.variants, result.runs)
    stop = ", stopped after 10 epochs without a better validation AUROC (mean of 5 epochs)"
    assert said == (f"recipe `default`, 40 epochs at most, batch 16{stop} (`bnt`: 40 epochs at most, batch 8{stop})")
    # 70 subjects are 4 batches of 16: 528 steps are 132 epochs.
    small = result_of(plan, ("vanilla",), n_train=70)
    both = pd.concat([small.runs, result.runs])
    assert training(small.variants, both) == f"recipe `default`, 40 to 132 epochs at most, batch 16{stop}"
    assert training([plan.variant("svm", "svm")], result.runs) == ""
    once = replace(plan, epochs=1)
    assert training([once.variant("san", "san")], result.runs) == "recipe `default`, 1 epoch at most, batch 16"


def test_a_mean_over_fewer_splits_than_others_have_says_so(plan):
    result = result_of(plan)
    assert result.shown("bnt") == "65.0 ± 7.0"
    result.summary["n_splits"] = [5, 5, 2]
    result.summary["auroc_n"] = [5, 4, 2]
    assert [result.shown(m) for m in ("bnt", "vanilla", "svm", "dgm")] == [
        "65.0 ± 7.0",
        "65.0 ± 7.0 (n = 4)",
        "65.0 ± 7.0 (n = 2)",
        "–",
    ]
    assert [result.n_splits(m) for m in ("bnt", "vanilla", "svm", "dgm")] == [5, 4, 2, 0]


def test_circumstances_speak_of_the_paper_where_it_prints_numbers(plan):
    said = circumstances(plan, result_of(plan))
    assert "Paper: as printed for ABIDE" in said
    assert "8 ROIs (Pearson correlation, unit diagonal), label" in said
    said = circumstances(plan, result_of(plan, ("svm",)), printed=False)
    assert "Paper:" not in said
    assert "recipe" not in said  # a linear model has none
    assert "2 splits; mean ± SD over splits. CPU time of all runs: 2 min." in said


def test_most_steps_count_members_and_refits():
    recipe = Recipe(epochs=2, batch_size=10, min_steps=9)  # 42 subjects: 4 steps an epoch, so 3 epochs
    assert step_time.most_steps(recipe, 42, 8) == 12
    assert step_time.most_steps(replace(recipe, n_members=2), 42, 8) == 24
    assert step_time.most_steps(replace(recipe, refit=True), 42, 8) == 12 + 3 * 5
    assert step_time.most_steps(replace(recipe, refit=True, select="last"), 42, 8) == 3 * 5


def test_the_announcement_counts_the_steps_of_small_cohorts(plan, monkeypatch):
    monkeypatch.setattr(grid, "step_seconds", lambda *_, **__: 0.01)
    lines: list[str] = []
    plan = replace(plan, say=lines.append, splits=1)
    for models in (("bnt", "vanilla", "svm"), ("svm",)):
        study = Study(plan.out, plan.cohort, "diagnosis", [plan.variant(m, m) for m in models], plan.named_splits())
        grid.announce(plan, study)
    # 42 subjects: bnt 5 steps of 8, 1,056 of them are 212 epochs; vanilla 2 steps of 16, 528 of them are 264 epochs.
    assert "3 of 3 runs to do (212 to 264 epochs at most), 1 at a time: 1,588 training steps, about 18 s" in lines[0]
    assert lines[0].endswith(
        "less where training stops early, and 1 of models without epochs (seconds to minutes each)."
    )
    assert lines[1] == "1 of 1 runs to do, 1 at a time, all of models without epochs (seconds to minutes each)."
    short = replace(plan, epochs=1)
    only = [short.variant("vanilla", "vanilla")]
    grid.announce(short, Study(plan.out, plan.cohort, "diagnosis", only, plan.named_splits()))
    assert lines[2].startswith("1 of 1 runs to do (1 epoch at most), 1 at a time: 2 training steps, about ")
    assert lines[2].endswith("at the speed just measured.")


def test_failed_runs_are_named_once_a_reason(plan):
    result = result_of(plan, missing={"dgm": "no memory"}, failed={"bnt--0--seed0": "x", "bnt--1--seed0": "x"})
    assert "\nNot run, or failed:\n\n- `dgm`: no memory.\n" in skipped(result)
    assert skipped(result).endswith("from the others:\n\n- `bnt--0--seed0`, `bnt--1--seed0`: x.\n")
    assert skipped(result_of(plan)) == ""


def test_small_p_values_are_never_nought(plan, monkeypatch):
    assert (p_words(0.0004), p_words(0.001), p_words(0.0312)) == ("p < 0.001", "p = 0.001", "p = 0.031")
    compared = pd.DataFrame([{"variant": "svm", "reference": "bnt", "difference": 0.05, "p_corrected_holm": 1e-5}])
    text = table1.markdown("ABIDE", result_of(plan, comparisons=compared), ["bnt", "svm"], "", "ASD")
    assert "+5.0 (p < 0.001)" in text
    scores = pd.DataFrame(
        [
            {"split": str(i), "seed": 0, "random": 0.01 + i * 1e-6, "orthonormal": 0.02, **chance}
            for i in range(20)
            for chance in [{"random_chance": 0.01, "orthonormal_chance": 0.01}]
        ]
    )
    monkeypatch.setattr(cluster_figures, "run_both", lambda _: result_of(plan))
    monkeypatch.setattr(cluster_figures, "difference_table", lambda *_: scores)
    assert cluster_figures.difference(plan)[1].count("p < 0.001") == 2


def test_attention_without_networks_has_no_table(plan):
    attention = np.full((8, 8), 1 / 8)
    text = attention_figure.markdown(plan, attention, Networks((UNASSIGNED,), np.zeros(8, dtype=np.int64)))
    assert "|" not in text
    assert "nan" not in text
    assert "ratio" not in text
    assert "no networks are compared" in text
    named = attention_figure.markdown(plan, attention, Networks.from_labels(np.array(["Visual", "Default"] * 4)))
    assert "| all | 8 | 0.12500 | 0.12500 | 1.000 |" in named
    assert "The ratio is above 1" in named


def test_runtime_shows_a_dash_where_nothing_was_measured(plan):
    found = cost.runtime_table(plan, ["san", "vanilla"], {"vanilla": 0.06}, {"san": "too wide"})
    lines = cost.runtime_text(found).splitlines()
    assert "nan" not in "".join(lines)
    assert lines[2] == "| `san` | 93.01 ± 0.96 | – | 47.0 | – | – | – |"
    # 42 subjects are 2 steps of 16: 0.06 s * 2 * 1.15 an epoch, 200 of them 28 s
    assert lines[3] == "| `vanilla` | 2.32 ± 0.10 | 0.5 | 1.2 | – | 0.14 | 60 |"


def test_runtime_says_nothing_of_a_recipe_that_it_does_not_use(plan, monkeypatch):
    monkeypatch.setattr(cost, "step_seconds", lambda *_, **__: 0.05)
    text = cost.runtime(replace(plan, epochs=2))[1]
    assert "epochs at most" not in text
    assert "median processor time of 3 to 40 steps" in text


def test_steps_are_measured_until_the_time_is_up(plan):
    ticks: list[float] = []

    def clock() -> float:
        ticks.append(0.0)
        return float(len(ticks))  # every step takes one second

    variant = replace(plan.variant("mean", "vanilla", readout="mean"), recipe=find_recipe("paper"))
    for limits, steps in (((3, 5, 100.0), 5), ((3, 9, 4.0), 4), ((3, 9, 0.0), 3)):
        ticks.clear()
        least, most, seconds = limits
        found = step_time.step_seconds(plan.cohort, variant, at_least=least, at_most=most, seconds=seconds, clock=clock)
        assert found == 1.0
        assert len(ticks) == 2 * (1 + steps)  # one to warm up
