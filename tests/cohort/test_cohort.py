"""Cohorts: views that copy nothing, stores that appear whole or not at all, errors that say what to do."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal

import numpy as np
import pandas as pd
import pytest

from bnt import simulate_cohort
from bnt.cohort import Cohort, CohortWriter, flat, load_cohort
from bnt.cohort._store import changed_files, file_sha256
from bnt.errors import BadInput
from bnt.splits import check_split

N, V = 12, 6


@pytest.fixture
def cohort() -> Cohort:
    rng = np.random.default_rng(0)
    series = [rng.normal(size=(20 + i, V)).astype(np.float32) for i in range(N)]
    matrices = np.stack([np.corrcoef(s.T) for s in series]).astype(np.float32)
    table = pd.DataFrame(
        {
            "participant_id": [f"00{i:02d}" for i in range(N)],  # leading zeros must survive
            "site": ["1", "2"] * (N // 2),
            "diagnosis": np.arange(N) % 3 % 2,
            "sex": ["F", "M", "M"] * (N // 3),
            "fiq": [100.5, np.nan] * (N // 2),
        }
    )
    rois = pd.DataFrame({"roi": range(1, V + 1), "network": ["Visual"] * 3 + ["Default"] * 3, "x": np.arange(V) * 1.5})
    return Cohort(
        matrices,
        table,
        rois,
        timeseries=series,
        atlas="toy",
        source={"name": "test"},
        levels={"diagnosis": {"0": "control", "1": "ASD"}},
    )


def test_saved_cohort_opens_equal(cohort, tmp_path):
    opened = cohort.save(tmp_path / "c")
    assert np.array_equal(opened.connectomes, cohort.connectomes)
    assert isinstance(opened.connectomes, np.memmap)
    for a, b in zip(opened.timeseries, cohort.timeseries):
        assert np.array_equal(a, b)
    pd.testing.assert_frame_equal(opened.participants, cohort.participants, check_dtype=False)
    pd.testing.assert_frame_equal(opened.rois, cohort.rois, check_dtype=False)
    assert (opened.atlas, opened.levels, opened.source, opened.kind) == (
        cohort.atlas,
        cohort.levels,
        cohort.source,
        cohort.kind,
    )
    assert opened.ids[0] == "0000"


def test_manifest_holds_the_sha256_of_every_file(cohort, tmp_path):
    cohort.save(tmp_path / "c")
    manifest = json.loads((tmp_path / "c" / "cohort.json").read_text())
    files = {f.name for f in (tmp_path / "c").iterdir()} - {"cohort.json", ".times.json"}
    assert files == {"connectomes.npy", "timeseries.npy", "participants.tsv", "rois.tsv", "scans.tsv"}
    assert manifest["sha256"] == {name: file_sha256(tmp_path / "c" / name) for name in files}
    assert manifest["edge_order"] == "upper triangle, column by column"


def test_same_cohort_same_bytes(cohort, tmp_path):
    for name in ("a", "b"):
        cohort.save(tmp_path / name)
    assert (tmp_path / "a" / "cohort.json").read_bytes() == (tmp_path / "b" / "cohort.json").read_bytes()


def test_numpy_alone_reads_the_arrays(cohort, tmp_path):
    cohort.save(tmp_path / "c")
    assert np.array_equal(np.load(tmp_path / "c" / "connectomes.npy", allow_pickle=False), cohort.connectomes)
    assert np.load(tmp_path / "c" / "timeseries.npy", allow_pickle=False).shape == (sum(20 + i for i in range(N)), V)


def test_selection_is_a_view(cohort, tmp_path):
    opened = cohort.save(tmp_path / "c")
    view = opened.where(site="2").select([3, 0])
    assert view._edges is opened._edges
    assert view.ids.tolist() == ["0007", "0001"]
    assert np.array_equal(view.connectomes, cohort.connectomes[[7, 1]])
    assert np.shares_memory(view.timeseries[0], opened.timeseries[7])
    assert np.array_equal(view.batch([0, 1]).numpy(), cohort.batch([7, 1]).numpy())
    assert len(opened.select(np.zeros(N, bool))) == 0


def test_views_by_mask_id_label_and_missing_values(cohort):
    assert len(cohort.where(diagnosis=1, sex=["F", "M"])) == 4
    assert cohort.select(["0003", "0001"]).ids.tolist() == ["0003", "0001"]
    assert len(cohort.having("fiq")) == N // 2
    assert cohort.select([-1]).ids[0] == f"00{N - 1}"
    with pytest.raises(BadInput, match="no participant 'nobody'"):
        cohort.select(["nobody"])
    with pytest.raises(BadInput, match="no column 'dx'"):
        cohort.where(dx=1)
    with pytest.raises(BadInput, match="12"):
        cohort.select([N])


def test_labels_come_as_arrays_and_missing_ones_are_named(cohort):
    assert cohort.labels("diagnosis").tolist() == (np.arange(N) % 3 % 2).tolist()
    assert cohort.labels("sex").dtype.kind == "U"
    with pytest.raises(BadInput, match="missing for 6 of 12 subjects .the first is 0001"):
        cohort.labels("fiq")
    with pytest.raises(BadInput, match="diagnosis, sex, fiq"):
        cohort.labels("age")


def test_square_batches_have_the_diagonal_of_the_kind(cohort):
    assert np.array_equal(np.diagonal(cohort.square([0, 5]), axis1=1, axis2=2), np.ones((2, V)))
    zero = Cohort(cohort.connectomes, cohort.participants, kind="released", diagonal=0.0)
    assert zero.batch([0]).diagonal(dim1=1, dim2=2).abs().max() == 0


def test_float16_store_rounds_a_correlation_by_at_most_2_to_the_minus_12(cohort, tmp_path):
    half = cohort.save(tmp_path / "half", dtype="float16")
    error = np.abs(half.edges(np.arange(N)) - cohort.connectomes).max()
    assert 0 < error <= 2.0**-12
    assert half.edges([0]).dtype == np.float32


def test_identical_scans_have_the_same_digest_and_others_do_not(cohort):
    twice = Cohort(
        np.concatenate([cohort.connectomes, cohort.connectomes[:1]]),
        pd.DataFrame({"participant_id": [str(i) for i in range(N + 1)]}),
    )
    assert twice.scans[0] == twice.scans[N]
    assert len(set(twice.scans)) == N


def test_writer_streams_in_pieces_to_the_same_bytes(cohort, tmp_path):
    cohort.save(tmp_path / "whole")
    with CohortWriter(tmp_path / "pieces", V) as writer:
        for i in range(N):
            writer.append(cohort.connectomes[i : i + 1], [cohort.timeseries[i]])
        writer.finish(cohort.participants, cohort.rois, atlas="toy", source=cohort.source, levels=cohort.levels)
    for name in ("connectomes.npy", "timeseries.npy", "participants.tsv", "rois.tsv"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "pieces" / name).read_bytes()


def test_an_exception_while_writing_leaves_nothing(cohort, tmp_path):
    with pytest.raises(BadInput, match="do not fit 6 ROIs"), CohortWriter(tmp_path / "c", V) as writer:
        writer.append(cohort.connectomes[:, :3])
    with pytest.raises(RuntimeError, match="finish"), CohortWriter(tmp_path / "c", V) as writer:
        writer.append(cohort.connectomes)
    assert list(tmp_path.iterdir()) == []


def _write_and_die(cohort, path, at):
    original, calls = os.fsync, [0]

    def deadly(handle):
        calls[0] += 1
        if calls[0] == at:
            os.kill(os.getpid(), signal.SIGKILL)
        original(handle)

    os.fsync = deadly
    cohort.save(path, overwrite=True)


@pytest.mark.parametrize("at", [1, 3, 5])
def test_kill_9_while_writing_never_shows_a_half_cohort(cohort, tmp_path, at):
    old = cohort.select(np.arange(5)).save(tmp_path / "c")
    child = multiprocessing.get_context("fork").Process(target=_write_and_die, args=(cohort, tmp_path / "c", at))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    assert len(load_cohort(tmp_path / "c")) == len(old)
    assert changed_files(tmp_path / "c") == []


def test_existing_folders_are_not_overwritten_unasked(cohort, tmp_path):
    cohort.save(tmp_path / "c")
    with pytest.raises(BadInput, match="overwrite"):
        cohort.save(tmp_path / "c")
    assert len(cohort.select([0, 1]).save(tmp_path / "c", overwrite=True)) == 2
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    with pytest.raises(BadInput, match="not ours to overwrite"):
        cohort.save(tmp_path / "mine", overwrite=True)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "precious"


def test_changed_bytes_are_noticed(cohort, tmp_path):
    cohort.save(tmp_path / "c")
    assert changed_files(tmp_path / "c") == []
    with open(tmp_path / "c" / "connectomes.npy", "rb+") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\x7f")
    assert changed_files(tmp_path / "c") == ["connectomes.npy"]


def spoil(path, name):
    file = path / name
    if name == "pickle":
        np.save(path / "connectomes.npy", np.array([{}], dtype=object), allow_pickle=True)
    elif name == "truncated":
        data = (path / "connectomes.npy").read_bytes()
        (path / "connectomes.npy").write_bytes(data[: len(data) // 2])
    elif name == "shape":
        np.save(path / "connectomes.npy", np.zeros((N, 3), np.float32))
    elif name == "json":
        (path / "cohort.json").write_text("{")
    elif name == "format":
        (path / "cohort.json").write_text((path / "cohort.json").read_text().replace('"format": 1', '"format": 99'))
    elif name == "elsewhere":
        (path.parent / "rois.tsv").write_text("roi\n")
        (path / "cohort.json").write_text((path / "cohort.json").read_text().replace('"rois.tsv"', '"../rois.tsv"'))
    elif name == "table":
        (path / "participants.tsv").write_text("participant_id\nonly_one\n")
    elif name == "series":
        np.save(path / "timeseries.npy", np.zeros((3, V), np.float32))
    else:
        file.unlink()


@pytest.mark.parametrize(
    "how",
    [
        "pickle",
        "truncated",
        "shape",
        "json",
        "format",
        "elsewhere",
        "table",
        "series",
        "rois.tsv",
        "connectomes.npy",
        "cohort.json",
    ],
)
def test_damaged_cohorts_get_one_sentence_that_names_the_folder(cohort, tmp_path, how):
    cohort.save(tmp_path / "c")
    spoil(tmp_path / "c", how)
    with pytest.raises(BadInput) as caught:
        load_cohort(tmp_path / "c")
    message = str(caught.value)
    assert str(tmp_path / "c") in message
    assert "\n" not in message


def test_wrong_shapes_and_tables_are_refused(cohort):
    table = cohort.participants
    with pytest.raises(BadInput, match="12 connectomes and 3 rows"):
        Cohort(cohort.connectomes, table[:3])
    with pytest.raises(BadInput, match="listed twice"):
        Cohort(cohort.connectomes[:2], pd.DataFrame({"participant_id": ["a", "a"]}))
    with pytest.raises(BadInput, match="no participant_id"):
        Cohort(cohort.connectomes[:2], pd.DataFrame({"subject": ["a", "b"]}))
    with pytest.raises(BadInput, match="ROI table has 2 rows"):
        Cohort(cohort.connectomes, table, pd.DataFrame({"roi": [1, 2]}))


def test_squares_are_folded_when_given(cohort):
    squares = cohort.square(np.arange(N))
    assert np.array_equal(Cohort(squares, cohort.participants).connectomes, flat(squares))


def test_scikit_learn_can_index_a_cohort(cohort):
    from sklearn.model_selection import KFold
    from sklearn.utils import _safe_indexing

    assert cohort.shape == cohort.connectomes.shape
    train, _ = next(KFold(3).split(cohort))
    assert _safe_indexing(cohort, train).ids.tolist() == cohort.ids[train].tolist()


def test_connectomes_beside_an_old_table_have_digests_of_their_own():
    old = simulate_cohort(n_subjects=8, n_rois=14, n_sites=1, seed=0)
    other = Cohort(old.connectomes[::-1].copy(), old.participants)
    assert other.scans.tolist() == old.scans.tolist()[::-1]
    twins = old.connectomes.copy()
    twins[5] = twins[0]
    with pytest.raises(BadInput, match="same scan|identical|twice|scan"):
        check_split(Cohort(twins, old.participants), np.array([0, 1, 2]), np.array([3]), np.array([4, 5]))


def test_a_table_that_a_terminal_would_obey_is_refused(cohort, tmp_path):
    cohort.save(tmp_path / "c")
    table = tmp_path / "c" / "participants.tsv"
    table.write_text(table.read_text().replace("\n", "\n\x1b[2J", 1))
    with pytest.raises(BadInput, match=r"participants.tsv has a control character \(code 27\) in line 2: remove it."):
        load_cohort(tmp_path / "c")


def test_words_that_pandas_takes_for_nothing_are_kept(tmp_path):
    old = simulate_cohort(n_subjects=8, n_rois=14, n_sites=1, seed=0)
    table = old.participants.assign(
        diagnosis=["None", "ASD"] * 4, site=["NA", "B"] * 4, family=["NULL", "NULL", *"cdefgh"], age=[np.nan, *range(7)]
    )
    Cohort(old.connectomes, table).save(tmp_path / "cohort")
    again = load_cohort(tmp_path / "cohort")
    assert again.participants["diagnosis"].tolist() == table["diagnosis"].tolist()
    assert again.sites.tolist() == table["site"].tolist()
    assert again.families.tolist()[:2] == ["NULL", "NULL"]
    assert np.isnan(again.participants["age"][0])
    assert again.participants["age"].dtype.kind == "f"


@pytest.mark.parametrize(("width", "n", "said"), [(15, 8, r"shape \(20, 15\)"), (14, 7, "7 series and 8")])
def test_series_of_other_rois_or_people_are_refused(width, n, said):
    old = simulate_cohort(n_subjects=8, n_rois=14, n_sites=1, seed=0)
    with pytest.raises(BadInput, match=said):
        Cohort(old.connectomes, old.participants, timeseries=[np.zeros((20, width))] * n)


def test_matrices_are_symmetric_and_finite_in_both_halves():
    old = simulate_cohort(n_subjects=4, n_rois=14, n_sites=1, seed=0)
    matrices = np.stack([old.square([i])[0] for i in range(4)])
    for at, value, said in (((1, 2, 5), np.nan, "Matrix 1 of connectomes contains NaN"), ((2, 0, 3), 5.0, "symmetric")):
        broken = matrices.copy()
        broken[at] = value
        with pytest.raises(BadInput, match=said):
            Cohort(broken, old.participants)
    matrices[:, range(14), range(14)] = np.inf  # arctanh(1): the diagonal is not read
    np.testing.assert_array_equal(Cohort(matrices, old.participants).connectomes, old.connectomes)


def test_cohorts_of_version_0_1_open_under_the_names_of_today(cohort, tmp_path):
    folder = cohort.save(tmp_path / "c").path
    manifest = json.loads((folder / "cohort.json").read_text())
    for old, now in (("paper", "pearson"), ("released", "shrunk-z"), ("partial", "partial")):
        (folder / "cohort.json").write_text(json.dumps(manifest | {"kind": old}))
        assert load_cohort(folder).kind == now
    assert load_cohort(folder).select([0]).save(tmp_path / "d").kind == "partial"


def test_a_link_in_place_of_the_temporary_file_is_not_written_through(tmp_path):
    """A folder from elsewhere may hold ``report.html.tmp`` as a link to a file of the user's."""
    from bnt.cohort._files import write_atomic

    mine = tmp_path / "mine.txt"
    mine.write_text("kept")
    (tmp_path / "page.html.tmp").symlink_to(mine)
    write_atomic(tmp_path / "page.html", "new")
    assert mine.read_text() == "kept"
    assert (tmp_path / "page.html").read_text() == "new"
