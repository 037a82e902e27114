"""Every part of the paper end to end on a tiny cohort: its four files, what it skips, and going on."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

import bnt
from bnt.cli._main import main
from bnt.cohort import Cohort
from bnt.errors import BadInput
from bnt.paper import _cost, _grid
from bnt.paper._cost import exponent
from bnt.paper._figures import difference, figure4
from bnt.paper._grid import open_output
from bnt.paper._plan import PARTS, PRESETS, Plan, reproduce
from bnt.plotting import save_figure
from bnt.splits import read_splits
from bnt.studies._sample_size import trainable_fractions
from bnt.training._recipe import find_recipe

SMALL = {
    "bnt": {"ffn": 8, "n_layers": 1},
    "vanilla": {"ffn": 8, "n_layers": 1},
    "san": {"width": 16, "lpe_ffn": 8, "n_eigen": 3},
}


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    folder = tmp_path_factory.mktemp("paper") / "cohort"
    simulated = bnt.simulate_cohort(
        n_subjects=40, n_rois=12, n_sites=2, n_modules=3, n_volumes=30, series=False, seed=0
    )
    return simulated.save(folder)


@pytest.fixture
def plan(cohort, tmp_path):
    def make(**settings):
        lines: list[str] = []
        chosen = {
            "cohort": cohort,
            "out": tmp_path / "out",
            "preset": "quick",
            "splits": 1,
            "epochs": 1,
            "changes": {"batch_size": 8},
            "model_options": SMALL,
            "clusters": (2, 50),
            "fractions": (0.5, 1.0),
            "say": lines.append,
            **settings,
        }
        made = Plan(**chosen)
        object.__setattr__(made, "lines", lines)
        return made

    return make


@pytest.fixture(autouse=True)
def laid_out(monkeypatch):
    """Figures of the parts are laid out; how a picture is written is tested once."""

    def lay_out(figure, file):
        if file.suffix == ".png":
            figure.draw_without_rendering()
        file.write_bytes(b"")

    monkeypatch.setattr(_grid, "save_figure", lay_out)


def test_a_part_has_its_table_its_text_and_its_figure_twice(tmp_path, monkeypatch):
    monkeypatch.setattr(_grid, "save_figure", save_figure)
    files = _grid.write_outputs(tmp_path, "part", pd.DataFrame({"a": [1]}), "text", Figure())
    assert [f.name for f in files] == ["part.csv", "part.md", "part.png", "part.pdf"]
    assert files[0].read_text() == "a\n1\n"
    assert files[2].read_bytes().startswith(b"\x89PNG")
    assert files[3].read_bytes().startswith(b"%PDF")


def check_files(files, what):
    assert [f.name for f in files] == [f"{what}.csv", f"{what}.md", f"{what}.png", f"{what}.pdf"]
    assert all(f.is_file() for f in files)
    facts = json.loads((files[0].parent / "reproduce.json").read_text())
    assert facts["what"] == what
    assert facts["recipe"]["epochs"] == 1
    table = pd.read_csv(files[0]) if files[0].read_text().strip() else pd.DataFrame()
    return table, files[1].read_text()


def test_table1_shows_printed_beside_ours_and_says_why_series_models_are_missing(plan):
    made = plan(only=("bnt", "vanilla", "svm", "fbnetgen", "fbnetgen-released"))
    table, text = check_files(reproduce("table1", made), "table1")
    table = table.set_index("model")
    assert 0 <= table.loc["bnt", "auroc"] <= 100
    assert np.isnan(table.loc["fbnetgen", "auroc"])
    assert "the cohort has no time series" in text
    lines = {line.split("`")[1]: line for line in text.splitlines() if line.startswith("| `")}
    assert list(lines) == ["vanilla", "fbnetgen-released", "fbnetgen", "bnt", "svm"]
    # A printed number belongs to the code that its authors ran, and not to what we made of it.
    assert table.loc["fbnetgen-released", "printed_auroc"] == 75.6
    assert table.loc[["fbnetgen", "bnt"], "printed_auroc"].isna().all()
    assert lines["fbnetgen"].startswith("| `fbnetgen` | FBNETGNN, our correction | – |")
    assert lines["bnt"].startswith("| `bnt` | BrainNetTF, as the equations read | – |")
    # Labels of the paper's ABIDE are inverted: its "sensitivity" 66.4 is the recall of controls (docs/facts.md, Data).
    assert table.loc["vanilla", ["printed_sensitivity", "printed_specificity"]].tolist() == [71.1, 66.4]
    assert "its sensitivity and specificity are shown swapped" in text
    assert any("about" in line for line in made.lines)  # the estimated time is told first
    # Accuracy is the weighted mean of the recalls (docs/facts.md, Training): classes are equal in this test part.
    runs = pd.read_csv(made.out / "runs.csv")
    assert runs["accuracy"].to_numpy() == pytest.approx((runs["sensitivity"] + runs["specificity"]) / 2)


def test_table2_has_the_paper_rows_and_both_controls(plan):
    made = plan(only=("vanilla-mean", "vanilla-ocread", "vanilla-ocread-hidden"))
    table, text = check_files(reproduce("table2", made), "table2")
    assert table["readout"].nunique() == 9
    assert table.groupby("readout")["backbone"].nunique().eq(3).all()
    table = table.set_index("variant")
    assert table.loc["vanilla-ocread-hidden", "printed_auroc"] == 80.2
    # The hidden MLP of V = D = 12: 144 - 32 - 32 - 144, with biases.
    hidden = (144 * 32 + 32) + (32 * 32 + 32) + (32 * 144 + 144)
    difference = table.loc["vanilla-ocread-hidden", "n_parameters"] - table.loc["vanilla-ocread", "n_parameters"]
    assert difference == hidden
    assert "OCRead - hidden MLP" in text


def test_figure3a_leaves_out_more_clusters_than_rois_with_the_reason(plan):
    table, text = check_files(reproduce("figure3a", plan()), "figure3a")
    assert len(table) == 4 * 2
    assert table.loc[table["n_clusters"] == 2, "auroc"].notna().all()
    assert table.loc[table["n_clusters"] == 50, "auroc"].isna().all()
    assert "n_clusters is 50, more than the 12 ROIs" in text


def test_figure3b_averages_attention_by_network(plan):
    table, text = check_files(reproduce("figure3b", plan()), "figure3b")
    assert len(table) == 9  # three networks to three
    assert table["attention"].mean() == pytest.approx(1 / 12, rel=0.3)
    assert "| all | 12 |" in text


def test_figure4_and_difference_share_their_runs_and_agree(plan):
    made = plan(splits=2)
    first = plan(splits=2, out=made.out / "figure4", together=True)
    table, _ = check_files(reproduce("figure4", first), "figure4")
    assert len(table) == 2 * 2 * 12 * 4  # centres, classes, ROIs, clusters
    assert table.groupby(["centres", "class", "roi"])["p"].sum().to_numpy() == pytest.approx(1.0, abs=1e-5)
    second = plan(splits=2, out=made.out / "difference", together=True)
    scores, text = check_files(reproduce("difference", second), "difference")
    assert any("All 4 runs are done" in line for line in second.lines)
    # d again from the table of the figure's kind: mean over splits of P gives a d that is not above the mean of d.
    pooled = table.pivot_table(index=["centres", "roi", "cluster"], columns="class", values="p")
    d = (pooled[0] - pooled[1]).abs().groupby("centres").mean()
    for start in ("random", "orthonormal"):
        assert d[start] <= scores[start].mean() + 1e-6
    assert (scores[["random_chance", "orthonormal_chance"]] > 0).all(axis=None)
    assert len(scores) == 2
    assert "0.085 ± 0.015" in text
    assert "Nadeau-Bengio" in text


def test_one_start_has_no_empty_panels_and_is_compared_with_nothing(plan):
    made = plan(only=("random",))
    _, _, figure = figure4(plan(only=("random",), out=made.out / "figure4", together=True))
    assert len(figure.axes) == 2 + 1  # a class each, and the colour bar
    _, text, _ = difference(plan(only=("random",), out=made.out / "difference", together=True))
    assert "Orthonormal - random" not in text
    assert "nan" not in text


def test_curves_score_the_test_part_every_epoch_and_are_not_trained_twice(plan):
    made = plan(only=("bnt",))
    table, text = check_files(reproduce("curves", made), "curves")
    assert made.lines[0].startswith("One epoch has no change from epoch to epoch")
    assert "nan" not in text
    assert next(line for line in text.splitlines() if line.startswith("| `bnt`")).endswith("| – |")
    assert set(table["sampling"]) == {"site-stratified", "random"}
    assert table["test"].between(0, 1).all()
    assert "stratified by site" in text
    assert "Paper:" not in text  # it prints no numbers for them
    again = plan(only=("bnt",))
    reproduce("curves", again)
    assert len(again.lines) == 1  # no time is announced
    with pytest.raises(BadInput, match="label is 'diagnosis', not 'sex'"):
        reproduce("curves", plan(only=("bnt",), label="sex"))


def test_features_stand_beside_the_printed_ones(plan):
    table, text = check_files(reproduce("features", plan()), "features")
    assert table["node_features"].tolist()[:3] == ["profile", "identity", "eigen"]  # those of the paper
    assert table["auroc"].notna().all()
    assert table["printed_auroc"].notna().tolist() == [True] * 3 + [False] * 5
    assert "75.4 ± 1.9" in text
    # The other claims of section 3.1: the unit diagonal as a position, and edge weights in attention.
    for row in ("profile without its diagonal", "profile without its diagonal, MEAN", "edge weights added"):
        assert f"| {row}" in text
    assert "The diagonal of this cohort's connectomes is zero" not in text


def test_learning_curve_keeps_the_test_part_and_thins_the_training_part(plan):
    made = plan(only=("svm",))
    table, text = check_files(reproduce("learning-curve", made), "learning-curve")
    assert table["n_train"].tolist() == [14, 28]
    assert "Paper:" not in text
    # Shares are no repeats of one split: a mean or a test over them would mean nothing.
    assert {f.name for f in made.out.iterdir() if f.suffix in (".csv", ".md")} == {
        "learning-curve.csv",
        "learning-curve.md",
        "runs.csv",
    }
    runs = sorted((made.out / "runs").iterdir())
    one, other = (read_splits(run / "splits.csv")[0] for run in runs)
    assert one.test == other.test
    assert set(other.train) < set(one.train) or set(one.train) < set(other.train)


def test_learning_curve_says_first_which_shares_do_not_fill_a_batch(plan):
    made = plan(only=("vanilla", "svm"), fractions=(0.2, 1.0), changes={"batch_size": 16})
    table, text = check_files(reproduce("learning-curve", made), "learning-curve")
    assert made.lines[0] == "Left out: 20 % (5 subjects), less than one batch of 16."
    assert made.lines[0] in text
    assert table["fraction"].unique().tolist() == [1.0]
    assert table["auroc"].notna().all()
    assert not (made.out / "failures.csv").exists()
    with pytest.raises(BadInput, match="28 subjects, does not fill one batch of 64"):
        reproduce("learning-curve", plan(only=("vanilla",), changes={"batch_size": 64}))
    paper = plan(only=("vanilla",), preset="full", changes={})  # batches of 64, the last one as small as it is
    given = paper.cohort, "diagnosis", "paper", paper.fractions, [paper.variant("vanilla", "vanilla")]
    assert trainable_fractions(*given, n_splits=1) == (paper.fractions, "")


def test_learning_curve_leaves_out_shares_that_lack_a_class(plan):
    made = plan(only=("svm",), fractions=(0.05, 1.0))
    table, _ = check_files(reproduce("learning-curve", made), "learning-curve")
    assert made.lines[0] == "Left out: 5 % (1 subject), where a training set lacks a class."
    assert table["auroc"].notna().tolist() == [True]


def test_networks_whose_batch_the_training_set_does_not_fill_are_said_first(plan):
    made = plan(only=("vanilla", "svm"), changes={"batch_size": 64})
    text = check_files(reproduce("table1", made), "table1")[1]
    assert made.lines[0] == "Skipped: vanilla: 28 training subjects do not fill one batch of 64: lower batch_size."
    assert "do not fill one batch" in text
    assert not (made.out / "failures.csv").exists()
    with pytest.raises(BadInput, match="Nothing can be run on .*: 28 training subjects do not fill"):
        reproduce("curves", plan(only=("vanilla",), changes={"batch_size": 64}, out=made.out / "curves"))


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """Ten ROIs: four heads do not divide them, and there are fewer than 100 clusters."""
    simulated = bnt.simulate_cohort(
        n_subjects=40, n_rois=10, n_sites=2, n_modules=2, n_volumes=30, series=False, seed=0
    )
    return simulated.save(tmp_path_factory.mktemp("paper") / "odd")


def test_heads_and_clusters_that_do_not_fit_the_rois_are_changed_and_said_first(plan, odd):
    made = plan(cohort=odd, only=("bnt", "bnt-released", "vanilla", "svm"), model_options={})
    table, text = check_files(reproduce("table1", made), "table1")
    assert table["auroc"].notna().all()
    assert made.lines[:2] == [
        "Changed: vanilla, bnt: n_heads=2 in place of 4, to fit 10 ROIs.",
        "Changed: bnt-released: n_clusters=10 in place of 100, n_heads=2 in place of 4, to fit 10 ROIs.",
    ]
    assert "- `vanilla`, `bnt`: n_heads=2 in place of 4, to fit 10 ROIs." in text
    assert "The difference to `bnt-released`" in text


def test_another_reference_is_said_first(plan):
    made = plan(only=("svm", "logistic"))
    text = check_files(reproduce("table1", made), "table1")[1]
    assert made.lines[0] == "bnt-released, which the others are compared with, is not run: differences are to svm."
    assert "The difference to `svm`" in text


@pytest.mark.parametrize(("what", "only"), [("figure3a", ("random-K2",)), ("runtime", ("bnt",))])
def test_figures_are_made_where_four_heads_do_not_divide_the_rois(plan, odd, what, only, monkeypatch):
    monkeypatch.setattr(_cost, "step_seconds", lambda *_, **__: 0.01)
    made = plan(cohort=odd, clusters=(2,), only=only)
    check_files(reproduce(what, made), what)
    assert any(line.startswith("Changed: ") and "n_heads=2 in place of 4" in line for line in made.lines)


def test_runtime_measures_steps(plan):
    table, text = check_files(reproduce("runtime", plan(only=("vanilla", "bnt"))), "runtime")
    assert (table["step_seconds"] > 0).all()
    assert "1.98 ± 0.04" in text


def test_complexity_measures_steps_at_each_number_of_rois(plan):
    made = plan(only=("meanmlp", "com-braintf"), sizes=(16, 12))
    table, text = check_files(reproduce("complexity", made), "complexity")
    assert table["n_rois"].tolist() == [12, 16, 12, 16]  # com-braintf has functional networks to read
    assert (table[["step_seconds", "memory_mb"]] > 0).all(axis=None)
    assert "time grows as V to the" in text
    assert "2 models at 12, 16 ROIs" in made.lines[0]  # said before it is measured


def test_the_exponent_is_that_of_the_largest_sizes():
    sizes = np.array([10, 50, 100, 200])
    seconds = np.where(sizes == 10, 7.0, 1e-6 * sizes**2.5)
    assert exponent(pd.DataFrame({"n_rois": sizes, "step_seconds": seconds})) == pytest.approx(2.5)
    assert np.isnan(exponent(pd.DataFrame({"n_rois": [50], "step_seconds": [1.0]})))


def test_a_folder_of_another_table_is_refused(plan):
    open_output(plan().out, "parameters")
    with pytest.raises(BadInput, match="'parameters'.*'features'"):
        reproduce("features", plan())


@pytest.fixture(scope="module")
def without_label(cohort, tmp_path_factory):
    table = cohort.participants.drop(columns="diagnosis")
    return Cohort(np.asarray(cohort.connectomes), table).save(tmp_path_factory.mktemp("paper") / "without")


@pytest.mark.parametrize("what", ["parameters", "runtime", "theory"])
def test_parts_that_predict_nothing_need_no_label_and_no_training(plan, without_label, monkeypatch, what):
    from bnt.paper import _theory_report as theory_report

    monkeypatch.setattr(_cost, "step_seconds", lambda *_, **__: 0.01)
    monkeypatch.setattr(_cost, "COUNTED", _cost.COUNTED[:1])
    monkeypatch.setattr(theory_report, "expected_seconds", lambda: 240.0)
    monkeypatch.setattr(theory_report, "find", lambda: None)
    for name in ("theory_table", "page", "draw_theory"):
        made_up = {"theory_table": pd.DataFrame(), "page": "", "draw_theory": Figure()}[name]
        monkeypatch.setattr(theory_report, name, lambda _, made_up=made_up: made_up)
    made = plan(cohort=without_label)
    check_files(reproduce(what, made), what)
    facts = json.loads((made.out / "reproduce.json").read_text())
    assert facts["label"] is None
    assert len(facts["data_sha256"]) == 64
    assert not (made.out / "runs").exists()
    assert made.lines or what == "parameters"  # what takes long says so first
    if what == "theory":
        assert "about 4 min at the speed just measured" in made.lines[0]


@pytest.mark.parametrize("what", ["table1", "curves", "learning-curve"])
def test_a_label_that_is_not_there_is_said_before_anything_is_written(plan, without_label, what):
    made = plan(cohort=without_label)
    with pytest.raises(BadInput, match="has no label 'diagnosis'; it has age"):
        reproduce(what, made)
    assert not made.out.exists()


def test_unknown_names_are_refused_before_anything_is_written(plan):
    made = plan()
    with pytest.raises(BadInput, match="table9"):
        reproduce("table9", made)
    with pytest.raises(BadInput, match="mlp"):
        reproduce("features", plan(only=("mlp",)))
    for what in ("runtime", "curves"):
        with pytest.raises(BadInput, match="svm.*san"):
            reproduce(what, plan(only=("svm",)))
    with pytest.raises(BadInput, match="does not have two classes"):
        reproduce("table1", plan(label="age"))
    with pytest.raises(BadInput, match="only chooses rows of one table"):
        reproduce("all", plan(only=("bnt",)))
    assert not made.out.exists()


def test_presets_set_splits_and_epochs(plan):
    assert set(PRESETS) == {"quick", "standard", "full"}
    full = plan(preset="full", splits=None, epochs=None, changes={})
    assert (full.n_splits, full.recipe.epochs, full.recipe.batch_size) == (20, 200, 64)  # paper, section 4.1
    quick = plan(splits=None, epochs=None)
    assert (quick.n_splits, quick.recipe.epochs) == (2, 8)


def test_the_stopping_rule_of_the_real_table_is_the_same_for_every_network(plan):
    standard = plan(preset="standard", splits=None, epochs=None, changes={})
    assert standard.n_splits == 5
    for model in bnt.list_models(family="network"):
        recipe = standard.recipe_for(model)
        assert (recipe.epochs, recipe.patience, recipe.select) == (40, 10, "smoothed"), model
    own = standard.recipe_for("bnt")  # what is not about stopping stays the model's own
    assert own.batch_size == find_recipe("default", "bnt").batch_size
    assert own.min_steps == find_recipe("default", "bnt").min_steps
    assert plan(preset="standard", epochs=3).recipe_for("bnt").for_steps(1).epochs == 3


def test_more_or_fewer_splits_than_asked_for_are_said_first(plan):
    one = plan(protocol="leave-one-site-out", only=("logistic",))
    reproduce("table1", one)
    assert "leave-one-site-out has one split per site: 2 splits, not 1." in one.lines


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--cache-gb", "-1", "The cache cannot have -1.0 GB"),
        ("--memory-gb", "-1", "-1.0 GB of memory are too little"),
        ("--protocol", "nested", "give --protocol kfold"),
    ],
)
def test_no_option_of_the_machine_or_the_splits_is_dropped(cohort, tmp_path, capsys, option, value, said):
    table = ["reproduce", "table1", str(cohort.path), "--out", str(tmp_path / "t"), "--only", "logistic"]
    assert main([*table, "--jobs", "1", option, value]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("what", "settings"),
    [("parameters", {"only": ("bnt",)}), ("table1", {"model": "bnt-released"}), ("table2", {"sizes": (20, 40)})],
)
def test_options_that_mean_nothing_to_a_part_are_refused(plan, what, settings):
    made = plan(**settings)
    with pytest.raises(BadInput, match=f"{next(iter(settings))} means nothing to {what}"):
        reproduce(what, made)
    assert not made.out.exists()


def test_command_line_offers_every_part(cohort, tmp_path, capsys, monkeypatch):
    from typing import get_args

    from bnt.cli._model_commands import What

    assert set(get_args(What)) == {*PARTS, "all"}
    monkeypatch.setattr(_cost, "COUNTED", [row for row in _cost.COUNTED if row[0] == "BNT, K = 100"])
    assert main(["reproduce", "parameters", str(cohort.path), "--out", str(tmp_path / "p")]) == 0
    assert "3,980,890" in capsys.readouterr().out
    assert main(["reproduce", "features", str(cohort.path), "--out", str(tmp_path / "f"), "--splits", "0"]) == 2
    assert "(--splits)" in capsys.readouterr().err
