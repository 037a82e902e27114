"""``bnt audit``: each planted fault is flagged, and clean splits and predictions pass."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

import bnt
from bnt.cli._main import main
from bnt.errors import BadInput
from bnt.splits import audit_splits, named_splits, save_splits
from bnt.splits._audit import _auroc


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audit") / "cohort"
    return bnt.simulate_cohort(n_subjects=120, n_rois=16, n_sites=3, seed=0, out=folder, series=False)


@pytest.fixture
def table(cohort, tmp_path):
    """A clean table of six splits."""
    path = tmp_path / "splits.csv"
    save_splits(path, cohort, named_splits(cohort, "diagnosis", "site-stratified", n_splits=6))
    return path


def found(path, cohort, predictions=None):
    return [one.check for one in audit_splits(path, cohort, predictions)]


def change(path, edit):
    cells = pd.read_csv(path, dtype=str, keep_default_na=False)
    edit(cells)
    cells.to_csv(path, index=False)
    return path


@pytest.mark.parametrize("protocol", ["site-stratified", "random", "kfold", "leave-one-site-out"])
def test_our_own_protocols_are_clean(cohort, tmp_path, protocol):
    path = tmp_path / "s.csv"
    save_splits(path, cohort, named_splits(cohort, "diagnosis", protocol, n_splits=5))
    assert found(path, cohort) == []


def test_the_released_splitter_is_flagged_for_its_one_training_part_and_small_test_part(cohort, tmp_path):
    path = tmp_path / "s.csv"
    save_splits(path, cohort, named_splits(cohort, "diagnosis", "released", n_splits=5))
    assert set(found(path, cohort)) >= {"constant-training", "small-test"}


def test_a_subject_on_two_sides_of_a_long_table_is_named(cohort, tmp_path):
    ids = cohort.ids.tolist()
    rows = [(i, "a", part) for i, part in zip(ids, ["train"] * 80 + ["validation"] * 10 + ["test"] * 30)]
    rows.append((ids[0], "a", "test"))
    path = tmp_path / "long.csv"
    pd.DataFrame(rows, columns=["participant_id", "split", "part"]).to_csv(path, index=False)
    (one,) = audit_splits(path, cohort)
    assert one.check == "leak"
    assert ids[0] in one.sentence


def test_a_copy_of_a_scan_on_the_other_side_is_a_leak(cohort, tmp_path):
    edges = np.array(cohort.connectomes)
    edges[100] = edges[0]
    copied = bnt.Cohort(edges, cohort.participants.drop(columns=["scan", "family"], errors="ignore"))
    ids = copied.ids.tolist()
    parts = ["train"] * 80 + ["validation"] * 10 + ["test"] * 30
    path = tmp_path / "s.csv"
    pd.DataFrame({"participant_id": ids, "a": parts}).to_csv(path, index=False)
    (one,) = audit_splits(path, copied)
    assert one.check == "leak"
    assert ids[0] in one.sentence
    assert ids[100] in one.sentence


def test_a_test_part_that_is_used_twice_is_flagged(cohort, table):
    def repeat(cells):
        cells["split1"] = cells["split0"]

    assert found(change(table, repeat), cohort) == ["test-part-twice"]


def test_splits_without_a_validation_part_are_flagged(cohort, table):
    assert found(change(table, lambda c: c.replace("validation", "train", inplace=True)), cohort) == ["no-validation"]


def test_some_splits_with_one_training_part_are_flagged(cohort, table):
    def repeat(cells):
        cells["split1"] = cells["split0"]
        rest = cells.index[cells["split0"] != "train"]
        cells.loc[rest, "split1"] = cells.loc[rest, "split0"].sample(frac=1, random_state=0).to_numpy()

    (one,) = audit_splits(change(table, repeat), cohort)
    assert one.sentence.startswith("2 of 6 splits have the same training set")


def test_inner_folds_and_sites_of_any_size_are_clean(cohort, tmp_path):
    ids, outer, inner = cohort.ids, np.arange(120) % 3, np.arange(120) // 3 % 2
    sites = np.repeat([0, 1, 2], [8, 100, 12])
    for name, parts in {
        "nested": {f"{k}{j}": np.where(outer == k, "test", np.where(inner == j, "validation", "train"))
                   for k in range(3) for j in range(2)},
        "sites": {str(k): np.where(sites == k, "test", np.where(np.arange(120) % 5 == 0, "validation", "train"))
                  for k in range(3)},
    }.items():  # fmt: skip
        pd.DataFrame({"participant_id": ids, **parts}).to_csv(tmp_path / f"{name}.csv", index=False)
        assert found(tmp_path / f"{name}.csv", cohort) == []


def test_tables_of_others_are_read(cohort, table, tmp_path, capsys):
    cells = pd.read_csv(table, dtype=str)
    other = cells.replace({"train": "Training", "validation": "val", "test": "TEST "})
    other.to_csv(table, index=False, sep=";", encoding="utf-8-sig")
    assert found(table, cohort) == []
    long = cells.melt("participant_id", var_name="split", value_name="part").assign(site="x")
    long[["site", "split", "part", "participant_id"]].to_csv(table, sep=";")
    assert found(table, cohort) == []
    assert capsys.readouterr().err == ""
    pd.DataFrame({"participant_id": cohort.ids[1:], "fold": np.arange(119) % 3}).to_csv(table, index=False)
    assert [one.sentence for one in audit_splits(table, cohort)] == [
        "Split fold0 has no validation set (3 of 3): if an epoch or a setting was chosen, it was on training or on "
        "test people."
    ]
    said = capsys.readouterr().err
    assert "these are numbers of folds" in said
    assert "1 of the 120 subjects of the cohort are in no split" in said


def test_a_table_without_training_people_is_flagged(cohort, table):
    assert found(change(table, lambda c: c.replace("train", "", inplace=True)), cohort) == ["empty-set"]


# -- predictions -----------------------------------------------------------------------------------


def predictions(cohort, table, tmp_path, *, signal=1.5, test_gain=0.0, **columns):
    """Predictions of validation and test people with a given signal, written to a file."""
    rng = np.random.default_rng(0)
    cells = pd.read_csv(table, dtype=str).melt("participant_id", var_name="split", value_name="part")
    cells = cells[cells["part"].isin(["validation", "test"])]
    y = dict(zip(cohort.ids.tolist(), cohort.labels("diagnosis")))
    truth = cells["participant_id"].map(y).to_numpy(float)
    strength = signal + test_gain * (cells["part"] == "test").to_numpy()
    score = strength * truth + rng.normal(size=len(cells))
    made = cells.assign(probability=1 / (1 + np.exp(-score)), label=truth, **columns)
    path = tmp_path / "p.csv"
    made.to_csv(path, index=False)
    return path, made


def test_honest_predictions_are_clean(cohort, table, tmp_path):
    path, _ = predictions(cohort, table, tmp_path)
    assert found(table, cohort, path) == []


def test_scores_that_are_higher_on_test_in_every_split_look_selected(cohort, table, tmp_path):
    path, _ = predictions(cohort, table, tmp_path, signal=0.2, test_gain=3.0)
    assert found(table, cohort, path) == ["test-selection"]


def test_hard_labels_are_flagged(cohort, table, tmp_path):
    path, made = predictions(cohort, table, tmp_path)
    made.assign(probability=made["probability"].round()).to_csv(path, index=False)
    assert found(table, cohort, path) == ["hard-labels"]


def test_inverted_labels_are_flagged_by_the_labels_and_by_the_scores(cohort, table, tmp_path):
    path, made = predictions(cohort, table, tmp_path)
    made.assign(label=1 - made["label"]).to_csv(path, index=False)
    assert found(table, cohort, path) == ["label-inversion"]
    made.drop(columns="label").assign(probability=1 - made["probability"]).to_csv(path, index=False)
    assert found(table, cohort, path) == ["label-inversion"]


def test_other_labels_and_people_outside_the_test_part_are_named(cohort, table, tmp_path):
    path, made = predictions(cohort, table, tmp_path)
    made.loc[made.index[0], "label"] = 1 - made["label"].iloc[0]
    made.assign(part="test").to_csv(path, index=False)
    assert {"labels", "not-in-test"} <= set(found(table, cohort, path))
    said = {one.check: one.sentence for one in audit_splits(table, cohort, path)}
    assert "is in the validation set of that split" in said["not-in-test"]


def test_everyone_in_a_test_part_is_scored_once(cohort, table, tmp_path):
    path, made = predictions(cohort, table, tmp_path)
    made.drop(made.index[made["part"] == "test"][:2]).to_csv(path, index=False)
    assert found(table, cohort, path) == ["not-scored"]
    pd.concat([made, made[made["part"] == "test"][:1]]).to_csv(path, index=False)
    assert found(table, cohort, path) == ["scored-twice"]


def test_words_and_marks_of_other_programs_hide_nothing(cohort, table, tmp_path):
    path, made = predictions(cohort, table, tmp_path)
    hard = made.assign(probability=made["probability"].round(), part=made["part"].str.title())
    hard.to_csv(path, index=False, encoding="utf-8-sig", sep=";")
    assert found(table, cohort, path) == ["hard-labels"]
    made.assign(part="dev").to_csv(path, index=False)
    with pytest.raises(BadInput, match="'dev' is not train, validation, test"):
        audit_splits(table, cohort, path)
    made.iloc[:0].to_csv(path, index=False)
    with pytest.raises(BadInput, match="has no rows"):
        audit_splits(table, cohort, path)


@pytest.mark.parametrize("words", [("TC", "ASD"), ("control", "patient"), ("1", "2")])
def test_names_of_classes_have_no_order(cohort, table, tmp_path, words):
    path, made = predictions(cohort, table, tmp_path)
    named = made["label"].map(dict(enumerate(words)))
    made.assign(label=named).to_csv(path, index=False)
    assert found(table, cohort, path) == []
    named.iloc[0] = words[1 - int(made["label"].iloc[0])]
    made.assign(label=named).to_csv(path, index=False)
    (one,) = audit_splits(table, cohort, path)
    assert one.check == "labels"
    assert made["participant_id"].iloc[0] in one.sentence


@pytest.mark.parametrize("names", [("p_0", "p_1"), ("p_9", "p_10")])
def test_the_predictions_of_a_run_are_read_by_the_columns_of_its_classes(cohort, table, tmp_path, names):
    path, made = predictions(cohort, table, tmp_path)
    negative, positive = names
    made = made.assign(**{negative: 1 - made["probability"], positive: made["probability"]})
    made.drop(columns="probability").to_csv(path, index=False)
    assert found(table, cohort, path) == []
    made.rename(columns={negative: positive, positive: negative}).drop(columns="probability").to_csv(path, index=False)
    assert found(table, cohort, path) == ["label-inversion"]


def test_the_auroc_of_ranks_is_scikit_learns():
    rng = np.random.default_rng(1)
    y, p = rng.integers(0, 2, 50), rng.integers(0, 5, 50) / 5
    assert _auroc(pd.Series(y), pd.Series(p)) == pytest.approx(roc_auc_score(y, p))


@pytest.mark.parametrize(
    ("text", "named"), [("participant_id,x\n", "probability"), ("probability\n0.5\n", "participant_id")]
)
def test_a_table_without_a_column_is_refused(cohort, table, tmp_path, text, named):
    path = tmp_path / "p.csv"
    path.write_text(text)
    with pytest.raises(BadInput, match=named):
        audit_splits(table, cohort, path)


def test_the_command_says_what_it_found_and_its_exit_code_tells(cohort, table, tmp_path, capsys):
    assert main(["audit", str(table), str(cohort.path)]) == 0
    assert "clean" in capsys.readouterr().out
    change(table, lambda c: c.replace("validation", "train", inplace=True))
    assert main(["audit", str(table), str(cohort.path)]) == 1
    assert "no-validation: " in capsys.readouterr().out
    assert main(["audit", str(tmp_path / "none.csv"), str(cohort.path)]) == 2
