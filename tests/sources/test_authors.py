"""The authors' dictionary is read; no pickle is ever run."""

from __future__ import annotations

import io
import os
import pickle
import struct

import numpy as np
import pytest
from source_files import authors_dictionary, edges, pearson, series

from bnt.errors import BadInput
from bnt.sources._authors import read_inert
from bnt.sources._ingest import import_cohort


def save_object(file, payload: bytes) -> None:
    """An .npy file with an object header and any pickle behind it, as numpy.save lays it out."""
    head = b"{'descr': '|O', 'fortran_order': False, 'shape': (), }".ljust(117) + b"\n"
    file.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + payload)


def test_labels_are_turned_and_matrices_kept(tmp_path):
    held = authors_dictionary()
    np.save(tmp_path / "abide.npy", held, allow_pickle=True)
    cohort = import_cohort(tmp_path / "abide.npy", tmp_path / "out")
    # docs/facts.md, Data: the file's label is 0 for autism; ours is 1 for ASD.
    assert cohort.labels("diagnosis").tolist() == [1, 0, 1, 0]
    assert cohort.levels["diagnosis"] == {"0": "control", "1": "ASD"}
    assert cohort.sites.tolist() == ["NYU", "PITT", "NYU", "PITT"]
    assert (cohort.kind, cohort.diagonal) == ("shrunk-z", 0.0)
    np.testing.assert_allclose(cohort.connectomes[2], edges(held["corr"][2]), atol=1e-6)
    np.testing.assert_allclose(cohort.timeseries[3], held["timeseires"][3].T, rtol=1e-6)


def test_another_kind_is_computed_from_the_series(tmp_path):
    np.save(tmp_path / "abide.npy", authors_dictionary(), allow_pickle=True)
    cohort = import_cohort(tmp_path / "abide.npy", tmp_path / "out", kind="pearson")
    np.testing.assert_allclose(cohort.connectomes[1], edges(pearson(series(1, 100))), atol=1e-5)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_protocol_numpy_has_used(protocol):
    held = authors_dictionary()
    held["site"] = held["site"].astype(object)
    held["corr"] = np.asfortranarray(held["corr"])
    held["label"] = held["label"].astype(">i4")
    held["extra"] = {"n": np.float64(3.5), "names": ["a", b"b", None, True, 2**70, -3]}
    read = read_inert(io.BytesIO(pickle.dumps(np.array(held, dtype=object), protocol=protocol)))
    np.testing.assert_array_equal(read["corr"], held["corr"])
    np.testing.assert_array_equal(read["label"], held["label"])
    assert read["site"] == held["site"].tolist()
    assert read["extra"] == held["extra"]


class Calls:
    """Pickles as a call of any function."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


ATTACKS = {
    "os.system": lambda p: pickle.dumps(Calls(os.system, f"touch {p}")),
    "eval": lambda p: pickle.dumps(Calls(eval, f"open({p!r}, 'w')")),
    "exec in a dictionary": lambda p: pickle.dumps({"corr": Calls(exec, f"open({p!r}, 'w')"), "label": [0]}),
    "open": lambda p: pickle.dumps(Calls(open, p, "w")),
    "getattr": lambda p: pickle.dumps(Calls(getattr, "x", "upper")),
    "numpy.load": lambda p: pickle.dumps(Calls(np.load, p, None, True)),
    "object array": lambda p: pickle.dumps(np.array([Calls(os.system, f"touch {p}")], dtype=object)),
    "dtype subclass": lambda p: pickle.dumps(Calls(np.dtype, {"names": ["a"], "formats": ["O"]})),
    "structured with objects": lambda p: pickle.dumps(np.zeros(2, dtype=[("a", "O"), ("b", "i4")])),
    "memmap": lambda p: pickle.dumps(Calls(np.memmap, p, "u1", "w+", 0, (4,))),
    "INST": lambda p: f"(S'touch {p}'\nios\nsystem\n.".encode(),
    "OBJ": lambda p: b"(cos\nsystem\n" + f"S'touch {p}'\no.".encode(),
    "GLOBAL protocol 0": lambda p: f"cos\nsystem\n(S'touch {p}'\ntR.".encode(),
    "NEWOBJ": lambda p: b"\x80\x02cbuiltins\nobject\n)\x81.",
    "EXT1": lambda p: b"\x80\x02\x82\x01.",
    "PERSID": lambda p: b"Psomething\n.",
    "dotted name": lambda p: b"\x80\x04\x8c\x05numpy\x8c\x10ndarray.__init__\x93.",
    "reconstruct a subclass": lambda p: (
        b"\x80\x02cnumpy._core.multiarray\n_reconstruct\ncnumpy\ndtype\nK\x00\x85C\x01b\x87R."
    ),
    "state on a name": lambda p: b"\x80\x02cnumpy\ndtype\nN}X\x01\x00\x00\x00aK\x01s\x86b.",
    "huge shape": lambda p: pickle.dumps(np.zeros(3)).replace(b"K\x03\x85", b"J\xff\xff\xff\x7f\x85"),
    "itself": lambda p: b"\x80\x02]q\x00h\x00a.",
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_pickle_that_wants_more_than_arrays_is_refused_and_not_run(tmp_path, attack):
    mark = tmp_path / "proof"
    save_object(tmp_path / "abide.npy", ATTACKS[attack](str(mark)))
    with pytest.raises(BadInput, match=r"abide\.npy") as caught:
        import_cohort(tmp_path / "abide.npy", tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["abide.npy"]


def test_a_bare_pickle_is_named_as_one(tmp_path):
    for name in ("a.npy", "a.npz"):
        (tmp_path / name).write_bytes(pickle.dumps({"corr": [1]}))
        with pytest.raises(BadInput, match="is a pickle"):
            import_cohort(tmp_path / name, tmp_path / "out")


def test_objects_inside_an_archive_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", series=np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(BadInput, match=r"a\.npz cannot be read"):
        import_cohort(tmp_path / "a.npz", tmp_path / "out")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": np.array([0, 1, 2, 1])}, "labels other than 0"),
        ({"label": np.array([0, 1])}, "2 labels"),
        ({"corr": np.zeros((4, 3, 2))}, "shape"),
        ({"site": np.array(["a"])}, "1 sites for 4"),
        ({"timeseires": np.zeros((4, 2, 9))}, "series of shape"),
    ],
)
def test_arrays_that_do_not_fit_each_other_are_refused(tmp_path, change, message):
    np.save(tmp_path / "abide.npy", authors_dictionary() | change, allow_pickle=True)
    with pytest.raises(BadInput, match=message):
        import_cohort(tmp_path / "abide.npy", tmp_path / "out")
