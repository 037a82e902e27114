"""The participants table as people have it: every guess is said, users' columns keep their names."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from source_files import put, series, write_participants

from bnt.errors import BadInput
from bnt.sources._ingest import import_cohort
from bnt.sources._people import read_participants

IDS = [f"sub-{i:02d}" for i in range(1, 7)]


@pytest.fixture
def scans(tmp_path):
    for i, name in enumerate(IDS):
        np.save(put(tmp_path / "in" / f"{name}.npy"), series(i))
    return tmp_path / "in"


def imported(scans, tmp_path, options=None, **columns):
    people = write_participants(tmp_path / "p.tsv", participant_id=IDS, **columns)
    return import_cohort(scans, tmp_path / "out", participants=people, overwrite=True, **(options or {}))


def test_the_bids_column_group_keeps_its_name_and_is_no_family(scans, tmp_path):
    cohort = imported(scans, tmp_path, group=["patient", "control"] * 3)
    assert cohort.labels("group").tolist() == ["patient", "control"] * 3
    assert cohort.families.tolist() == IDS


@pytest.mark.parametrize("name", ["family_id", "Family_ID", "rel_family_id", "family"])
def test_a_column_of_families_is_recognised_and_said(scans, tmp_path, capsys, name):
    cohort = imported(scans, tmp_path, **{name: ["7", "7", "8", "8", "9", None]})
    assert cohort.families.tolist() == ["7", "7", "8", "8", "9", "sub-06"]
    assert name in cohort.participants
    said = capsys.readouterr().err
    assert name in said
    assert "--family" in said


def test_the_column_of_families_can_be_named(scans, tmp_path):
    cohort = imported(scans, tmp_path, {"family": "pair"}, pair=[1, 1, 2, 2, 3, 3], family_id=list("abcdef"))
    assert cohort.families.tolist() == ["1", "1", "2", "2", "3", "3"]
    assert cohort.labels("family_id").tolist() == list("abcdef")


def test_a_family_history_is_no_family(tmp_path, capsys):
    people = write_participants(
        tmp_path / "p.tsv", participant_id=[f"s{i}" for i in range(30)], family=["yes", "no", "no"] * 10
    )
    table = read_participants(people).table
    assert "given_family" in table
    assert "family" not in table
    said = capsys.readouterr().err
    assert "not taken as families" in said
    assert "given_family" in said


def test_a_column_of_ours_is_renamed_with_a_word(scans, tmp_path, capsys):
    cohort = imported(scans, tmp_path, n_volumes=[1, 2, 3, 4, 5, 6])
    assert cohort.participants["n_volumes"].tolist() == [30] * 6
    assert cohort.labels("given_n_volumes").tolist() == [1, 2, 3, 4, 5, 6]
    assert "given_n_volumes" in capsys.readouterr().err


def test_decimal_commas_are_numbers_and_said(scans, tmp_path, capsys):
    cohort = imported(scans, tmp_path, age=["23,5", "24", "n/a", "31,25", "1.024,5", "19.5"])
    assert cohort.participants["age"].tolist()[:2] == [23.5, 24.0]
    assert cohort.participants["age"].tolist()[3:] == [31.25, 1024.5, 19.5]
    said = capsys.readouterr().err
    assert "age" in said
    assert "23,5 is read as 23.5" in said


def test_a_comma_that_may_mark_thousands_is_refused(scans, tmp_path):
    with pytest.raises(BadInput, match=r"'1,234' in column 'tiv'.*1\.234 or 1234"):
        imported(scans, tmp_path, tiv=["1,234", "987", "1,500", "2,000", "900", "800"])


@pytest.mark.parametrize("words", [["1,2", "1,2,3", "2", "1", "3", "2,3"], ["a,b", "c", "d", "e", "f", "g"]])
def test_lists_and_words_with_commas_stay_text(scans, tmp_path, words):
    assert imported(scans, tmp_path, codes=words).labels("codes").tolist() == words


def test_a_table_of_a_european_spreadsheet_is_read(scans, tmp_path):
    rows = "\n".join(f"{name};{20 + i},5;A" for i, name in enumerate(IDS))
    (tmp_path / "p.csv").write_text(f"participant_id;age;site\n{rows}\n")
    cohort = import_cohort(scans, tmp_path / "out", participants=tmp_path / "p.csv")
    assert cohort.labels("age").tolist() == [20.5, 21.5, 22.5, 23.5, 24.5, 25.5]


def read(tmp_path, rows, capsys):
    (tmp_path / "p.tsv").write_bytes("\n".join(["participant_id\tsite\tage\tsex", *rows]).encode("latin-1"))
    return read_participants(tmp_path / "p.tsv").table, capsys.readouterr().err


ROWS = [f"sub-{i:02d}\tA\t{20 + i}\tF" for i in range(12)]


def test_a_missing_cell_and_a_word_among_numbers_are_said(tmp_path, capsys):
    table, said = read(tmp_path, [*ROWS, "sub-12\t32\tF"], capsys)
    assert "line 14 has 3 fields and the header has 4" in said
    assert "column age has 'F' among its numbers (1 of 13 cells are words), so it is read as words" in said
    assert table["age"].tolist()[-2:] == ["31", "F"]
    assert read(tmp_path, ROWS, capsys)[1] == ""


def test_rows_of_separators_alone_are_no_people(tmp_path, capsys):
    table, said = read(tmp_path, [*ROWS, "\t\t\t", " \t\t\t"], capsys)
    assert len(table) == 12
    assert table["age"].dtype.kind == "i"
    assert said == ""


def test_another_encoding_is_named(tmp_path, capsys):
    with pytest.raises(BadInput, match=r"not a text in UTF-8 \(byte 36 is 0xfc\): save it"):
        read(tmp_path, ["sub-01\tZürich\t20\tF"], capsys)


SPELLINGS = ["MDD ", "mdd", "MDD", "MDD", "HC", "HC"]


def test_spellings_of_one_class_are_merged_and_named(scans, tmp_path, capsys):
    cohort = imported(scans, tmp_path, diagnosis=SPELLINGS, site=["NYU", "nyu", *"BBBB"])
    assert cohort.labels("diagnosis").tolist() == ["MDD"] * 4 + ["HC"] * 2
    assert cohort.sites.tolist() == ["NYU", "NYU", *"BBBB"]
    said = capsys.readouterr().err
    assert "'MDD '" in said
    assert "'mdd'" in said
    assert "--keep-case" in said


def test_spellings_can_be_kept_apart(scans, tmp_path):
    cohort = imported(scans, tmp_path, {"keep_case": True}, diagnosis=SPELLINGS)
    assert cohort.labels("diagnosis").tolist() == ["MDD", "mdd", "MDD", "MDD", "HC", "HC"]  # spaces never matter


@pytest.mark.parametrize("words", [["M", "F", "male", "M", "F", "f"], ["Male", "F", "m", "male", "female", "Female"]])
def test_abbreviations_of_sex_are_one_class(scans, tmp_path, capsys, words):
    cohort = imported(scans, tmp_path, sex=words)
    sexes = cohort.labels("sex")
    assert [len(set(sexes[[i for i, w in enumerate(words) if w.lower()[0] == one]])) for one in "mf"] == [1, 1]
    assert "--keep-case" in capsys.readouterr().err


def test_letters_beside_other_words_are_no_abbreviations(scans, tmp_path):
    words = ["M", "F", "male", "N", "other", "f"]
    assert imported(scans, tmp_path, {"keep_case": True}, arm=words).labels("arm").tolist() == words
    assert set(imported(scans, tmp_path, arm=words).labels("arm")) == {"M", "F", "male", "N", "other"}


CODED = {
    "-9999": [104, 98, -9999, 110, -9999, 121],
    "-9": [1, 2, -9, 1, 2, 2],
    "999": [21, 34, 999, 28, 45, 19],
    "-999": [-1.5, 0.3, -999, 1.2, -0.2, 2.2],
    "-99": ["patient", "control", -99, "patient", "control", "patient"],
    "-8": ["patient", "control", -8, "patient", "control", "patient"],
}


@pytest.mark.parametrize("code", CODED)
def test_codes_of_unknown_values_are_missing_and_said(scans, tmp_path, capsys, code):
    cohort = imported(scans, tmp_path, value=CODED[code], plain=[1, 9, 3, 8, 5, 7])
    assert cohort.participants["value"].isna().tolist() == [str(v) == code for v in CODED[code]]
    assert cohort.labels("plain").tolist() == [1, 9, 3, 8, 5, 7]
    said = capsys.readouterr().err
    assert f"{code} is read as missing in value" in said
    assert "--missing none" in said
    kept = imported(scans, tmp_path, {"missing": ["none"]}, value=CODED[code])
    assert kept.labels("value").tolist() == [str(v) if "patient" in CODED[code] else v for v in CODED[code]]


def test_a_number_that_may_be_a_code_is_kept_and_said(scans, tmp_path, capsys):
    assert imported(scans, tmp_path, hamd=[12, 20, 99, 7, 0, 25]).labels("hamd").tolist() == [12, 20, 99, 7, 0, 25]
    assert "--missing 99" in capsys.readouterr().err
    named = imported(scans, tmp_path, {"missing": ["99", "0"]}, hamd=[12, 20, 99, 7, 0, 25])
    assert named.participants["hamd"].isna().tolist() == [False, False, True, False, True, False]


@pytest.mark.parametrize(
    "values", [[100, 300, 777, 450, 820, 999], [-3.0, -9, 2, 4, 5, 1], [-7, 0, 7, 14, 21, 28], [70, 75, 80, 88, 90, 99]]
)
def test_usual_values_are_no_codes(scans, tmp_path, capsys, values):
    assert imported(scans, tmp_path, value=values).labels("value").tolist() == values
    assert "--missing" not in capsys.readouterr().err


def test_a_missing_site_column_is_said(scans, tmp_path, capsys):
    cohort = imported(scans, tmp_path, sex=["F", "M"] * 3)
    assert "no site column" in capsys.readouterr().err
    assert "no sites" in repr(cohort)
    imported(scans, tmp_path, site=["A"] * 6)
    assert "no site column" not in capsys.readouterr().err


def test_people_without_a_site_are_counted_and_named(scans, tmp_path, capsys):
    cohort = imported(scans, tmp_path, site=["A", None, "B", "B", None, "A"])
    said = capsys.readouterr().err
    assert "2 of 6" in said
    assert cohort.ids[1] in said
    assert "2 sites (2 without)" in repr(cohort)


# -- sessions --------------------------------------------------------------------------------------------------


@pytest.fixture
def sessions(tmp_path):
    """Two sessions of three people under BIDS names."""
    for i, name in enumerate(IDS[:3]):
        for s in (1, 2):
            np.save(put(tmp_path / "bids" / name / f"{name}_ses-{s}_task-rest_timeseries.npy"), series(10 * i + s))
    return tmp_path / "bids"


def long_table(folder):
    return write_participants(
        folder / "participants.tsv",
        participant_id=[name for name in IDS[:3] for _ in (1, 2)],
        session_id=["ses-1", "ses-2"] * 3,
        hamd=[20, 10, 25, 12, 18, 3],
        sex=["F", "F", "M", "M", "F", "F"],
    )


def test_a_long_table_is_joined_by_session(sessions, tmp_path):
    long_table(sessions)
    cohort = import_cohort(sessions, tmp_path / "out", runs="sessions")
    assert cohort.ids.tolist()[:2] == ["sub-01_ses-1", "sub-01_ses-2"]
    assert cohort.labels("hamd").tolist() == [20, 10, 25, 12, 18, 3]
    assert cohort.families.tolist()[:3] == ["sub-01", "sub-01", "sub-02"]


def test_scans_of_another_session_than_that_of_their_row_are_said(sessions, tmp_path, capsys):
    write_participants(sessions / "participants.tsv", participant_id=IDS[:3], session_id=["01"] * 3, hamd=[20, 25, 18])
    import_cohort(sessions, tmp_path / "out", runs="sessions")
    said = capsys.readouterr().err
    assert "3 of 6 scans get the values of another session, such as sub-01_ses-2" in said
    import_cohort(sessions, tmp_path / "one", pattern="*ses-1*")
    assert "another session" not in capsys.readouterr().err


def test_session_files_are_joined_by_session(sessions, tmp_path, capsys):
    write_participants(sessions / "participants.tsv", participant_id=IDS[:3], sex=["F", "M", "F"])
    for i, name in enumerate(IDS[:3]):
        write_participants(sessions / name / f"{name}_sessions.tsv", session_id=["ses-1", "ses-2"], hamd=[20 + i, 5])
    cohort = import_cohort(sessions, tmp_path / "out", runs="separate")
    assert cohort.labels("hamd").tolist() == [20, 5, 21, 5, 22, 5]
    assert cohort.labels("sex").tolist() == ["F", "F", "M", "M", "F", "F"]
    assert "_sessions.tsv" in capsys.readouterr().err


def test_session_files_are_cleaned_as_one_table(sessions, tmp_path, capsys):
    write_participants(sessions / "participants.tsv", participant_id=IDS[:3])
    for i, name in enumerate(IDS[:3]):
        scores = {"session_id": ["ses-1", "ses-2"], "hamd": [f"{20 + i},5", -999 if i == 1 else 4]}
        write_participants(sessions / name / f"{name}_sessions.tsv", **scores, **({"only": [1, 2]} if i == 0 else {}))
    cohort = import_cohort(sessions, tmp_path / "out", runs="separate")
    expected = [20.5, 4, 21.5, np.nan, 22.5, 4]
    np.testing.assert_array_equal(cohort.participants["hamd"].to_numpy(float), expected)
    assert cohort.participants["only"].isna().sum() == 4
    said = capsys.readouterr().err
    assert said.count("decimal commas") == 1
    assert "-999 is read as missing in hamd" in said


@pytest.mark.parametrize("names", [["ses-1", "n/a"], ["ses-1", ""], ["ses-1", "1"]])
def test_session_files_name_each_session_once(sessions, tmp_path, names):
    write_participants(sessions / "participants.tsv", participant_id=IDS[:3])
    write_participants(sessions / IDS[0] / f"{IDS[0]}_sessions.tsv", session_id=names, hamd=[20, 5])
    with pytest.raises(BadInput, match="sessions.tsv needs a column session_id that names each session once"):
        import_cohort(sessions, tmp_path / "out")


def test_what_differs_between_averaged_sessions_is_left_empty_and_said(sessions, tmp_path, capsys):
    long_table(sessions)
    cohort = import_cohort(sessions, tmp_path / "out")
    assert cohort.participants["hamd"].isna().all()
    assert cohort.labels("sex").tolist() == ["F", "M", "F"]
    said = capsys.readouterr().err
    assert "hamd" in said
    assert "--runs" in said


def test_a_session_that_the_long_table_lacks_is_refused(sessions, tmp_path):
    file = long_table(sessions)
    table = pd.read_csv(file, sep="\t")
    table.drop(index=1).to_csv(file, sep="\t", index=False)  # sub-01, ses-2: it must not get the label of ses-1
    with pytest.raises(BadInput, match="session '2'.*1 of sub-01"):
        import_cohort(sessions, tmp_path / "out", runs="sessions")
    first = import_cohort(sessions, tmp_path / "out", pattern="*_ses-1_*")
    assert first.labels("hamd").tolist() == [20, 25, 18]


def test_a_session_with_two_rows_is_refused(sessions, tmp_path):
    file = long_table(sessions)
    table = pd.read_csv(file, sep="\t")
    pd.concat([table, table.iloc[[2]]]).to_csv(file, sep="\t", index=False)
    with pytest.raises(BadInput, match="'02' twice in session '1'"):
        import_cohort(sessions, tmp_path / "out")
