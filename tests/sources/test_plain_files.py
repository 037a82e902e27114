"""Plain files, stacks and CIFTI: what counts as a series, what as a matrix, and whose it is."""

from __future__ import annotations

import gzip

import numpy as np
import pandas as pd
import pytest
from scipy.io import loadmat, savemat
from source_files import (
    LABELS,
    edges,
    pearson,
    put,
    series,
    write_1d,
    write_participants,
    write_pconn,
    write_ptseries,
)

from bnt.errors import BadInput
from bnt.sources._ingest import import_cohort, read_cohort
from bnt.sources._scan import content_of


def write(file, values):
    put(file)
    kind = file.name.split(".", 1)[1]
    if kind == "npy":
        np.save(file, values)
    elif kind == "npz":
        np.savez(file, values)
    elif kind == "mat":
        savemat(file, {"ROISignals": values})
    elif kind == "csv":
        np.savetxt(file, values, delimiter=",", header=",".join(LABELS), comments="")
    elif kind == "tsv.gz":
        file.write_bytes(gzip.compress("\n".join("\t".join(map(repr, map(float, r))) for r in values).encode()))
    elif kind == "tsv":
        np.savetxt(file, values, delimiter="\t")
    elif kind == "txt":
        np.savetxt(file, values)
    else:
        write_1d(file, values)
    return file


@pytest.mark.parametrize("extension", ["1D", "tsv", "tsv.gz", "csv", "txt", "npy", "npz", "mat"])
@pytest.mark.parametrize("square", [False, True])
def test_a_folder_of_files_tells_series_from_matrices(tmp_path, extension, square):
    for i, name in enumerate(("anna_connectome", "bert_connectome")):
        write(tmp_path / "in" / f"{name}.{extension}", pearson(series(i)) if square else series(i))
    cohort = import_cohort(tmp_path / "in", tmp_path / "out")
    assert cohort.ids.tolist() == ["anna", "bert"]
    assert (cohort.timeseries is None) == square
    np.testing.assert_allclose(cohort.connectomes[1], edges(pearson(series(1))), atol=1e-5)


def test_one_file_is_one_scan(tmp_path):
    write(tmp_path / "sub-07.csv", series(3))
    cohort = import_cohort(tmp_path / "sub-07.csv", tmp_path / "out")
    assert cohort.ids.tolist() == ["sub-07"]
    assert cohort.rois["label"].tolist() == LABELS


def test_read_in_memory_equals_the_import_and_writes_nothing(tmp_path):
    for name, seed in (("sub-01_run-1", 1), ("sub-01_run-2", 2), ("sub-02_run-1", 1)):
        write(tmp_path / "in" / f"{name}.csv", series(seed))
    before = sorted(tmp_path.rglob("*"))
    read = read_cohort(tmp_path / "in", kind="fisher-z", runs="separate")
    assert sorted(tmp_path.rglob("*")) == before
    stored = import_cohort(tmp_path / "in", tmp_path / "out", kind="fisher-z", runs="separate")
    assert read.connectomes.tobytes() == stored.connectomes.tobytes()
    assert [one.tobytes() for one in read.timeseries] == [one.tobytes() for one in stored.timeseries]
    assert (read.kind, read.diagonal, read.source) == (stored.kind, stored.diagonal, stored.source)
    pd.testing.assert_frame_equal(read.participants, stored.participants, check_dtype=False)
    pd.testing.assert_frame_equal(read.rois, stored.rois)
    alike = read_cohort(tmp_path / "in", like=stored)  # kind and runs as in the cohort made before
    assert alike.scans.tolist() == read.scans.tolist() == stored.scans.tolist()
    assert read_cohort(tmp_path / "in", like=tmp_path / "out", kind="pearson", runs="first").shape == (2, 15)


def test_a_folder_per_participant_names_them(tmp_path):
    for i in (1, 2):
        write(tmp_path / "in" / f"sub-0{i}" / "timeseries.npy", series(i))
    assert import_cohort(tmp_path / "in", tmp_path / "out").ids.tolist() == ["sub-01", "sub-02"]


def test_square_series_can_be_forced(tmp_path):
    x = pearson(series(1))
    write(tmp_path / "in" / "a.npy", x)
    cohort = import_cohort(tmp_path / "in", tmp_path / "out", content="series", min_volumes=3)
    np.testing.assert_allclose(cohort.timeseries[0], x, rtol=1e-6)


def test_square_array_with_unit_diagonal_is_a_matrix_even_if_not_symmetric(tmp_path):
    m = pearson(series(1))
    m[0, 1] += 0.2
    assert content_of(m, tmp_path / "x").matrix is not None
    assert content_of(series(1, 6), tmp_path / "x").series is not None


@pytest.mark.parametrize("extension", ["npy", "npz", "mat"])
def test_a_stack_of_matrices_takes_ids_from_the_rows_of_the_table(tmp_path, extension):
    stack = np.stack([pearson(series(i)) for i in range(3)])
    write(tmp_path / f"all.{extension}", stack)
    write_participants(tmp_path / "p.tsv", participant_id=["c", "a", "b"], sex=["F", "M", "F"])
    cohort = import_cohort(tmp_path / f"all.{extension}", tmp_path / "out", participants=tmp_path / "p.tsv")
    assert cohort.ids.tolist() == ["c", "a", "b"]
    np.testing.assert_allclose(cohort.connectomes[2], edges(stack[2]), atol=1e-6)


def test_a_stack_of_series_takes_ids_from_the_archive(tmp_path):
    stack = np.stack([series(i) for i in range(3)])
    np.savez(tmp_path / "all.npz", timeseries=stack, ids=np.array(["x", "y", "z"]), roi_labels=np.array(LABELS))
    write_participants(tmp_path / "p.tsv", participant_id=["z", "y", "x"], sex=["F", "M", "M"])
    cohort = import_cohort(tmp_path / "all.npz", tmp_path / "out", participants=tmp_path / "p.tsv")
    assert cohort.ids.tolist() == ["x", "y", "z"]
    assert cohort.labels("sex").tolist() == ["M", "M", "F"]
    assert cohort.rois["label"].tolist() == LABELS
    np.testing.assert_allclose(cohort.timeseries[1], stack[1], rtol=1e-6)


def test_names_in_an_archive_are_not_passed_over(tmp_path):
    stack, names = np.stack([series(s) for s in range(3)]), np.array(["z", "y", "x"])
    write_participants(tmp_path / "p.tsv", participant_id=["x", "y", "z"], sex=["F", "M", "F"])
    np.savez(tmp_path / "a.npz", timeseries=stack, subject_id=names)
    assert import_cohort(tmp_path / "a.npz", tmp_path / "a", participants=tmp_path / "p.tsv").ids.tolist() == [*"zyx"]
    np.savez(tmp_path / "b.npz", timeseries=stack, who=names)
    with pytest.raises(BadInput, match="3 different words in 'who': call it ids if they name the scans"):
        import_cohort(tmp_path / "b.npz", tmp_path / "b", participants=tmp_path / "p.tsv")


def test_one_participant_under_two_names_is_refused(tmp_path):
    for i, name in enumerate(["sub-01", "01"]):
        np.save(put(tmp_path / "in" / f"{name}.npy"), series(i))
    with pytest.raises(BadInput, match="are of one participant under two names"):
        import_cohort(tmp_path / "in", tmp_path / "out")


def test_matlab_stack_with_subjects_last(tmp_path):
    stack = np.stack([pearson(series(i)) for i in range(3)], axis=2)  # (V, V, n)
    savemat(tmp_path / "all.mat", {"Z": stack, "ids": np.array(["s1", "s2", "s3"], dtype=object)})
    cohort = import_cohort(tmp_path / "all.mat", tmp_path / "out")
    assert cohort.ids.tolist() == ["s1", "s2", "s3"]
    np.testing.assert_allclose(cohort.connectomes[2], edges(stack[:, :, 2]), atol=1e-6)


def test_a_stack_and_a_table_of_other_length_are_refused(tmp_path):
    write(tmp_path / "all.npy", np.stack([series(i) for i in range(3)]))
    write_participants(tmp_path / "p.tsv", participant_id=["a", "b"])
    with pytest.raises(BadInput, match="holds 3 scans without ids and .* lists 2 participants"):
        import_cohort(tmp_path / "all.npy", tmp_path / "out", participants=tmp_path / "p.tsv")


def test_several_arrays_need_a_choice(tmp_path):
    np.savez(tmp_path / "a.npz", one=series(1), two=series(2))
    with pytest.raises(BadInput, match="variable"):
        import_cohort(tmp_path / "a.npz", tmp_path / "out")
    cohort = import_cohort(tmp_path / "a.npz", tmp_path / "out", variable="two")
    np.testing.assert_allclose(cohort.timeseries[0], series(2), rtol=1e-6)


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("dtype", ["f8", "f4", "i1", "u2", "i4", "u8"])
def test_matlab_numbers_and_texts_are_those_scipy_reads(tmp_path, dtype, compressed):
    from bnt.sources._number_files import read_variables

    held = {
        "numbers": np.arange(24).reshape(2, 3, 4).astype(dtype),
        "small": np.arange(2).reshape(1, 2).astype(dtype),
        "text": "one",
        "lines": np.array(["one", "two"]),
        "cells": np.array(["a", "bcd"], dtype=object),
        "passed_over": {"field": 1.0},
    }
    savemat(tmp_path / "a.mat", held, do_compression=compressed)
    file = tmp_path / "a.mat"
    read, oracle = read_variables(file.read_bytes(), file), loadmat(file)
    for name in ("numbers", "small"):
        np.testing.assert_array_equal(read[name], oracle[name])
        assert read[name].dtype == oracle[name].dtype
    assert read["text"].tolist() == oracle["text"].tolist()
    assert read["lines"].tolist() == oracle["lines"].tolist()
    assert read["cells"].tolist() == [cell[0] for cell in oracle["cells"].ravel()]
    assert "passed_over" not in read


@pytest.mark.parametrize("head", [b"MATLAB 7.3 MAT-file, Platform: GLNXA64", b"\x89HDF\r\n\x1a\n"])
def test_matlab_73_is_refused_with_the_way_out(tmp_path, head):
    (tmp_path / "a.mat").write_bytes(head.ljust(2000, b" "))
    with pytest.raises(BadInput, match=r"MATLAB 7.3 .*'-v7'"):
        import_cohort(tmp_path / "a.mat", tmp_path / "out")


def test_cifti_series_and_connectomes_name_their_parcels(tmp_path):
    for i in (1, 2):
        stem = tmp_path / "in" / f"sub-0{i}" / "func" / f"sub-0{i}_task-rest_space-fsLR_seg-Gordon_den-91k_stat"
        write_ptseries(stem.with_name(stem.name + "-mean_timeseries.ptseries.nii"), series(i))
        write_pconn(stem.with_name(stem.name + "-pearsoncorrelation_boldmap.pconn.nii"), pearson(series(i + 5)))
    cohort = import_cohort(tmp_path / "in", tmp_path / "a")
    assert cohort.ids.tolist() == ["sub-01", "sub-02"]
    assert cohort.rois["label"].tolist() == LABELS
    np.testing.assert_allclose(cohort.connectomes[1], edges(pearson(series(2))), atol=1e-4)
    matrices = import_cohort(tmp_path / "in", tmp_path / "b", content="matrix")
    np.testing.assert_allclose(matrices.connectomes[1], edges(pearson(series(7))), atol=1e-6)


def test_cifti_parcels_in_another_order_are_refused(tmp_path):
    write_ptseries(tmp_path / "in" / "sub-01.ptseries.nii", series(1))
    write_ptseries(tmp_path / "in" / "sub-02.ptseries.nii", series(2), LABELS[::-1])
    with pytest.raises(BadInput, match=r"sub-02 .* has 'LH_Vis_6' as ROI 1, sub-01 .* has 'LH_Vis_1'"):
        import_cohort(tmp_path / "in", tmp_path / "out")


def test_numbered_header_is_a_header_and_integers_are_data(tmp_path):
    (tmp_path / "a.csv").write_text("1,2,3\n" + "\n".join("0.5,1.5,-2.5" for _ in range(5)))
    (tmp_path / "b.csv").write_text("\n".join(f"{i},{i * i},{i + 3}" for i in range(6)))
    from bnt.sources._number_files import read_table

    assert read_table(tmp_path / "a.csv").columns == ("1", "2", "3")
    assert read_table(tmp_path / "b.csv").values.shape == (6, 3)
