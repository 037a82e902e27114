from __future__ import annotations

import io
import json
import warnings

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from bnt.cli._main import main
from bnt.cohort import square
from bnt.cohort._triangle import Networks
from bnt.explain import _writing
from bnt.explain._stability import planted_edges, planted_pairs
from bnt.plotting import _brain as figures
from bnt.plotting._brain import glass_brain


@pytest.fixture(scope="module")
def explained(pair, cohort, network, tmp_path_factory):
    out = tmp_path_factory.mktemp("explained") / "out"
    words = ["explain", str(pair.folder), str(cohort.path), "--out", str(out), "--permutations", "19"]

    def lay_out(figure, file):  # how a figure becomes a file is tested in tests/report
        if file.suffix == ".png":
            figure.draw_without_rendering()
        file.write_bytes(b"")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_writing, "save_figure", lay_out)
        assert main([*words, "--method", "gradient", "--also", str(network.folder)]) == 0
    return out


def test_explain_writes_tables_figures_and_a_summary(explained):
    tables = {"attention_networks", "enrichment", "clusters", "difference", "edges", "edges_by_network", "rois"}
    assert {f.stem for f in explained.glob("*.csv")} == tables
    drawn = {"attention", "attention_networks", "enrichment", "clusters", "edges", "edges_by_network"}
    assert {f.stem for f in explained.glob("*.png")} == {f.stem for f in explained.glob("*.pdf")} == drawn
    facts = json.loads((explained / "explain.json").read_text())
    assert 0 < facts["attention"]["enrichment_layer_1"]["p"] <= 1
    assert len(facts["clusters"]["difference"]) == 2  # one per member
    assert facts["edges"]["stability_over_runs"]["n_maps"] == 2
    assert facts["edges"]["planted"]["n_pairs"] == 3
    assert len(pd.read_csv(explained / "edges.csv")) == 24 * 23 // 2


@pytest.mark.usefixtures("undrawn")
def test_a_linear_run_is_explained_without_attention(svm, cohort, tmp_path, capsys):
    out = tmp_path / "out"
    command = ["explain", str(svm.folder), str(cohort.path), "--out", str(out), "--sanity", "3"]
    assert main(command) == 0
    assert "sanity check passes" in capsys.readouterr().out
    facts = json.loads((out / "explain.json").read_text())
    assert facts["edges"]["method"] == "pattern"
    assert "attention" not in facts


@pytest.mark.usefixtures("undrawn")
def test_a_run_is_scored_by_what_was_planted_for_its_own_label(cohort, tmp_path):
    run, out = tmp_path / "run", tmp_path / "out"
    assert main(["train", str(cohort.path), "--label", "sex", "--model", "ridge", "--out", str(run)]) == 0
    assert main(["explain", str(run), str(cohort.path), "--out", str(out)]) == 0
    edges = json.loads((out / "explain.json").read_text())["edges"]
    assert edges["planted"]["chance"] == pytest.approx(planted_edges(cohort, "sex").mean())
    assert planted_pairs(cohort, "age") is None


@pytest.mark.parametrize(
    ("more", "named"),
    [(["--target", "9"], "--target"), (["--sanity", "1"], "--sanity"), (["--also", "nowhere"], "nowhere")],
)
def test_bad_input_is_one_sentence_and_nothing_is_written(svm, cohort, tmp_path, capsys, more, named):
    out = tmp_path / "out"
    assert main(["explain", str(svm.folder), str(cohort.path), "--out", str(out), *more]) == 2
    error = capsys.readouterr().err
    assert named in error
    assert error.strip().count("\n") == 0
    assert list(tmp_path.iterdir()) == []


def test_predict_tells_about_one_new_scan(svm, cohort, tmp_path, capsys):
    file = tmp_path / "sub-new.npy"
    np.save(file, square(cohort.edges([7]))[0])
    assert main(["predict", str(svm.folder), str(file), "--explain", "--top", "2"]) == 0
    table = pd.read_csv(io.StringIO(capsys.readouterr().out))
    assert len(table) == 1
    assert table["low"][0] <= table["high"][0]
    assert "validation subjects" in table["interval_from"][0]
    assert "site not known" in table["unlike_training"][0]
    assert table["top_connections"][0].count(";") == 1
    assert table["seen_in"].isna().all()


def test_predict_announces_no_numbers_where_a_model_has_none(svm, cohort, tmp_path, capsys):
    run = tmp_path / "run"
    assert main(["train", str(cohort.path), "--model", "linear-ensemble", "--out", str(run)]) == 0
    few = cohort.select([0, 1]).save(tmp_path / "few").path
    capsys.readouterr()
    for folder, has in ((run, False), (svm.folder, True)):
        assert main(["predict", str(folder), str(few), "--explain"]) == 0
        said = capsys.readouterr()
        assert ("Signed numbers" in said.err) == has
        column = pd.read_csv(io.StringIO(said.out))["top_connections"]
        assert column.str.startswith("not available: ").tolist() == [not has] * 2
        assert not column.str.contains("use --method").any()  # bnt predict has no such option


def test_predict_says_who_was_trained_on(svm, cohort, tmp_path, capsys):
    assert main(["predict", str(svm.folder), str(cohort.path), "--out", str(tmp_path / "p.csv")]) == 0
    parts = pd.read_csv(svm.folder / "splits.csv", dtype=str).set_index("participant_id").iloc[:, 0].dropna()
    found = pd.read_csv(tmp_path / "p.csv", dtype=str).set_index("participant_id")["seen_in"]
    assert (found.reindex(parts.index) == parts).all()
    seen = parts.isin(["train", "validation"]).sum()
    assert f"{seen} of {len(cohort)} subjects have the names" in capsys.readouterr().err


def test_a_network_has_the_same_colour_in_every_atlas():
    one = Networks.from_labels(np.array(["Default", "Visual", "Salience", ""]))
    other = Networks.from_labels(np.array(["Limbic", "Default", "Visual"]))
    assert one.colours["Default"] == other.colours["Default"]
    assert len(set(one.colours.values())) == len(one.names)
    assert one.names[-1] == "Unassigned"


def test_an_atlas_without_networks_has_none():
    assert Networks.from_labels(np.array(["", "", ""])) is None


def test_matrices_are_drawn_sorted_by_network():
    networks = Networks.from_labels(np.array(["Default", "Visual", "Default", "Visual"]))
    matrix = np.arange(16.0).reshape(4, 4)
    figure = figures.attention_matrix(matrix, networks)
    assert isinstance(figure, Figure)
    shown = np.asarray(figure.axes[0].images[0].get_array())
    order = [1, 3, 0, 2]  # Visual comes before Default
    off = ~np.eye(4, dtype=bool)
    np.testing.assert_allclose(shown[off], (4 * matrix)[np.ix_(order, order)][off])


def test_figures_of_atlases_without_networks_are_drawn():
    assert isinstance(figures.edge_matrix(np.arange(6.0), None, "score"), Figure)
    assert isinstance(figures.assignment_maps(np.full((3, 4, 2), 0.5), ["a", "b", "c"], None), Figure)


def test_the_glass_brain_shows_the_strongest_edges():
    places = np.array([[-40.0, 0, 20], [40, 10, 20], [0, -60, 10], [10, 40, 0]])
    networks = Networks.from_labels(np.array(["Visual", "Default", "Visual", "Limbic"]))
    figure = glass_brain(square(np.array([0.0, 0.1, -0.5, 0.9, 0.0, 0.2]), 0.0), places, networks, n_edges=2)
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    # The top edges are (0, 3) and (1, 2): all four ROIs, three networks.
    assert names == ["Visual", "Limbic", "Default"]


@pytest.mark.parametrize("where", ["", "nowhere/p.csv"])
def test_predict_refuses_a_place_that_cannot_be_written_before_it_predicts(svm, cohort, tmp_path, capsys, where):
    assert main(["predict", str(svm.folder), str(cohort.path), "--out", str(tmp_path / where)]) == 2
    assert "give a file to write" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_predict_refuses_rois_in_another_order_and_warns_of_other_names(svm, cohort, tmp_path, capsys):
    names = cohort.rois["label"].tolist()
    turned = [*names[1:], names[0]]
    values = np.random.default_rng(0).normal(size=(50, len(names)))
    renamed = [f"X{name}" for name in names]
    for columns, code, words in ((turned, 2, "put the ROIs into the order"), (renamed, 0, "make sure")):
        pd.DataFrame(values, columns=columns).to_csv(tmp_path / "sub-new.tsv", sep="\t", index=False)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert main(["predict", str(svm.folder), str(tmp_path / "sub-new.tsv")]) == code
        assert words in capsys.readouterr().err + "".join(str(w.message) for w in caught)
