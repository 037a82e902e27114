"""A thousand broken files: every reader either refuses them in one line that names the file, or reads numbers.

Each sound file is truncated, has bytes flipped, zeroed, inserted, doubled or exchanged with those of another
format. Whatever a parser underneath raises must not come through, and an import leaves nothing behind.
"""

from __future__ import annotations

import gzip
import io
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.io import savemat
from source_files import (
    authors_dictionary,
    pearson,
    series,
    write_1d,
    write_participants,
    write_pconn,
    write_ptseries,
    write_xcpd_matrix,
    write_xcpd_series,
)

from bnt.cohort import Cohort
from bnt.errors import BadInput
from bnt.sources._authors import find_authors, read_inert
from bnt.sources._ingest import import_cohort
from bnt.sources._people import read_participants
from bnt.sources._readers import DERIVATIVES, find_stack, read_cifti, read_matrix, read_plain, read_series
from bnt.sources._scan import Content

MUTANTS = 80


def sound(folder: Path) -> dict[str, tuple[Path, object]]:
    """One sound file of every format, with the reader for it."""
    x, m = series(1, 24), pearson(series(1, 24))
    np.save(folder / "a.npy", x)
    np.save(folder / "stack.npy", np.stack([m, m]))
    np.savez(folder / "a.npz", timeseries=np.stack([x, x]), ids=np.array(["a", "b"]))
    np.savez_compressed(folder / "b.npz", x)
    savemat(folder / "a.mat", {"ROISignals": x})
    savemat(folder / "b.mat", {"Z": m, "names": np.array(["p", "q"], dtype=object)}, do_compression=True)
    np.savetxt(folder / "a.csv", x, delimiter=",", header="a,b,c,d,e,f", comments="")
    np.savetxt(folder / "a_correlations.tsv", m, delimiter="\t")
    (folder / "a.tsv.gz").write_bytes(gzip.compress((folder / "a_correlations.tsv").read_bytes()))
    np.save(folder / "abide.npy", authors_dictionary(2), allow_pickle=True)
    return {
        "npy": (folder / "a.npy", read_plain),
        "npy stack": (folder / "stack.npy", find_stack),
        "npz stack": (folder / "a.npz", find_stack),
        "npz compressed": (folder / "b.npz", read_plain),
        "mat": (folder / "a.mat", read_plain),
        "mat compressed": (folder / "b.mat", read_plain),
        "csv": (folder / "a.csv", read_plain),
        "tsv.gz": (folder / "a.tsv.gz", read_plain),
        "1D": (write_1d(folder / "a_rois_cc200.1D", x), read_series),
        "C-PAC matrix": (folder / "a_correlations.tsv", read_matrix),
        "XCP-D series": (write_xcpd_series(folder, "sub-01_task-rest", x), DERIVATIVES["xcpd"].read_series),
        "XCP-D matrix": (write_xcpd_matrix(folder, "sub-01_task-rest", m), DERIVATIVES["xcpd"].read_matrix),
        "ptseries": (write_ptseries(folder / "a.ptseries.nii", x), read_cifti),
        "pconn": (write_pconn(folder / "a.pconn.nii", m), read_cifti),
        "authors": (folder / "abide.npy", find_authors),
        "participants": (
            write_participants(folder / "participants.tsv", participant_id=["a", "b"], site=["x", "y"], age=[3, None]),
            read_participants,
        ),
    }


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    return {
        name: (file.name, file.read_bytes(), reader)
        for name, (file, reader) in sound(tmp_path_factory.mktemp("sound")).items()
    }


FORMATS = [
    "npy", "npy stack", "npz stack", "npz compressed", "mat", "mat compressed", "csv", "tsv.gz", "1D", "C-PAC matrix",
    "XCP-D series", "XCP-D matrix", "ptseries", "pconn", "authors", "participants",
]  # fmt: skip


def mutate(data: bytes, others: list[bytes], rng: np.random.Generator) -> bytes:
    """Break a file in one of the ways disks, transfers and people do."""
    out = bytearray(data)
    head = min(len(out), 600)  # half of the damage goes to headers, where parsers are easily misled
    at = int(rng.integers(head if rng.random() < 0.5 else len(out)))
    match int(rng.integers(9)):
        case 0:
            return bytes(out[:at])
        case 1:
            for place in rng.integers(head if rng.random() < 0.5 else len(out), size=rng.integers(1, 8)):
                out[place] ^= 1 << int(rng.integers(8))
        case 2:
            out[at : at + int(rng.integers(1, 64))] = bytes(int(rng.integers(1, 64)))
        case 3:
            out[at:at] = rng.bytes(int(rng.integers(1, 64)))
        case 4:
            del out[at : at + int(rng.integers(1, 200))]
        case 5:
            other = others[int(rng.integers(len(others)))]
            return bytes(out[:at]) + other[int(rng.integers(len(other))) :]
        case 6:
            return others[int(rng.integers(len(others)))]
        case 7:
            return bytes(out) + bytes(out[at:])
        case 8:
            return bytes(out).decode("latin1").encode(["utf-16", "utf-8", "utf-32"][int(rng.integers(3))])
    return bytes(out)


def contents(reader, file: Path) -> list:
    """Read a file to the end: a reader returns a content, a table, or scans that are yet to be read."""
    result = reader(file)
    scans = result[0] if isinstance(result, tuple) else result
    return [scan.read() for scan in scans] if isinstance(scans, list) else [scans]


def refusal_of(action, *arguments, **options) -> tuple[str, object]:
    """Return the sentence of a refusal, or nothing and the result. Other exceptions come through."""
    try:
        return "", action(*arguments, **options)
    except BadInput as refusal:
        return str(refusal), None


def outcome(reader, file: Path) -> str:
    """Read, and check that a refusal is one line with the file's name and a result is numbers."""
    refusal, found = refusal_of(contents, reader, file)
    if refusal:
        assert "\n" not in refusal
        assert file.name in refusal
        return "refused"
    for content in found:
        if isinstance(content, Content):
            values = content.matrix if content.matrix is not None else content.series
            assert values is not None
            assert values.ndim == 2
            assert values.dtype.kind in "biuf"
    return "read"


@pytest.mark.parametrize("name", FORMATS)
def test_a_sound_file_is_read(originals, tmp_path, name):
    file_name, data, reader = originals[name]
    (tmp_path / file_name).write_bytes(data)
    assert outcome(reader, tmp_path / file_name) == "read"


@pytest.mark.parametrize("name", FORMATS)
def test_broken_files_are_refused_in_one_line(originals, tmp_path, name):
    file_name, data, reader = originals[name]
    others = [d for n, (_, d, _) in originals.items() if n != name]
    rng = np.random.default_rng(FORMATS.index(name))
    outcomes = []
    for _ in range(MUTANTS):
        (tmp_path / file_name).write_bytes(mutate(data, others, rng))
        outcomes.append(outcome(reader, tmp_path / file_name))
    assert outcomes.count("refused") > MUTANTS / 10
    assert [p.name for p in tmp_path.iterdir()] == [file_name]


@pytest.mark.parametrize("name", FORMATS)
def test_every_truncation_near_the_ends_is_refused_or_read(originals, tmp_path, name):
    file_name, data, reader = originals[name]
    cuts = {*range(0, min(len(data), 140), 7), *range(max(len(data) - 60, 0), len(data), 5)}
    for cut in sorted(cuts):
        (tmp_path / file_name).write_bytes(data[:cut])
        result = outcome(reader, tmp_path / file_name)
        assert result == "refused" or cut > 0


@pytest.mark.parametrize("name", FORMATS)
def test_a_folder_a_dangling_link_or_an_empty_file_under_that_name(originals, tmp_path, name):
    file_name, _, reader = originals[name]
    file = tmp_path / file_name
    file.mkdir()
    assert outcome(reader, file) == "refused"
    file.rmdir()
    file.symlink_to(tmp_path / "nowhere")
    assert outcome(reader, file) == "refused"
    file.unlink()
    file.write_bytes(b"")
    assert outcome(reader, file) == "refused"


@pytest.mark.parametrize("name", [n for n in FORMATS if n != "participants"])
def test_an_import_with_one_broken_file_leaves_nothing_behind(originals, tmp_path, name):
    file_name, data, _ = originals[name]
    others = [d for n, (_, d, _) in originals.items() if n != name]
    rng = np.random.default_rng(1000 + FORMATS.index(name))
    source = tmp_path / "in"
    source.mkdir()
    bad = source / file_name
    if name not in ("authors", "npy stack", "npz stack"):  # those are sources alone
        (source / file_name.replace("sub-01", "sub-00").replace("a", "b", 1)).write_bytes(data)
    else:
        source = bad
    for _ in range(8):
        bad.write_bytes(mutate(data, others, rng))
        before = sorted(tmp_path.rglob("*"))
        refusal, cohort = refusal_of(import_cohort, source, tmp_path / "out")
        assert "\n" not in refusal
        if isinstance(cohort, Cohort):
            assert np.isfinite(cohort.connectomes).all()
            shutil.rmtree(tmp_path / "out")
        assert sorted(tmp_path.rglob("*")) == before


SHARED = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)


@SHARED
@given(text=st.text(max_size=200), extension=st.sampled_from(["csv", "tsv", "1D", "txt"]))
def test_any_text_is_refused_or_read(tmp_path, text, extension):
    file = tmp_path / f"any.{extension}"
    file.write_text(text, encoding="utf-8", errors="surrogatepass", newline="")
    outcome(read_plain, file)


@SHARED
@given(
    rows=st.lists(
        st.lists(st.sampled_from(["1", "2.5", "-3e2", "n/a", "", "NaN", "inf", "x", '"', "#4", "1_0"]), max_size=5),
        max_size=6,
    ),
    separator=st.sampled_from(["\t", ",", ";", " ", ", "]),
)
def test_any_grid_of_cells_is_refused_or_read(tmp_path, rows, separator):
    file = tmp_path / "grid.csv"
    file.write_text("\n".join(separator.join(row) for row in rows))
    outcome(read_plain, file)


@SHARED
@given(
    values=arrays.arrays(
        dtype=st.one_of(arrays.scalar_dtypes(), arrays.unicode_string_dtypes(max_len=3)),
        shape=arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5),
    )
)
def test_any_array_is_refused_or_read(tmp_path, values):
    for file, save in ((tmp_path / "any.npy", np.save), (tmp_path / "any.npz", np.savez)):
        save(file, values)
        outcome(read_plain, file)
        outcome(find_stack, file)


@SHARED
@given(data=st.binary(max_size=300))
def test_any_bytes_are_refused_or_read(tmp_path, data):
    for name, reader in (("any.npz", read_plain), ("any.mat", read_plain), ("any.pconn.nii", read_cifti)):
        (tmp_path / name).write_bytes(data)
        outcome(reader, tmp_path / name)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=15,
)


@SHARED
@given(value=PLAIN, protocol=st.integers(2, 5))
def test_plain_values_come_out_of_a_pickle_as_they_went_in(value, protocol):
    assert read_inert(io.BytesIO(pickle.dumps(value, protocol=protocol))) == value


def test_words_are_missing_where_they_can_only_mean_that(tmp_path):
    file = tmp_path / "participants.csv"
    file.write_text("participant_id,diagnosis,age,note\nNA,None,NA,x\n02,ASD,None,NA\n03,None,7,n/a\n")
    table = read_participants(file).table
    assert table["participant_id"].tolist() == ["NA", "02", "03"]
    assert table["diagnosis"].tolist() == ["None", "ASD", "None"]
    assert table["age"].isna().tolist() == [True, True, False]
    assert table["age"].dtype.kind == "f"
    assert table["note"].isna().tolist() == [False, True, True]


def test_a_row_longer_than_the_header_is_refused_by_its_line(tmp_path):
    file = tmp_path / "participants.csv"
    file.write_text("participant_id,age,diagnosis\nsub-01,12,0,1\nsub-02,12,1,0\n")  # decimal commas
    with pytest.raises(BadInput, match="4 fields in line 2"):
        read_participants(file)
    file.write_text('participant_id,site,diagnosis,\nsub-01,"New York, NY",1,\nsub-02,B,0,\n')
    assert read_participants(file).table["diagnosis"].tolist() == [1, 0]


def test_two_columns_of_one_name_are_refused(tmp_path):
    file = tmp_path / "participants.tsv"
    file.write_text("participant_id\tage\t age\tdiagnosis\nsub-00\tx\t31.5\t0\n")
    with pytest.raises(BadInput, match="two columns named age"):
        read_participants(file)
    file.write_text("participant_id\tage\t\t\nsub-00\t31.5\t\t\n")  # columns without a name and content
    assert read_participants(file).table["age"].tolist() == [31.5]


def test_a_class_of_whole_numbers_does_not_cut_fractions_off(tmp_path):
    file = tmp_path / "sub-00.mat"
    savemat(file, {"series": series(0)})
    data = bytearray(file.read_bytes())
    assert data[144] == 6  # the class: double
    data[144] = 14  # int64
    file.write_bytes(data)
    with pytest.raises(BadInput, match="whole numbers"):
        read_plain(file)


def test_sites_and_ids_are_text_whatever_the_header_looks_like(tmp_path):
    file = tmp_path / "participants.csv"
    file.write_text("participant_id ,Site\n001,1\n002,\n003,NA\n")
    table = read_participants(file).table
    assert table["participant_id"].tolist() == ["001", "002", "003"]
    assert table["site"].tolist()[::2] == ["1", "NA"]
